"""Servers as plain processes, each under a supervisor of its own (docs/agent.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from backends.errors import AgentError
from backends.servers.giveback import memory_used
from backends.servers.host import Host, MemberFacts, PortFacts, RunState, convert
from backends.servers.launchers.base import (
    LaunchError,
    LogKind,
    LogPlace,
    ProfileBusy,
    Run,
    RunLook,
    StartPlan,
    StopResult,
    StopStep,
)
from backends.servers.launchers.holding import busy_of
from backends.servers.profiles import LauncherKind, Profile

ASKED_BY: Final = "servers"
START_TIMEOUT_S: Final = 40.0
LOOK_TIMEOUT_S: Final = 15.0


class _Busy(msgspec.Struct, frozen=True):
    by: str | None = None
    origin: str | None = None
    at: float | None = None
    left: tuple[MemberFacts, ...] = ()


class _Failed(msgspec.Struct, frozen=True):
    text: str | None = None
    errno: str = ""
    path: str | None = None


class _Started(msgspec.Struct, frozen=True):
    started: dict[str, object] | None = None
    busy: _Busy | None = None
    failed: _Failed | None = None


class StopPiece(msgspec.Struct, frozen=True):
    """One piece of the agent's answer to a stop."""

    step: str = ""
    members: tuple[MemberFacts, ...] = ()
    done: bool = False
    left: tuple[MemberFacts, ...] = ()
    port: PortFacts | None = None


class ProcessLauncher:
    """Runs of one host."""

    kind: LauncherKind = "process"

    def __init__(self, host: Host) -> None:
        self._host = host

    async def plan(self, profile: Profile, by: str, origin: str) -> StartPlan:
        """The profile's own command."""
        env = {"PYTHONUNBUFFERED": "1", **profile.env}
        words = "detached, in a session of its own; it outlives gpuroom"
        return StartPlan((tuple(profile.command),), env, words)

    async def stop_commands(self, run: Run, grace_s: float) -> tuple[tuple[str, ...], ...]:
        """None: the agent sends signals."""
        return ()

    async def start(self, profile: Profile, run_id: str, by: str, origin: str) -> Run:
        """Start it detached, under the lock of the profile."""
        answer = await self._host.request(
            "servers.start",
            {
                "profile": profile.name,
                "run_id": run_id,
                "argv": list(profile.command),
                "env": dict(profile.env),
                "cwd": profile.cwd,
                "log": profile.log,
                "port": profile.port,
                "engine": profile.engine.id.value,
                "by": by,
                "origin": origin,
                "memory_before": memory_used(self._host.snapshot),
            },
            asked_by=ASKED_BY,
            what=f"start {profile.name}",
            changes_host=True,
            timeout_s=START_TIMEOUT_S,
        )
        told = convert(answer, _Started, "a start")
        if told.busy is not None:
            since = _clock(told.busy.at)
            if told.busy.left:
                raise ProfileBusy(
                    f"the run of {profile.name} before has ended, but not all of its processes",
                    ", ".join(f"pid {left.pid} {left.command[:60]}" for left in told.busy.left[:4]),
                    f"`gpuroom stop {profile.name}` ends them",
                )
            raise ProfileBusy(
                f"{profile.name} is running already",
                f"started by {told.busy.by} from {told.busy.origin}{since}",
                "stop it first, or watch it",
            )
        if told.failed is not None or told.started is None:
            failed = told.failed or _Failed("the supervisor said nothing")
            place = f"{failed.path}: " if failed.path else ""
            raise LaunchError(
                f"{profile.name} could not be started",
                f"{place}{failed.text}",
                _way_out(failed.errno),
            )
        state = convert({"record": told.started, "alive": True}, RunState, "a start")
        return _run_of(state)

    async def runs(self) -> list[Run]:
        """The newest run of each profile."""
        newest: dict[str, Run] = {}
        for state in await self._states():
            newest.setdefault(state.record.profile, _run_of(state))
        return list(newest.values())

    async def look(self, run: Run, *, deep: bool = False) -> RunLook:
        """One round trip: processes, port, how it ended."""
        answer = await self._host.request(
            "servers.look",
            {"dir": run.place, "deep": deep, "port": run.port},
            asked_by=ASKED_BY,
            what=f"look at {run.profile}",
            timeout_s=LOOK_TIMEOUT_S,
        )
        state = convert(answer, RunState, f"the run {run.profile}")
        ended = state.exit
        code = None
        if ended is not None:
            code = -ended.signal if ended.signal is not None else ended.code
        return RunLook(
            alive=state.alive,
            pid=state.record.pid if state.alive else None,
            members=state.members,
            exit_code=code,
            oom_killed=bool(ended is not None and ended.oom_kills),
            cpu_s=state.cpu_s,
            read_bytes=state.read_bytes,
            port=state.port,
            stop=state.stop,
        )

    async def stop(
        self, run: Run, grace_s: float, by: str, origin: str, on_step: Callable[[StopStep], None],
        *, restart: bool = False,
    ) -> StopResult:  # fmt: skip
        """The ladder: the main process, its group, every member."""
        last: StopPiece | None = None
        params: Mapping[str, object] = {
            "dir": run.place, "grace_s": grace_s, "by": by, "origin": origin, "port": run.port,
            "restart": restart,
        }  # fmt: skip
        try:
            async with contextlib.aclosing(
                self._host.stream(
                    "servers.stop",
                    params,
                    asked_by=ASKED_BY,
                    what=f"stop {run.profile}",
                    changes_host=True,
                )
            ) as pieces:
                async for piece in pieces:
                    last = convert(piece, StopPiece, "a stop")
                    if not last.done:
                        on_step(StopStep(last.step, len(last.members)))
        except AgentError as error:
            busy = busy_of(error, run.profile)
            if busy is None:
                raise
            raise busy from None
        if last is None or not last.done:
            raise LaunchError(f"the stop of {run.profile} broke off", hint="look again, and repeat")
        return StopResult(last.left, last.port)

    async def _states(self) -> list[RunState]:
        answer = await self._host.request(
            "servers.list",
            asked_by=ASKED_BY,
            what="list the servers",
            timeout_s=LOOK_TIMEOUT_S,
        )
        states: list[RunState] = []
        for entry in answer if isinstance(answer, list) else ():
            with contextlib.suppress(AgentError):  # a damaged record hides no other
                states.append(convert(entry, RunState, "a run"))
        return states


def _run_of(state: RunState) -> Run:
    record = state.record
    return Run(
        run_id=record.run_id,
        profile=record.profile,
        launcher="process",
        place=record.dir,
        log=LogPlace(LogKind.FILE, record.log, begins_at=record.log_begin),
        started_at=record.started_at,
        age_s=state.age_s,
        argv=record.argv,
        env=record.env,
        cwd=record.cwd,
        port=record.port,
        engine=record.engine,
        pid=record.pid,
        by=record.by,
        origin=record.origin,
        memory_before=record.memory_before,
    )


def _clock(at: float | None) -> str:
    return "" if at is None else f" at {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _way_out(errno: str) -> str:
    return {
        "ENOENT": "is it installed there, and is the path right?",
        "EACCES": "it may not be executed by this account",
        "ENOEXEC": "it is no program: does it begin with #! ?",
        "ENOSPC": "the disk is full: make room, or name another `log` place",
        "EDQUOT": "this account's quota is used up: make room, or name another `log` place",
        "EROFS": "it is mounted read-only: set XDG_STATE_HOME there, or name another `log` place",
        "E2BIG": "an argument or a variable is too long, or all are together: give it by a file",
    }.get(errno, "")
