"""Servers as systemd units: a transient one of ours, or a named one that exists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from backends.errors import AgentError, RoomError
from backends.model import Severity
from backends.servers.asked import named_port
from backends.servers.host import CommandResult, Host, MemberFacts, StopAsked, convert, run_command
from backends.servers.launchers import unitfacts
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
from backends.servers.launchers.inspected import describe, inspect, port_facts, remaining
from backends.servers.launchers.unitfacts import PREFIX, SHOWN, SUFFIX, Shown
from backends.servers.profiles import LauncherKind, Profile
from backends.servers.recognise import recognise

ASKED_BY: Final = "servers"
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
        self._uid: str | None = None
        self._presence = Presence()

    async def findings(self, profile: Profile) -> list[StartFinding]:
        """What else stands in the way: no systemd, a unit that is not there, no lingering."""
        shown = await self._show(_unit(profile))
        if shown is None:
            words = "systemd does not run there, or cannot be reached by this account"
            out = 'use launcher = "process"'
            return [StartFinding("systemd-missing", Severity.CRITICAL, words, out)]
        if profile.unit is not None and shown.get("LoadState") == "not-found":
            words = f"there is no unit {_unit(profile)}"
            out = "leave `unit` out for a transient one, or write the unit"
            return [StartFinding("unit-missing", Severity.CRITICAL, words, out)]
        if unitfacts.is_busy(shown):
            by, origin = unitfacts.started_by(shown)
            who = f", started by {by} from {origin}" if by else ""
            return [runs_already(profile, f"{_unit(profile)} is {shown['ActiveState']}{who}")]
        found: list[StartFinding] = []
        if profile.unit is not None:
            out = f"systemctl edit {_unit(profile)}: Environment="
            found = env_unused(profile, f"the unit {_unit(profile)}, which has its own", out)
        if await self._is_root():
            return found
        # Without a name loginctl tells of itself, not of this user.
        told = await self._run(
            ["loginctl", "show-user", str(self._uid), "--property=Linger", "--value"],
            "look whether it lingers",
        )
        if told.ok and told.out.strip() == "yes":
            return found
        words = "lingering is off: the server would end when its user logs out"
        lingers = StartFinding("no-linger", Severity.CRITICAL, words, "loginctl enable-linger")
        return [lingers, *found]

    async def plan(self, profile: Profile, by: str, origin: str) -> StartPlan:
        """The named unit, which has its own environment, or all that makes a transient one."""
        unit = _unit(profile)
        first = await self._first_argv(profile)
        if profile.unit is not None:
            return StartPlan((tuple(first),), {}, f"by systemd, as unit {unit}")
        params = await self._transient_params(profile, unit, "", by, origin)
        answer = await self._host.request(
            "units.plan", params, asked_by=ASKED_BY, what=f"ask how {profile.name} is started"
        )
        made = convert(answer, tuple[str, ...], "a start")
        env = {"PYTHONUNBUFFERED": "1", **profile.env}
        return StartPlan((tuple(first), made), env, "by systemd-run, as a unit of its own")

    async def _first_argv(self, profile: Profile) -> list[str]:
        """The start of a named unit; of a transient one, what goes before it."""
        doing = ["start", "--no-block"] if profile.unit is not None else ["reset-failed"]
        return [*await self._systemctl(), *doing, _unit(profile)]

    async def start(self, profile: Profile, run_id: str, by: str, origin: str) -> Run:
        """`systemctl start` for a named unit, else `systemd-run`."""
        unit = _unit(profile)
        shown = await self._show(unit)
        if shown is None:
            raise LaunchError("systemd cannot be reached", hint='use launcher = "process"')
        if unitfacts.is_busy(shown):
            raise ProfileBusy(
                f"{profile.name} is {shown['ActiveState']} already",
                shown.get("Description", unit),
                "stop it first, or watch it",
            )
        argv = await self._first_argv(profile)
        if profile.unit is not None:
            told = await self._run(argv, f"start {profile.name}", changes=True)
        else:
            await self._run(argv, f"forget {unit}", changes=True)
            told = await self._transient(profile, unit, run_id, by, origin)
        if not told.ok:
            busy = "already" in told.words and ("exist" in told.words or "loaded" in told.words)
            raise (ProfileBusy if busy else LaunchError)(
                f"{profile.name} could not be started", told.words, f"systemctl status {unit}"
            )
        run = await self._run_of(profile.name, unit, await self._show(unit) or {})
        if run is None:
            raise LaunchError(f"{profile.name} is gone already", hint=f"journalctl -u {unit}")
        return replace(run, by=by, origin=origin)

    async def _transient(
        self, profile: Profile, unit: str, run_id: str, by: str, origin: str
    ) -> CommandResult:
        params = await self._transient_params(profile, unit, run_id, by, origin)
        answer = await self._host.request(
            "units.start", params, asked_by=ASKED_BY, what=f"start {profile.name}",
            changes_host=True, timeout_s=90.0,
        )  # fmt: skip
        return convert(answer, CommandResult, "a start")

    async def _transient_params(
        self, profile: Profile, unit: str, run_id: str, by: str, origin: str
    ) -> Mapping[str, object]:
        """Its environment goes by a private file, never by `--setenv`, which everybody can read."""
        options = [*([] if await self._is_root() else ["--user"]), f"--unit={unit}", "--quiet"]
        options += [f"--description=gpuroom {profile.name}, started by {by} from {origin}"]
        options += [f"--property=TimeoutStopSec={profile.stop_grace_s:g}"]
        return {
            "options": options,
            "argv": list(profile.command),
            "env": {"PYTHONUNBUFFERED": "1", **profile.env, "GPUROOM_RUN": run_id},
            "cwd": profile.cwd,
            "log": profile.log,
        }

    async def runs(self) -> list[Run]:
        """Every unit of a profile that systemd knows, and units of gpuroom without a profile."""
        if not self._profiles and not self._presence.likely:
            return []
        units = {_unit(profile): name for name, profile in self._profiles.items()}
        argv = [*await self._systemctl(), "list-units", "--all", "--plain", "--no-legend"]
        argv += ["--no-pager", f"{PREFIX}*{SUFFIX}"]
        told = await self._run(argv, "look for units of gpuroom")
        self._presence.note(answered=told.ok)
        for unit in unitfacts.listed_units(told.out) if told.ok else ():
            units.setdefault(unit, unit.removeprefix(PREFIX).removesuffix(SUFFIX))
        found: list[Run] = []
        for unit, name in units.items():
            shown = await self._show(unit)
            run = await self._run_of(name, unit, shown or {})
            if run is not None:
                found.append(run)
        return found

    async def look(self, run: Run, *, deep: bool = False) -> RunLook:
        """The unit's main process and cgroup; how it ended."""
        shown = await self._show(run.place)
        if shown is None:
            raise AgentError(f"systemd says nothing of {run.place}")
        pid, cgroup = unitfacts.main_pid(shown), unitfacts.cgroup(shown)
        if pid is not None:
            look = await inspect(self._host, run.profile, pid, port=run.port, cgroup=cgroup)
            return replace(look, stop=StopAsked(going=True)) if unitfacts.ends(shown) else look
        waiting = shown.get("ActiveState") == "activating"
        return RunLook(
            alive=waiting,
            exit_code=None if waiting else unitfacts.exit_code(run.place, shown),
            oom_killed=shown.get("Result") == "oom-kill",
            port=await port_facts(self._host, run.port),
            waiting="systemd has not started it yet" if waiting else "",
        )

    async def stop(
        self, run: Run, grace_s: float, by: str, origin: str, on_step: Callable[[StopStep], None],
        *, restart: bool = False,
    ) -> StopResult:  # fmt: skip
        """`systemctl stop`, which has a ladder of its own; SIGKILL to the cgroup if it hangs."""
        before = await self.look(run)
        on_step(StopStep(f"systemctl stop {run.place}", len(before.members)))
        (argv,) = await self.stop_commands(run, grace_s)
        patience_s = grace_s + STOP_SLACK_S
        told = await self._run(
            list(argv), f"stop {run.profile}", changes=True, timeout_s=patience_s
        )
        left = await self._left(before.members)
        if left and told.timed_out:
            on_step(StopStep("SIGKILL to the whole unit", len(left)))
            kill = [*await self._systemctl(), "kill", "--signal=SIGKILL", run.place]
            await self._run(kill, f"kill {run.profile}", changes=True)
            left = await self._left(before.members)
        if left and not told.ok:
            raise LaunchError(f"{run.profile} could not be stopped", told.words)
        return StopResult(left, await port_facts(self._host, run.port))

    async def stop_commands(self, run: Run, grace_s: float) -> tuple[tuple[str, ...], ...]:
        """`systemctl stop`."""
        return ((*await self._systemctl(), "stop", run.place),)

    async def _left(self, members: Sequence[MemberFacts]) -> tuple[MemberFacts, ...]:
        return await remaining(self._host, members)

    # --- how systemd is asked --------------------------------------------------------------------

    async def _is_root(self) -> bool:
        if self._uid is None:
            told = await self._run(["id", "-u"], "ask who works there")
            self._uid = told.out.strip()
        return self._uid == "0"

    async def _systemctl(self) -> list[str]:
        return ["systemctl", *([] if await self._is_root() else ["--user"])]

    async def _show(self, unit: str) -> Shown | None:
        argv = [*await self._systemctl(), "show", "--no-pager", f"--property={SHOWN}", unit]
        told = await self._run(argv, f"look at {unit}")
        return unitfacts.read_shown(told.out) if told.ok else None

    async def _run_of(self, name: str, unit: str, shown: Shown) -> Run | None:
        if not unitfacts.is_there(shown):
            return None
        profile = self._profiles.get(name)
        by, origin = unitfacts.started_by(shown)
        run = Run(
            run_id=shown.get("InvocationID") or unit,
            profile=name,
            launcher="systemd",
            place=unit,
            log=await self._log(profile, unit, shown),
            started_at=unitfacts.started_at(shown),
            argv=profile.command if profile is not None else (),
            port=profile.port if profile is not None else None,
            engine=profile.engine.id.value if profile is not None else None,
            pid=unitfacts.main_pid(shown),
            by=by,
            origin=origin,
        )
        return run if profile is not None else await self._known_by_its_process(run)

    async def _known_by_its_process(self, run: Run) -> Run:
        """What no profile tells of a unit, its main process does."""
        if run.pid is None:
            return run
        try:
            told = await describe(self._host, run.pid)
        except RoomError:  # it has ended meanwhile
            return run
        engine = recognise(told.argv)
        port = told.ports[0] if told.ports else None
        if port is None and engine is not None:
            port = named_port(engine, told.argv)
        return replace(
            run, argv=told.argv, env=told.env, cwd=told.cwd, port=port,
            engine=engine.id.value if engine is not None else None,
        )  # fmt: skip

    async def _log(self, profile: Profile | None, unit: str, shown: Shown) -> LogPlace:
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
    return name if name.endswith(SUFFIX) else f"{name}{SUFFIX}"
