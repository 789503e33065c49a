"""What /proc of the demo host shows: a folder with the same files, about processes that never were.

The simulated NVML names pids; here are their command lines, parents, containers and CPU times, and
the counters of a host of 128 CPUs. The agent is told to look here instead of /proc.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from backends.sim.nvml import SETUPS, Setup, server_processes

KERNEL_LOG: Final = "kernel.log"
"""A file beside the processes that stands for the host's kernel log."""
CPUS: Final = 128
BOOT_ID: Final = "5a1e0000-0000-4000-8000-00000000b007"
MEMORY_KB: Final = 1_584_529_408
UPTIME_S: Final = 9 * 86400 + 4242.0
"""At the start of the demo."""
FRESH_S: Final = 48.0
"""For how long it is up when it can be reached after a reboot."""
SERVER_AGE_S: Final = 5 * 3600 + 1234.0
"""For how long the servers have been up then."""

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_DOCKER: Final = "3f9ac1d27be04588b1d0e6a95c7f2e418d3b60a7c54f19e2b8d7061fa3c95e24"
_SGLANG: Final = (
    "python3 -m sglang.launch_server --model-path /models/GLM-5-NVFP4 --tp-size {tp} "
    "--served-model-name glm-5-nvfp4 --host 0.0.0.0 --port 30000"
)
_VLLM: Final = "/opt/vllm/bin/python3 /opt/vllm/bin/vllm serve Qwen/Qwen3-235B-A22B-FP8 --port 8001"
_LLAMA: Final = "/opt/llama.cpp/llama-server -m /models/Qwen3-8B-Q8_0.gguf --port {port}"


@dataclass(frozen=True, slots=True)
class FakeProcess:
    """One process of the tree.

    Attributes:
        cores: How many CPUs it keeps busy.
    """

    pid: int
    parent: int
    name: str
    argv: tuple[str, ...]
    cgroup: str
    cores: float


