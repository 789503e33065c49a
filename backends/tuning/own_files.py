"""What gpuroom made lasting on a host: listed by setting, and removed again like any change."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from backends.errors import UsageError
from backends.text import clean_lines
from backends.tuning import changes
from backends.tuning.facts import Vantage
from backends.tuning.fixes import Command, EditFile, Fix, RemoveFile, Step
from backends.tuning.gather import Reading
from backends.tuning.machines import Machines
from backends.tuning.plans.own import FILES, MARK, OwnSetting, settings
from backends.tuning.steps import Task


@dataclass(frozen=True, slots=True)
class OwnFile:
    """One file that bears our mark, and what it sets."""

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
    """

    files: tuple[OwnFile, ...]
    boot_ids: dict[Vantage, str]
    unreadable: tuple[str, ...] = ()


async def look(machines: Machines, reading: Reading) -> OwnFiles:
    """Read them.

    Raises:
        LinkError: A host is out of reach.
        AgentError: It did not answer.
    """
    files: list[OwnFile] = []
    boots: dict[Vantage, str] = {}
    unreadable: list[str] = []
    for vantage, host in machines.vantages.items():
        looked = await changes.read(machines, vantage, FILES, reading)
        boots[vantage] = looked.boot_id
        for path, file in looked.files.items():
            if file.error:
                unreadable.append(f"{host}: {path}: {file.error}")
            text = "\n".join(clean_lines((file.data or b"").decode("utf-8", "replace")))
            if MARK in text:
                files.append(OwnFile(vantage, host, path, tuple(settings(path, text))))
    return OwnFiles(tuple(files), boots, tuple(unreadable))


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
