"""What the tuning checklist finds on the demo host: a folder in the place of `/`.

It holds what sysfs, procfs and /etc of such a machine would, left as its distribution had them.
Fixes are carried out in this folder and taken back there. The machine that plays the demo host is
neither read nor changed.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

KERNEL: Final = "6.8.0-60-generic"
DRIVER: Final = "595.58.03"
CPU: Final = "/sys/devices/system/cpu"
NODES: Final = 2
IDLE: Final = (("POLL", 0), ("C1", 1), ("C2", 100))
VALUES: Final = {
    "/proc/cmdline": f"BOOT_IMAGE=/vmlinuz-{KERNEL} root=/dev/nvme0n1p2 ro quiet",
    "/proc/version": f"Linux version {KERNEL} (buildd@lcy02) #63-Ubuntu SMP",
    "/proc/devices": "Character devices:\n195 nvidia\n235 nvidia-caps\n509 nvidia-uvm",
    "/proc/mounts": "/dev/nvme0n1p2 / ext4 rw,relatime 0 0",
    "/proc/driver/nvidia/version": (
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build"
    ),
    "/proc/sys/kernel/osrelease": KERNEL,
    "/proc/sys/kernel/numa_balancing": "1",
    "/proc/sys/vm/max_map_count": "65530",
    "/proc/sys/vm/swappiness": "60",
    "/proc/sys/vm/zone_reclaim_mode": "1",
    "/proc/sys/vm/overcommit_memory": "0",
    "/proc/sys/net/core/somaxconn": "4096",
    "/sys/module/nvidia/version": DRIVER,
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "/sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "/etc/default/grub": (
        'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""'
    ),
    "/etc/sysctl.d/10-network-security.conf": "net.ipv4.conf.all.rp_filter = 2",
    f"{CPU}/cpuidle/current_driver": "acpi_idle",
    f"{CPU}/cpufreq/boost": "1",
    f"{CPU}/cpu0/acpi_cppc/highest_perf": "196",
}
PROGRAMS: Final = {
    "systemd-detect-virt": "echo none",
    "lscpu": "echo 'Vendor ID: AuthenticAMD'; echo 'CPU family: 26'; echo 'Model: 2'",
    "update-grub": "echo 'Generating grub configuration file ...'",
    "sysctl": "exit 0",
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
    for path, text in (VALUES | _cpus(cpus) | _nodes(cpus)).items():
        _put(folder, path, text + "\n")
    for card in range(cards):
        _card(folder, card, card * NODES // cards)
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{card}" for card in range(cards))):
        _put(folder, f"/dev/{name}", "")  # Opens, as the node would; only root could make one.
    for name, script in PROGRAMS.items():
        _put(folder, f"/usr/bin/{name}", f"#!/bin/sh\n{script}\n").chmod(0o755)


def _put(folder: Path, path: str, data: str | bytes) -> Path:
    place = folder / path.lstrip("/")
    if not place.parent.is_dir():
        place.parent.mkdir(parents=True)
    place.write_bytes(data.encode() if isinstance(data, str) else data)
    return place


def _cpus(count: int) -> dict[str, str]:
    values = {f"{CPU}/{name}": f"0-{count - 1}" for name in ("online", "present", "possible")}
    values |= {f"{CPU}/cpu0/cpufreq/{name}_max_freq": "3200000" for name in ("scaling", "cpuinfo")}
    for cpu in range(count):
        base = f"{CPU}/cpu{cpu}"
        values[f"{base}/cpufreq/scaling_driver"] = "acpi-cpufreq"
        values[f"{base}/cpufreq/scaling_governor"] = "schedutil"
    for number, (state, latency) in enumerate(IDLE):
        base = f"{CPU}/cpu0/cpuidle/state{number}"
        values |= {f"{base}/name": state, f"{base}/latency": f"{latency}", f"{base}/disable": "0"}
    return values


def _nodes(cpus: int) -> dict[str, str]:
    base, each = "/sys/devices/system/node", cpus // NODES
    values = {f"{base}/online": f"0-{NODES - 1}"}
    for node in range(NODES):
        values[f"{base}/node{node}/cpulist"] = f"{node * each}-{(node + 1) * each - 1}"
        values[f"{base}/node{node}/distance"] = "10 32" if node == 0 else "32 10"
        values[f"{base}/node{node}/meminfo"] = f"Node {node} MemTotal: 792264704 kB"
    return values


def _card(folder: Path, card: int, node: int) -> None:
    base = f"/sys/bus/pci/devices/{bus_id(card)}"
    values = {
        "class": "0x030200",
        "vendor": "0x10de",
        "device": "0x2bb5",
        "numa_node": str(node),
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
    for name, text in values.items():
        _put(folder, f"{base}/{name}", text + "\n")
    _put(folder, f"{base}/config", configuration())


def bus_id(card: int) -> str:
    """Where the simulated driver has a card (`Card` of `backends.sim.nvml`)."""
    return f"0000:{0x06 + 0x10 * (card % 8) + 8 * (card // 8):02x}:00.0"


def configuration() -> bytes:
    """Configuration space with one PCI Express capability: payload 256, requests of 512 bytes."""
    data = bytearray(4096)
    struct.pack_into("<HH", data, 0, 0x10DE, 0x2BB5)
    struct.pack_into("<H", data, 6, 0x10)
    data[0x34] = 0x60
    struct.pack_into("<BBH", data, 0x60, 0x10, 0, 0x0002)
    struct.pack_into("<IH", data, 0x64, 1, 1 << 5 | 2 << 12 | 1 << 4 | 1 << 8)
    struct.pack_into("<I", data, 0x6C, 5 | 16 << 4)
    struct.pack_into("<HH", data, 0x70, 0, 5 | 16 << 4)
    return bytes(data)
