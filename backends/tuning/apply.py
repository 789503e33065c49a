"""Carries fixes out on a host and its hypervisor, verifies each, and takes them back.

First everything is read and kept (`prepare`), then shown, then carried out one fix at a time
(`apply`), each read back; at the end the checks are judged again on what the host says then.
Nothing is done under another boot id than the one that was shown.
"""

from __future__ import annotations

import base64
import difflib
import getpass
import posixpath
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Literal, TypeVar

import msgspec

from backends.errors import AgentError, RoomError, UsageError
from backends.model import GpuProcess
from backends.session import HostSession
from backends.text import clean
from backends.tuning.facts import FactsDocument, Vantage
from backends.tuning.findings import Finding, Verdict
from backends.tuning.fixes import Command, EditFile, Fix, InstallFile, Target, Write
from backends.tuning.gather import Gathered, Reading
from backends.tuning.plans import LOADER_FILES, REFRESH, PlanError, plan
from backends.tuning.snapshot import (
    BACKUPS,
    Outcome,
    Result,
    Saved,
    Snapshot,
    same_value,
    value_to_restore,
)

STEP_S: Final = 180.0
Converted = TypeVar("Converted", bound=msgspec.Struct)
WRONG: Final = (Verdict.FAIL, Verdict.WARN)


@dataclass(frozen=True, slots=True)
class Machines:
    """A host, and the hypervisor below it where there is one."""

    host: HostSession
    hypervisor: HostSession | None = None

    def at(self, vantage: Vantage) -> HostSession:
        """The session that changes are made through."""
        if vantage is Vantage.HOST and self.hypervisor is not None:
            return self.hypervisor
        return self.host

    @property
    def vantages(self) -> dict[Vantage, str]:
        """Names by vantage."""
        if self.hypervisor is None:
            return {Vantage.HOST: self.host.name}
        return {Vantage.GUEST: self.host.name, Vantage.HOST: self.hypervisor.name}


@dataclass(frozen=True, slots=True)
class Step:
    """One step, resolved.

    Attributes:
        kind: `write`, `file` or `command`.
        old: What is there now; None for no file.
        new: What will be there.
        compare: Whether the old content must still be there when it is done.
    """

    kind: str
    path: str = ""
    old: bytes | None = None
    new: bytes = b""
    mode: int | None = None
    argv: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    compare: bool = True

    @property
    def changes(self) -> bool:
        """Whether it would change anything."""
        if self.kind == "write":
            return not same_value(self.new, self.old)
        return self.kind == "command" or self.old != self.new


@dataclass(frozen=True, slots=True)
class Task:
    """One fix of the plan: where, and with which steps; or why it cannot be carried out."""

    finding: Finding
    fix: Fix
    vantage: Vantage
    steps: tuple[Step, ...] = ()
    problem: str = ""

    @property
    def check(self) -> str:
        """The finding's name."""
        return self.finding.check


def holders(session: HostSession) -> list[GpuProcess]:
    """Processes that compute on a host's GPUs: a server that serves is one of them."""
    return [p for p in session.snapshot.processes if p.kind == "compute"]


def needs_name(machines: Machines) -> str:
    """Why the host's name must be typed before a change; empty where a yes is enough."""
    for session in (machines.host, machines.hypervisor):
        if session is None:
            continue
        if session.config.production:
            return f"{session.name} is marked production"
        holding = holders(session)
        if holding:
            return (
                f"{len(holding)} processes hold GPUs of {session.name}: {holding[0].command[:60]}"
            )
    return ""


Known = dict[tuple[Vantage, str], "File"]


