"""Which processes belong to a server that was started here, and by what evidence.

A process may change its session, its parent and (setproctitle) its command line and environment.
So membership is the union of several signs, and each member says which of them it shows. Who only
listens on the port or holds the GPU is a stranger: shown, never touched.
"""

from __future__ import annotations

import functools
import os
import signal
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from . import cgroups, mask, processes

MARKER = "GPUROOM_RUN"
"""Environment variable that every process of a run inherits; its value is the run's id."""


class Member(NamedTuple):
    """One process of a server."""

    pid: int
    start_ticks: int
    parent: int
    state: str
    name: str
    evidence: Tuple[str, ...]
    cpu_ticks: int


@functools.lru_cache(maxsize=None)
def boot_id() -> str:
    """The boot that pids and start times count from."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def is_alive(pid: int, start_ticks: int, root: str = "/proc") -> bool:
    """Whether that very process runs; a zombie does not, nor does another with its pid."""
    fields = processes.stat_fields(root, pid)
    return fields is not None and int(fields[1][19]) == start_ticks and fields[1][0] not in "ZX"


def scan(
    record: Dict[str, Any],
    root: str = "/proc",
    deep: bool = True,
    zombies: bool = False,
    known: Optional[Dict[int, int]] = None,
    near: Optional[Set[int]] = None,
    inside: Optional[List[int]] = None,
) -> List[Member]:
    """The living processes of a run.

    Args:
        record: What the supervisor wrote down: `pid`, `start_ticks`, `session`, `supervisor_pid`,
            `supervisor_ticks`, `run_id`, `cgroup`, `boot_id`.
        root: Where the processes are listed.
        deep: Also read the environment of every process of ours (the marker). Without it only
            sessions, descent and cgroup are looked at, which costs a tenth.
        known: Pid and start time of processes that were seen to belong to it before.
        near: Look at these alone, not at all processes.
        inside: Who is in its cgroup, where that is known.
        zombies: Also those that ended and that nobody has asked about: dead workers.
    """
    if record.get("boot_id") != boot_id():
        return []
    table = _table(root, near)
    signs: Dict[int, Set[str]] = {}

    def mark(pid: int, sign: str) -> None:
        if pid in table:
            signs.setdefault(pid, set()).add(sign)

    main, supervisor = record["pid"], record["supervisor_pid"]
    if main in table and table[main][3] == record["start_ticks"]:
        mark(main, "main process")
    # A session id is free for reuse once its last member has gone; until then it is ours.
    oldest = record["start_ticks"]
    for pid, (_, _, session, ticks, _, _) in table.items():
        if session == record["session"] and ticks >= oldest:
            mark(pid, "session")
    for pid, ticks in (known or {}).items():
        if pid in table and table[pid][3] == ticks:
            mark(pid, "descendant")
    for pid in cgroups.members(record.get("cgroup")) if inside is None else inside:
        mark(pid, "cgroup")
    if supervisor in table and table[supervisor][3] == record["supervisor_ticks"]:
        for pid in _descendants(table, supervisor):
            mark(pid, "descendant")
    if deep:
        wanted = ("%s=%s" % (MARKER, record["run_id"])).encode()
        for pid, entry in table.items():
            if entry[3] >= oldest and pid != supervisor and _has_marker(root, pid, wanted):
                mark(pid, "marker")
    for pid in list(signs):
        for child in _descendants(table, pid):
            mark(child, "descendant")
    signs.pop(supervisor, None)
    return [
        Member(
            pid=pid,
            start_ticks=table[pid][3],
            parent=table[pid][1],
            state=table[pid][0],
            name=table[pid][5],
            evidence=tuple(sorted(signs[pid])),
            cpu_ticks=table[pid][4],
        )
        for pid in sorted(signs)
        if zombies or table[pid][0] not in "ZX"
    ]


def describe(member: Member, root: str = "/proc") -> Dict[str, Any]:
    """A member as it goes over the wire."""
    command = mask.line(processes.read_argv(root, member.pid))
    return {
        "pid": member.pid,
        "start_ticks": member.start_ticks,
        "parent": member.parent,
        "state": member.state,
        "command": command[:500] or "[%s]" % member.name,
        "evidence": list(member.evidence),
    }


def send_signal(pid: int, start_ticks: int, number: int) -> bool:
    """Signal that very process and no other that got its pid; False where it is gone.

    Raises:
        PermissionError: It is another user's.
    """
    try:
        handle: Optional[int] = os.pidfd_open(pid)  # type: ignore[attr-defined,unused-ignore]
    except (AttributeError, OSError):
        handle = None  # before Linux 5.3 or Python 3.9: a moment between look and signal remains
    try:
        if not is_alive(pid, start_ticks):
            return False
        if handle is not None:
            signal.pidfd_send_signal(handle, number)  # type: ignore[attr-defined,unused-ignore]
        else:
            os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        if handle is not None:
            os.close(handle)


def io_bytes(pids: List[int], root: str = "/proc") -> Optional[int]:
    """Bytes read from storage by these processes so far; None where none may be looked at."""
    total, seen = 0, False
    for pid in pids:
        try:
            with open("%s/%d/io" % (root, pid)) as file:
                for line in file:
                    if line.startswith("read_bytes:"):
                        total += int(line.split()[1])
                        seen = True
        except OSError:
            continue
    return total if seen else None


def _table(
    root: str, near: Optional[Set[int]] = None
) -> Dict[int, Tuple[str, int, int, int, int, str]]:
    """Pid -> (state, parent, session, start ticks, CPU ticks, name), of all or of some."""
    table = {}
    if near is None:
        near = {int(entry) for entry in os.listdir(root) if entry.isdigit()}
    for pid in near:
        fields = processes.stat_fields(root, pid)
        if fields is not None:
            name, rest = fields
            table[pid] = (
                rest[0], int(rest[1]), int(rest[3]), int(rest[19]),
                int(rest[11]) + int(rest[12]), name,
            )  # fmt: skip
    return table


def _descendants(table: Dict[int, Tuple[str, int, int, int, int, str]], pid: int) -> Set[int]:
    children: Dict[int, List[int]] = {}
    for child, entry in table.items():
        children.setdefault(entry[1], []).append(child)
    found: Set[int] = set()
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def _has_marker(root: str, pid: int, wanted: bytes) -> bool:
    try:
        with open("%s/%d/environ" % (root, pid), "rb") as file:
            return wanted in file.read(262144).split(b"\x00")
    except OSError:
        return False
