"""One value of a row from a host: checked for type and range, or refused with a reason.

Drivers answer with sentinels (all bits set), with values of another unit, and a broken agent with
anything at all. None of that may become a number on screen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Final, NamedTuple, get_args, get_type_hints

from backends.model import GpuReadings, HostReadings, Lane
from backends.text import clean

Value = float | int | bool | str | None

_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "W": (0.0, 20_000.0),
    "%": (0.0, 100.0),
    "°C": (-200.0, 250.0),
    "MHz": (0.0, 50_000.0),
    "B": (0.0, float(2**55)),
    "B/s": (0.0, 1e14),
    "J": (0.0, 1e14),
    "us": (0.0, 1e17),
    "s": (0.0, 1e11),
    "bits": (0.0, float(2**63)),
    "lanes": (0.0, 64.0),
    "P": (0.0, 31.0),
    "": (-1e9, 1e15),
}
"""What a unit can be, generously: outside lies a sentinel, or another unit."""

_SPECIAL_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "fan_pct": (0.0, 200.0),  # nvml.h: may exceed 100 in certain cases
    "numa_node": (0.0, 4096.0),  # -1 means none
}

TEXT_CHARS: Final = 128
"""Longest text of a reading."""


class Cell(NamedTuple):
    """What one reading must look like."""

    key: str
    lane: Lane
    kind: type
    low: float
    high: float

    def take(self, raw: object) -> tuple[Value, str]:
        """(value, "") for a usable value or a null; (None, reason) for what cannot be one."""
        kind = self.kind
        if raw is None:
            return None, ""
        if kind is str:
            return (clean(raw, TEXT_CHARS), "") if isinstance(raw, str) else (None, _why(raw))
        if kind is bool:
            if raw is True or raw is False:
                return raw, ""
            return (bool(raw), "") if raw == 0 or raw == 1 else (None, _why(raw))
        if raw is True or raw is False or not isinstance(raw, int | float):
            return None, _why(raw)
        if not self.low <= raw <= self.high:  # NaN as well
            return None, _why(raw)
        return (float(raw) if kind is float else int(raw)), ""


def _why(raw: object) -> str:
    if isinstance(raw, float) and not math.isfinite(raw):
        return "the host sent no finite number"
    if isinstance(raw, int) and raw.bit_length() > 64:
        return "the host sent an impossible value"
    if isinstance(raw, int | float | str):
        return f"the host sent an impossible value: {clean(str(raw)[:200], 40)}"
    return f"the host sent an impossible value ({type(raw).__name__})"


def _cells(readings: type) -> dict[str, Cell]:
    hints = get_type_hints(readings)
    cells = {}
    for field in fields(readings):
        kind = next(k for k in get_args(hints[field.name]) if k is not type(None))
        low, high = _SPECIAL_RANGES.get(field.name) or _RANGES[field.metadata["unit"]]
        cells[field.name] = Cell(field.name, field.metadata["lane"], kind, low, high)
    return cells


GPU_CELLS: Final = _cells(GpuReadings)
"""Every reading of a GPU by key."""

HOST_CELLS: Final = _cells(HostReadings)
"""Every reading of a host by key."""
