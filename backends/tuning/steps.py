"""What would be done, worked out: steps with what is there now and what will be. Pure."""

from __future__ import annotations

import difflib
import shlex
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import TypeAlias

from backends.text import clean
from backends.tuning.facts import Vantage
from backends.tuning.fixes import Fix
from backends.tuning.plans.loaders import Loader
from backends.tuning.snapshot import Snapshot, same_value


class Form(StrEnum):
    """Which forms of a fix are carried out."""

    RUNTIME = "runtime"
    """What acts at once; the lasting form of what has no other."""
    PERSISTENT = "persistent"
    """What lasts, and acts from the next boot or reload on."""
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Step:
    """One step, resolved.

    Attributes:
        kind: `write`, `file`, `remove` or `command`.
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
        if self.kind == "remove":
            return self.old is not None
        return self.kind == "command" or self.old != self.new

    @property
    def goal(self) -> bytes | None:
        """What the path holds when it is done; None for no file."""
        return None if self.kind == "remove" else self.new

    @property
    def where(self) -> str:
        """The path, or the command as a shell would need it."""
        return self.path or shlex.join(self.argv)


@dataclass(frozen=True, slots=True)
class Task:
    """One fix of the plan: where, and with which steps; or why it cannot be carried out.

    Attributes:
        check: The finding's name, or what else it is done for.
    """

    check: str
    fix: Fix
    vantage: Vantage
    steps: tuple[Step, ...] = ()
    problem: str = ""

    @property
    def changing(self) -> tuple[Step, ...]:
        """The steps to be carried out; none where all is so already."""
        steps = tuple(step for step in self.steps if step.changes)
        stored = [step for step in self.steps if step.kind != "command"]
        return steps if not stored or any(step.changes for step in stored) else ()


@dataclass(frozen=True, slots=True)
class File:
    """A file as it is now."""

    data: bytes | None
    mode: int | None = None
    error: str = ""


Known: TypeAlias = dict[tuple[Vantage, str], File]


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done, and what is there now.

    Attributes:
        tasks: One a fix, in the order of the checklist.
        known: Every file concerned, as read.
        loader: The boot loader, by vantage.
    """

    tasks: tuple[Task, ...]
    known: Known
    snapshot: Snapshot
    loader: dict[Vantage, Loader] = field(default_factory=dict)
    form: Form = Form.RUNTIME

    @property
    def hosts(self) -> tuple[str, ...]:
        """The machines that would be changed."""
        touched = {task.vantage for task in self.tasks if task.steps}
        return tuple(name for at, name in self.snapshot.hosts.items() if at in touched)

    @property
    def changes(self) -> bool:
        """Whether anything would be done at all."""
        return any(task.changing for task in self.tasks)

    def lines(self) -> list[str]:
        """Exactly what would be written and run, on which host; files as differences."""
        result: list[str] = []
        for task in self.tasks:
            where = self.snapshot.hosts[task.vantage]
            result.append(f"{task.check} on {where}: {task.fix.summary}")
            if task.problem:
                result.append(f"  cannot be done: {task.problem}")
            result += [f"  {line}" for line in _together(task)]
            if task.fix.restarts:
                result.append(f"  afterwards restart: {task.fix.restarts}")
            if task.fix.reboot and any(step.kind == "file" for step in task.steps):
                result.append("  takes effect with the next boot")
        return result


MANY = 4
"""From so many files with one value on, only the first and the last are named."""


def _together(task: Task) -> list[str]:
    """The steps in words; the same value into many files of the kernel as one line."""
    if task.steps and not task.changing:
        return ["is so already"]
    lines: list[str] = []
    for (kind, new), group in groupby(task.steps, key=lambda step: (step.kind, step.new)):
        steps = list(group)
        if kind == "write" and len(steps) >= MANY:
            value = _text(new).strip()
            now = sorted({_text(step.old or b"").strip() for step in steps if step.changes})
            so = sum(not step.changes for step in steps)
            lines.append(f"write {value!r} to {len(steps)} files, of which {so} have it already:")
            lines.append(f"  {steps[0].path} to")
            lines.append(f"  {steps[-1].path} (now {', '.join(map(repr, now)) or 'all so'})")
        else:
            lines += [line for step in steps for line in describe(step)]
    return lines


def describe(step: Step) -> list[str]:
    """One step in words; files as differences."""
    if step.kind == "command":
        return [f"run {shlex.join(step.argv)}"]
    if not step.changes:
        return [f"{step.path} is so already"]
    if step.kind == "write":
        old = "(nothing)" if step.old is None else repr(_text(step.old).strip())
        return [f"write {_text(step.new).strip()!r} to {step.path} (now {old})"]
    if not step.compare:
        return [f"copy to {step.path}"]
    if step.old is None:
        head = [f"new file {step.path}"]
    else:
        head = [f"remove {step.path}"] if step.kind == "remove" else []
    return [*head, *difference(step.path, step.old or b"", step.goal or b"")]


def difference(path: str, old: bytes, new: bytes) -> list[str]:
    """A unified difference, cleaned."""
    before, after = _text(old).splitlines(), _text(new).splitlines()
    diff = difflib.unified_diff(before, after, path, path, lineterm="", n=1)
    return [clean(line) for line in diff]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
