"""Works out what would be done on a host and keeps what is there now. Changes nothing."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Literal

from backends.errors import AgentError, UsageError
from backends.text import clean
from backends.tuning import changes
from backends.tuning.facts import Vantage
from backends.tuning.findings import Finding, Verdict
from backends.tuning.fixes import (
    Command,
    EditFile,
    Fix,
    InstallFile,
    RemoveFile,
    Target,
    Write,
)
from backends.tuning.fixes import Step as Wish
from backends.tuning.gather import Gathered, Reading
from backends.tuning.machines import Machines
from backends.tuning.plans import PlanError, plan
from backends.tuning.plans.loaders import REFRESH, Loader, loader_of
from backends.tuning.snapshot import BACKUPS, Saved, Snapshot
from backends.tuning.steps import File, Form, Known, Plan, Step, Task

WRONG: Final = (Verdict.FAIL, Verdict.WARN)
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def choose(findings: Sequence[Finding], ids: Sequence[str]) -> list[Finding]:
    """The findings that ids name; a rule's id means all its instances that are wrong.

    Raises:
        UsageError: An id names nothing, or nothing that can be carried out.
    """
    chosen: dict[str, Finding] = {}
    for wanted in ids:
        named = [f for f in findings if f.check == wanted and not f.instance]
        exact = [f for f in findings if f.check == wanted and f.instance]
        instances = [f for f in findings if f.instance and wanted in (f.rule, f.whole)]
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
    form: Form = Form.RUNTIME,
    reading: Reading | None = None,
) -> Plan:
    """Read what would change, and work out what would be done. Changes nothing.

    Raises:
        AgentError: A host did not answer, or runs another boot than the facts are of.
    """
    tasks = [_task(machines, finding) for finding in findings]
    loaders = {vantage: loader_of(gathered.document, vantage) for vantage in Vantage}
    return await prepare_tasks(
        machines, gathered.boot_ids, tasks, loaders=loaders, form=form, reading=reading
    )


async def prepare_tasks(
    machines: Machines,
    boot_ids: Mapping[Vantage, str],
    tasks: Sequence[Task],
    *,
    loaders: Mapping[Vantage, Loader] | None = None,
    form: Form = Form.RUNTIME,
    reading: Reading | None = None,
) -> Plan:
    """The same for tasks that come from elsewhere than findings.

    Args:
        machines: Where.
        boot_ids: The boots that they are for.
        tasks: What is wished for, not worked out yet.
        loaders: Boot loaders, where command lines of kernels are edited.
        form: Which forms of the fixes.
        reading: The folder for `/`, and sudo.

    Raises:
        AgentError: A host did not answer, or runs another boot.
    """
    reading = reading or Reading()
    loaders = loaders or {}
    wanted: dict[Vantage, set[str]] = {}
    for task in tasks:
        for wish in wishes(task.fix, form):
            paths = _paths(wish, loaders.get(task.vantage, Loader()))
            wanted.setdefault(task.vantage, set()).update(paths)
    known: Known = {}
    for vantage, paths_there in wanted.items():
        known |= await _read(machines, boot_ids, vantage, sorted(paths_there), reading)
    identity = datetime.now(UTC).strftime("%Y%m%dT%H%M%S") + "-" + secrets.token_hex(3)
    resolved: list[Task] = []
    state = dict(known)
    for task in tasks:
        done = resolve(task, state, loaders.get(task.vantage, Loader()), form, identity)
        for step in done.steps:
            if step.path:
                state[task.vantage, step.path] = File(step.goal, step.mode)
        resolved.append(done)
    snapshot = Snapshot(
        snapshot_id=identity,
        host=machines.host.name,
        hosts=machines.vantages,
        boot_ids={v: boot_ids.get(v, "") for v in machines.vantages},
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        operator=changes.operator(),
        roots=reading.roots(machines.vantages),
        saved=_saved(resolved, known),
    )
    return Plan(tuple(resolved), known, snapshot, dict(loaders), form)


def wishes(fix: Fix, form: Form) -> tuple[Wish, ...]:
    """The steps of a fix in a form; what has no runtime form is done in its lasting one."""
    if form is Form.BOTH:
        return (*fix.runtime, *fix.persistent)
    if form is Form.PERSISTENT:
        return fix.persistent
    return fix.runtime or fix.persistent


def resolve(task: Task, state: Known, loader: Loader, form: Form, identity: str) -> Task:
    """The task with its steps worked out from what files hold now.

    Args:
        task: What is wished for.
        state: What files hold, with what tasks before this one make of them.
        loader: Of its machine.
        form: Which form.
        identity: The snapshot's, below whose name copies are kept.
    """
    wanted = wishes(task.fix, form)
    if not wanted:
        return replace(task, steps=(), problem=task.problem or f"it has no {form.value} form")
    steps: list[Step] = []
    at = dict(state)
    try:
        for wish in wanted:
            if isinstance(wish, Command):
                steps.append(Step("command", argv=wish.argv, undo=wish.undo))
                continue
            edited, paths = False, _paths(wish, loader)
            if not paths:
                raise PlanError("the boot loader is not known", "see `boot/loader` in the facts")
            for path in paths:
                found = _step(wish, path, at.get((task.vantage, path), File(None)), loader)
                at[task.vantage, path] = File(found.goal, found.mode)
                edited = edited or found.changes
                earlier = _edit_of(path, steps)
                if earlier is not None and found.kind == "file":
                    # Two edits of one file are one: what was shown is compared once, before it.
                    steps[earlier] = replace(steps[earlier], new=found.new)
                    continue
                if found.kind in ("file", "remove") and found.changes and found.old is not None:
                    backup = posixpath.join(BACKUPS, identity, path.lstrip("/"))
                    steps.append(Step("file", backup, None, found.old, 0o600, compare=False))
                steps.append(found)
            if edited:
                after = [Step("command", argv=argv) for argv in _after(wish, loader)]
                steps += [step for step in after if step not in steps]
    except UnicodeDecodeError:
        return replace(task, steps=(), problem="the file is not UTF-8 text")
    except PlanError as error:
        return replace(task, steps=(), problem=str(error))
    return replace(task, steps=tuple(steps), problem="")


def _edit_of(path: str, steps: Sequence[Step]) -> int | None:
    """Where this file is written already."""
    places = (n for n, step in enumerate(steps) if (step.kind, step.path) == ("file", path))
    return next(places, None)


def _step(wish: Wish, path: str, file: File, loader: Loader) -> Step:
    if file.error:
        raise PlanError(f"{path} cannot be read", file.error)
    if isinstance(wish, Write):
        if file.data is None:
            raise PlanError(f"there is no {path}")
        return Step("write", path, file.data, wish.value.encode() + b"\n")
    if isinstance(wish, RemoveFile):
        return Step("remove", path, file.data, mode=file.mode)
    if isinstance(wish, InstallFile):
        return Step("file", path, file.data, wish.content.encode(), wish.mode)
    assert isinstance(wish, EditFile)
    old = (file.data or b"").decode("utf-8")
    new = plan(wish.planner, old, wish.arguments, loader.name)
    if not new and wish.planner in EMPTY_GOES:
        return Step("remove", path, file.data, mode=file.mode)
    return Step("file", path, file.data, new.encode(), file.mode)


EMPTY_GOES: Final = frozenset({"drop_line"})
"""Planners whose empty text means that the file is to go."""


def vantage_of(finding: Finding, *, paired: bool) -> Vantage:
    """On which machine a finding is put right.

    Args:
        finding: One with a fix.
        paired: Whether the hypervisor below the host is at hand.
    """
    fix = finding.fix
    if not paired or fix is None:
        return Vantage.HOST
    if fix.target is Target.GUEST:
        return Vantage.GUEST
    # A container has its host's kernel: what it sees wrong there is put right on the host.
    kernel = any(isinstance(step, Write) for step in (*fix.runtime, *fix.persistent))
    return Vantage.HOST if kernel or finding.vantage == Vantage.HOST else Vantage.GUEST


def _task(machines: Machines, finding: Finding) -> Task:
    assert finding.fix is not None
    vantage = vantage_of(finding, paired=machines.hypervisor is not None)
    return Task(finding.check, finding.fix, vantage)


def _paths(wish: Wish, loader: Loader) -> tuple[str, ...]:
    if isinstance(wish, Command):
        return ()
    if isinstance(wish, EditFile) and wish.planner == "kernel_command_line":
        return loader.files
    return (wish.path,)


async def _read(
    machines: Machines,
    boot_ids: Mapping[Vantage, str],
    vantage: Vantage,
    paths: Sequence[str],
    reading: Reading,
) -> Known:
    found = await changes.read(machines, vantage, paths, reading)
    if not found.boot_id:
        root = reading.roots(machines.vantages)[vantage].rstrip("/")
        raise AgentError(
            f"{machines.at(vantage).name} does not say which boot it runs",
            f"{root}{BOOT_ID} cannot be read, and a change is bound to one boot",
            "give the folder that stands for / this file, too" if root else "is /proc mounted?",
        )
    if found.boot_id != boot_ids.get(vantage):
        raise AgentError(
            f"{machines.at(vantage).name} runs another boot than the one that was judged",
            f"boot id {clean(found.boot_id, 40)}",
            "judge it again",
        )
    return {(vantage, path): file for path, file in found.files.items()}


def _after(wish: Wish, loader: Loader) -> tuple[tuple[str, ...], ...]:
    """What makes an edited file count."""
    if isinstance(wish, RemoveFile):
        return wish.after
    if not isinstance(wish, EditFile):
        return ()
    if wish.planner == "kernel_command_line":
        return (loader.refresh,) if loader.refresh else ()
    if wish.planner in ("tune_unit", "uvm_unit"):
        unit = posixpath.basename(wish.path)
        return (("systemctl", "daemon-reload"), ("systemctl", "enable", unit))
    if wish.planner == "udev" or wish.path.startswith("/etc/udev/"):
        return (("udevadm", "control", "--reload"),)
    if wish.path.startswith("/etc/systemd/"):
        return (("systemctl", "daemon-reload"),)
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