@dataclass(frozen=True, slots=True)
class File:
    """A file as it is now."""

    data: bytes | None
    mode: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done, and what is there now.

    Attributes:
        tasks: One a fix, in the order of the checklist.
        known: Every file concerned, as read.
    """

    tasks: tuple[Task, ...]
    known: Known
    snapshot: Snapshot
    loader: dict[Vantage, str] = field(default_factory=dict)
    persistent: bool = False

    @property
    def hosts(self) -> tuple[str, ...]:
        """The machines that would be changed."""
        touched = {task.vantage for task in self.tasks if task.steps}
        return tuple(name for at, name in self.snapshot.hosts.items() if at in touched)

    def lines(self) -> list[str]:
        """Exactly what would be written and run, on which host; files as differences."""
        result: list[str] = []
        for task in self.tasks:
            where = self.snapshot.hosts[task.vantage]
            result.append(f"{task.check} on {where}: {task.fix.summary}")
            if task.problem:
                result.append(f"  cannot be done: {task.problem}")
            for step in task.steps:
                result += [f"  {line}" for line in describe(step)]
            if task.fix.restarts:
                result.append(f"  afterwards restart: {task.fix.restarts}")
            if task.fix.reboot and any(step.kind == "file" for step in task.steps):
                result.append("  takes effect with the next boot")
        return result


def describe(step: Step) -> list[str]:
    """One step in words."""
    if step.kind == "command":
        return [f"run {shlex.join(step.argv)}"]
    if not step.changes:
        return [f"{step.path} is so already"]
    if step.kind == "write":
        old = "(nothing)" if step.old is None else repr(_text(step.old).strip())
        return [f"write {_text(step.new).strip()!r} to {step.path} (now {old})"]
    if not step.compare:
        return [f"copy to {step.path}"]
    before = _text(step.old or b"").splitlines()
    after = _text(step.new).splitlines()
    diff = difflib.unified_diff(before, after, step.path, step.path, lineterm="", n=1)
    return [clean(line) for line in diff]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def choose(findings: Sequence[Finding], ids: Sequence[str]) -> list[Finding]:
    """The findings that ids name; a rule's id means all its instances that are wrong.

    Raises:
        UsageError: An id names nothing, or nothing that can be carried out.
    """
    chosen: dict[str, Finding] = {}
    for wanted in ids:
        named = [f for f in findings if f.check == wanted and not f.instance]
        exact = [f for f in findings if f.check == wanted and f.instance]
        instances = [
            f
            for f in findings
            if f.instance and (f.rule == wanted or f.check.partition("[")[0] == wanted)
        ]
        matching = exact or [f for f in instances if f.verdict in WRONG] or instances or named
        matching = matching or [f for f in findings if f.rule == wanted]
        if not matching:
            raise UsageError(f"no finding {wanted!r} on this host", hint="see the checklist")
        usable = [f for f in matching if f.fix is not None and f.fix.applicable]
        if not usable:
            first = matching[0]
            raise UsageError(
                f"{wanted} has no fix that can be carried out",
                first.fix_text or f"it is {first.verdict.value}: {first.evidence}",
            )
        chosen.update((f.check, f) for f in usable)
    # Several instances may have one fix between them.
    by_fix: dict[Fix, Finding] = {}
    for finding in chosen.values():
        assert finding.fix is not None
        by_fix.setdefault(finding.fix, finding)
    return list(by_fix.values())


async def prepare(
    machines: Machines,
    gathered: Gathered,
    findings: Sequence[Finding],
    *,
    persistent: bool = False,
    reading: Reading | None = None,
) -> Plan:
    """Read what would change, and work out what would be done. Changes nothing.

    Raises:
        AgentError: A host did not answer, or runs another boot than the facts are of.
    """
    reading = reading or Reading()
    tasks = [_task(machines, finding) for finding in findings]
    loader = {vantage: _loader(gathered.document, vantage) for vantage in Vantage}
    wanted: dict[Vantage, set[str]] = {}
    for task in tasks:
        for wish in _steps_of(task.fix, persistent):
            if path := _path(wish, loader[task.vantage]):
                wanted.setdefault(task.vantage, set()).add(path)
    known: Known = {}
    for vantage, paths in wanted.items():
        known |= await _read(machines, gathered, vantage, sorted(paths), reading)
    identity = datetime.now(UTC).strftime("%Y%m%dT%H%M%S") + "-" + secrets.token_hex(3)
    resolved: list[Task] = []
    state = dict(known)
    for task in tasks:
        done = _resolve(task, state, loader[task.vantage], persistent, identity)
        for step in done.steps:
            if step.path:
                state[task.vantage, step.path] = File(step.new, step.mode)
        resolved.append(done)
    snapshot = Snapshot(
        snapshot_id=identity,
        host=machines.host.name,
        hosts=machines.vantages,
        boot_ids={v: gathered.boot_ids.get(v, "") for v in machines.vantages},
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        operator=_operator(),
        roots=reading.roots(machines.vantages),
        saved=_saved(resolved, known),
    )
    return Plan(tuple(resolved), known, snapshot, loader, persistent)


async def apply(
    machines: Machines,
    planned: Plan,
    *,
    reading: Reading | None = None,
    told: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Carry a plan out, one fix after the other; one that fails stops no other.

    The snapshot must be kept before. Results are of the writes; `verify` judges the checks.

    Args:
        machines: Where.
        planned: What, as shown.
        reading: The folder for `/`, and sudo.
        told: Is called with each result as it comes.
    """
    reading = reading or Reading()
    state: Known = dict(planned.known)
    results: list[Result] = []
    for task in planned.tasks:
        again = _resolve(
            replace(task, steps=(), problem=task.problem),
            state,
            planned.loader.get(task.vantage, ""),
            planned.persistent,
            planned.snapshot.snapshot_id,
        )
        result = await _one(machines, planned.snapshot, again, reading)
        for path, data in result.after.items():
            state[task.vantage, path] = replace(
                state.get((task.vantage, path), File(None)), data=data
            )
        results.append(result)
        told(result)
    return results