def processes_of(setup: Setup) -> list[FakeProcess]:
    """Every process of a scenario, parents first: the same pids that its NVML names."""
    found: list[FakeProcess] = []
    service = "0::/system.slice/{}.service\n"
    container = f"0::/system.slice/docker-{_DOCKER}.scope\n"
    ranks = {0: 0, 1: 0}
    sharded = [card for card in range(setup.cards) if card not in setup.mig_cards]
    for process in server_processes(setup):
        if process.card in setup.mig_cards:
            argv = tuple(_LLAMA.format(port=8080 + process.pid % 100).split())
            unit = service.format("llama-server")
            found.append(FakeProcess(process.pid, 1, "llama-server", argv, unit, 0.3))
            continue
        group = process.card // 8
        parent = 48_100 + 400 * group
        rank, ranks[group] = ranks[group], ranks[group] + 1
        cgroup = service.format("vllm") if group else container
        if rank == 0:
            tp_size = sum(card // 8 == group for card in sharded)
            launch = _VLLM if group else _SGLANG.format(tp=tp_size)
            found.append(FakeProcess(parent, 1, "python3", tuple(launch.split()), cgroup, 0.4))
        title = f"VLLM::Worker_TP{rank}" if group else f"sglang::scheduler_TP{rank}"
        found.append(FakeProcess(process.pid, parent, title[:15], (title,), cgroup, 1.0))
    return found


class ProcTree:
    """A folder in the place of /proc.

    Attributes:
        root: The folder; it belongs to the caller.

    Args:
        scenario: What the host does.
        clock: Seconds.
        host: The folder that stands for the `/` of its processes.
        again: Whether it has just booted once more.
    """

    def __init__(
        self,
        root: Path,
        scenario: str,
        clock: Callable[[], float] = time.monotonic,
        host: Path | None = None,
        again: bool = False,
    ) -> None:
        self.root = root
        self._boot_id = str(uuid.uuid4()) if again else BOOT_ID
        self._uptime_s = FRESH_S if again else UPTIME_S
        self._host = host if host is not None else root.parent
        setup = SETUPS[scenario]
        self._processes = processes_of(setup)
        if not self._processes:
            # Nothing runs yet; ranks of the server that may be started are known by their pids.
            ranks = processes_of(setup._replace(load=0.1))
            self._processes = [replace(rank, cores=0.0) for rank in ranks]
        self._clock = clock
        self._start_s = clock()
        self._boot_epoch_s = int(time.time() - self._uptime_s)

    def write(self) -> None:
        """Write all of it, as of now."""
        for process in self._processes:
            folder = self.root / str(process.pid)
            folder.mkdir(exist_ok=True)
            (folder / "cmdline").write_bytes("\0".join((*process.argv, "")).encode())
            (folder / "cgroup").write_text(process.cgroup)
            self._inside(folder, process)
        (self.root / KERNEL_LOG).write_text("")
        (self.root / "net").mkdir(exist_ok=True)
        random = self.root / "sys/kernel/random"
        random.mkdir(parents=True, exist_ok=True)
        (random / "boot_id").write_text(self._boot_id + "\n")
        cpus = "".join(
            f"processor\t: {cpu}\nmodel name\t: AMD EPYC 9555 64-Core Processor\n\n"
            for cpu in range(CPUS)
        )
        (self.root / "cpuinfo").write_text(cpus)
        self.update()

    def _inside(self, folder: Path, process: FakeProcess) -> None:
        """What the checklist looks at in a process that serves."""
        (folder / "environ").write_bytes(b"NCCL_SOCKET_IFNAME=eth0\0OMP_NUM_THREADS=8\0")
        (folder / "status").write_text(
            f"Name:\t{process.name}\nVmSwap:\t       0 kB\nCpus_allowed_list:\t0-{CPUS - 1}\n"
        )
        (folder / "limits").write_text(
            "Limit                     Soft Limit           Hard Limit           Units\n"
            "Max open files            1024                 1048576              files\n"
            "Max locked memory         unlimited            unlimited            bytes\n"
        )
        mapped = "7f0000000000-7f0000001000 r-xp 00000000 103:02 7 /usr/lib/libcudart.so.13.0.88\n"
        (folder / "maps").write_text(mapped * 40)
        (folder / "mountinfo").write_text(
            "29 1 252:1 / / rw,relatime shared:1 - ext4 /dev/mapper/pve-root rw\n"
            "36 29 259:1 / /models rw,noatime shared:2 - xfs /dev/nvme0n1p1 rw\n"
        )
        (folder / "fd").mkdir(exist_ok=True)
        for number in range(3):
            (folder / f"fd/{number}").touch()
        if not (folder / "root").is_symlink():
            (folder / "root").symlink_to(self._host)

    def update(self) -> None:
        """Move the counters on to now. Files are replaced whole: no reader sees half of one."""
        elapsed_s = self._clock() - self._start_s
        for process in self._processes:
            self._replace(f"{process.pid}/stat", self._stat_of(process, elapsed_s))
        cores = sum(process.cores for process in self._processes) + 1.5
        busy = int((self._uptime_s * 6 + elapsed_s * cores) * _TICKS_PER_S)
        idle = int((self._uptime_s + elapsed_s) * CPUS * _TICKS_PER_S) - busy
        system = busy // 6
        self._replace(
            "stat",
            f"cpu  {busy - system} 0 {system} {idle} 0 0 0 0 0 0\nbtime {self._boot_epoch_s}\n",
        )
        available_kb = MEMORY_KB - 96_000_000 - 40_000_000 * bool(self._processes)
        self._replace(
            "meminfo",
            f"MemTotal:       {MEMORY_KB} kB\nMemFree:        {available_kb // 2} kB\n"
            f"MemAvailable:   {available_kb} kB\nSwapTotal:      8388604 kB\n"
            "SwapFree:       8388604 kB\n",
        )
        self._replace("loadavg", f"{cores:.2f} {cores + 0.3:.2f} {cores + 0.1:.2f} 3/2011 60000\n")
        self._replace("uptime", f"{self._uptime_s + elapsed_s:.2f} {idle / _TICKS_PER_S:.2f}\n")
        read, written = 180_000_000 + int(400 * elapsed_s), 90_000_000 + int(2500 * elapsed_s)
        disk = f" 259       0 nvme0n1 900000 0 {read} 0 800000 0 {written} 0 0 0 0\n"
        self._replace("diskstats", disk)
        received, sent = (int(7e9 + rate * elapsed_s) for rate in (60_000, 210_000))
        self._replace(
            "net/dev",
            "Inter-|   Receive  |  Transmit\n face |bytes packets |bytes packets\n"
            f"eth0: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n",
        )

    def _stat_of(self, process: FakeProcess, elapsed_s: float) -> str:
        age_s = min(SERVER_AGE_S, self._uptime_s / 2)
        start_ticks = int((self._uptime_s - age_s) * _TICKS_PER_S) + process.pid % 100
        user = int((age_s + elapsed_s) * process.cores * _TICKS_PER_S)
        # Fields 3 to 22 of proc_pid_stat(5); 14 and 15 are CPU ticks, 22 is the start.
        fields = ["S", str(process.parent), *["0"] * 9, str(user), "0", *["0"] * 6]
        return f"{process.pid} ({process.name}) {' '.join(fields)} {start_ticks} 0 0\n"

    def _replace(self, name: str, text: str) -> None:
        path = self.root / name
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(text)
        fresh.replace(path)
