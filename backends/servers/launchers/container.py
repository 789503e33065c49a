"""Servers in named containers of docker or podman: found, started, stopped, GPUs checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from backends.errors import AgentError
from backends.model import Severity
from backends.servers.host import CommandResult, Host, run_command
from backends.servers.launchers.base import (
    LaunchError,
    LogKind,
    LogPlace,
    ProfileBusy,
    Run,
    RunLook,
    StartFinding,
    StopResult,
    StopStep,
)
from backends.servers.launchers.inspected import inspect, port_facts
from backends.servers.profiles import LauncherKind, Profile

ASKED_BY: Final = "servers"
STOP_SLACK_S: Final = 30.0


class _State(msgspec.Struct, frozen=True, rename="pascal"):
    status: str = ""
    running: bool = False
    pid: int = 0
    exit_code: int = 0
    started_at: str = ""
    oom_killed: bool = msgspec.field(default=False, name="OOMKilled")


class _Config(msgspec.Struct, frozen=True, rename="pascal"):
    cmd: list[str] | None = None
    env: list[str] | None = None


class _HostConfig(msgspec.Struct, frozen=True, rename="pascal"):
    device_requests: list[object] | None = None
    devices: list[object] | None = None
    runtime: str = ""
    network_mode: str = ""


class _Container(msgspec.Struct, frozen=True, rename="pascal"):
    id: str
    state: _State
    path: str = ""
    args: list[str] = []
    config: _Config = _Config()
    host_config: _HostConfig = _HostConfig()

    @property
    def sees_gpus(self) -> bool:
        """Whether it was made with access to GPUs."""
        names = str(self.host_config.devices or "")
        env = self.config.env or []
        by_runtime = self.host_config.runtime == "nvidia" and not any(
            word in ("NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=none") for word in env
        )
        return (
            bool(self.host_config.device_requests)
            or by_runtime
            or "nvidia" in names
            or "/dev/dri" in names
            or "/dev/kfd" in names
        )


class ContainerLauncher:
    """Containers of one host that profiles name with `unit`.

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

    async def findings(self, profile: Profile) -> list[StartFinding]:
        """What else stands in the way: no program, no container, no GPU in it."""
        told = await self._ask(["inspect", "--type=container", _name(profile)], "look at it")
        if told.missing is not None:
            words, out = f"{self.kind} is not installed there", 'use launcher = "process"'
            return [StartFinding("container-program", Severity.CRITICAL, words, out)]
        container = _parse(told)
        if container is None:
            if "such" in told.words.lower() and self._can_make(profile):
                return []
            out = f"`command` may be a `{self.kind} run ...` that makes it"
            title = f"{self.kind} knows no container {_name(profile)}"
            if "such" not in told.words.lower():
                title, out = told.words, f"may this account use {self.kind}?"
            return [StartFinding("container-missing", Severity.CRITICAL, title, out)]
        if container.sees_gpus or not self._host.snapshot.gpus:
            return []
        title = f"the container {_name(profile)} was made without access to GPUs"
        out = "make it anew with --gpus all (podman: --device nvidia.com/gpu=all)"
        return [StartFinding("container-without-gpus", Severity.WARNING, title, out)]

    async def start(self, profile: Profile, run_id: str, by: str, origin: str) -> Run:
        """`start` for a container that exists, else the profile's own `run` command, detached."""
        name = _name(profile)
        container = await self._inspect(name)
        if container is not None and container.state.running:
            raise ProfileBusy(
                f"{profile.name} is running already", f"container {name}", "stop it, or watch it"
            )
        if container is not None:
            argv = ["start", name]
        elif self._can_make(profile):
            argv = ["run", "--detach", f"--name={name}", *_after_run(profile, name)]
        else:
            raise LaunchError(f"{self.kind} knows no container {name}")
        told = await self._ask(argv, f"start {profile.name}", changes=True, timeout_s=120.0)
        if not told.ok:
            raise LaunchError(f"{profile.name} could not be started", told.words)
        container = await self._inspect(name)
        if container is None:
            raise LaunchError(f"{profile.name} is gone already", f"container {name}")
        return self._run_of(profile, container, by=by, origin=origin)

    async def runs(self) -> list[Run]:
        """The containers of the profiles that were started at least once."""
        found: list[Run] = []
        for profile in self._profiles.values():
            container = await self._inspect(_name(profile))
            if container is not None and container.state.status != "created":
                found.append(self._run_of(profile, container))
        return found

    async def look(self, run: Run, *, deep: bool = False) -> RunLook:
        """The container's processes, or how it ended."""
        container = await self._inspect(run.place)
        if container is None:
            return RunLook(alive=False)
        state = container.state
        if state.running and state.pid:
            port = run.port if run.port_visible else None
            return await inspect(self._host, run.profile, state.pid, port=port)
        code = state.exit_code
        return RunLook(
            alive=False,
            exit_code=128 - code if code > 128 else code,
            oom_killed=state.oom_killed,
            port=await port_facts(self._host, run.port),
        )

    async def stop(
        self, run: Run, grace_s: float, by: str, origin: str, on_step: Callable[[StopStep], None]
    ) -> StopResult:
        """`stop` with the grace, which kills what is left of the container."""
        before = await self.look(run)
        on_step(StopStep(f"{self.kind} stop {run.place}", len(before.members)))
        told = await self._ask(
            ["stop", f"--time={max(0, round(grace_s))}", run.place], f"stop {run.profile}",
            changes=True, timeout_s=grace_s + STOP_SLACK_S,
        )  # fmt: skip
        after = await self.look(run)
        if after.alive and not told.ok:
            raise LaunchError(f"{run.profile} could not be stopped", told.words)
        return StopResult(after.members, await port_facts(self._host, run.port))

    def _can_make(self, profile: Profile) -> bool:
        return tuple(profile.command[:2]) == (self.kind, "run")

    def _run_of(
        self, profile: Profile, container: _Container, *, by: str | None = None,
        origin: str | None = None,
    ) -> Run:  # fmt: skip
        state, name = container.state, _name(profile)
        logs = (self.kind, "logs", "--follow", f"--since={state.started_at}", name)
        return Run(
            run_id=f"{container.id[:12]}-{state.started_at}",
            profile=profile.name,
            launcher=self.kind,
            place=name,
            log=LogPlace(LogKind.COMMAND, argv=logs),
            started_at=_epoch(state.started_at),
            argv=(container.path, *container.args),
            port=profile.port,
            engine=profile.engine.id.value,
            pid=state.pid or None,
            by=by,
            origin=origin,
            port_visible=container.host_config.network_mode == "host",
        )

    async def _inspect(self, name: str) -> _Container | None:
        told = await self._ask(["inspect", "--type=container", name], f"look at {name}")
        container = _parse(told)
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


def _parse(told: CommandResult) -> _Container | None:
    if not told.ok:
        return None
    try:
        listed = msgspec.json.decode(told.out.encode(), type=list[_Container])
    except msgspec.DecodeError as error:
        raise AgentError("the description of a container makes no sense", str(error)) from None
    return listed[0] if listed else None


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


def _epoch(text: str) -> float | None:
    """RFC 3339 with up to nine digits of a second."""
    head, _, _ = text.partition(".")
    try:
        moment = datetime.fromisoformat(head.removesuffix("Z") + "+00:00")
    except ValueError:
        return None
    return moment.timestamp() if moment.year > 1 else None
