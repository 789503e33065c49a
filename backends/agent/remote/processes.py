"""Who the processes are that the driver lists: what /proc tells about a pid."""

from __future__ import annotations

import functools
import os
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .model_names import model_name

SAY_AGAIN_S = 30.0
MEMORY_STEP_BYTES = 64 * 1024 * 1024
CPU_STEP_PCT = 25.0
MAX_COMMAND = 2000
HIDDEN = (
    "the driver lists processes that are not visible here (another pid namespace): "
    "look from the host that runs this container"
)
CONTAINERS = (
    (re.compile(r"kubepods.*?/(?:[a-z]+-)*(?:cri-containerd[-:])?([0-9a-f]{64})"), "k8s"),
    (re.compile(r"kubepods[^/]*pod([0-9a-f_-]{36})"), "k8s pod"),
    (re.compile(r"(?:/docker/|docker-)([0-9a-f]{64})"), "docker"),
    (re.compile(r"libpod-(?:conmon-)?([0-9a-f]{64})"), "podman"),
    (re.compile(r"(?:cri-containerd-|/containerd/|nerdctl-)([0-9a-f]{64})"), "containerd"),
    (re.compile(r"/lxc(?:\.payload|\.monitor)?[./]([A-Za-z0-9_-]+)"), "lxc"),
    (re.compile(r"/machine\.slice/systemd-nspawn@([^/.]+)"), "nspawn"),
    (re.compile(r"/machine\.slice/machine-([^/]+)\.scope"), "machine"),
    (re.compile(r"/system\.slice/(?:.*/)?(?!docker|containerd|ssh)([^/]+)\.service"), "systemd"),
    (re.compile(r"/(?:user|app)\.slice/.*?/([^/@]+)(?:@[^/]*)?\.service$"), "systemd user"),
    (re.compile(r"/slurm/.*?job_(\d+)|slurmstepd\.scope/job_(\d+)"), "slurm job"),
)


class Identity(NamedTuple):
    """What does not change during a process's life (but for exec)."""

    start_ticks: int
    user: Optional[str]
    command: str
    model: Optional[str]
    container: Optional[str]
    started: Optional[float]


class ProcessTable:
    """The processes on the GPUs of this host, and whether anything about them is news."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._listing: Dict[str, List[Tuple[int, str, Optional[int]]]] = {}
        self._identities: Dict[int, Identity] = {}
        self._cpu: Dict[Tuple[int, int], Tuple[float, float]] = {}
        self._said: List[Dict[str, Any]] = []
        self._said_at = -1e9
        self._notes: List[str] = []
        self._ticks_per_s = float(os.sysconf("SC_CLK_TCK"))
        self._boot_time = boot_time(root)

    def update(
        self, uuids: List[str], listing: Dict[str, List[Tuple[int, str, Optional[int]]]]
    ) -> Optional[List[Dict[str, Any]]]:
        """Take what the driver listed; gives all processes where that is news, else None.

        A GPU that did not answer keeps its last list.
        """
        self._listing.update(listing)
        self._listing = {uuid: self._listing[uuid] for uuid in uuids if uuid in self._listing}
        memory: Dict[Tuple[int, str], Dict[str, Optional[int]]] = {}
        for uuid, processes in self._listing.items():
            for pid, kind, used in processes:
                memory.setdefault((pid, kind), {})[uuid] = used
        now = time.monotonic()
        found = [self._describe(pid, kind, used, now) for (pid, kind), used in memory.items()]
        found.sort(key=lambda process: (process["pid"], process["kind"]))
        alive = {process["pid"] for process in found}
        self._identities = {pid: who for pid, who in self._identities.items() if pid in alive}
        self._cpu = {key: value for key, value in self._cpu.items() if key[0] in alive}
        if now - self._said_at < SAY_AGAIN_S and not self._news(found):
            return None
        self._said, self._said_at = found, now
        return found

    def take_notes(self) -> List[str]:
        """Remarks that came up."""
        notes, self._notes = self._notes, []
        return notes

    def _news(self, found: List[Dict[str, Any]]) -> bool:
        if len(found) != len(self._said):
            return True
        for new, old in zip(found, self._said):
            for key in ("pid", "kind", "start_ticks", "command"):
                if new[key] != old[key]:
                    return True
            if new["memory_bytes"].keys() != old["memory_bytes"].keys():
                return True
            for uuid, used in new["memory_bytes"].items():
                if abs((used or 0) - (old["memory_bytes"][uuid] or 0)) >= MEMORY_STEP_BYTES:
                    return True
            if abs((new["cpu_pct"] or 0.0) - (old["cpu_pct"] or 0.0)) >= CPU_STEP_PCT:
                return True
        return False

    def _describe(
        self, pid: int, kind: str, used: Dict[str, Optional[int]], now: float
    ) -> Dict[str, Any]:
        stat = read_stat(self._root, pid)
        entry: Dict[str, Any] = {
            "pid": pid,
            "kind": kind,
            "memory_bytes": used,
            "start_ticks": None,
            "user": None,
            "command": "",
            "model": None,
            "container": None,
            "visible": stat is not None,
            "cpu_pct": None,
            "started": None,
        }
        if stat is None:
            self._notes.append(HIDDEN)
            return entry
        start_ticks, cpu_ticks, name = stat
        who = self._identities.get(pid)
        if who is None or who.start_ticks != start_ticks:
            who = self._identify(pid, start_ticks, name)
            self._identities[pid] = who
        entry.update(who._asdict())
        cpu_s = cpu_ticks / self._ticks_per_s
        last = self._cpu.get((pid, start_ticks))
        if last is not None and now - last[0] < 0.5:
            last_pct = next((p["cpu_pct"] for p in self._said if p["pid"] == pid), None)
            entry["cpu_pct"] = last_pct
        else:
            if last is not None:
                entry["cpu_pct"] = round(100.0 * max(0.0, cpu_s - last[1]) / (now - last[0]), 1)
            self._cpu[(pid, start_ticks)] = (now, cpu_s)
        return entry

    def _identify(self, pid: int, start_ticks: int, name: str) -> Identity:
        argv = read_argv(self._root, pid)
        started = None
        if self._boot_time is not None:
            started = round(self._boot_time + start_ticks / self._ticks_per_s, 2)
        return Identity(
            start_ticks=start_ticks,
            user=user_of(self._root, pid),
            command=" ".join(argv)[:MAX_COMMAND] or "[%s]" % name,
            model=model_name(argv) or self._model_of_parent(pid),
            container=read_container(self._root, pid),
            started=started,
        )

    def _model_of_parent(self, pid: int) -> Optional[str]:
        """Workers (`sglang::scheduler_TP0`, `VLLM::EngineCore`) are started by who knows."""
        for _ in range(4):
            pid = parent_of(self._root, pid)
            if pid <= 1:
                return None
            model = model_name(read_argv(self._root, pid))
            if model:
                return model
        return None


def read_stat(root: str, pid: int) -> Optional[Tuple[int, int, str]]:
    """(start ticks, CPU ticks, name) of a process, or None where it can't be seen."""
    fields = stat_fields(root, pid)
    if fields is None:
        return None
    name, rest = fields
    return int(rest[19]), int(rest[11]) + int(rest[12]), name


