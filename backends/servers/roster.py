"""The servers of one host, kept current: configured ones, running ones, found ones.

One watch a server that lives. It belongs to the roster, which cancels and awaits it; nothing on
the host ends with it. Nobody is called back for a change of state: readers compare `version`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from backends.clock import SYSTEM_CLOCK, Clock
from backends.errors import RoomError, UsageError
from backends.feeds import on_behalf_of
from backends.model import LinkState
from backends.servers.desk import ServerDesk
from backends.servers.launchers.base import Run, StartFinding, StartPlan, StopResult, StopStep
from backends.servers.lifecycle import ANSWERING, OVER, Assessment
from backends.servers.precheck import GONE_AFTER_STOP
from backends.servers.profiles import Profile
from backends.servers.report import stop_lines
from backends.servers.rosterview import Server, view_of
from backends.servers.verdict import KILLED
from backends.servers.view import Doing, ServerView
from backends.servers.watch import ServerWatch
from backends.storage.starts import StartHistory

LOOK_EVERY_S: Final = 10.0
LINK_EVERY_S: Final = 0.5
LAST_WORDS_S: Final = 1.5
EARLIER: Final = 8
ROSTER: Final = "servers"

Told = Callable[[ServerView], None]


class Roster:
    """The servers of one host.

    Args:
        desk: What is done with them.
        starts: Earlier starts; None where there are none.
        became_ready: Told of a server that was seen to become ready.
        failed: Told of one that was seen to end without having been asked to.

    Attributes:
        error: Why the host's servers can't be listed right now.
        listed: Whether they have been, once.
    """

    def __init__(
        self,
        desk: ServerDesk,
        starts: StartHistory | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        became_ready: Told = lambda view: None,
        failed: Told = lambda view: None,
    ) -> None:
        self.desk = desk
        self._starts = starts
        self._clock = clock
        self._became_ready = became_ready
        self._failed = failed
        self._changes = 0
        self._poke = asyncio.Event()
        self.error = ""
        self.listed = False
        self._servers = {
            name: Server(name, name, profile) for name, profile in desk.profiles.items()
        }

    @property
    def version(self) -> int:
        """Grows with every change of any of them."""
        watches = sum(s.watch.version for s in self._servers.values() if s.watch is not None)
        return self._changes + watches

    @property
    def busy(self) -> bool:
        """Whether something is on its way that must not be let out of sight."""
        return any(
            s.doing is not None or (s.watch is not None and self._view(s).starts)
            for s in self._servers.values()
        )

    def views(self) -> tuple[ServerView, ...]:
        """All of them: configured ones in the order of the configuration, then the others."""
        return tuple(self._view(server) for server in self._servers.values())

    def view(self, key: str) -> ServerView | None:
        """One of them, with its configuration."""
        server = self._servers.get(key)
        return None if server is None else self._view(server, whole=True)

    # --- life ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep it current until cancelled; every watch ends with it."""
        try:
            await self._read_history()
            while True:
                await self._linked()
                try:
                    await self._look()
                    self.error = ""
                except RoomError as error:
                    self.error = str(error)
                self._changed()
                self._poke.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await self._poke.wait()
        finally:
            await self._end([s.task for s in self._servers.values() if s.task is not None])

    async def _linked(self) -> None:
        states = (LinkState.LIVE, LinkState.STALE)
        while self.desk.host.snapshot.link.state not in states:  # noqa: ASYNC110 - a feed is polled
            await asyncio.sleep(LINK_EVERY_S)

    async def _read_history(self) -> None:
        for server in self._servers.values():
            await self._read_starts(server)

    async def _read_starts(self, server: Server) -> None:
        if self._starts is not None and server.profile is not None:
            host = self.desk.host.name
            found = await asyncio.to_thread(self._starts.starts, host, server.name, EARLIER)
            server.earlier = tuple(found)
            self._changed()

    async def _look(self) -> None:
        runs = await self.desk.runs()
        present = set()
        for run in runs:
            key = run.run_id if run.adopted else run.profile
            present.add(key)
            server = self._servers.get(key)
            if server is None:
                server = self._servers[key] = Server(key, run.profile)
            if server.doing is not Doing.STARTING and self._is_newer(run, server.run):
                await self._follow(server, run)
        if not self.listed:
            self.listed = True
            self._changed()
        for key, server in list(self._servers.items()):
            if key not in present and server.profile is None and self._is_ours(server):
                await self._end([server.task] if server.task is not None else [])
                del self._servers[key]

    def _is_newer(self, run: Run, known: Run | None) -> bool:
        """Whether it is another run, and not one from before: a start may have come between."""
        if known is None or run.run_id == known.run_id:
            return known is None
        return (run.started_at or 0.0) >= (known.started_at or 0.0)

    def _is_ours(self, found: Server) -> bool:
        """Whether what was found turned out to be a process of a server that was started here."""
        pid = found.run.pid if found.run is not None else None
        looks = (
            other.watch.last_look
            for other in self._servers.values()
            if other is not found and other.watch is not None
        )
        return any(m.pid == pid for look in looks if look is not None for m in look.members)

    async def _follow(self, server: Server, run: Run) -> None:
        """Watch another run of a server from now on."""
        if server.task is not None:
            await self._end([server.task])
        server.run, server.over, server.error = run, None, ""
        server.http_values, server.compared = {}, (-1, ())
        server.task = asyncio.create_task(self._attend(server, run), name=f"server {server.name}")
        self._changed()

    async def _attend(self, server: Server, run: Run) -> None:
        """Watch a run to its end; write its start down; say what must not be missed."""
        try:
            async with await self.desk.watch(run, server.profile) as watch:
                server.watch = watch
                self._changed()
                await watch.hear(8.0)
                first = watch.assessment
                # Whatever comes of a start that is seen from its beginning is news.
                starting = watch.from_start or first.state not in (*ANSWERING, *OVER)
                lived = watch.from_start or first.state not in OVER
                found = await watch.until(lambda a: a.state in ANSWERING or a.state in OVER)
                if found.state in ANSWERING:
                    await self._came_up(server, watch, found, seen=starting)
                    found = await watch.until(lambda a: a.state in OVER)
                    await self._last_words(watch)
                else:
                    await self._last_words(watch)
                    found = watch.assessment
                    await self._write_down(server, watch, found)
                server.over = (watch.assessment, watch.verdict)
                if lived and self._view(server).failed:
                    self._failed(self._view(server))
        except RoomError as error:
            server.error = str(error)
        finally:
            self._changed()

    async def _came_up(
        self, server: Server, watch: ServerWatch, found: Assessment, *, seen: bool
    ) -> None:
        await self._write_down(server, watch, found)
        if seen:
            self._became_ready(self._view(server))
        with contextlib.suppress(RoomError):
            server.http_values = await self.desk.effective(watch)
        server.compared = (-1, ())
        self._changed()

    async def _last_words(self, watch: ServerWatch) -> None:
        """The end of the log comes a moment after the end of the process."""
        with contextlib.suppress(TimeoutError):
            await watch.until(lambda found: found.cause not in (None, KILLED), LAST_WORDS_S)

    async def _write_down(self, server: Server, watch: ServerWatch, found: Assessment) -> None:
        try:
            await self.desk.record(watch, found)
            await self._read_starts(server)
        except RoomError as error:  # a full disk here is no reason to lose sight of a server
            server.error = str(error)

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what is asked for -----------------------------------------------------------------------

    async def check(self, key: str, *, before_stop: bool = False) -> list[StartFinding]:
        """What stands in the way of a start, gravest first.

        Args:
            key: The server.
            before_stop: Its run lives and will be stopped: only what would still be in the way
                afterwards counts.
        """
        server, profile = self._startable(key)
        with self._while(server, Doing.CHECKING):
            found = await self.desk.check(profile)
        if before_stop:
            found = [finding for finding in found if finding.id not in GONE_AFTER_STOP]
        return found

    async def plan(self, key: str) -> StartPlan:
        """Exactly what `start` would run now.

        Raises:
            RoomError: It could not run anything, or the host does not answer.
        """
        _, profile = self._startable(key)
        return await self.desk.plan(profile)

    async def start(self, key: str, *, asked_by: str = ROSTER) -> Run:
        """Start it, and watch it from its first moment.

        Args:
            key: The server.
            asked_by: A binding id, for the journal.

        Raises:
            RoomError: It can't be started, or somebody else did.
        """
        server, profile = self._startable(key)
        with self._while(server, Doing.STARTING):
            with on_behalf_of(asked_by):
                run = await self.desk.start(profile)
            server.left_over = ()
            await self._follow(server, run)
        return run

    async def stop(self, key: str, *, asked_by: str = ROSTER) -> StopResult:
        """Stop it, wholly; what remains is in the result and stays in sight.

        Args:
            key: The server.
            asked_by: A binding id, for the journal.

        Raises:
            RoomError: The stop broke off, or somebody else is at it.
        """
        server = self._known(key)
        run, watch = server.run, server.watch
        if run is None:
            raise UsageError(f"{server.name} does not run on {self.desk.host.name}")

        def told(step: StopStep) -> None:
            server.step = step.full_words
            self._changed()

        with self._while(server, Doing.STOPPING):
            if watch is not None:
                watch.stop_asked()
            try:
                with on_behalf_of(asked_by):
                    result = await self.desk.stop(run, told)
            except RoomError:
                if watch is not None:
                    watch.stop_given_up()
                raise
            server.left_over = tuple(stop_lines(result))
        self._poke.set()
        return result

    @contextlib.asynccontextmanager
    async def restarting(self, key: str, *, asked_by: str = ROSTER) -> AsyncIterator[None]:
        """Around the stop and the start of a restart: nobody else stops or restarts it meanwhile.

        Args:
            key: The server.
            asked_by: A binding id, for the journal.

        Raises:
            RoomError: Somebody else is at it.
        """
        server = self._known(key)
        if server.run is None:
            raise UsageError(f"{server.name} does not run on {self.desk.host.name}")
        with on_behalf_of(asked_by):
            async with self.desk.restarting(server.run):
                yield

    def keep(self, profile: Profile) -> None:
        """Take a profile that has just been written."""
        self.desk.profiles[profile.name] = profile
        self._servers.setdefault(profile.name, Server(profile.name, profile.name, profile))
        self._changed()

    def _known(self, key: str) -> Server:
        server = self._servers.get(key)
        if server is None:
            raise UsageError(f"no server {key!r} is known on {self.desk.host.name}")
        if server.doing is not None:
            raise UsageError(f"{server.name} is {server.doing.value} already")
        return server

    def _startable(self, key: str) -> tuple[Server, Profile]:
        server = self._known(key)
        if server.profile is None:
            raise UsageError(
                f"{server.name} was found, not configured", hint="a writes a profile from it"
            )
        return server, server.profile

    @contextlib.contextmanager
    def _while(self, server: Server, doing: Doing) -> Iterator[None]:
        server.doing, server.step = doing, ""
        self._changed()
        try:
            yield
        finally:
            server.doing, server.step = None, ""
            self._changed()

    def _changed(self) -> None:
        self._changes += 1

    def _view(self, server: Server, *, whole: bool = False) -> ServerView:
        return view_of(server, self.desk, self._clock, whole=whole, listed=self.listed)
