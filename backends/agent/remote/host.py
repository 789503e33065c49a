"""Readings of the host itself: psutil where its python has it, else /proc, with the same numbers.

Both give the same raw counters (`Counters`); what is derived from them is derived once, here.
"""

from __future__ import annotations

import os
import platform
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

COLUMNS: Dict[str, List[str]] = {
    "fast": ["cpu_pct", "memory_used_bytes"],
    "slow": [
        "load_1m",
        "load_5m",
        "load_15m",
        "memory_total_bytes",
        "swap_used_bytes",
        "swap_total_bytes",
        "disk_read_bytes_per_s",
        "disk_write_bytes_per_s",
        "network_rx_bytes_per_s",
        "network_tx_bytes_per_s",
        "uptime_s",
    ],
}
NOT_A_DISK = re.compile(r"^(loop|ram|zram|dm-|md|sr|fd|nbd|drbd)")
PARTITION = re.compile(r"^(nvme\d+n\d+p\d+|mmcblk\d+p\d+|(sd|vd|xvd|hd)[a-z]+\d+)$")
VIRTUAL_LINK = re.compile(r"^(lo|docker|br-|veth|virbr|vnet|tap|tun|cni|flannel|cali|fw|vmbr|ifb)")
SECTOR_BYTES = 512


class Memory(NamedTuple):
    """Bytes of memory and swap."""

    total: int
    available: int
    swap_total: int
    swap_free: int


class ProcSource:
    """The counters as /proc has them, or a folder in its place."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root

    def cpu_times(self) -> Tuple[float, float]:
        """(busy, all) seconds of all CPUs together since boot; waiting for disks is not busy."""
        with open(self._root + "/stat") as file:
            numbers = [int(word) for word in file.readline().split()[1:9]]
        ticks = float(os.sysconf("SC_CLK_TCK"))
        idle = numbers[3] + (numbers[4] if len(numbers) > 4 else 0)
        return (sum(numbers) - idle) / ticks, sum(numbers) / ticks

    def memory(self) -> Memory:
        """Memory and swap."""
        found: Dict[str, int] = {}
        with open(self._root + "/meminfo") as file:
            for line in file:
                name, _, rest = line.partition(":")
                found[name] = int(rest.split()[0]) * 1024
        available = found.get("MemAvailable", found.get("MemFree", 0) + found.get("Cached", 0))
        return Memory(
            found["MemTotal"], available, found.get("SwapTotal", 0), found.get("SwapFree", 0)
        )

    def disks(self) -> Dict[str, Tuple[int, int]]:
        """Device -> bytes (read, written) since boot."""
        found = {}
        with open(self._root + "/diskstats") as file:
            for line in file:
                words = line.split()
                if len(words) >= 10:
                    found[words[2]] = (int(words[5]) * SECTOR_BYTES, int(words[9]) * SECTOR_BYTES)
        return found

    def links(self) -> Dict[str, Tuple[int, int]]:
        """Network link -> bytes (received, sent) since boot."""
        found = {}
        with open(self._root + "/net/dev") as file:
            for line in file.readlines()[2:]:
                name, _, rest = line.partition(":")
                words = rest.split()
                found[name.strip()] = (int(words[0]), int(words[8]))
        return found

    def uptime_s(self) -> float:
        """Seconds since boot."""
        with open(self._root + "/uptime") as file:
            return float(file.read().split()[0])

    def load(self) -> Tuple[float, float, float]:
        """Load of 1, 5 and 15 minutes."""
        with open(self._root + "/loadavg") as file:
            one, five, fifteen = (float(word) for word in file.read().split()[:3])
        return one, five, fifteen


class PsutilSource:
    """The same counters by psutil."""

    def __init__(self, psutil: Any) -> None:
        self._psutil = psutil

    def cpu_times(self) -> Tuple[float, float]:
        """(busy, all) seconds of all CPUs together since boot; waiting for disks is not busy."""
        times = self._psutil.cpu_times()
        names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
        total = sum(getattr(times, name, 0.0) for name in names)
        return total - times.idle - getattr(times, "iowait", 0.0), total

    def memory(self) -> Memory:
        """Memory and swap."""
        memory = self._psutil.virtual_memory()
        swap = self._psutil.swap_memory()
        return Memory(memory.total, memory.available, swap.total, swap.free)

    def disks(self) -> Dict[str, Tuple[int, int]]:
        """Device -> bytes (read, written) since boot."""
        counters = self._psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        return {name: (disk.read_bytes, disk.write_bytes) for name, disk in counters.items()}

    def links(self) -> Dict[str, Tuple[int, int]]:
        """Network link -> bytes (received, sent) since boot."""
        counters = self._psutil.net_io_counters(pernic=True, nowrap=False) or {}
        return {name: (link.bytes_recv, link.bytes_sent) for name, link in counters.items()}

    def uptime_s(self) -> float:
        """Seconds since boot."""
        return time.time() - float(self._psutil.boot_time())

    def load(self) -> Tuple[float, float, float]:
        """Load of 1, 5 and 15 minutes."""
        return os.getloadavg()


class HostReader:
    """Turns counters into readings; each lane remembers what it last saw."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._last_cpu: Optional[Tuple[float, float]] = None
        self._last_io: Optional[Tuple[float, List[int]]] = None

    def read(self, lane: str) -> Tuple[List[Any], Dict[str, str]]:
        """The row of a lane in the order of its columns, and why what is None is absent."""
        values: Dict[str, Any] = {}
        absent: Dict[str, str] = {}
        for part in [self._cpu, self._memory] if lane == "fast" else self._slow_parts():
            try:
                values.update(part())
            except Exception as error:
                for key in COLUMNS[lane]:
                    absent.setdefault(key, "%s: %s" % (error.__class__.__name__, error))
        row = [values.get(key) for key in COLUMNS[lane]]
        reasons = {
            key: absent.get(key, "needs a second sample")
            for key, value in zip(COLUMNS[lane], row)
            if value is None
        }
        return row, reasons

    def _slow_parts(self) -> List[Any]:
        return [self._load, self._memory_rest, self._io, self._uptime]

    def _cpu(self) -> Dict[str, Any]:
        busy, total = self._source.cpu_times()
        last, self._last_cpu = self._last_cpu, (busy, total)
        if last is None or total <= last[1]:
            return {}
        share = 100.0 * (busy - last[0]) / (total - last[1])
        return {"cpu_pct": round(min(100.0, max(0.0, share)), 1)}

    def _memory(self) -> Dict[str, Any]:
        memory = self._source.memory()
        return {"memory_used_bytes": max(0, memory.total - memory.available)}

    def _memory_rest(self) -> Dict[str, Any]:
        memory = self._source.memory()
        return {
            "memory_total_bytes": memory.total,
            "swap_used_bytes": max(0, memory.swap_total - memory.swap_free),
            "swap_total_bytes": memory.swap_total,
        }

    def _load(self) -> Dict[str, Any]:
        one, five, fifteen = self._source.load()
        return {
            "load_1m": round(one, 2),
            "load_5m": round(five, 2),
            "load_15m": round(fifteen, 2),
        }

    def _io(self) -> Dict[str, Any]:
        now = time.monotonic()
        counters = [0, 0, 0, 0]
        for name, (read, written) in self._source.disks().items():
            if not NOT_A_DISK.match(name) and not PARTITION.match(name):
                counters[0] += read
                counters[1] += written
        for name, (received, sent) in self._source.links().items():
            if not VIRTUAL_LINK.match(name):
                counters[2] += received
                counters[3] += sent
        last, self._last_io = self._last_io, (now, counters)
        if last is None or now <= last[0]:
            return {}
        rates = [max(0, b - a) / (now - last[0]) for a, b in zip(last[1], counters)]
        keys = COLUMNS["slow"][6:10]
        return {key: round(rate) for key, rate in zip(keys, rates)}

    def _uptime(self) -> Dict[str, Any]:
        return {"uptime_s": round(self._source.uptime_s())}


