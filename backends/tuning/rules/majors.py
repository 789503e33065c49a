"""Device majors of today: which driver has which, and which nodes belong to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from backends.tuning.view import View

NODE_DRIVERS: Final = (
    (re.compile(r"/nvidia-uvm(?:-tools)?$"), ("nvidia-uvm",)),
    (re.compile(r"/nvidia-caps(?:/|$)"), ("nvidia-caps",)),
    (re.compile(r"/nvidia-caps-imex-channels(?:/|$)"), ("nvidia-caps-imex-channels",)),
    (re.compile(r"/nvidia-nvswitch"), ("nvidia-nvswitch",)),
    (re.compile(r"/nvidia-nvlink$"), ("nvidia-nvlink",)),
    (
        re.compile(r"/nvidia(?:\d+|ctl|-modeset)$"),
        ("nvidia", "nvidia-frontend", "nvidiactl", "nvidia-modeset"),
    ),
    (re.compile(r"/dri/"), ("drm",)),
)
"""Which driver of /proc/devices owns a node."""
FIXED_MAJORS: Final = {195: "nvidia", 226: "drm", 1: "mem", 5: "tty", 10: "misc", 136: "pts"}
"""Majors that are assigned for good; all others are given out when a module is loaded."""


def majors(view: View, *, note: bool = True) -> dict[str, int]:
    """Character device majors by driver, from /proc/devices; empty when it was not read."""
    lines = view.lines("/proc/devices") if note else view.peek_items("/proc/devices")
    result: dict[str, int] = {}
    for line in lines or []:
        if line.strip() == "Block devices:":
            break
        if match := re.match(r"\s*(\d{1,4}) (\S+)$", line):
            result.setdefault(match[2], int(match[1]))
    return result


def majors_of_nodes(view: View) -> dict[str, int]:
    """Majors by driver as the host's own nodes have them, where /proc/devices is not at hand."""
    result: dict[str, int] = {}
    for reading in [*view.each("node//dev/*"), *view.each("node//dev/*/*")]:
        path = reading.fact.key.removeprefix("node/")
        match = re.match(r"(\d{1,4}):", reading.text or "")
        names = next((n for pattern, n in NODE_DRIVERS if pattern.search(path)), ())
        if match and names:
            result.setdefault(names[0], int(match[1]))
    return result


def driver_of(path: str, table: Mapping[str, int]) -> tuple[str, int] | None:
    """The driver that owns a node, and its major today."""
    for pattern, names in NODE_DRIVERS:
        if pattern.search(path):
            for name in names:
                if name in table:
                    return name, table[name]
            return None
    return None