def stat_fields(root: str, pid: int) -> Optional[Tuple[str, List[str]]]:
    """Name and the fields after it; the name may hold spaces and parentheses."""
    try:
        with open("%s/%d/stat" % (root, pid), "rb") as file:
            data = file.read(4096).decode("utf-8", "replace")
    except OSError:
        return None
    head, _, tail = data.rpartition(")")
    rest = tail.split()
    return (head.partition("(")[2], rest) if len(rest) > 19 else None


def parent_of(root: str, pid: int) -> int:
    """The parent's pid; 0 where there is none to see."""
    fields = stat_fields(root, pid)
    return int(fields[1][1]) if fields is not None else 0


def read_argv(root: str, pid: int) -> List[str]:
    """The argument vector, or an empty list (a kernel thread, or no permission)."""
    try:
        with open("%s/%d/cmdline" % (root, pid), "rb") as file:
            data = file.read(65536)
    except OSError:
        return []
    words = data.decode("utf-8", "replace").split("\x00")
    while words and not words[-1]:
        words.pop()
    return words


def user_of(root: str, pid: int) -> Optional[str]:
    """The owner's name, else their number as text."""
    try:
        uid = os.stat("%s/%d" % (root, pid)).st_uid
    except OSError:
        return None
    return _user_name(uid)


@functools.lru_cache(maxsize=256)
def _user_name(uid: int) -> str:
    """A user's name, which many hosts look up elsewhere."""
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)


def read_container(root: str, pid: int) -> Optional[str]:
    """What /proc/PID/cgroup tells: container or service."""
    try:
        with open("%s/%d/cgroup" % (root, pid)) as file:
            return container_of(file.read(16384))
    except OSError:
        return None


def container_of(cgroup: str) -> Optional[str]:
    """Container or unit in the text of a cgroup file: `docker 0123456789ab`, `lxc 101`, ..."""
    for pattern, kind in CONTAINERS:
        match = pattern.search(cgroup)
        if match:
            name = next(group for group in match.groups() if group)
            return "%s %s" % (kind, name[:12] if len(name) == 64 else name)
    return None


def boot_time(root: str) -> Optional[float]:
    """Epoch seconds of the boot that start ticks count from."""
    try:
        with open(root + "/stat") as file:
            for line in file:
                if line.startswith("btime "):
                    return float(line.split()[1])
    except (OSError, ValueError):
        pass
    return None
