"""Servers that gpuroom did not start: watched, tailed and stopped just as well."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Final

from backends.errors import AgentError
from backends.servers.asked import named_model, named_port
from backends.servers.engines import Engine
from backends.servers.host import Host, convert
from backends.servers.launchers.base import (
    LaunchError,
    Run,
    RunLook,
    StartPlan,
    StopResult,
    StopStep,
)
from backends.servers.launchers.foundlog import log_of
from backends.servers.launchers.holding import busy_of
from backends.servers.launchers.inspected import Described, describe, inspect
from backends.servers.launchers.process import StopPiece
from backends.servers.profiles import LauncherKind, Profile
from backends.servers.recognise import recognise

ASKED_BY: Final = "servers"


class FoundLauncher:
    """Processes of one host that became servers by being looked at."""

    kind: LauncherKind = "process"

    def __init__(self, host: Host) -> None:
        self._host = host

    async def run_of(self, pid: int, engine: Engine | None) -> Run:
        """The process as a run."""
        told = await describe(self._host, pid)
        engine = engine or recognise(told.argv)
        port = told.ports[0] if told.ports else None
        if engine is not None and port is None:
            port = named_port(engine, told.argv)
        return Run(
            run_id=f"{told.boot_id}-{told.pid}-{told.start_ticks}",
            profile=_name(engine, told),
            launcher="process",
            place=f"{told.pid}:{told.start_ticks}",
            log=await log_of(self._host, told),
            started_at=told.started,
            age_s=told.age_s,
            argv=told.argv,
            env=told.env,
            cwd=told.cwd,
            port=port,
            engine=engine.id.value if engine is not None else None,
            pid=told.pid,
            by=told.user,
            program=told.program,
            env_differs=told.env_differs,
            adopted=True,
        )

    async def plan(self, profile: Profile, by: str, origin: str) -> StartPlan:
        """Nothing: what was only found can't be started."""
        raise LaunchError(
            f"{profile.name} was found, not configured",
            hint="`gpuroom servers import HOST PID` writes a profile from it",
        )

    async def stop_commands(self, run: Run, grace_s: float) -> tuple[tuple[str, ...], ...]:
        """None: the agent sends signals."""
        return ()

    async def start(self, profile: Profile, run_id: str, by: str, origin: str) -> Run:
        """What was only found can't be started."""
        raise LaunchError(
            f"{profile.name} was found, not configured",
            hint="`gpuroom servers import HOST PID` writes a profile from it",
        )

    async def runs(self) -> list[Run]:
        """None of its own: `ServerDesk.strangers` looks for them."""
        return []

    async def look(self, run: Run, *, deep: bool = False) -> RunLook:
        """The process and its descendants now."""
        pid, ticks = _identity(run)
        return await inspect(self._host, run.profile, pid, start_ticks=ticks, port=run.port)

    async def stop(
        self, run: Run, grace_s: float, by: str, origin: str, on_step: Callable[[StopStep], None],
        *, restart: bool = False,
    ) -> StopResult:  # fmt: skip
        """The process and its descendants, by the same ladder."""
        pid, ticks = _identity(run)
        last: StopPiece | None = None
        params: Mapping[str, object] = {
            "pid": pid, "start_ticks": ticks, "grace_s": grace_s, "port": run.port, "by": by,
            "origin": origin,
        }  # fmt: skip
        pieces = self._host.stream(
            "servers.stop_found",
            params,
            asked_by=ASKED_BY,
            what=f"stop {run.profile}",
            changes_host=True,
        )
        try:
            async with contextlib.aclosing(pieces):
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


def _identity(run: Run) -> tuple[int, int]:
    pid, _, ticks = run.place.partition(":")
    return int(pid), int(ticks)


def _name(engine: Engine | None, told: Described) -> str:
    """A short name: the model, else the program."""
    model = named_model(engine, told.argv) if engine is not None else None
    if model:
        return PurePosixPath(model).name[:40]
    return PurePosixPath(told.argv[0]).name[:40] if told.argv else f"pid-{told.pid}"
