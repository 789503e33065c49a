"""The servers of a room: one roster a host that is looked at, ended with the room.

Whoever shows them compares `version` and takes `views(host)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from backends.clock import SYSTEM_CLOCK, Clock
from backends.errors import RoomError, UsageError
from backends.model import Alert, Severity
from backends.servers.catalogue import Catalogue, load_catalogue
from backends.servers.desk import ServerDesk
from backends.servers.host import Host
from backends.servers.profiles import Profile
from backends.servers.roster import Roster
from backends.servers.view import ServerView
from backends.storage.starts import StartHistory

LET_GO_S: Final = 120.0
"""A host that nobody has looked at for so long is not watched any more, unless a start goes on."""


class ServerBoard:
    """See the module.

    Args:
        profiles: Those of a host, by its name.
        notice: Takes what happened, for the list of alerts.
        open_starts: Opens the history of starts; called in a thread.
        clock: For all times.
    """

    def __init__(
        self,
        profiles: Callable[[str], Sequence[Profile]],
        notice: Callable[[Alert], None] = lambda alert: None,
        *,
        open_starts: Callable[[], StartHistory] = StartHistory.at_home,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._profiles = profiles
        self._notice = notice
        self._open_starts = open_starts
        self._clock = clock
        self._rosters: dict[str, Roster] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._errors: dict[str, str] = {}
        self._looked_at: dict[str, float] = {}
        self._catalogue: Catalogue | None = None
        self._starts: StartHistory | None = None
        self._starts_error = ""
        self._opening = asyncio.Lock()
        self._changes = 0

    @property
    def version(self) -> int:
        """Grows with every change of any server."""
        return self._changes + sum(roster.version for roster in self._rosters.values())

    def look_at(self, host: Host) -> None:
        """Begin to watch the servers of a host, or go on with it."""
        now_s = self._clock.monotonic_s()
        self._looked_at[host.name] = now_s
        task = self._tasks.get(host.name)
        if task is None:
            self._tasks[host.name] = asyncio.create_task(
                self._keep(host), name=f"servers of {host.name}"
            )
        for name, looked_s in list(self._looked_at.items()):
            roster = self._rosters.get(name)
            if now_s - looked_s > LET_GO_S and not (roster is not None and roster.busy):
                self._tasks.pop(name).cancel()
                del self._looked_at[name]

    def roster(self, host: str) -> Roster:
        """The roster of a host.

        Raises:
            UsageError: Its servers are not known yet.
        """
        roster = self._rosters.get(host)
        if roster is None:
            raise UsageError(f"the servers of {host} are not known yet", self._errors.get(host, ""))
        return roster

    def views(self, host: str) -> tuple[ServerView, ...]:
        """Every server of a host."""
        roster = self._rosters.get(host)
        return () if roster is None else roster.views()

    def view(self, host: str, key: str) -> ServerView | None:
        """One server, with its configuration."""
        roster = self._rosters.get(host)
        return None if roster is None else roster.view(key)

    def trouble(self, host: str) -> str:
        """Why the servers of a host can't be listed; empty where they can."""
        roster = self._rosters.get(host)
        return self._errors.get(host, "") or ("" if roster is None else roster.error)

    def listed(self, host: str) -> bool:
        """Whether the host has been asked for its servers."""
        roster = self._rosters.get(host)
        return roster is not None and roster.listed

    async def close(self) -> None:
        """Let go of everything; nothing on a host ends."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._starts is not None:
            await asyncio.to_thread(self._starts.close)
            self._starts = None

    async def _keep(self, host: Host) -> None:
        try:
            catalogue, starts = await self._shared()
            desk = ServerDesk(
                host, list(self._profiles(host.name)), catalogue, starts, clock=self._clock
            )
            roster = self._rosters[host.name] = Roster(
                desk, starts, clock=self._clock, became_ready=self._ready, failed=self._failed
            )
            self._changes += 1
            await roster.run()
        except RoomError as error:
            self._errors[host.name] = str(error)
        finally:
            self._changes += 1
            self._rosters.pop(host.name, None)

    async def _shared(self) -> tuple[Catalogue, StartHistory | None]:
        """The catalogue and the history, read once."""
        async with self._opening:
            if self._catalogue is None:
                self._catalogue = await asyncio.to_thread(load_catalogue)
            if self._starts is None and not self._starts_error:
                try:
                    self._starts = await asyncio.to_thread(self._open_starts)
                except RoomError as error:  # without a history there is no time left, but all else
                    self._starts_error = str(error)
                    self._tell("", Severity.WARNING, "earlier starts can't be read", str(error))
            return self._catalogue, self._starts

    def _ready(self, view: ServerView) -> None:
        took = f"after {view.up_s:.0f} s" if view.up_s is not None else ""
        self._tell(view.host, Severity.INFO, f"{view.name} is ready", took)

    def _failed(self, view: ServerView) -> None:
        why = view.found.why if view.found is not None else ""
        self._tell(view.host, Severity.CRITICAL, f"{view.name} has crashed", why)

    def _tell(self, host: str, severity: Severity, title: str, detail: str) -> None:
        at: datetime = self._clock.utc()
        self._notice(Alert(at, host, severity, title, detail))
