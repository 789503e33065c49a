"""Servers in named containers of docker or podman: found, started, stopped, GPUs checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal

from backends.errors import AgentError
from backends.model import Severity
from backends.servers.asked import named_port
from backends.servers.engines import Engine
from backends.servers.host import CommandResult, Host, StopAsked, run_command
from backends.servers.launchers.base import (
    LaunchError,
    LogKind,
    LogPlace,
    Presence,
    ProfileBusy,
    Run,
    RunLook,
    StartFinding,
    StartPlan,
    StopResult,
    StopStep,
    env_unused,
    runs_already,
)
from backends.servers.launchers.containerfacts import Container, asks_for_gpus, epoch, parse
from backends.servers.launchers.inspected import inspect, port_facts, remaining
from backends.servers.profiles import LauncherKind, Profile
from backends.servers.recognise import recognise

ASKED_BY: Final = "servers"
STOP_SLACK_S: Final = 30.0
MAX_CONTAINERS: Final = 64
_SAY_ENV: Final = "make it with `--env-file` or `--env`, which may stand in `command`"


class ContainerLauncher:
    """Containers of one host: those that profiles name with `unit`, and servers in others.

    Args:
        host: The host.
        kind: Which program is asked.
        profiles: Those that are started here.
    """

    def __init__(
        self, host: Host, kind: Literal["docker", "podman"], profiles: Sequence[Profile]
    ) -> None:
        self._host = host
        self.kind: LauncherKind = kind
        self._profiles = {p.name: p for p in profiles if p.launcher == kind}
        self._presence = Presence()

    async def findings(self, profile: Profile) -> list[StartFinding]:
        """What else stands in the way: no program, no container, no GPU in it."""
        told = await self._ask(["inspect", "--type=container", _name(profile)], "look at it")
        if told.missing is not None:
            words, out = f"{self.kind} is not installed there", 'use launcher = "process"'
            return [StartFinding("container-program", Severity.CRITICAL, words, out)]
        container = next(iter(_parse(told)), None)
        if container is None:
            if "such" in told.words.lower() and self._can_make(profile):
                found = self._blind(profile.name, asks_for_gpus(profile.command))
                return [*found, *env_unused(profile, "a container", _SAY_ENV)]
            out = f"`command` may be a `{self.kind} run ...` that makes it"
            title = f"{self.kind} knows no container {_name(profile)}"
            if "such" not in told.words.lower():
                title, out = told.words, f"may this account use {self.kind}?"
            return [StartFinding("container-missing", Severity.CRITICAL, title, out)]
        found = self._blind(_name(profile), container.sees_gpus)
        found += env_unused(profile, "a container", _SAY_ENV)
        if container.state.running:
            found.insert(0, runs_already(profile, f"container {_name(profile)}"))
        return found

    def _blind(self, name: str, sees_gpus: bool) -> list[StartFinding]:
        """A container that sees no GPU on a host that has some."""
        if sees_gpus or not self._host.snapshot.gpus:
            return []
        title = f"the container of {name} has no access to GPUs"
        out = "make it with --gpus all (podman: --device nvidia.com/gpu=all)"
        return [StartFinding("container-without-gpus", Severity.WARNING, title, out)]

    async def plan(self, profile: Profile, by: str, origin: str) -> StartPlan:
        """`start` or `run`; a container that exists keeps the environment it was made with."""
        name = _name(profile)
        argv = self._start_argv(profile, await self._inspect(name))
        return StartPlan(((self.kind, *argv),), {}, f"by {self.kind}, as container {name}")

    def _start_argv(self, profile: Profile, container: Container | None) -> list[str]:
        name = _name(profile)
        if container is not None:
            return ["start", name]
        if self._can_make(profile):
            return ["run", "--detach", f"--name={name}", *_after_run(profile, name)]
        raise LaunchError(f"{self.kind} knows no container {name}")

    async def stop_commands(self, run: Run, grace_s: float) -> tuple[tuple[str, ...], ...]:
        """`stop` with the grace."""
        return ((self.kind, *_stop_argv(run, grace_s)),)

    async def start(self, profile: Profile, run_id: str, by: str, origin: str) -> Run:
        """`start` for a container that exists, else the profile's own `run` command, detached."""
        name = _name(profile)
        container = await self._inspect(name)
        if container is not None and container.state.running:
            raise ProfileBusy(
                f"{profile.name} is running already", f"container {name}", "stop it, or watch it"
            )
        argv = self._start_argv(profile, container)
        told = await self._ask(argv, f"start {profile.name}", changes=True, timeout_s=120.0)
        if not told.ok:
            raise LaunchError(f"{profile.name} could not be started", told.words)
        container = await self._inspect(name)
        if container is None:
            raise LaunchError(f"{profile.name} is gone already", f"container {name}")
        return self._run_of(profile, container, by=by, origin=origin)

    async def runs(self) -> list[Run]:
        """Containers of profiles that were started at least once, and other servers that run."""
        found: list[Run] = []
        for profile in self._profiles.values():
            container = await self._inspect(_name(profile))
            if container is not None and container.state.status != "created":
                found.append(self._run_of(profile, container))
        return [*found, *await self._others({run.place for run in found})]

    async def _others(self, known: set[str]) -> list[Run]:
        """Running containers without a profile that hold a server of an engine that is known."""
        if not self._presence.likely:
            return []
        listed = await self._ask(["ps", "--format={{.Names}}"], "look for servers in containers")
        self._presence.note(answered=listed.ok)
        names = [line.split(",")[0].strip() for line in listed.out.splitlines()]
        names = [name for name in names if name and name not in known][:MAX_CONTAINERS]
        if not listed.ok or not names:
            return []
        told = await self._ask(["inspect", "--type=container", *names], "look at containers")
        runs: list[Run] = []
        for container in _parse(told):
            engine = recognise(container.argv)
            if engine is not None and container.state.running:
                runs.append(self._stranger(container, engine))
        return runs

    async def look(self, run: Run, *, deep: bool = False) -> RunLook:
        """The container's processes, or how it ended."""
        container = await self._inspect(run.place)
        if container is None:
            return RunLook(alive=False)
        state = container.state
        if state.lives:
            port = run.port if run.port_visible else None
            look = await inspect(self._host, run.profile, state.pid, port=port, held=run.profile)
            stops = state.stops and look.stop is None
            return replace(look, stop=StopAsked(going=True)) if stops else look
        code = state.exit_code
        port = run.port if run.port_visible else None
        return RunLook(
            alive=False,
            exit_code=128 - code if code > 128 else code,
            oom_killed=state.oom_killed,
            port=await port_facts(self._host, port),
        )

    async def stop(
        self, run: Run, grace_s: float, by: str, origin: str, on_step: Callable[[StopStep], None],
        *, restart: bool = False,
    ) -> StopResult:  # fmt: skip
        """`stop` with the grace, which kills what is left of the container."""
        before = await self.look(run)
        on_step(StopStep(f"{self.kind} stop {run.place}", len(before.members)))
        told = await self._ask(
            _stop_argv(run, grace_s), f"stop {run.profile}",
            changes=True, timeout_s=grace_s + STOP_SLACK_S,
        )  # fmt: skip
        left = await remaining(self._host, before.members)
        if left and not told.ok:
            raise LaunchError(f"{run.profile} could not be stopped", told.words)
        return StopResult(left, await port_facts(self._host, run.port))

    def _can_make(self, profile: Profile) -> bool:
        return tuple(profile.command[:2]) == (self.kind, "run")

    def _run_of(
        self, profile: Profile, container: Container, *, by: str | None = None,
        origin: str | None = None,
    ) -> Run:  # fmt: skip
        run = self._place(container, _name(profile))
        return replace(
            run,
            profile=profile.name,
            port=profile.port,
            engine=profile.engine.id.value,
            by=by,
            origin=origin,
        )

    def _stranger(self, container: Container, engine: Engine) -> Run:
        """A container that no profile names; whoever made it did not say so here."""
        run = self._place(container, container.name.lstrip("/") or container.id[:12])
        port = named_port(engine, container.argv)
        if port is not None and not run.port_visible:
            port = container.network_settings.published(port)
        return replace(run, port=port, engine=engine.id.value)

    def _place(self, container: Container, name: str) -> Run:
        state = container.state
        logs = (self.kind, "logs", "--follow", f"--since={state.started_at}", name)
        return Run(
            run_id=f"{container.id[:12]}-{state.started_at}",
            profile=name,
            launcher=self.kind,
            place=name,
            log=LogPlace(LogKind.COMMAND, argv=logs),
            started_at=epoch(state.started_at),
            argv=container.argv,
            pid=state.pid or None,
            port_visible=container.host_config.network_mode == "host",
        )

    async def _inspect(self, name: str) -> Container | None:
        told = await self._ask(["inspect", "--type=container", name], f"look at {name}")
        container = next(iter(_parse(told)), None)
        if container is None and "such" not in told.words.lower():
            raise AgentError(f"{self.kind} does not answer", told.words)
        return container

    async def _ask(
        self, words: list[str], what: str, *, changes: bool = False, timeout_s: float = 30.0
    ) -> CommandResult:
        return await run_command(
            self._host, [self.kind, *words], asked_by=ASKED_BY, what=what, changes_host=changes,
            timeout_s=timeout_s,
        )  # fmt: skip


def _parse(told: CommandResult) -> list[Container]:
    """Those that are there: one of several that has gone meanwhile makes `inspect` fail."""
    return parse(told.out) if told.ok or told.out.lstrip().startswith("[") else []


def _stop_argv(run: Run, grace_s: float) -> list[str]:
    return ["stop", f"--time={max(0, round(grace_s))}", run.place]


def _name(profile: Profile) -> str:
    return profile.unit or profile.name


def _after_run(profile: Profile, name: str) -> list[str]:
    """What follows `run`, less what is said already: detached, its name."""
    kept: list[str] = []
    words = iter(profile.command[2:])
    for word in words:
        if word in ("-d", "--detach") or word.startswith("--name="):
            continue
        if word == "--name":
            next(words, None)
            continue
        kept.append(word)
        if not word.startswith("-"):
            break
    return [*kept, *words]