def verify(results: Sequence[Result], plan: Plan, findings: Sequence[Finding]) -> list[Result]:
    """The results, with what the checks say on facts that were read afterwards."""
    now = {finding.check: finding for finding in findings}
    tasks = {task.check: task for task in plan.tasks}
    judged = []
    for result in results:
        task, finding = tasks[result.check], now.get(result.check)
        if result.outcome in (Outcome.APPLIED, Outcome.ALREADY_SO) and finding is not None:
            wrong = finding.verdict in WRONG
            if wrong and task.fix.reboot:
                result = _with(result, Outcome.NEEDS_REBOOT, "takes effect with the next boot")
            elif wrong and (task.fix.restarts or _only_lasting(task)):
                what = task.fix.restarts or "what reads the file"
                result = _with(result, Outcome.NEEDS_RESTART, f"restart {what}")
            elif wrong:
                said = f"written, but the check still says: {finding.evidence}"
                result = _with(result, Outcome.FAILED, said)
            else:
                detail = f"{finding.verdict.value}: {finding.evidence}"
                result = _with(result, result.outcome, detail)
        judged.append(result)
    return judged


async def roll_back(
    machines: Machines,
    snapshot: Snapshot,
    results: Sequence[Result],
    *,
    force: bool = False,
    reading: Reading | None = None,
) -> list[Result]:
    """Put back what a snapshot holds, last first, each verified.

    A value that is neither the old nor the new one was changed by somebody else: it is refused,
    unless forced. Values of the kernel are not touched after a reboot, since the boot has reset
    them; files are put back all the same.
    """
    own = Vantage.HOST if machines.hypervisor is None else Vantage.GUEST
    reading = replace(
        reading or Reading(),
        root=snapshot.roots.get(own, "/"),
        below=snapshot.roots.get(Vantage.HOST, "/"),
    )
    after = {(r.vantage, path): data for r in results for path, data in r.after.items()}
    ran = {(r.check, command) for r in results for command in r.ran}
    back: list[Result] = []
    boots: dict[Vantage, str] = {}
    for saved in reversed(snapshot.saved):
        where = saved.path or shlex.join(saved.argv)
        if saved.kind != "command" and (saved.vantage, saved.path) not in after:
            continue
        if saved.kind == "command" and (saved.check, where) not in ran:
            continue
        if saved.kind == "command" and not saved.undo:
            why = f"{where}: nothing takes it back"
            back.append(Result(saved.check, Outcome.FAILED, why, vantage=saved.vantage))
            continue
        try:
            if saved.vantage not in boots:
                answer = await _ask_read(machines, saved.vantage, [], reading)
                boots[saved.vantage] = answer.boot_id
            boot = boots[saved.vantage]
            rebooted = boot != snapshot.boot_ids.get(saved.vantage)
            if rebooted and saved.kind != "file":
                why = f"{where}: the host was booted since, which has reset it"
                back.append(Result(saved.check, Outcome.ALREADY_SO, why, vantage=saved.vantage))
                continue
            new = after.get((saved.vantage, saved.path))
            back.append(await _put_back(machines, saved, new, boot, reading, force=force))
        except RoomError as error:
            back.append(Result(saved.check, Outcome.FAILED, str(error), vantage=saved.vantage))
    return back


