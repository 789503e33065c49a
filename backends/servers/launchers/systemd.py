"""Servers as systemd units: a transient one of ours, or a named one that exists."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

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
PREFIX: Final = "gpuroom-"
SHOWN: Final = (
    "Id,LoadState,ActiveState,SubState,MainPID,ExecMainPID,ExecMainCode,ExecMainStatus,Result,"
    "ControlGroup,InvocationID,ExecMainStartTimestamp,Description"
)
KILLED_CODES: Final = ("2", "3")
"""CLD_KILLED and CLD_DUMPED: the status is a signal."""
STOP_SLACK_S: Final = 30.0


class SystemdLauncher:
    """Units of one host: the system's for root, else the user's own.

    Args:
        host: The host.
        profiles: Those that are started here; `unit` names one that exists.
    """

    kind: LauncherKind = "systemd"

    def __init__(self, host: Host, profiles: Sequence[Profile]) -> None:
        self._host = host
        self._profiles = {p.name: p for p in profiles if p.launcher == "systemd"}
        self._root: bool | None = None

    async def findings(self, profile: Profile) -> list[StartFinding]:
        """What else stands in the way: no systemd, a unit that is not there, no lingering."""
        shown = await self._show(profile)
        if shown is None:
            words = "systemd does not run there, or cannot be reached by this account"
            out = 'use launcher = "process"'
            return [StartFinding("systemd-missing", Severity.CRITICAL, words, out)]
        if profile.unit is not None and shown.get("LoadState") == "not-found":
            words = f"there is no unit {_unit(profile)}"
            out = "leave `unit` out for a transient one, or write the unit"
            return [StartFinding("unit-missing", Severity.CRITICAL, words, out)]
        if await self._is_root():
            return []
        told = await self._run(
            ["loginctl", "show-user", "--property=Linger", "--value"], "look whether it lingers"
        )
        if told.ok and told.out.strip() == "yes":
            return []
        words = "lingering is off: the server would end when its user logs out"
        return [StartFinding("no-linger", Severity.CRITICAL, words, "loginctl enable-linger")]

    async def start(self, profile: Profile, run_id: str, by: str, origin: str) -> Run:
        """`systemctl start` for a named unit, else `systemd-run`."""
        unit = _unit(profile)
        shown = await self._show(profile)
        if shown is None:
            raise LaunchError("systemd cannot be reached", hint='use launcher = "process"')
        if shown.get("ActiveState") in ("active", "activating", "reloading", "deactivating"):
            raise ProfileBusy(
                f"{profile.name} is {shown['ActiveState']} already",
                shown.get("Description", unit),
                "stop it first, or watch it",
            )
        if profile.unit is not None:
            argv = [*await self._systemctl(), "start", "--no-block", unit]
        else:
            await self._run([*await self._systemctl(), "reset-failed", unit], f"forget {unit}")
            argv = await self._transient(profile, run_id, by, origin)
        told = await self._run(argv, f"start {profile.name}", changes=True)
        if not told.ok:
            busy = "already" in told.words and "exist" in told.words
            raise (ProfileBusy if busy else LaunchError)(
                f"{profile.name} could not be started", told.words, f"systemctl status {unit}"
            )
        run = await self._run_of(profile.name, unit, await self._show(profile) or {})
        if run is None:
            raise LaunchError(f"{profile.name} is gone already", hint=f"journalctl -u {unit}")
        return replace(run, by=by, origin=origin)

    async def _transient(self, profile: Profile, run_id: str, by: str, origin: str) -> list[str]:
        argv = ["systemd-run", *([] if await self._is_root() else ["--user"])]
        argv += [f"--unit={_unit(profile)}", "--quiet"]
        argv += [f"--description=gpuroom {profile.name}, started by {by} from {origin}"]
        argv += [f"--property=TimeoutStopSec={profile.stop_grace_s:g}"]
        if profile.cwd is not None:
            argv.append(f"--working-directory={profile.cwd}")
        if profile.log is not None:
            argv.append(f"--property=StandardOutput=append:{profile.log}")
            argv.append(f"--property=StandardError=append:{profile.log}")
        env = {"PYTHONUNBUFFERED": "1", **profile.env, "GPUROOM_RUN": run_id}
        argv += [f"--setenv={name}={value}" for name, value in env.items()]
        # A service's command has its variables expanded; `$$` is a plain dollar sign.
        return [*argv, "--", *(word.replace("$", "$$") for word in profile.command)]

    async def runs(self) -> list[Run]:
        """Every unit of a profile that systemd knows."""
        found: list[Run] = []
        for profile in self._profiles.values():
            shown = await self._show(profile)
            run = await self._run_of(profile.name, _unit(profile), shown or {})
            if run is not None:
                found.append(run)
        return found

    async def look(self, run: Run, *, deep: bool = False) -> RunLook:
        """The unit's main process and cgroup; how it ended."""
        shown = await self._show_unit(run.place)
        if shown is None:
            raise AgentError(f"systemd says nothing of {run.place}")
        pid = int(shown.get("MainPID") or 0)
        if pid:
            return await inspect(self._host, run.profile, pid, port=run.port, cgroup=_cgroup(shown))
        code = None
        if shown.get("ExecMainPID", "0") != "0" and shown.get("ExecMainStatus", "").isdigit():
            status = int(shown["ExecMainStatus"])
            code = -status if shown.get("ExecMainCode") in KILLED_CODES else status
        waiting = shown.get("ActiveState") == "activating"
        return RunLook(
            alive=waiting,
            exit_code=None if waiting else code,
            oom_killed=shown.get("Result") == "oom-kill",
            port=await port_facts(self._host, run.port),
            waiting="systemd has not started it yet" if waiting else "",
        )

    async def stop(
        self, run: Run, grace_s: float, by: str, origin: str, on_step: Callable[[StopStep], None]
    ) -> StopResult:
        """`systemctl stop`, which has a ladder of its own; SIGKILL to the cgroup if it hangs."""
        before = await self.look(run)
        on_step(StopStep(f"systemctl stop {run.place}", len(before.members)))
        argv = [*await self._systemctl(), "stop", run.place]
        patience_s = grace_s + STOP_SLACK_S
        told = await self._run(argv, f"stop {run.profile}", changes=True, timeout_s=patience_s)
        after = await self.look(run)
        if after.alive and told.timed_out:
            on_step(StopStep("SIGKILL to the whole unit", len(after.members)))
            kill = [*await self._systemctl(), "kill", "--signal=SIGKILL", run.place]
            await self._run(kill, f"kill {run.profile}", changes=True)
            after = await self.look(run)
        if after.alive and not told.ok:
            raise LaunchError(f"{run.profile} could not be stopped", told.words)
        return StopResult(after.members, await port_facts(self._host, run.port))

    # --- how systemd is asked --------------------------------------------------------------------

    async def _is_root(self) -> bool:
        if self._root is None:
            told = await self._run(["id", "-u"], "ask who works there")
            self._root = told.out.strip() == "0"
        return self._root

    async def _systemctl(self) -> list[str]:
        return ["systemctl", *([] if await self._is_root() else ["--user"])]

    async def _show(self, profile: Profile) -> Mapping[str, str] | None:
        return await self._show_unit(_unit(profile))

    async def _show_unit(self, unit: str) -> Mapping[str, str] | None:
        argv = [*await self._systemctl(), "show", "--no-pager", f"--property={SHOWN}", unit]
        told = await self._run(argv, f"look at {unit}")
        if not told.ok:
            return None
        pairs = (line.partition("=") for line in told.out.splitlines() if "=" in line)
        return {name: value for name, _, value in pairs}

    async def _run_of(self, name: str, unit: str, shown: Mapping[str, str]) -> Run | None:
        begun = shown.get("ExecMainPID", "0") != "0" or shown.get("ActiveState") == "activating"
        if not begun or shown.get("LoadState") == "not-found":
            return None
        profile = self._profiles.get(name)
        by, origin = _who(shown.get("Description", ""))
        return Run(
            run_id=shown.get("InvocationID") or unit,
            profile=name,
            launcher="systemd",
            place=unit,
            log=await self._log(profile, unit, shown),
            started_at=_epoch(shown.get("ExecMainStartTimestamp", "")),
            argv=profile.command if profile is not None else (),
            port=profile.port if profile is not None else None,
            engine=profile.engine.id.value if profile is not None else None,
            pid=int(shown.get("MainPID") or 0) or None,
            by=by,
            origin=origin,
        )

    async def _log(self, profile: Profile | None, unit: str, shown: Mapping[str, str]) -> LogPlace:
        if profile is not None and profile.log is not None:
            return LogPlace(LogKind.FILE, profile.log)
        root = await self._is_root()
        argv = ["journalctl", "--follow", "--lines=all", "--no-pager", "--output=cat"]
        argv += [f"--unit={unit}" if root else f"--user-unit={unit}"]
        if shown.get("InvocationID"):
            argv.append(f"_SYSTEMD_INVOCATION_ID={shown['InvocationID']}")
        return LogPlace(LogKind.COMMAND, argv=tuple(argv))

    async def _run(
        self, argv: list[str], what: str, *, changes: bool = False, timeout_s: float = 30.0
    ) -> CommandResult:
        return await run_command(
            self._host, argv, asked_by=ASKED_BY, what=what, changes_host=changes,
            timeout_s=timeout_s,
        )  # fmt: skip


def _unit(profile: Profile) -> str:
    name = profile.unit or f"{PREFIX}{profile.name}"
    return name if name.endswith(".service") else f"{name}.service"


def _cgroup(shown: Mapping[str, str]) -> str | None:
    place = shown.get("ControlGroup", "")
    return f"/sys/fs/cgroup{place}" if place.strip("/") and ".." not in place else None


def _who(description: str) -> tuple[str | None, str | None]:
    _, told, rest = description.partition(", started by ")
    by, _, origin = rest.partition(" from ")
    return (by, origin) if told else (None, None)


def _epoch(text: str) -> float | None:
    """`Wed 2026-12-02 10:00:00 UTC` in epoch seconds."""
    with contextlib.suppress(ValueError):
        return datetime.strptime(text, "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC).timestamp()
    return None
