"""Facts of the world that change with time: Xid severities, kernel floors and known-bad kernels."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Literal

import msgspec


class XidEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one Xid code means."""

    code: int
    verdict: Literal["FAIL", "WARN", "INFO"]
    meaning: str
    action: str


class XidTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table of Xid codes, with where it is from and when."""

    source: str
    date: str
    xid: list[XidEntry]


class KernelFloor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The oldest kernel that serves a CPU well."""

    vendor: str
    family: int
    floor: str
    why: str


class BadKernel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A release with a known fault for GPU hosts."""

    release: str
    why: str
    instead: str
    source: str


class KernelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Floors and known-bad releases."""

    date: str
    floors: list[KernelFloor]
    bad: list[BadKernel]


@lru_cache(maxsize=1)
def xid_table() -> dict[int, XidEntry]:
    """Xid codes by number."""
    data = (resources.files(__name__) / "xid.toml").read_bytes()
    return {entry.code: entry for entry in msgspec.toml.decode(data, type=XidTable).xid}


@lru_cache(maxsize=1)
def kernel_table() -> KernelTable:
    """Floors and known-bad kernels."""
    data = (resources.files(__name__) / "kernels.toml").read_bytes()
    return msgspec.toml.decode(data, type=KernelTable)