async def _put_back(
    machines: Machines,
    saved: Saved,
    new: bytes | None,
    boot_id: str,
    reading: Reading,
    *,
    force: bool,
) -> Result:
    where = saved.path or shlex.join(saved.undo)

    def told(outcome: Outcome, words: str, kernel: tuple[str, ...] = ()) -> Result:
        return Result(saved.check, outcome, f"{where}: {words}", kernel, vantage=saved.vantage)

    if saved.kind == "command":
        step = Step("command", argv=saved.undo)
    else:
        answer = await _ask_read(machines, saved.vantage, [saved.path], reading)
        live = _file(answer.files.get(saved.path))
        if live.data == saved.old:
            return told(Outcome.ALREADY_SO, "as before")
        ours = live.data == new or (
            saved.kind == "write" and new is not None and same_value(new, live.data)
        )
        if not ours and not force:
            now = "gone" if live.data is None else f"now {_text(live.data).strip()[:80]!r}"
            return told(Outcome.REFUSED, f"somebody else changed it ({now}); --force overrides")
        if saved.old is None:
            step = Step("remove", saved.path, live.data)
        else:
            wanted = value_to_restore(saved.old) if saved.kind == "write" else saved.old
            step = Step(saved.kind, saved.path, live.data, wanted, saved.mode)
    done = await _carry_out(machines, saved.vantage, [step], boot_id, reading)
    if done.refused:
        return told(Outcome.REFUSED, done.refused)
    first = done.steps[0]
    if not first.ok:
        return told(Outcome.FAILED, first.error, tuple(done.kernel))
    if saved.kind != "command" and first.after != saved.old:
        return told(Outcome.FAILED, "written, but it does not read as before", tuple(done.kernel))
    return told(Outcome.APPLIED, "as before, read again")


# -- planning


def _task(machines: Machines, finding: Finding) -> Task:
    assert finding.fix is not None
    seen_from = Vantage(finding.vantage)
    if machines.hypervisor is None:
        return Task(finding, finding.fix, Vantage.HOST)
    if finding.fix.target is Target.GUEST:
        return Task(finding, finding.fix, Vantage.GUEST)
    # A container has its host's kernel: what it sees wrong there is put right on the host.
    kernel = any(
        isinstance(step, Write) for step in (*finding.fix.runtime, *finding.fix.persistent)
    )
    vantage = Vantage.HOST if kernel or seen_from is Vantage.HOST else Vantage.GUEST
    return Task(finding, finding.fix, vantage)


def _steps_of(fix: Fix, persistent: bool) -> tuple[Write | Command | InstallFile | EditFile, ...]:
    if not fix.runtime:
        return fix.persistent
    return (*fix.runtime, *fix.persistent) if persistent else fix.runtime


def _only_lasting(task: Task) -> bool:
    """Whether nothing was done that acts at once."""
    return not task.fix.runtime


def _loader(document: FactsDocument, vantage: Vantage) -> str:
    facts = {f.key: f.value for f in document.facts if f.vantage is vantage}
    loader = facts.get("boot/loader")
    tool = facts.get("cmd/proxmox-boot-tool status")
    if loader == "systemd-boot" and isinstance(tool, str):
        return "proxmox-boot-tool"
    return loader if isinstance(loader, str) else ""


def _path(step: Write | Command | InstallFile | EditFile, loader: str) -> str:
    if isinstance(step, Command):
        return ""
    if isinstance(step, EditFile) and step.planner == "kernel_command_line":
        return LOADER_FILES.get(loader, "")
    return step.path


def _resolve(task: Task, state: Known, loader: str, persistent: bool, identity: str) -> Task:
    """The task with its steps worked out from what files hold now."""
    steps: list[Step] = []
    at = dict(state)
    try:
        for step in _steps_of(task.fix, persistent):
            if isinstance(step, Command):
                steps.append(Step("command", argv=step.argv, undo=step.undo))
                continue
            path = _path(step, loader)
            if not path:
                raise PlanError("the boot loader is not known", "see `boot/loader` in the facts")
            file = at.get((task.vantage, path), File(None))
            if file.error:
                raise PlanError(f"{path} cannot be read", file.error)
            if isinstance(step, Write):
                if file.data is None:
                    raise PlanError(f"there is no {path}")
                found = Step("write", path, file.data, step.value.encode() + b"\n")
            elif isinstance(step, InstallFile):
                found = Step("file", path, file.data, step.content.encode(), step.mode)
            else:
                old = (file.data or b"").decode("utf-8")
                new = plan(step.planner, old, step.arguments, loader)
                found = Step("file", path, file.data, new.encode(), file.mode)
            at[task.vantage, path] = File(found.new, found.mode)
            if found.kind == "file" and found.changes and found.old is not None:
                backup = posixpath.join(BACKUPS, identity, path.lstrip("/"))
                steps.append(Step("file", backup, None, found.old, 0o600, compare=False))
            steps.append(found)
            if found.changes and isinstance(step, EditFile):
                steps += [Step("command", argv=argv) for argv in _after(step, path, loader)]
    except UnicodeDecodeError:
        return replace(task, steps=(), problem="the file is not UTF-8 text")
    except PlanError as error:
        return replace(task, steps=(), problem=str(error))
    return replace(task, steps=tuple(steps))


