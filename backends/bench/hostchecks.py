"""Checks of the server's host before a run: who else is on its GPUs, its clock. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from backends.bench.results import Finding, Severity
from backends.model import GpuProcess, HostSnapshot
from backends.servers.engines import ENGINES, EngineId
from backends.servers.host import CommandResult

OFF_S: Final = 1.0
"""Clocks that differ by more make logs and samples of two machines hard to lay together."""
SHOWN: Final = 4


def neighbours(
    snapshot: HostSnapshot, ours: Collection[int] | None, engine: EngineId = EngineId.CUSTOM
) -> list[Finding]:
    """Processes on the GPUs that are not the server's.

    Args:
        snapshot: Of the host.
        ours: Process ids of the server, children and all; None where they cannot be seen.
        engine: Of the server: where the driver names pids of another namespace, its processes are
            known by how the engine names them.
    """
    holders = snapshot.processes
    if not snapshot.gpus:
        text = "whether the GPUs are otherwise idle cannot be told: none is in sight"
        return [Finding(key="gpus_unseen", severity=Severity.INFO, text=text)]
    if ours is None:
        text = (
            "whether the GPUs are otherwise idle cannot be told: the server's process is not "
            f"in sight, {len(holders)} processes are on the GPUs"
        )
        return [Finding(key="gpus_unseen", severity=Severity.INFO, text=text)]
    found = []
    held = [one for one in holders if one.pid in ours]
    if not held:
        titles = ENGINES[engine].processes
        held = [one for one in holders if any(title.search(one.command) for title in titles)]
        if held:
            more = f" and {len(held) - 1} more" if len(held) > 1 else ""
            text = (
                f"processes on the GPUs that are named as {engine.value} names its own are taken "
                f"for this server's: {held[0].command[:40]}{more}"
            )
            found.append(Finding(key="gpu_by_name", severity=Severity.INFO, text=text))
    mine = {uuid for one in held for uuid in one.memory_bytes}
    others = [one for one in holders if one not in held and one.kind != "graphics"]
    beside = [one for one in others if mine & one.memory_bytes.keys()]
    elsewhere = [one for one in others if one not in beside and mine]
    # Which GPUs are the server's is not known where the driver names pids of another namespace.
    unsure = [one for one in others if not mine]
    for key, severity, some, words in (
        ("gpu_shared", Severity.WARNING, beside, "are on the server's own GPUs"),
        ("gpu_neighbours", Severity.INFO, elsewhere, "are on other GPUs of the host"),
        (
            "gpu_neighbours", Severity.INFO, unsure,
            "are on GPUs, and whether they are the server's own cannot be told",
        ),
    ):  # fmt: skip
        if some:
            text = f"{len(some)} other processes {words}: {_named(some)}"
            found.append(Finding(key=key, severity=severity, text=text))
    return found


def _named(some: list[GpuProcess]) -> str:
    shown = []
    for one in some[:SHOWN]:
        known = [used for used in one.memory_bytes.values() if used is not None]
        held = f", {sum(known) / 2**30:.1f} GiB" if known else ""
        shown.append(f"{one.command[:40]} (pid {one.pid}{held})")
    return ", ".join(shown) + (f" and {len(some) - SHOWN} more" if len(some) > SHOWN else "")


def clock_offset(
    told: CommandResult, before_s: float, after_s: float
) -> tuple[float, float] | None:
    """How far the host's clock is ahead (s), and how exactly that is known (s, either way).

    Args:
        told: Of `date +%s.%N` there.
        before_s: Clock here (Unix s) when it was asked; `after_s` when it had answered.
        after_s: See before.
    """
    text = told.out.strip()
    if not told.ok or not re.fullmatch(r"\d{9,12}(\.\d{1,9})?", text):
        return None
    return float(text) - (before_s + after_s) / 2, (after_s - before_s) / 2


def clock(offset: tuple[float, float] | None, synchronised: bool | None) -> list[Finding]:
    """What is wrong with the host's clock, or not known of it."""
    found = []
    if offset is None:
        text = "the host's clock could not be read, so its offset is not known"
        found.append(Finding(key="clock_unknown", severity=Severity.INFO, text=text))
    elif abs(offset[0]) - offset[1] > OFF_S:
        way = "ahead of" if offset[0] > 0 else "behind"
        text = f"the host's clock is {abs(offset[0]):.1f} s {way} this machine's"
        found.append(Finding(key="clock_off", severity=Severity.WARNING, text=text))
    if synchronised is False:
        text = "the host's clock is not synchronised (NTPSynchronized=no)"
        found.append(Finding(key="clock_unsynchronised", severity=Severity.WARNING, text=text))
    elif synchronised is None:
        text = "whether the host's clock is synchronised cannot be told: timedatectl does not say"
        found.append(Finding(key="clock_unknown", severity=Severity.INFO, text=text))
    return found


def synchronised(told: CommandResult) -> bool | None:
    """By `timedatectl show -p NTPSynchronized`; None where it does not say."""
    found = re.search(r"^NTPSynchronized=(yes|no)$", told.out, re.M)
    return None if not told.ok or found is None else found[1] == "yes"
