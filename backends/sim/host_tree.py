"""What the tuning checklist finds on the demo host: a folder in the place of `/`.

It holds what sysfs, procfs and /etc of such a machine would, left as its distribution had them.
Fixes are carried out in this folder and taken back there; one fails, and one does not hold. The
machine that plays the demo host is neither read nor changed.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Final

from backends.sim import host_programs
from backends.sim.scenarios import MODEL_FOLDER

KERNEL: Final = "6.8.0-60-generic"
DRIVER: Final = "595.58.03"
CPU: Final = "/sys/devices/system/cpu"
NODES: Final = 2
SOCKET: Final = "/sys/devices/system/socket{}"
"""What all CPUs of a socket have in common: thousands of files would hold up the start."""
IDLE: Final = (("POLL", 0), ("C1", 1), ("C2", 100))
CMDLINE: Final = f"BOOT_IMAGE=/vmlinuz-{KERNEL} root=/dev/nvme0n1p2 ro iommu=pt quiet"
RUNNING: Final = {
    "/proc/sys/kernel/numa_balancing": "1",
    "/proc/sys/kernel/watchdog": "1",
    "/proc/sys/vm/max_map_count": "65530",
    "/proc/sys/vm/swappiness": "60",
    "/proc/sys/vm/zone_reclaim_mode": "1",
    "/proc/sys/vm/overcommit_memory": "0",
    "/proc/sys/vm/dirty_ratio": "20",
    "/proc/sys/vm/dirty_bytes": "0",
    "/proc/sys/vm/min_free_kbytes": "2097152",
    "/proc/sys/net/core/somaxconn": "4096",
    "/proc/sys/net/core/rmem_max": "212992",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "/sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
}
"""What the kernel begins each boot with, before the files of /etc are applied."""
IGNORED: Final = "/proc/sys/vm/zone_reclaim_mode"
"""A setting that is taken and put back at once: a fix that does not hold."""
VALUES: Final = {
    "/proc/cmdline": CMDLINE,
    "/proc/version": f"Linux version {KERNEL} (buildd@lcy02) #63-Ubuntu SMP",
    "/proc/devices": "Character devices:\n195 nvidia\n235 nvidia-caps\n509 nvidia-uvm",
    "/proc/modules": "nvidia_uvm 1 1 - Live 0x0\nnvidia 1 9 nvidia_uvm, Live 0x0",
    "/proc/mounts": "/dev/nvme0n1p2 / ext4 rw,relatime 0 0",
    "/proc/1/environ": "",
    "/proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0",
    "/proc/driver/nvidia/params": "EnableGpuFirmware: 18\nEnableResizableBar: 0",
    "/proc/driver/nvidia/version": (
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build"
    ),
    "/proc/sys/kernel/osrelease": KERNEL,
    "/sys/module/nvidia/version": DRIVER,
    "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm": "N",
    "/sys/module/pcie_aspm/parameters/policy": "[default] performance powersave powersupersave",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm",
    "/sys/devices/system/edac/mc/mc0/ce_count": "0",
    "/sys/devices/system/edac/mc/mc0/ue_count": "0",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "0",
    "/sys/fs/cgroup/cpu.max": "max 100000",
    "/sys/fs/cgroup/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_usec 0",
    "/sys/fs/cgroup/memory.max": "max",
    "/sys/fs/cgroup/memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0",
    "/sys/block/nvme0n1/queue/scheduler": "[none] mq-deadline",
    "/sys/block/nvme0n1/queue/read_ahead_kb": "128",
    "/sys/class/net/lo/operstate": "unknown",
    "/sys/class/net/eth0/operstate": "up",
    "/sys/class/net/eth0/mtu": "1500",
    "/sys/class/nvme/nvme0/state": "live",
    "/boot/vmlinuz-6.8.0-60-generic": "",
    "/etc/default/grub": (
        'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="iommu=pt quiet"\nGRUB_CMDLINE_LINUX=""'
    ),
    "/etc/apt/apt.conf.d/20auto-upgrades": 'APT::Periodic::Unattended-Upgrade "1";',
    "/etc/modprobe.d/nvidia.conf": "options nvidia_uvm uvm_disable_hmm=0",
    "/etc/sysctl.d/10-site.conf": "net.core.somaxconn = 4096",
    "/etc/systemd/system/multi-user.target.wants/README": "",
    "/etc/tmpfiles.d/demo.conf": "# nothing yet",
    "/usr/lib/systemd/system/nvidia-persistenced.service": "[Unit]\nDescription=NVIDIA Persistence",
    f"{CPU}/cpuidle/current_driver": "acpi_idle",
    f"{CPU}/isolated": "",
    f"{CPU}/smt/control": "off",
    f"{CPU}/vulnerabilities/spectre_v2": "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional",
    f"{CPU}/cpufreq/boost": "1",
    host_programs.LOG: host_programs.boot_log(KERNEL, DRIVER, CMDLINE).rstrip(),
}


def write(folder: Path, proc: Path, cpus: int, cards: int) -> None:
    """Write all of it.

    Args:
        folder: What stands for `/`.
        proc: The simulated /proc, which becomes a part of it.
        cpus: How many CPUs.
        cards: How many GPUs, on the buses where the simulated driver has them.
    """
    folder.mkdir()
    (folder / "proc").symlink_to(proc)
    nodes = [card * NODES // cards for card in range(cards)]
    lists = [cpu_list(cpus, node) for node in range(NODES)]
    values = VALUES | RUNNING | _cpus(cpus) | _nodes(lists)
    values[f"{host_programs.SMI}/topo"] = host_programs.topology(nodes, lists)
    values[f"{host_programs.SMI}/p2p"] = host_programs.peers(cards)
    values[f"{host_programs.SMI}/cuda"] = json.dumps(
        {"init": 0, "count": cards, "driver_version": 13020, "libraries": [_library("libcuda")]}
    )
    for path, text in values.items():
        put(folder, path, text + "\n")
    for cpu in range(cpus):
        socket = SOCKET.format(cpu * NODES // cpus).rpartition("/")[2]
        (folder / f"{CPU[1:]}/cpu{cpu}").symlink_to(f"../{socket}")
    for card, node in enumerate(nodes):
        _card(folder, card, node, lists[node])
        put(folder, f"/proc/driver/nvidia/gpus/{bus_id(card)}/information", "")
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{card}" for card in range(cards))):
        put(folder, f"/dev/{name}", "")  # Opens, as the node would; only root could make one.
    for name in ("libcuda", "libnvidia-ml"):
        put(folder, _library(name), "")
        (folder / f"usr/lib/x86_64-linux-gnu/{name}.so.1").symlink_to(f"{name}.so.{DRIVER}")
    for number in range(4):
        _weights(folder / MODEL_FOLDER.lstrip("/"), number)
    for name, script in host_programs.scripts({}).items():
        put(folder, f"/usr/bin/{name}", script).chmod(0o755)


def put_back(folder: Path) -> None:
    """What runs on this host undoes one setting, as tuning daemons do: it never holds."""
    place = folder / IGNORED.lstrip("/")
    if place.read_text() != RUNNING[IGNORED] + "\n":
        put(folder, IGNORED, RUNNING[IGNORED] + "\n")


def put(folder: Path, path: str, data: str | bytes) -> Path:
    """Write a file of the host below its folder."""
    place = folder / path.lstrip("/")
    if not place.parent.is_dir():
        place.parent.mkdir(parents=True)
    place.write_bytes(data.encode() if isinstance(data, str) else data)
    return place


def cpu_list(cpus: int, node: int) -> str:
    """CPUs of a NUMA node."""
    each = cpus // NODES
    return f"{node * each}-{(node + 1) * each - 1}"


def _library(name: str) -> str:
    return f"/usr/lib/x86_64-linux-gnu/{name}.so.{DRIVER}"


def _weights(folder: Path, number: int) -> None:
    """A shard with a size and no content: it takes no room."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"model-{number + 1:05}-of-00004.safetensors").open("wb") as file:
        file.truncate(108 << 30)