def _after(step: EditFile, path: str, loader: str) -> tuple[tuple[str, ...], ...]:
    """What makes an edited file count."""
    if step.planner == "kernel_command_line":
        return (REFRESH[loader],)
    if step.planner in ("tune_unit", "uvm_unit"):
        unit = posixpath.basename(path)
        return (("systemctl", "daemon-reload"), ("systemctl", "enable", unit))
    if step.planner == "udev":
        return (("udevadm", "control", "--reload"),)
    return ()


def _saved(tasks: Sequence[Task], known: Known) -> tuple[Saved, ...]:
    """Each path once, as it was in the beginning, and each command with what takes it back."""
    saved: list[Saved] = []
    seen: set[tuple[Vantage, str]] = set()
    for task in tasks:
        # Going back is in reverse: what makes a file count must then come after the file.
        steps = sorted(task.steps, key=lambda step: not _again(step))
        for step in steps:
            if step.kind == "command":
                undo = _undo(step)
                saved.append(Saved(task.check, "command", task.vantage, argv=step.argv, undo=undo))
            elif step.compare and step.changes and (task.vantage, step.path) not in seen:
                seen.add((task.vantage, step.path))
                file = known[task.vantage, step.path]
                kind: Literal["write", "file"] = "write" if step.kind == "write" else "file"
                saved.append(Saved(task.check, kind, task.vantage, step.path, file.data, file.mode))
    return tuple(saved)


def _again(step: Step) -> bool:
    return step.argv in _AGAIN or step.argv[:1] == ("update-initramfs",)


_AGAIN: Final = frozenset(
    {*REFRESH.values(), ("systemctl", "daemon-reload"), ("udevadm", "control", "--reload")}
)
"""Commands that make a file count; run once more when the file is put back."""


def _undo(step: Step) -> tuple[str, ...]:
    if step.undo:
        return step.undo
    if step.argv[:2] == ("systemctl", "enable"):
        return ("systemctl", "disable", *step.argv[2:])
    if _again(step):
        return step.argv
    return ()


# -- talking to the host


class _Looked(msgspec.Struct):
    data: str | None = None
    mode: int | None = None
    error: str = ""


class _Files(msgspec.Struct):
    boot_id: str = ""
    files: dict[str, _Looked] = {}


class _StepDone(msgspec.Struct):
    ok: bool
    error: str = ""
    output: str = ""
    status: int = 0
    after: str | None = None


class _Answer(msgspec.Struct):
    refused: str = ""
    steps: list[_StepDone] = []
    kernel: list[str] = []


class _Done(msgspec.Struct):
    ok: bool
    error: str
    output: str
    after: bytes | None


class _Carried(msgspec.Struct):
    refused: str
    steps: list[_Done]
    kernel: list[str]


def _file(looked: _Looked | None) -> File:
    if looked is None:
        return File(None)
    data = None if looked.data is None else base64.b64decode(looked.data)
    return File(data, looked.mode, clean(looked.error, 300))


def _as_root(machines: Machines, vantage: Vantage, reading: Reading) -> dict[str, object]:
    root = reading.roots(machines.vantages)[vantage]
    params: dict[str, object] = {"root": root, "sudo": True}
    if reading.password is not None:
        params["password"] = reading.password
    return params


async def _ask_read(
    machines: Machines, vantage: Vantage, paths: Sequence[str], reading: Reading
) -> _Files:
    params = {"paths": list(paths), **_as_root(machines, vantage, reading)}
    answer = await machines.at(vantage).request(
        "changes.read", params, asked_by="tuning", what="read what would change", timeout_s=60.0
    )
    return _converted(answer, _Files, machines.at(vantage).name)


