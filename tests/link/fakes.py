"""A transport and a source without any process behind them, for what real ones rarely do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from backends.agent.client import NotificationHandler
from backends.errors import AgentError, RequestTimeout
from backends.link.base import Channel, Prompter, Transport


async def until(condition: Callable[[], object], what: str = "", timeout_s: float = 30.0) -> None:
    """Wait for a condition to become true; fails after a generous deadline."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - any state may be waited for
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited in vain for {what or condition}") from None


class FakeTransport:
    """Connects as its script says: an exception is raised, None means connected."""

    kind = "fake"

    def __init__(self, *outcomes: BaseException | None) -> None:
        self.outcomes = list(outcomes)
        self.connects = 0
        self.lost: asyncio.Future[str] | None = None
        self.hang_on_close = False

    def reach(self, prompter: Prompter) -> Transport:
        return self

    async def connect(self) -> None:
        self.connects += 1
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome
        self.lost = asyncio.get_running_loop().create_future()

    async def open(self, argv: Sequence[str]) -> Channel:
        raise NotImplementedError

    async def closed(self) -> str:
        assert self.lost is not None
        return await asyncio.shield(self.lost)

    async def close(self) -> None:
        if self.hang_on_close:
            await asyncio.sleep(3600)

    def cut(self, why: str = "cable pulled") -> None:
        assert self.lost is not None
        self.lost.set_result(why)


HELLO: Mapping[str, object] = {
    "python": "3.11.0",
    "pid": 1,
    "user": "me",
    "hostname": "gpu01",
    "boot_id": "b1",
    "has_psutil": False,
    "nvml_version": None,
    "methods": ["ping"],
    "columns": {"fast": {"g": ["power_w"], "h": ["cpu_pct"]}},
}


class FakeSource:
    """Says what a test makes it say."""

    via = "agent"

    def __init__(self, take: NotificationHandler) -> None:
        self.take = take
        self.over = asyncio.Event()
        self.why = ""
        self.asked: list[tuple[str, Mapping[str, object]]] = []
        self.answers = True
        self.answer: object = {}
        self._ticks = 0

    async def start(self, timeout_s: float) -> None:
        self.take("hello", HELLO)

    def sample(self) -> None:
        self._ticks += 1
        self.take("fast", {"t": self._ticks * 10**9, "g": [], "h": [12.5]})

    async def request(
        self, method: str, params: Mapping[str, object] | None = None, timeout_s: float = 10.0
    ) -> object:
        self.asked.append((method, params or {}))
        if not self.answers:
            await asyncio.sleep(0.01)
            raise RequestTimeout(f"no answer to {method}")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def end(self, why: str) -> None:
        self.why = why
        self.over.set()

    async def closed(self) -> str:
        await self.over.wait()
        return self.why

    async def close(self) -> None:
        self.over.set()


class FakeHost:
    """Starts `FakeSource`s; the newest is `source`."""

    def __init__(self, *outcomes: AgentError | None) -> None:
        self.outcomes = list(outcomes)
        self.sources: list[FakeSource] = []
        self.intervals: list[float] = []

    async def start(
        self, transport: Transport, take: NotificationHandler, interval_s: float
    ) -> FakeSource:
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome
        self.intervals.append(interval_s)
        source = FakeSource(take)
        await source.start(1.0)
        self.sources.append(source)
        return source

    @property
    def source(self) -> FakeSource:
        return self.sources[-1]
