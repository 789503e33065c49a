"""What `systemctl show` prints of a unit, read. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

PREFIX: Final = "gpuroom-"
SUFFIX: Final = ".service"
SHOWN: Final = (
    "Id,LoadState,ActiveState,SubState,MainPID,ExecMainPID,ExecMainCode,ExecMainStatus,Result,"
    "ControlGroup,InvocationID,ExecMainStartTimestamp,Description"
)
KILLED_CODES: Final = ("2", "3")
"""CLD_KILLED and CLD_DUMPED: the status is a signal."""

Shown = Mapping[str, str]


def read_shown(text: str) -> Shown:
    """Property to value."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


def is_there(shown: Shown) -> bool:
    """Whether the unit was started at least once, as far as systemd remembers."""
    begun = shown.get("ExecMainPID", "0") != "0" or shown.get("ActiveState") == "activating"
    return begun and shown.get("LoadState") != "not-found"


def is_busy(shown: Shown) -> bool:
    """Whether it runs, or is about to."""
    return shown.get("ActiveState") in ("active", "activating", "reloading", "deactivating")


def ends(shown: Shown) -> bool:
    """Whether systemd is stopping it, whoever asked for that."""
    return shown.get("ActiveState") == "deactivating"


def main_pid(shown: Shown) -> int | None:
    """Its main process, where it lives."""
    return int(shown.get("MainPID") or 0) or None


def exit_code(unit: str, shown: Shown) -> int | None:
    """How it ended; negative: by a signal. A transient unit that ended well is forgotten."""
    if shown.get("LoadState") == "not-found":
        return 0 if unit.startswith(PREFIX) else None
    if shown.get("ExecMainPID", "0") == "0" or not shown.get("ExecMainStatus", "").isdigit():
        return None
    status = int(shown["ExecMainStatus"])
    return -status if shown.get("ExecMainCode") in KILLED_CODES else status


def cgroup(shown: Shown) -> str | None:
    """Where its processes are listed."""
    place = shown.get("ControlGroup", "")
    return f"/sys/fs/cgroup{place}" if place.strip("/") and ".." not in place else None


def started_by(shown: Shown) -> tuple[str | None, str | None]:
    """Who started it and from where, as its description tells."""
    _, told, rest = shown.get("Description", "").partition(", started by ")
    by, _, origin = rest.partition(" from ")
    return (by, origin) if told else (None, None)


def started_at(shown: Shown) -> float | None:
    """`Wed 2026-12-02 10:00:00 UTC` in epoch seconds."""
    text = shown.get("ExecMainStartTimestamp", "")
    with contextlib.suppress(ValueError):
        return datetime.strptime(text, "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC).timestamp()
    return None


def listed_units(text: str) -> list[str]:
    """The units in what `systemctl list-units --plain --no-legend` prints."""
    words = (line.split() for line in text.splitlines())
    return [found[0] for found in words if found and found[0].endswith(SUFFIX)]
