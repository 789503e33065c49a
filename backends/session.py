"""One host of the room: its newest values, its history, and what may be asked of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol, runtime_checkable

from backends.agent.client import NotificationHandler, Source
from backends.agent.loader import agent_argv
from backends.agent.remote import mask
from backends.alerts import alerts
from backends.clock import Clock
from backends.config import HostConfig
from backends.errors import AgentError, LinkError, ReadOnlyError, RoomError
from backends.events import HostEvent, changes
from backends.feeds import LEFT, Journal, JournalEntry, on_whose_behalf
from backends.lifeline import Lifeline, Reach, StartSource
from backends.link.base import Channel, Forward, Forwards, Prompter, Transport
from backends.model import Alert, HostSnapshot
from backends.telemetry.decode import Telemetry
from backends.telemetry.history import History
from backends.text import clean

ROOM: Final = "room"
"""Who asked, where nobody pressed a key."""

_SECRET: Final = re.compile(
    r"token|passw|passphrase|secret|api_?key|credential|authorization", re.IGNORECASE
)
_MAX_REQUEST_CHARS: Final = 2000


@runtime_checkable
class Streams(Protocol):
    """A source that can also answer in pieces: the agent can, a streamed `nvidia-smi` can't."""

    def stream(
        self, method: str, params: Mapping[str, object] | None = None, *, timeout_s: float = 10.0
    ) -> AsyncGenerator[object, None]:
        """The pieces of the answer."""
        ...


