"""Looks at the same server again and again without reading every process of the host each time.

A host has thousands of processes, a server has a few. Between two whole looks only those that were
known, those in the server's cgroup and the children of all of them are read: ends are seen at once,
and so are new children; whoever came another way is seen by the next whole look.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from . import cgroups, members

WHOLE_EVERY_S = 5.0
MOST = 256
"""Servers that are remembered."""

Key = Tuple[int, int]
"""Pid and start time of the main process."""


class _Seen(NamedTuple):
    at: float
    """When all processes were read."""
    record: Dict[str, Any]
    pids: Set[int]


_seen: Dict[Key, _Seen] = {}


def scan(
    key: Key, record_of: Callable[[], Dict[str, Any]], deep: bool = False
) -> List[members.Member]:
    """The processes of a server, dead ones that nobody has asked about among them.

    Args:
        key: The server.
        record_of: Gives its record (`members.scan`); only called for a whole look.
        deep: Look at everything now.
    """
    now = time.monotonic()
    seen = _seen.get(key)
    near = inside = None
    if seen is not None and not deep and now - seen.at < WHOLE_EVERY_S:
        inside = cgroups.members(seen.record.get("cgroup"))
        near = _near(seen, inside)
    if seen is None or near is None:
        seen, inside = _Seen(now, record_of(), set()), None
    found = members.scan(seen.record, deep=deep, zombies=True, near=near, inside=inside)
    if len(_seen) >= MOST:
        _seen.clear()
    _seen[key] = seen._replace(pids={member.pid for member in found})
    return found


def _near(seen: _Seen, inside: List[int]) -> Optional[Set[int]]:
    """Who may belong to it by now; None where the kernel does not list children."""
    if children("thread-self") is None:
        return None
    record = seen.record
    found = {record["pid"], record["supervisor_pid"], *seen.pids, *inside}
    waiting = list(found)
    while waiting:
        for child in children("%d/task/%d" % ((waiting.pop(),) * 2)) or ():
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def children(task: str) -> Optional[List[int]]:
    """Pids of the children of a task; None where there is no telling."""
    try:
        with open("/proc/%s/children" % task) as file:
            return [int(word) for word in file.read().split()]
    except (OSError, ValueError):
        return None