def _cpus(count: int) -> dict[str, str]:
    values = {f"{CPU}/{name}": f"0-{count - 1}" for name in ("online", "present", "possible")}
    for node in range(NODES):
        base = SOCKET.format(node)
        values |= {f"{base}/cpufreq/{name}_max_freq": "3200000" for name in ("scaling", "cpuinfo")}
        values[f"{base}/cpufreq/scaling_driver"] = "acpi-cpufreq"
        values[f"{base}/cpufreq/scaling_governor"] = "schedutil"
        values[f"{base}/topology/physical_package_id"] = str(node)
        values[f"{base}/acpi_cppc/highest_perf"] = "196"
        for number, (state, latency) in enumerate(IDLE):
            one = f"{base}/cpuidle/state{number}"
            values |= {f"{one}/name": state, f"{one}/latency": f"{latency}", f"{one}/disable": "0"}
    return values


def _nodes(lists: list[str]) -> dict[str, str]:
    base = "/sys/devices/system/node"
    values = {f"{base}/online": f"0-{NODES - 1}"}
    for node, cpus in enumerate(lists):
        values[f"{base}/node{node}/cpulist"] = cpus
        values[f"{base}/node{node}/distance"] = "10 32" if node == 0 else "32 10"
        values[f"{base}/node{node}/meminfo"] = (
            f"Node {node} MemTotal: 792264704 kB\nNode {node} MemFree: 402264704 kB\n"
            f"Node {node} FilePages: 301264704 kB"
        )
    return values


