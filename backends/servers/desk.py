"""All that is done with the servers of one host: find, check, start, watch, stop, restart.

The screens and the command line both work through this, and only through this.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Literal

from backends.clock import SYSTEM_CLOCK, Clock
from backends.errors import RoomError, UsageError
from backends.servers import precheck
from backends.servers.apikey import key_of
from backends.servers.asked import named_model
from backends.servers.catalogue import Catalogue
from backends.servers.configuration import read_http
from backends.servers.engines import ENGINES, Engine, EngineId, Phase
from backends.servers.giveback import memory_used
from backends.servers.host import Host, MemberFacts, PortHolder, ask_http, convert
from backends.servers.launchers.base import (
    Launcher,
    Run,
    StartFinding,
    StartPlan,
    StopResult,
    StopStep,
)
from backends.servers.launchers.container import ContainerLauncher
from backends.servers.launchers.found import FoundLauncher
from backends.servers.launchers.holding import Operation, holding
from backends.servers.launchers.process import ProcessLauncher
from backends.servers.launchers.systemd import SystemdLauncher
from backends.servers.launchers.tmux import TmuxLauncher
from backends.servers.lifecycle import Assessment, Policy, State
from backends.servers.logfeed import LogSink
from backends.servers.memoryback import first_sample, memory_held
from backends.servers.profiles import LauncherKind, Profile, Readiness
from backends.servers.recognise import recognise
from backends.servers.watch import ServerWatch
from backends.servers.watched import Watched
from backends.storage.starts import Start, StartHistory

ASKED_BY: Final = "servers"
CONTAINERS: Final[tuple[Literal["docker", "podman"], ...]] = ("docker", "podman")
OVER: Final = frozenset({State.STOPPED, State.EXITED, State.CRASHED})


class Candidate(PortHolder, frozen=True):
    """A process of the host that listens on TCP."""

    argv: tuple[str, ...] = ()
    parent: int = 0
    ports: tuple[int, ...] = ()
    container: str | None = None


class ServerDesk:
    """The servers of one host.

    Args:
        host: The host.
        profiles: Those of this host.
        catalogue: Known failures.
        starts: Earlier starts; None keeps none.
        policy: Limits of patience of its watches.
    """

    def __init__(
        self,
        host: Host,
        profiles: Sequence[Profile],
        catalogue: Catalogue,
        starts: StartHistory | None = None,
        *,
        policy: Policy | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._host = host
        self.profiles = {profile.name: profile for profile in profiles}
        self._catalogue = catalogue
        self._starts = starts
        self._policy = policy or Policy()
        self._clock = clock
        self._restarting: set[str] = set()
        """Profiles that this desk holds for a restart."""
        self._process = ProcessLauncher(host)
        self._found = FoundLauncher(host)
        self._systemd = SystemdLauncher(host, profiles)
        self._containers: dict[LauncherKind, ContainerLauncher] = {
            kind: ContainerLauncher(host, kind, profiles) for kind in CONTAINERS
        }
        self._launchers: dict[LauncherKind, Launcher] = {
            "process": self._process,
            "systemd": self._systemd,
            "tmux": TmuxLauncher(host, profiles),
        }
        self._launchers.update(self._containers)

    @property
    def host(self) -> Host:
        """The host."""
        return self._host

    def profile(self, name: str) -> Profile:
        """The profile of that name.

        Raises:
            UsageError: There is none on this host.
        """
        profile = self.profiles.get(name)
        if profile is None:
            from backends.config import nearest

            raise UsageError(
                f"no server {name!r} is configured for {self._host.name}",
                hint=nearest(name, self.profiles) if self.profiles else "see [[servers]]",
            )
        return profile

    def launcher_of(self, run: Run) -> Launcher:
        """Who handles a run."""
        return self._found if run.adopted else self._launchers[run.launcher]

    # --- what is there ---------------------------------------------------------------------------

    async def runs(self) -> list[Run]:
        """Every server on the host: what gpuroom started (dead or alive), and what it found."""
        known: list[Run] = []
        for launcher in self._launchers.values():
            known += await launcher.runs()
        ours: set[int] = set()
        for run in known:
            look = await self.launcher_of(run).look(run)
            ours |= {member.pid for member in look.members}
        return [*known, *(run for run in await self.strangers() if run.pid not in ours)]

    async def strangers(self) -> list[Run]:
        """Servers that gpuroom did not start, known by their command line."""
        answer = await self._host.request(
            "servers.candidates", asked_by=ASKED_BY, what="look for servers", timeout_s=20.0
        )
        found: list[Run] = []
        for entry in answer if isinstance(answer, list) else ():
            with contextlib.suppress(RoomError):
                candidate = convert(entry, Candidate, "a process")
                engine = recognise(candidate.argv)
                if engine is not None:
                    found.append(await self._found.run_of(candidate.pid, engine))
        return found

    async def adopt(self, pid: int) -> Run:
        """A process that runs, as a server to watch and stop.

        Raises:
            AgentError: There is no such process.
        """
        return await self._found.run_of(pid, None)

    async def find(self, name: str) -> Run:
        """The newest run of a profile, or of what was found under that name or pid.

        Raises:
            UsageError: There is none.
        """
        if name.isdigit():
            return await self.adopt(int(name))
        runs = await self.runs()
        for run in runs:
            if name == run.profile:
                return run
        names = ", ".join(run.profile for run in runs) or "none"
        raise UsageError(
            f"no server {name!r} has been started on {self._host.name}", f"there are: {names}"
        )

    # --- start -----------------------------------------------------------------------------------

    async def check(self, profile: Profile) -> list[StartFinding]:
        """What stands in the way of a start."""
        await first_sample(self._host, self._clock)
        inside = profile.launcher in CONTAINERS
        answer = await self._host.request(
            "servers.check",
            {
                "argv": list(profile.command),
                "cwd": profile.cwd,
                "port": profile.port,
                # Inside a container other paths hold.
                "paths": [] if inside else precheck.model_paths(profile),
                "profile": profile.name,
                "path": profile.env.get("PATH"),
            },
            asked_by=ASKED_BY,
            what=f"check before starting {profile.name}",
            timeout_s=20.0,
        )
        facts = convert(answer, precheck.CheckFacts, "a start")
        found = precheck.findings(profile, facts, self._host.snapshot)
        if profile.launcher == "systemd":
            return [*await self._systemd.findings(profile), *found]
        container = self._containers.get(profile.launcher)
        return [*await container.findings(profile), *found] if container is not None else found

    async def plan(self, profile: Profile) -> StartPlan:
        """Exactly what `start` would run now.

        Raises:
            RoomError: It could not run anything, or the host does not answer.
        """
        return await self._launcher_for(profile).plan(profile, operator(), origin())

    async def start(self, profile: Profile) -> Run:
        """Start it; what `check` finds is not asked again.

        Raises:
            ProfileBusy: It runs already.
            LaunchError: It can't be started.
        """
        run_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        launcher = self._launcher_for(profile)
        await first_sample(self._host, self._clock)
        async with self._alone(launcher, profile.name, "starting"):
            run = await launcher.start(profile, run_id, operator(), origin())
        return replace(run, age_s=0.0)

    async def watch(
        self, run: Run, profile: Profile | None = None, *, log_sink: LogSink | None = None
    ) -> ServerWatch:
        """A watch of a run, not yet begun (`async with`)."""
        profile = profile or self.profiles.get(run.profile)
        engine = self.engine_of(run, profile)
        history: Mapping[Phase, Sequence[float]] = {}
        if self._starts is not None:
            durations = await asyncio.to_thread(
                self._starts.phase_durations, self._host.name, run.profile
            )
            history = {Phase(p): took for p, took in durations.items() if p in set(Phase)}
        return ServerWatch(
            self._host,
            self.launcher_of(run),
            Watched(
                run,
                engine,
                profile.ready if profile is not None else Readiness(),
                named_model(engine, run.argv),
                key_of(profile, os.environ),
            ),
            self._catalogue,
            history=history,
            policy=self._policy,
            clock=self._clock,
            log_sink=log_sink,
        )

    def engine_of(self, run: Run, profile: Profile | None = None) -> Engine:
        """The engine of a run, from its profile, its record or its command line."""
        if profile is not None:
            return profile.engine
        if run.engine is not None and run.engine in set(EngineId):
            return ENGINES[EngineId(run.engine)]
        return recognise(run.argv) or ENGINES[EngineId.CUSTOM]

    async def effective(self, watch: ServerWatch) -> dict[str, str]:
        """What a server runs with: as its log said, and as its endpoints say."""
        port, values = watch.watched.run.port, dict(watch.effective.merged)
        for endpoint in watch.watched.engine.config_paths if port is not None else ():
            assert port is not None
            with contextlib.suppress(RoomError):
                answer = await ask_http(
                    self._host, port, endpoint, asked_by=ASKED_BY, key=watch.watched.key
                )
                if answer.status == 200:
                    values |= read_http(watch.watched.engine, answer.body.encode())
        return values

    async def record(self, watch: ServerWatch, found: Assessment) -> None:
        """Write a start that is over into the history, where it was watched from its beginning."""
        if self._starts is None or not watch.from_start:
            return
        outcome = "ready" if found.was_ready else found.state.value
        log = watch.witnesses.log
        run = watch.watched.run
        started = datetime.fromtimestamp(run.started_at or datetime.now(UTC).timestamp(), UTC)
        start = Start(
            run_id=run.run_id,
            host=self._host.name,
            profile=run.profile,
            engine=watch.watched.engine.id.value,
            version=log.verdict.version if log is not None else None,
            started=started,
            outcome=outcome,
            cause=found.cause,
            took_s=watch.age_s,
            phases={phase.value: seconds for phase, seconds in watch.durations().items()},
        )
        await asyncio.to_thread(self._starts.save, start)

    # --- stop ------------------------------------------------------------------------------------

    async def stop(
        self,
        run: Run,
        on_step: Callable[[StopStep], None] = lambda step: None,
        *,
        grace_s: float | None = None,
    ) -> StopResult:
        """Stop a run, wholly: no process, port free, GPU memory given back; what remains is named.

        Raises:
            ProfileBusy: Somebody else is stopping it.
            LaunchError: The stop broke off.
        """
        if grace_s is None:
            grace_s = self.grace_s(run)
        launcher = self.launcher_of(run)
        pids = {member.pid for member in await self.members(run)}
        during = memory_used(self._host.snapshot)
        restart = run.profile in self._restarting
        async with self._alone(launcher, run.profile, "stopping"):
            result = await launcher.stop(
                run, grace_s, operator(), origin(), on_step, restart=restart
            )
        pids -= {member.pid for member in result.left}  # these are named already
        held = await memory_held(
            self._host, run, pids, during, on_step,
            until_s=self._clock.monotonic_s() + self._policy.memory_back_s, clock=self._clock,
        )  # fmt: skip
        return StopResult(result.left, result.port, held)

    @contextlib.asynccontextmanager
    async def restarting(self, run: Run) -> AsyncIterator[None]:
        """Around the stop and the start of a restart: nobody else stops or restarts it meanwhile.

        Raises:
            ProfileBusy: Somebody else is at it: says who.
        """
        place = run.place if self.launcher_of(run) is self._process else None
        async with holding(
            self._host, run.profile, "restarting", operator(), origin(), place=place
        ):
            self._restarting.add(run.profile)
            try:
                yield
            finally:
                self._restarting.discard(run.profile)

    def grace_s(self, run: Run) -> float:
        """How long a run gets to end by itself: its profile says, or else its engine."""
        profile = self.profiles.get(run.profile)
        if profile is not None:
            return profile.stop_grace_s
        return self.engine_of(run, profile).stop.grace_s

    async def stop_commands(self, run: Run) -> tuple[tuple[str, ...], ...]:
        """The commands that `stop` runs; none where signals are sent."""
        return await self.launcher_of(run).stop_commands(run, self.grace_s(run))

    async def newest(self, profile: Profile) -> Run | None:
        """The newest run of a profile; None where there never was one."""
        runs = await self._launcher_for(profile).runs()
        return next((run for run in runs if run.profile == profile.name), None)

    async def members(self, run: Run) -> tuple[MemberFacts, ...]:
        """Its processes now, those that hide among them."""
        return (await self.launcher_of(run).look(run, deep=True)).members

    def _launcher_for(self, profile: Profile) -> Launcher:
        if profile.launcher == "tmux":
            raise UsageError(
                f"{profile.name} can't be started by {profile.launcher}",
                "a server inside tmux is found and adopted, not started",
                'use launcher = "process": it outlives the session, too',
            )
        return self._launchers[profile.launcher]

    def _alone(
        self, launcher: Launcher, name: str, doing: Operation
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """One operator at a time, where the launcher's own program does not see to it."""
        if launcher.kind in ("systemd", *CONTAINERS) and name not in self._restarting:
            return holding(self._host, name, doing, operator(), origin())
        return contextlib.nullcontext()


def operator() -> str:
    """Who works here."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def origin() -> str:
    """The machine that gpuroom runs on."""
    return socket.gethostname()
