"""Whether a server that was stopped has given its GPU memory back. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

from backends.model import HostSnapshot

SLACK_BYTES: Final = 512 << 20
"""What a driver may keep for itself, and what others may take meanwhile, without being accused."""


def memory_used(snapshot: HostSnapshot) -> dict[str, int]:
    """GPU -> bytes in use, where it is known."""
    used = ((gpu.uuid, gpu.readings.memory_used_bytes) for gpu in snapshot.gpus)
    return {uuid: amount for uuid, amount in used if amount is not None}


def still_held(
    snapshot: HostSnapshot,
    pids: Set[int],
    before: Mapping[str, int] | None = None,
    during: Mapping[str, int] | None = None,
) -> tuple[str, ...]:
    """GPUs whose memory is not given back, in words.

    Args:
        snapshot: After the stop.
        pids: The processes of the server, of which none is left.
        before: Bytes in use on each GPU before its start, where that was written down.
        during: The same while it ran. Behind a container's wall the driver lists no processes:
            then a GPU that the server had filled, and that is still as full without any visible
            process that would explain it, has not given it back.
    """
    words: list[str] = []
    used = memory_used(snapshot)
    for gpu in snapshot.gpus:
        listed = [p for p in snapshot.processes if gpu.uuid in p.memory_bytes]
        mine = [p.memory_bytes[gpu.uuid] for p in listed if p.pid in pids]
        if any(amount is None or amount > 0 for amount in mine):
            words.append(f"GPU {gpu.index}")
            continue
        if before is None or during is None or not {gpu.uuid} <= before.keys() & during.keys():
            continue
        if during[gpu.uuid] <= before[gpu.uuid] + SLACK_BYTES:
            continue  # it had not used this one
        explained = before[gpu.uuid] + sum(p.memory_bytes[gpu.uuid] or 0 for p in listed)
        extra = used.get(gpu.uuid, 0) - explained
        if extra > SLACK_BYTES:
            words.append(f"GPU {gpu.index} ({extra / 2**30:.1f} GiB more than before the start)")
    return tuple(words)