def _card(folder: Path, card: int, node: int, cpus: str) -> None:
    """A card below a root port of its own."""
    card_at = bus_id(card)
    port_at = f"{card_at[:5]}{int(card_at[5:7], 16) - 1:02x}:01.1"
    top = f"/sys/devices/pci{card_at[:7]}"
    port, device = f"{top}/{port_at}", f"{top}/{port_at}/{card_at}"
    common = {
        "numa_node": str(node),
        "local_cpulist": cpus,
        "current_link_width": "16",
        "max_link_width": "16",
        "current_link_speed": "32.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "power/control": "on",
        "d3cold_allowed": "0",
        "aer_dev_correctable": "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 0",
        "aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 0",
        "aer_dev_fatal": "TOTAL_ERR_FATAL 0",
    }
    memory = 0x100_0000_0000 * (card + 1)
    own = {
        "class": "0x030200", "vendor": "0x10de", "device": "0x2bb5", "reset_method": "flr bus",
        "resource": f"0x{0xF0000000 + (card << 24):016x} 0x{0xF0FFFFFF + (card << 24):016x} "
        f"0x0000000000040200\n0x{memory:016x} 0x{memory + (128 << 30) - 1:016x} "
        "0x000000000014220c",
    }  # fmt: skip
    bridge = {"class": "0x060400", "vendor": "0x1022", "device": "0x14ab"}
    for place, values, data in (
        (port, common | bridge, configuration(bridge=True)),
        (device, common | own, configuration()),
    ):
        for name, text in values.items():
            put(folder, f"{place}/{name}", text + "\n")
        put(folder, f"{place}/config", data)
    group = f"/sys/kernel/iommu_groups/{20 + card}"
    put(folder, f"{group}/type", "identity\n")
    drivers = folder / "sys/bus/pci/drivers/nvidia"
    drivers.mkdir(parents=True, exist_ok=True)
    listed = folder / "sys/bus/pci/devices"
    listed.mkdir(parents=True, exist_ok=True)
    for at, place in ((port_at, port), (card_at, device)):
        (listed / at).symlink_to("../../.." + place.removeprefix("/sys"))
    here = folder / device.lstrip("/")
    (here / "driver").symlink_to("../../../../bus/pci/drivers/nvidia")
    (here / "iommu_group").symlink_to(f"../../../../kernel/iommu_groups/{20 + card}")


def bus_id(card: int) -> str:
    """Where the simulated driver has a card (`Card` of `backends.sim.nvml`)."""
    return f"0000:{0x06 + 0x10 * (card % 8) + 8 * (card // 8):02x}:00.0"


def configuration(*, bridge: bool = False) -> bytes:
    """Configuration space with one PCI Express capability: payload 256, requests of 512 bytes.

    Args:
        bridge: That of a root port, with access control that redirects nothing.
    """
    data = bytearray(4096)
    struct.pack_into("<HH", data, 0, 0x1022 if bridge else 0x10DE, 0x14AB if bridge else 0x2BB5)
    struct.pack_into("<H", data, 6, 0x10)
    data[0x34] = 0x60
    struct.pack_into("<BBH", data, 0x60, 0x10, 0, 0x0042 if bridge else 0x0002)
    struct.pack_into("<IH", data, 0x64, 1, 1 << 5 | 2 << 12 | 1 << 4 | 1 << 8)
    struct.pack_into("<I", data, 0x6C, 5 | 16 << 4)
    struct.pack_into("<HH", data, 0x70, 0, 5 | 16 << 4)
    if bridge:
        struct.pack_into("<IHH", data, 0x100, 0x0001000D, 0x005F, 0)
    return bytes(data)
