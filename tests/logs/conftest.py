"""A real agent on this machine, as a host whose logs can be read."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path

import pytest_asyncio

from backends.agent.client import AgentClient
from backends.link.local import LocalTransport
from backends.model import HostSnapshot
from backends.sim import nvml
from tests.ui.fakes import snapshot

NVML_SOURCE = Path(nvml.__file__).read_text(encoding="utf-8")


class RealHost:
    """An agent that can be cut off and comes back."""

    name = "here"

    def __init__(self) -> None:
        self.client: AgentClient | None = None
        self.asked: list[str] = []

    async def connect(self) -> None:
        await self.cut()
        self.client = AgentClient(
            LocalTransport(),
            python=sys.executable,
            on_notification=lambda method, params: None,
            pynvml_source=NVML_SOURCE,
        )
        await self.client.start(40.0)

    async def cut(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            await client.close()

    @property
    def snapshot(self) -> HostSnapshot:
        return snapshot(self.name, ())

    def _there(self) -> AgentClient:
        from backends.errors import LinkError

        if self.client is None:
            raise LinkError("there is no link")
        return self.client

    async def request(
        self, method: str, params: Mapping[str, object] | None = None, *, asked_by: str,
        what: str, changes_host: bool = False, timeout_s: float = 10.0,
    ) -> object:  # fmt: skip
        self.asked.append(method)
        return await self._there().request(method, params, timeout_s=40.0)

    async def stream(
        self, method: str, params: Mapping[str, object] | None = None, *, asked_by: str,
        what: str, changes_host: bool = False, timeout_s: float = 10.0,
    ) -> AsyncGenerator[object, None]:  # fmt: skip
        pieces = self._there().stream(method, params, timeout_s=40.0)
        assert isinstance(pieces, AsyncGenerator)
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                yield piece


@pytest_asyncio.fixture
async def host() -> AsyncIterator[RealHost]:
    found = RealHost()
    await found.connect()
    yield found
    await found.cut()
