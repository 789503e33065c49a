"""The hosts of the room: owns their sessions, their journal, and what happened.

Everything here is for one event loop. Whoever shows a room compares `version` and takes what is
newest; nobody is called back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from backends.agent.client import NotificationHandler, Source
from backends.clock import SYSTEM_CLOCK, Clock
from backends.config import Config, HostConfig
from backends.errors import UsageError
from backends.events import HostEvent, alert_of
from backends.feeds import Journal, Ring
from backends.link.base import NobodyToAsk, Prompter, Transport
from backends.link.limiter import Limiter
from backends.link.transports import transport_to
from backends.model import Alert
from backends.session import HostSession
from backends.sources import start_source

MAX_ALERTS: Final = 1000
MAX_EVENTS: Final = 1000
STOP_S: Final = 2.0

__all__ = ["HostSession", "RoomHub"]


class RoomHub:
    """All hosts of one room. `async with hub:` starts them and lets go of them at the end.

    Attributes:
        sessions: One a host, in the order given.
        journal: Everything that was asked of a host.
        alerts: What may have been missed.
        events: Rare facts for one reader, oldest first; the oldest goes when nobody reads.
    """

    def __init__(
        self,
        hosts: Iterable[HostConfig],
        config: Config | None = None,
        prompter: Prompter | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        read_only: bool = False,
    ) -> None:
        self._config = config or Config()
        self._clock = clock
        self._limiter = Limiter()
        self._tasks: list[asyncio.Task[None]] = []
        self.journal = Journal()
        self.alerts: Ring[Alert] = Ring(MAX_ALERTS)
        self.events: asyncio.Queue[HostEvent] = asyncio.Queue(MAX_EVENTS)
        asked = prompter or NobodyToAsk()
        self.sessions = tuple(self._session(host, asked, read_only) for host in hosts)
        self._by_name = {session.name: session for session in self.sessions}

    def _session(self, host: HostConfig, prompter: Prompter, read_only: bool) -> HostSession:
        def reach(asked: Prompter) -> Transport:
            return transport_to(host, self._config.ssh, asked, self._limiter)

        async def start(
            transport: Transport, take: NotificationHandler, interval_s: float
        ) -> Source:
            return await start_source(transport, host.python, take, interval_s, self._clock)

        return HostSession(
            host,
            interval_s=self._config.refresh.interval_s,
            pcie=self._config.refresh.pcie_throughput,
            reach=reach,
            start=start,
            prompter=prompter,
            clock=self._clock,
            journal=self.journal,
            report=self._report,
            notice=self.alerts.append,
            read_only=read_only,
        )

    @property
    def version(self) -> int:
        """Grows with every change of anything in the room."""
        own = self.journal.version + self.alerts.version
        return own + sum(session.version for session in self.sessions)

    def session(self, name: str) -> HostSession:
        """The session of a host.

        Raises:
            UsageError: There is no such host in the room.
        """
        session = self._by_name.get(name)
        if session is None:
            raise UsageError(f"There is no host {name!r} in the room")
        return session

    async def start(self) -> None:
        """Begin to reach the hosts; returns at once."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(session.run(), name=f"host-{session.name}")
                for session in self.sessions
            ]

    async def stop(self) -> None:
        """Let go of every host, within two seconds even where a peer hangs."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            done, hanging = await asyncio.wait(tasks, timeout=STOP_S)
            for task in hanging:
                task.cancel()  # interrupts its letting go, too
            await asyncio.gather(*done, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _report(self, event: HostEvent) -> None:
        if self.events.full():
            self.events.get_nowait()
        self.events.put_nowait(event)
        alert = alert_of(event)
        if alert is not None:
            self.alerts.append(alert)