class HostSession:
    """One host. Made and owned by `backends.hub.RoomHub`.

    Attributes:
        config: What the configuration says of it.
    """

    def __init__(
        self,
        config: HostConfig,
        *,
        interval_s: float,
        pcie: bool,
        reach: Reach,
        start: StartSource,
        prompter: Prompter,
        clock: Clock,
        journal: Journal,
        report: Callable[[HostEvent], None],
        notice: Callable[[Alert], None],
        read_only: bool,
    ) -> None:
        self.config = config
        self._report = report
        self._notice = notice
        self._clock = clock
        self._journal = journal
        self._read_only = read_only or config.production
        self._locks = 0
        self._pcie = pcie
        self._telemetry = Telemetry(config.name, clock)
        self._start = start
        self._snapshot: HostSnapshot | None = None
        self._looked_at: HostSnapshot | None = None
        self._look_is_due = False
        self._lifeline = Lifeline(
            config.name,
            reach,
            self._start_source,
            prompter,
            self._telemetry,
            clock,
            report,
            self._changed,
            config.interval_s or interval_s,
        )

    @property
    def name(self) -> str:
        """Its name in the room."""
        return self.config.name

    @property
    def version(self) -> int:
        """Grows with every change of anything that can be seen of the host."""
        return self._telemetry.version + self._lifeline.version + self._locks

    @property
    def snapshot(self) -> HostSnapshot:
        """All that is known now; the same object until something changes."""
        version = self.version
        if self._snapshot is None or self._snapshot.version != version:
            lifeline = self._lifeline
            self._snapshot = self._telemetry.snapshot(lifeline.link, lifeline.interval_s, version)
        return self._snapshot

    @property
    def history(self) -> History:
        """The past of its readings."""
        return self._telemetry.history

    @property
    def read_only(self) -> bool:
        """Whether changes are refused."""
        return self._read_only

    def unlock(self, *, asked_by: str = ROOM) -> None:
        """Allow changes, until `lock`."""
        self._lock(False, "unlock", asked_by)

    def lock(self) -> None:
        """Refuse changes."""
        self._lock(True, "lock", ROOM)

    def _lock(self, locked: bool, what: str, asked_by: str) -> None:
        if locked is not self._read_only:
            self._read_only = locked
            self._locks += 1
            at = self._clock.utc()
            self._write_down(asked_by, f"{what} the host", what, False, "ok", at, None)

    async def run(self) -> None:
        """Live until cancelled."""
        await self._lifeline.run()

    def retry_now(self) -> None:
        """Try the link at once, also after a refusal."""
        self._lifeline.retry_now()

    async def set_interval(self, seconds: float, *, asked_by: str = ROOM) -> float:
        """Ask for samples every `seconds`, now and after every reconnect.

        Args:
            seconds: Between two samples.
            asked_by: A binding id, a command, or `room`; for the journal.

        Returns:
            What the host granted; `seconds` itself where there is no link right now.
        """
        self._lifeline.wanted_interval_s = seconds
        if self._lifeline.source is None:
            self._lifeline.granted(seconds)
            return seconds
        what = "change the refresh rate"
        answer = await self.request(
            "set_interval", {"seconds": seconds}, asked_by=asked_by, what=what
        )
        granted = answer.get("seconds") if isinstance(answer, Mapping) else None
        self._lifeline.granted(float(granted) if isinstance(granted, int | float) else seconds)
        return self._lifeline.interval_s

    async def set_pcie(self, on: bool) -> None:
        """Read PCIe throughput or not, now and after every reconnect."""
        self._pcie = on
        if self._lifeline.source is not None:
            what = f"switch PCIe throughput {'on' if on else 'off'}"
            await self.request("set_pcie", {"on": on}, asked_by=ROOM, what=what)

    async def request(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        asked_by: str,
        what: str,
        changes_host: bool = False,
        timeout_s: float = 10.0,
    ) -> object:
        """Ask the agent for something; written down with its result and time.

        Args:
            method: Of the agent (docs/agent.md).
            params: Its parameters.
            asked_by: A binding id, a command, or `room`.
            what: The action in words.
            changes_host: Whether it could change anything on the host.
            timeout_s: How long to wait for the answer.

        Raises:
            ReadOnlyError: It changes the host, and the host is read-only here.
            LinkError: There is no link.
            AgentError: The agent answered with an error, or not in time.
        """
        sent = _as_sent(method, params or {})
        at, began_s = self._clock.utc(), self._clock.monotonic_s()
        result = "ok"
        try:
            source = self._source_for(what, changes_host)
            return await source.request(method, params or {}, timeout_s=timeout_s)
        except RoomError as error:
            result = str(error)
            raise
        except asyncio.CancelledError:
            result = "given up"
            raise
        finally:
            took_s = self._clock.monotonic_s() - began_s
            self._write_down(asked_by, what, sent, changes_host, result, at, took_s)

    async def open(
        self, argv: Sequence[str], *, asked_by: str, what: str, changes_host: bool = False
    ) -> Channel:
        """Start a program of its own on the host, over the same connection; written down.

        Raises:
            ReadOnlyError: It would change a host that is read-only here.
            LinkError: There is no link, or the host starts no more programs.
        """
        at, began_s = self._clock.utc(), self._clock.monotonic_s()
        result = "ok"
        try:
            if changes_host:
                self._guard(what)
            transport = self._lifeline.transport
            if transport is None:
                link = self._lifeline.link
                raise LinkError(f"There is no link to {self.name}", link.error or link.state.value)
            return await transport.open(argv)
        except RoomError as error:
            result = str(error)
            raise
        finally:
            took_s = self._clock.monotonic_s() - began_s
            sent = shlex.join(argv)[:_MAX_REQUEST_CHARS]
            self._write_down(asked_by, what, sent, changes_host, result, at, took_s)

    @property
    def peer(self) -> str | None:
        """The host's address, where it is reached directly by SSH and the link is up."""
        transport: object = self._lifeline.transport
        return transport.peer if isinstance(transport, Forwards) else None

    async def forward(self, address: str, port: int, *, asked_by: str, what: str) -> Forward:
        """Lead a port of this machine to an address as seen from the host; written down.

        Raises:
            LinkError: There is no link, or it forwards no ports.
        """
        at, began_s = self._clock.utc(), self._clock.monotonic_s()
        result = "ok"
        try:
            transport: object = self._lifeline.transport
            if not isinstance(transport, Forwards):
                hint = "Only a host that is reached by SSH has a tunnel."
                raise LinkError(f"The way to {self.name} forwards no ports", "", hint)
            return await transport.forward(address, port)
        except RoomError as error:
            result = str(error)
            raise
        finally:
            took_s = self._clock.monotonic_s() - began_s
            sent = f"forward a local port to {address}:{port}"
            self._write_down(asked_by, what, sent, False, result, at, took_s)

    async def stream(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        asked_by: str,
        what: str,
        changes_host: bool = False,
        timeout_s: float = 10.0,
    ) -> AsyncGenerator[object, None]:
        """Ask the agent for something that answers in pieces; written down when it ends.

        Leave it with `contextlib.aclosing`, so that the host is told at once. The deadline is for
        its beginning; arguments and errors are those of `request`.
        """
        at, began_s = self._clock.utc(), self._clock.monotonic_s()
        result = "ok"
        try:
            source = self._source_for(what, changes_host)
            if not isinstance(source, Streams):
                raise AgentError(f"{what} needs python3 on {self.name}", method)
            pieces = source.stream(method, params or {}, timeout_s=timeout_s)
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    yield piece
        except RoomError as error:
            result = str(error)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            result = LEFT
            raise
        finally:
            took_s = self._clock.monotonic_s() - began_s
            sent = _as_sent(method, params or {})
            self._write_down(asked_by, what, sent, changes_host, result, at, took_s)

    def _guard(self, what: str) -> None:
        if self._read_only:
            raise ReadOnlyError(
                f"{self.name} is read-only", f"{what} was not done", "Unlock the host first."
            )

    def _source_for(self, what: str, changes_host: bool) -> Source:
        if changes_host:
            self._guard(what)
        source = self._lifeline.source
        if source is None:
            link = self._lifeline.link
            raise LinkError(f"There is no link to {self.name}", link.error or link.state.value)
        return source

    async def _start_source(
        self, transport: Transport, take: NotificationHandler, interval_s: float
    ) -> Source:
        """Start what tells the readings, written down like every command that a host is sent."""
        at, began_s = self._clock.utc(), self._clock.monotonic_s()
        sent = shlex.join(agent_argv(self.config.python))
        result = "ok"
        try:
            source = await self._start(transport, take, interval_s)
            result = f"ok, via {source.via}"
        except RoomError as error:
            result = str(error)
            raise
        except asyncio.CancelledError:
            result = "given up"
            raise
        finally:
            took_s = self._clock.monotonic_s() - began_s
            self._write_down(ROOM, "start the agent", sent, False, result, at, took_s)
        if self._pcie:
            with contextlib.suppress(AgentError):
                await source.request("set_pcie", {"on": True})
        return source

    def _changed(self) -> None:
        # Many messages come in one read: look once, when all of them have been taken.
        if not self._look_is_due:
            self._look_is_due = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Compare with what was there before, and say what has happened."""
        self._look_is_due = False
        before, after = self._looked_at, self.snapshot
        self._looked_at = after
        at = self._clock.utc()
        for event in changes(before, after, at):
            self._report(event)
        for alert in alerts(before, after, at):
            self._notice(alert)

    def _write_down(
        self,
        asked_by: str,
        what: str,
        request: str,
        changes_host: bool,
        result: str,
        at: datetime,
        took_s: float | None,
    ) -> None:
        self._journal.add(
            JournalEntry(
                at=at,
                host=self.name,
                asked_by=on_whose_behalf(asked_by) if changes_host else asked_by,
                what=what,
                request=clean(request, _MAX_REQUEST_CHARS),
                changes_host=changes_host,
                result=clean(result, 400),
                took_s=took_s,
            )
        )


def _as_sent(method: str, params: Mapping[str, object]) -> str:
    return f"{method} {json.dumps(_without_secrets(params), ensure_ascii=False)}"


def _without_secrets(value: object, key: str = "") -> object:
    """`value` with everything hidden that a key calls a secret."""
    if key == "env" and isinstance(value, Mapping):
        return mask.environment({str(name): str(item) for name, item in value.items()})
    if isinstance(value, Mapping):
        return {str(name): _without_secrets(item, str(name)) for name, item in value.items()}
    if _SECRET.search(key) and isinstance(value, str | bytes | list | tuple):
        return "***"
    if key == "argv" and isinstance(value, list | tuple):
        return mask.argv([str(word) for word in value])
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else repr(value)