async def _read(
    machines: Machines,
    gathered: Gathered,
    vantage: Vantage,
    paths: Sequence[str],
    reading: Reading,
) -> Known:
    found = await _ask_read(machines, vantage, paths, reading)
    name = machines.at(vantage).name
    if not found.boot_id or found.boot_id != gathered.boot_ids.get(vantage):
        raise AgentError(
            f"{name} runs another boot than the one that was judged",
            f"boot id {clean(found.boot_id, 40) or 'unknown'}",
            "judge it again",
        )
    return {(vantage, path): _file(found.files.get(path)) for path in paths}


async def _carry_out(
    machines: Machines, vantage: Vantage, steps: Sequence[Step], boot_id: str, reading: Reading
) -> _Carried:
    rows: list[dict[str, object]] = []
    for step in steps:
        row: dict[str, object] = {"kind": step.kind}
        if step.kind == "command":
            row["argv"] = list(step.argv)
        else:
            row |= {"path": step.path, "data": base64.b64encode(step.new).decode()}
            row["mode"] = step.mode
            if step.compare:
                old = step.old
                row["expect"] = None if old is None else base64.b64encode(old).decode()
        rows.append(row)
    session = machines.at(vantage)
    answer = await session.request(
        "changes.carry_out",
        {"steps": rows, "boot_id": boot_id, **_as_root(machines, vantage, reading)},
        asked_by="tuning",
        what="change settings",
        changes_host=True,
        timeout_s=STEP_S,
    )
    got = _converted(answer, _Answer, session.name)
    done = [
        _Done(
            one.ok,
            clean(one.error, 300),
            "\n".join(clean(line, 300) for line in one.output.split("\n")[-20:]),
            None if one.after is None else base64.b64decode(one.after),
        )
        for one in got.steps
    ]
    return _Carried(clean(got.refused, 300), done, [clean(line, 300) for line in got.kernel[:40]])


async def _one(machines: Machines, snapshot: Snapshot, task: Task, reading: Reading) -> Result:
    """Carry one fix out; whatever goes wrong is its result."""

    def told(
        outcome: Outcome,
        words: str = "",
        kernel: Sequence[str] = (),
        after: Mapping[str, bytes | None] | None = None,
        ran: Sequence[str] = (),
    ) -> Result:
        return Result(
            task.check, outcome, words, tuple(kernel), dict(after or {}), tuple(ran), task.vantage
        )

    if task.problem:
        return told(Outcome.REFUSED, task.problem)
    changing = [step for step in task.steps if step.changes]
    if not any(step.kind != "command" for step in changing) and any(
        step.kind != "command" for step in task.steps
    ):
        return told(Outcome.ALREADY_SO)
    boot_id = snapshot.boot_ids.get(task.vantage, "")
    try:
        done = await _carry_out(machines, task.vantage, changing, boot_id, reading)
    except RoomError as error:
        return told(Outcome.FAILED, str(error))
    if done.refused:
        return told(Outcome.REFUSED, done.refused)
    after: dict[str, bytes | None] = {}
    ran: list[str] = []
    wrong = ""
    for step, result in zip(changing, done.steps, strict=False):
        where = step.path or shlex.join(step.argv)
        if step.kind == "command":
            if result.ok:
                ran.append(where)
        elif step.compare:
            after[step.path] = result.after
        if not result.ok:
            wrong = f"{where}: {result.error} {result.output}".strip()
            break
        right = (
            same_value(step.new, result.after)
            if step.kind == "write"
            else step.kind == "command" or result.after == step.new
        )
        if not right:
            now = "nothing" if result.after is None else repr(_text(result.after).strip()[:80])
            wrong = f"{where}: the write was accepted and ignored, it reads {now}"
            break
    return told(
        Outcome.FAILED if wrong else Outcome.APPLIED,
        wrong,
        done.kernel if wrong else (),
        after,
        ran,
    )


def _with(result: Result, outcome: Outcome, detail: str) -> Result:
    return msgspec.structs.replace(result, outcome=outcome, detail=detail)


def _operator() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def _converted(answer: object, kind: type[Converted], name: str) -> Converted:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise AgentError(f"{name} answered with something else", clean(str(error))) from error