def open_source(use_psutil: bool, root: str = "/proc") -> Any:
    """Psutil where it can be had (and on systems without /proc), else /proc or its stand-in."""
    if use_psutil and root == "/proc":
        try:
            import psutil

            return PsutilSource(psutil)
        except Exception:
            pass  # a broken psutil is no reason to know nothing
    return ProcSource(root)


def read_once(root: str = "/proc") -> Dict[str, Any]:
    """What doesn't change until the next boot."""
    values = {
        "cpu_count": os.cpu_count() if root == "/proc" else cpu_count(root),
        "cpu_model": cpu_model(root),
        "kernel": kernel(root),
        "boot_id": boot_id(root),
    }
    return {key: value for key, value in values.items() if value}


def boot_id(root: str = "/proc") -> str:
    """The kernel's id of this boot; empty where it has none."""
    return _line(root + "/sys/kernel/random/boot_id")


def kernel(root: str) -> str:
    """Its release."""
    return _line(root + "/sys/kernel/osrelease") or platform.release()


def _line(path: str) -> str:
    try:
        with open(path) as file:
            return file.read(256).strip()
    except OSError:
        return ""


def cpu_count(root: str) -> int:
    """How many CPUs a cpuinfo lists."""
    try:
        with open(root + "/cpuinfo") as file:
            return sum(line.startswith("processor") for line in file)
    except OSError:
        return 0


def cpu_model(root: str = "/proc") -> Optional[str]:
    """The CPU's name as cpuinfo has it; None where it has none (some ARM)."""
    try:
        with open(root + "/cpuinfo") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() in ("model name", "Model", "cpu model"):
                    return " ".join(value.split())[:200]
    except OSError:
        pass
    return platform.processor() or None
