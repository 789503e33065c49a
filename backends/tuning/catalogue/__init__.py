"""What each check says: title, reason, sources, severity, where it is read and how it is undone.

The texts stand in one TOML file a group; `backends.tuning.rules` holds how each is judged.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Final, Literal

import msgspec

from backends.tuning.findings import Severity

GROUPS: Final = {
    "cpu": "CPU frequency and power",
    "numa": "NUMA and memory layout",
    "kernel": "Kernel and boot line",
    "vm": "Memory management and limits",
    "pcie": "PCIe",
    "gpu": "GPU and driver",
    "cuda": "CUDA initialisation",
    "virt": "Virtualisation: LXC, VM, containers",
    "net": "Network",
    "fs": "Storage",
    "svc": "Services, time, hygiene",
    "bench": "Proof by measurement",
}
"""File name of each group and its heading."""

Elsewhere = Literal["judge", "ask", "na"]
"""In a guest: judge as anywhere, ask the machine below, or not applicable."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text of one check.

    Attributes:
        expects: Every case with its verdict, in short.
        wants: What it should be, in a sentence.
    """

    id: str
    title: str
    severity: Severity
    where: Literal["host", "guest", "both"]
    in_vm: Elsewhere
    in_container: Elsewhere
    needs: Literal["none", "root", "sys_admin"]
    reboot: str
    risk: str
    reads: str
    expects: str
    not_applicable: str
    why: str
    fix: str
    persist: str
    undo: str
    sources: list[str]
    group: str = ""
    wants: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    check: list[Entry]


@lru_cache(maxsize=1)
def entries() -> dict[str, Entry]:
    """All checks by id, in the order of the groups."""
    result: dict[str, Entry] = {}
    here = resources.files(__name__)
    for group in GROUPS:
        data = (here / f"{group}.toml").read_bytes()
        for entry in msgspec.toml.decode(data, type=_File).check:
            result[entry.id] = msgspec.structs.replace(entry, group=group)
    return result
