"""What moves in a server, and which of its workers are gone: from one look to the next. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from backends.model import HostSnapshot
from backends.servers.engines import Engine
from backends.servers.host import MemberFacts, PortFacts
from backends.servers.launchers.base import RunLook
from backends.servers.witnesses import ActivitySeen, PortOwner, PortSeen
from backends.text import clean

MOVED_CPU_S: Final = 0.05
MOVED_BYTES: Final = 1 << 20
DEAD: Final = ("Z", "X")


@dataclass(slots=True)
class Movement:
    """Remembers the counters of the last look and says which of them have moved."""

    _cpu_s: float | None = None
    _read_bytes: int | None = None
    _gpu_memory: Mapping[str, int] = field(default_factory=dict)
    gpus: set[str] = field(default_factory=set)
    """All GPUs that its processes ever held, by UUID."""

    def note(self, look: RunLook, before: ActivitySeen | None, now_s: float) -> ActivitySeen:
        """CPU time and disk reads of a look."""
        before = before or ActivitySeen(now_s)
        cpu_at, disk_at = before.cpu_at_s, before.disk_at_s
        if look.cpu_s is not None:
            if self._cpu_s is not None and look.cpu_s - self._cpu_s >= MOVED_CPU_S:
                cpu_at = now_s
            self._cpu_s = look.cpu_s
        if look.read_bytes is not None:
            if self._read_bytes is not None and look.read_bytes - self._read_bytes >= MOVED_BYTES:
                disk_at = now_s
            self._read_bytes = look.read_bytes
        return replace(before, at_s=now_s, cpu_at_s=cpu_at, disk_at_s=disk_at)

    def note_gpus(
        self,
        snapshot: HostSnapshot,
        members: Sequence[MemberFacts],
        before: ActivitySeen | None,
        now_s: float,
    ) -> ActivitySeen | None:
        """Memory and work of the GPUs that its processes hold; None where nothing has moved."""
        held = gpu_memory(snapshot, {member.pid for member in members})
        before = before or ActivitySeen(now_s)
        memory_at, busy_at = before.gpu_memory_at_s, before.gpu_busy_at_s
        both = held.keys() | self._gpu_memory.keys()
        if any(abs(held.get(u, 0) - self._gpu_memory.get(u, 0)) >= MOVED_BYTES for u in both):
            memory_at = now_s
        self._gpu_memory = held
        self.gpus |= held.keys()
        busy = (gpu.readings.utilization_gpu_pct or 0 for gpu in snapshot.gpus if gpu.uuid in held)
        if any(share >= 1 for share in busy):
            busy_at = now_s
        if (memory_at, busy_at) == (before.gpu_memory_at_s, before.gpu_busy_at_s):
            return None
        return replace(before, gpu_memory_at_s=memory_at, gpu_busy_at_s=busy_at)


def gpu_memory(snapshot: HostSnapshot, pids: set[int]) -> dict[str, int]:
    """GPU -> bytes that these processes hold there, as the driver lists them."""
    held: dict[str, int] = {}
    for process in snapshot.processes:
        if process.pid in pids:
            for uuid, used in process.memory_bytes.items():
                held[uuid] = held.get(uuid, 0) + (used or 0)
    return held


@dataclass(slots=True)
class Workers:
    """Workers of an engine, known by their titles."""

    engine: Engine
    _seen: dict[int, str] = field(default_factory=dict)

    def dead(self, members: Sequence[MemberFacts]) -> tuple[str, ...]:
        """Workers that are zombies, or were seen before and are gone."""
        alive = {m.pid: m.command for m in members if m.state not in DEAD}
        zombies = [m for m in members if m.state in DEAD and m.parent and m.pid not in self._seen]
        titles = self.engine.processes
        gone = [
            f"{command[:60]} (pid {pid})"
            for pid, command in self._seen.items()
            if pid not in alive and command not in alive.values()
        ]
        self._seen |= {
            pid: command
            for pid, command in alive.items()
            if any(title.search(command) for title in titles)
        }
        named = [
            zombie.command[:60]
            for zombie in zombies
            if any(title.search(zombie.command.strip("[]")) for title in titles)
        ]
        return (*gone, *named)


def port_seen(facts: PortFacts, members: Sequence[MemberFacts], now_s: float) -> PortSeen:
    """Whose a port is."""
    ours = {member.pid for member in members}
    if facts.free or (facts.bound and not facts.owners):
        return PortSeen(now_s, facts.port, PortOwner.NOBODY)
    for owner in facts.owners:
        if owner.pid in ours:
            return PortSeen(now_s, facts.port, PortOwner.OURS, f"pid {owner.pid}")
    if facts.owners:
        first = facts.owners[0]
        holder = f"pid {first.pid} {clean(first.command, 80)}"
        return PortSeen(now_s, facts.port, PortOwner.STRANGER, holder)
    return PortSeen(now_s, facts.port, PortOwner.STRANGER, "a process that is not visible here")
