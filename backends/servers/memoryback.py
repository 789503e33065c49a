"""Waits for what GPU memory tells: before a start the first sample, after a stop the level."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from backends.clock import Clock
from backends.errors import RoomError
from backends.servers.giveback import memory_used, still_held
from backends.servers.host import Host
from backends.servers.launchers.base import Run, StopStep

ASKED_BY: Final = "servers"
FIRST_SAMPLE_S: Final = 3.0
WAITING: Final = "waiting for the GPU memory to be given back"


async def first_sample(host: Host, clock: Clock) -> None:
    """Wait a moment for the first sample, with which memory is compared after a stop."""
    deadline_s = clock.monotonic_s() + FIRST_SAMPLE_S
    while clock.monotonic_s() < deadline_s:
        snapshot = host.snapshot
        if snapshot.sampled_s is not None and (not snapshot.gpus or memory_used(snapshot)):
            return
        await asyncio.sleep(0.05)


async def memory_held(
    host: Host,
    run: Run,
    pids: set[int],
    during: Mapping[str, int],
    on_step: Callable[[StopStep], None],
    *,
    until_s: float,
    clock: Clock,
) -> tuple[str, ...]:
    """Wait until the memory of a run is given back; name the GPUs where it is not.

    Args:
        host: Where it ran.
        run: What was stopped.
        pids: Its processes, of which none is left.
        during: Bytes in use on each GPU while it ran.
        on_step: Told once that it takes a while.
        until_s: When to give up, on the clock.
        clock: That clock.
    """
    if not host.snapshot.gpus:
        return ()
    told = False
    while True:
        with contextlib.suppress(RoomError):
            await host.request("refresh", asked_by=ASKED_BY, what="read GPU memory after a stop")
        await asyncio.sleep(0.3)
        held = still_held(host.snapshot, pids, run.memory_before, during)
        if not held or clock.monotonic_s() >= until_s:
            return held
        if not told:
            on_step(StopStep(WAITING, 0))
            told = True
