"""What stands in the files of our own: each setting with an id, and their texts without some. Pure.

A file is ours when it bears our mark; nothing else is ever listed or removed as ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backends.tuning.fixes import (
    MODPROBE_FILE,
    SYSCTL_FILE,
    TMPFILES_FILE,
    UDEV_FILE,
    UNIT_FILE,
    UVM_UNIT_FILE,
)
from backends.tuning.plans.cmdline import PlanError

MARK: Final = "# Written by gpuroom"
FILES: Final = (SYSCTL_FILE, TMPFILES_FILE, MODPROBE_FILE, UDEV_FILE, UNIT_FILE, UVM_UNIT_FILE)
"""Where our own settings may lie on a host."""
KINDS: Final = {
    SYSCTL_FILE: "sysctl",
    TMPFILES_FILE: "tmpfiles",
    MODPROBE_FILE: "modprobe",
    UDEV_FILE: "udev",
    UNIT_FILE: "unit",
    UVM_UNIT_FILE: "unit",
}


@dataclass(frozen=True, slots=True)
class OwnSetting:
    """One setting that gpuroom made lasting.

    Attributes:
        setting_id: `sysctl:NAME`, `tmpfiles:PATH`, `modprobe:MODULE.OPTION`, `udev:DEVICE`,
            `unit:COMMAND`.
        path: The file it stands in.
        line: As it stands there.
    """

    setting_id: str
    path: str
    line: str


def settings(path: str, text: str) -> list[OwnSetting]:
    """The settings of one file of ours, in order; none where it does not bear our mark."""
    if MARK not in text:
        return []
    kind = KINDS.get(path, "file")
    found = []
    for line in text.split("\n"):
        if kind == "unit":
            if line.startswith("ExecStart="):
                name = line.removeprefix("ExecStart=")
                found.append(OwnSetting(f"unit:{name}", path, line))
        elif line.strip() and not line.lstrip().startswith("#"):
            found.append(OwnSetting(f"{kind}:{_name(kind, line)}", path, line))
    return found


def _name(kind: str, line: str) -> str:
    if kind == "sysctl":
        return line.partition("=")[0].strip()
    words = line.split()
    if kind == "tmpfiles":
        return words[1] if len(words) > 1 else line
    if kind == "modprobe" and len(words) > 2:
        return f"{words[1]}.{words[2].partition('=')[0]}"
    if kind == "udev":
        named = re.findall(r'(?:SUBSYSTEM|KERNEL)=="([^"]*)"|ATTR\{([^}]*)\}', line)
        return ":".join(a or b for a, b in named) or line
    return line


def without(old: str, lines: Sequence[str]) -> str:
    """A file of ours without these lines; empty where no setting would be left.

    Raises:
        PlanError: The file does not bear our mark, or a line does not stand in it.
    """
    if MARK not in old:
        raise PlanError("the file is not ours", old[:80])
    kept = old.split("\n")
    for line in lines:
        if line not in kept:
            raise PlanError("the setting is not there", line[:120])
        kept.remove(line)
    unit = any(line == "[Unit]" for line in kept)
    left = [
        line
        for line in kept
        if line.strip() and not line.startswith("#") and (not unit or line.startswith("ExecStart="))
    ]
    return "\n".join(kept) if left else ""
