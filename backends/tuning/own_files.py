"""What gpuroom made lasting on a host: listed by setting, and removed again like any change.

Files of its own bear its mark; what it edited in others' files is told by `own_edits`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backends.errors import UsageError
from backends.text import clean_lines
from backends.tuning import changes
from backends.tuning.facts import Vantage
from backends.tuning.fixes import Command, EditFile, Fix, RemoveFile, Step
from backends.tuning.gather import Reading
from backends.tuning.machines import Machines
from backends.tuning.own_edits import Edit, put_back, standing
from backends.tuning.plans.own import FILES, MARK, OwnSetting, settings
from backends.tuning.steps import Task


@dataclass(frozen=True, slots=True)
class OwnFile:
    """One file that bears our mark or was edited by us, and what of it is ours."""

    vantage: Vantage
    host: str
    path: str
    settings: tuple[OwnSetting, ...]


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Everything of ours on a host and its hypervisor.

    Attributes:
        boot_ids: Of the boots that were looked at.
        unreadable: Paths that could not be read, and why.
        edits: What was edited in others' files, by id.
        held: What those files hold now, by machine and path.
    """

    files: tuple[OwnFile, ...]
    boot_ids: dict[Vantage, str]
    unreadable: tuple[str, ...] = ()
    edits: Mapping[str, Edit] = field(default_factory=dict)
    held: Mapping[tuple[str, str], bytes | None] = field(default_factory=dict)


async def look(machines: Machines, reading: Reading, made: Sequence[Edit] = ()) -> OwnFiles:
    """Read them.

    Args:
        machines: Where.
        reading: The folder for `/`, and sudo.
        made: What the history says was edited in others' files, newest first.

    Raises:
        LinkError: A host is out of reach.
        AgentError: It did not answer.
    """
    files: list[OwnFile] = []
    boots: dict[Vantage, str] = {}
    unreadable: list[str] = []
    held: dict[tuple[str, str], bytes | None] = {}
    for vantage, host in machines.vantages.items():
        edited = dict.fromkeys(edit.path for edit in made if edit.host == host)
        looked = await changes.read(machines, vantage, (*FILES, *edited), reading)
        boots[vantage] = looked.boot_id
        for path, file in looked.files.items():
            if file.error:
                unreadable.append(f"{host}: {path}: {file.error}")
            text = "\n".join(clean_lines((file.data or b"").decode("utf-8", "replace")))
            if path in edited:
                held[host, path] = file.data
                if ours := standing(made, host, path, file.data):
                    files.append(OwnFile(vantage, host, path, tuple(ours)))
            elif MARK in text:
                files.append(OwnFile(vantage, host, path, tuple(settings(path, text))))
    edits = {edit.edit_id: edit for edit in made}
    return OwnFiles(tuple(files), boots, tuple(unreadable), edits, held)


def removal(found: OwnFiles, ids: Sequence[str]) -> list[Task]:
    """What removes these settings, or whole files by their path.

    A file whose last setting goes, goes itself. Running values stay as they are till the next
    boot.

    Raises:
        UsageError: An id names nothing of ours.
    """
    tasks: list[Task] = []
    left = set(ids)
    for file in found.files:
        named = [one for one in file.settings if one.setting_id in ids]
        if (file.host, file.path) in found.held:
            held = found.held[file.host, file.path]
            chosen = file.settings[:1] if file.path in ids else named
            left -= {file.path, *(one.setting_id for one in named)}
            tasks += [put_back(found.edits[s.setting_id], file.vantage, held) for s in chosen]
            continue
        whole = file.path in ids or (bool(named) and len(named) == len(file.settings))
        left -= {file.path, *(one.setting_id for one in named)}
        if whole:
            tasks.append(
                Task(file.path, Fix("remove it", persistent=_gone(file.path)), file.vantage)
            )
        elif named:
            lines = tuple(("line", one.line) for one in named)
            edit = EditFile(file.path, "drop_line", lines)
            told = ", ".join(one.setting_id for one in named)
            tasks.append(Task(file.path, Fix(f"remove {told}", persistent=(edit,)), file.vantage))
    if left:
        raise UsageError(
            f"nothing of ours is called {sorted(left)[0]!r}", hint="`files` lists what there is"
        )
    return tasks


def _gone(path: str) -> tuple[Step, ...]:
    if path.startswith("/etc/systemd/"):
        unit = posixpath.basename(path)
        off = Command(("systemctl", "disable", unit), undo=("systemctl", "enable", unit))
        return (off, RemoveFile(path, after=(("systemctl", "daemon-reload"),)))
    if path.startswith("/etc/udev/"):
        return (RemoveFile(path, after=(("udevadm", "control", "--reload"),)),)
    return (RemoveFile(path),)
