"""What gpuroom edited in files that are not its own: boot loaders, containers of Proxmox. Pure.

Such a file bears no mark of ours (a command line is one line, Proxmox moves comments away), so it
is the history that knows: what each change left in it, and what was there before.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backends.storage.tuning_tables import StoredSnapshot
from backends.tuning.facts import Vantage
from backends.tuning.fixes import Command, Fix, InstallFile, RemoveFile, Step
from backends.tuning.plans.own import FILES, OwnSetting
from backends.tuning.snapshot import BACKUPS, GOOD, decode_results, decode_snapshot
from backends.tuning.steps import Task

KIND: Final = "edit:"
NOT_FILES: Final = ("/proc/", "/sys/", BACKUPS)


@dataclass(frozen=True, slots=True)
class Edit:
    """One file that a change left otherwise.

    Attributes:
        edit_id: `edit:SNAPSHOT:PATH`.
        host: Name of the machine.
        old: What was there before; None where there was no file.
        new: What the change left.
        commands: What was run to make it count, and is run again when it is taken back.
    """

    edit_id: str
    host: str
    path: str
    old: bytes | None
    new: bytes
    mode: int
    commands: tuple[tuple[str, ...], ...]

    @property
    def line(self) -> str:
        """What it took away and put in, in one line."""
        old, new = (
            (text or b"").decode("utf-8", "replace").splitlines() for text in (self.old, self.new)
        )
        changed = [
            row
            for row in difflib.unified_diff(old, new, n=0, lineterm="")
            if row[:1] in "+-" and not row.startswith(("+++", "---"))
        ]
        return "  ".join(changed)


def edits(stored: Sequence[StoredSnapshot]) -> list[Edit]:
    """Those that were not taken back, newest first.

    Args:
        stored: Changes of the machines, newest first.
    """
    found: dict[str, Edit] = {}
    for one in reversed(stored):
        if one.rolled_back_utc is not None:
            continue
        snapshot = decode_snapshot(one.body)
        before = {(s.check, s.path): s for s in snapshot.saved if s.kind == "file"}
        for result in decode_results(one.results):
            if result.outcome not in GOOD:
                continue
            if result.check.startswith(KIND):
                found.pop(result.check, None)
                continue
            for path, new in result.after.items():
                saved = before.get((result.check, path))
                if saved is None or new is None or path in FILES or path.startswith(NOT_FILES):
                    continue
                edit_id = f"{KIND}{one.snapshot_id}:{path}"
                host = snapshot.hosts[result.vantage]
                commands = tuple(tuple(shlex.split(text)) for text in result.ran)
                mode = 0o644 if saved.mode is None else saved.mode
                found[edit_id] = Edit(edit_id, host, path, saved.old, new, mode, commands)
    return list(found.values())[::-1]


def standing(made: Sequence[Edit], host: str, path: str, data: bytes | None) -> list[OwnSetting]:
    """Which of the edits of a file still stand in it, newest first.

    The newest stands where the file is as it left it, an older one below it. What others changed
    since is said, and cannot be taken back as a whole.
    """
    found = []
    now = data
    for edit in (one for one in made if (one.host, one.path) == (host, path)):
        if now == edit.old:
            continue  # Somebody has put it back.
        note = "" if now == data else "  (below a later one)"
        if now != edit.new:
            note = "  (changed by others since)"
        found.append(OwnSetting(edit.edit_id, path, edit.line + note))
        now = edit.old if now == edit.new else now
    return found


def put_back(edit: Edit, vantage: Vantage, data: bytes | None) -> Task:
    """What takes one edit back: the file as it was before, and the commands that make it count."""
    if data != edit.new:
        why = "the file is no longer as this change left it: take later changes back first"
        return Task(edit.edit_id, Fix("put it back"), vantage, problem=why)
    commands: tuple[Step, ...] = tuple(Command(argv, undo=argv) for argv in edit.commands)
    file: Step = RemoveFile(edit.path)
    if edit.old is not None:
        file = InstallFile(edit.path, edit.old.decode("utf-8", "replace"), edit.mode)
    return Task(edit.edit_id, Fix("put it back", persistent=(file, *commands)), vantage)
