"""What the kernel log says of one server: out-of-memory kills and Xids. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from datetime import datetime, timedelta
from typing import Final

from backends.model import KernelEvent
from backends.servers.witnesses import KernelSeen

AROUND: Final = timedelta(seconds=120)
"""An Xid that names no process belongs to a server whose GPU it is, if it came about then."""
_PID: Final = re.compile(r"(?:pid[=:'\" ]{1,3}|Kill(?:ed)? process )(\d+)")
_ALL_PROCESSES_OF: Final = frozenset({79, 119, 120, 154})
"""Xids after which nothing on the GPU can go on (NVIDIA's Xid catalogue)."""


def kernel_seen(
    events: Sequence[KernelEvent],
    pids: Set[int],
    bus_ids: Set[str],
    ended: datetime,
    now_s: float,
) -> KernelSeen | None:
    """The newest event that explains the end of a server.

    Args:
        events: Of the host, the oldest first.
        pids: All processes that it ever had.
        bus_ids: Of the GPUs that they held.
        ended: About when its end was noticed.
        now_s: The watcher's clock.
    """
    for event in reversed(events):
        named = {int(pid) for pid in _PID.findall(event.text)}
        if event.kind == "oom" and named & pids:
            return KernelSeen(now_s, event.text, oom=True)
        if event.kind != "xid":
            continue
        near = abs(event.at - ended) <= AROUND
        mine = event.bus_id in bus_ids and (not named or event.xid in _ALL_PROCESSES_OF)
        if named & pids or (mine and near):
            return KernelSeen(now_s, event.text, xid=event.xid)
    return None
