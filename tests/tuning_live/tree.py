"""A folder that looks like a GPU host: what sysfs, procfs and /etc would hold."""

from __future__ import annotations

from pathlib import Path

from backends.sim.host_tree import configuration

CPU = "/sys/devices/system/cpu"
BOOT_A = "11111111-1111-4111-8111-111111111111"
BOOT_B = "22222222-2222-4222-8222-222222222222"
IDLE = (("POLL", 0), ("C1", 1), ("C2", 12))


class Tree:
    """One host's files below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, path: str, text: str | bytes) -> Path:
        """Write a file."""
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode() if isinstance(text, str) else text)
        return place

    def at(self, path: str) -> Path:
        """Where a path lies."""
        return self.folder / path.lstrip("/")

    def read(self, path: str) -> bytes:
        """What a file holds."""
        return self.at(path).read_bytes()

    def program(self, name: str, script: str) -> None:
        """A program of this host, in sh; `$GPUROOM_ROOT` is the folder when a change runs it."""
        self.put(f"/usr/bin/{name}", f"#!/bin/sh\n{script}\n").chmod(0o755)

    def boot(self, boot_id: str) -> None:
        """Another boot: what no file sets goes back to what the kernel begins with."""
        self.put("/proc/sys/kernel/random/boot_id", boot_id + "\n")
        for path, text in KERNEL.items():
            self.put(path, text)


KERNEL = {
    "/proc/sys/kernel/numa_balancing": "1\n",
    "/proc/sys/vm/max_map_count": "65530\n",
    "/proc/sys/vm/swappiness": "60\n",
    "/proc/sys/vm/zone_reclaim_mode": "1\n",
    "/proc/sys/vm/overcommit_memory": "0\n",
}


def make_host(folder: Path, *, cpus: int = 4, gpus: int = 1, nodes: int = 2) -> Tree:
    """A bare-metal host of `cpus` CPUs with `gpus` GPUs, governors and sysctls left untuned."""
    tree = Tree(folder)
    tree.boot(BOOT_A)
    tree.put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet\n")
    tree.put("/proc/version", "Linux version 6.14.11-4-pve (build@host) #1 SMP\n")
    tree.put("/proc/sys/kernel/osrelease", "6.14.11-4-pve\n")
    tree.put("/proc/devices", "Character devices:\n195 nvidia\n235 nvidia-caps\n509 nvidia-uvm\n")
    tree.put("/proc/meminfo", "MemTotal: 1056768000 kB\nSwapTotal: 8388604 kB\n")
    tree.put("/proc/mounts", "rpool/ROOT / zfs rw 0 0\n")
    tree.put("/sys/module/nvidia/version", "580.95.05\n")
    tree.put(
        "/etc/default/grub",
        'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n',
    )
    last = cpus - 1
    for name in ("online", "present", "possible"):
        tree.put(f"{CPU}/{name}", f"0-{last}\n")
    tree.put(f"{CPU}/cpuidle/current_driver", "acpi_idle\n")
    tree.put(f"{CPU}/cpufreq/boost", "1\n")
    for cpu in range(cpus):
        base = f"{CPU}/cpu{cpu}"
        tree.put(f"{base}/cpufreq/scaling_driver", "acpi-cpufreq\n")
        tree.put(f"{base}/cpufreq/scaling_governor", "schedutil\n")
        tree.put(f"{base}/cpufreq/scaling_max_freq", "3700000\n")
        tree.put(f"{base}/cpufreq/cpuinfo_max_freq", "3700000\n")
        tree.put(f"{base}/topology/physical_package_id", f"{cpu * nodes // cpus}\n")
        for number, (state, latency) in enumerate(IDLE):
            tree.put(f"{base}/cpuidle/state{number}/name", state + "\n")
            tree.put(f"{base}/cpuidle/state{number}/latency", f"{latency}\n")
            tree.put(f"{base}/cpuidle/state{number}/disable", "0\n")
    tree.put("/sys/devices/system/node/online", f"0-{nodes - 1}\n")
    for node in range(nodes):
        base = f"/sys/devices/system/node/node{node}"
        each = cpus // nodes
        tree.put(f"{base}/cpulist", f"{node * each}-{(node + 1) * each - 1}\n")
        tree.put(f"{base}/distance", " ".join("10" if n == node else "32" for n in range(nodes)))
        tree.put(f"{base}/meminfo", f"Node {node} MemTotal: 528384000 kB\n")
    for gpu in range(gpus):
        _device(
            tree, f"0000:{0x20 * (gpu + 1) - 1 & 0xFF:02x}:00.0", "0x030200", gpu * nodes // gpus
        )
        _device(tree, f"0000:{0x20 * gpu & 0xFF:02x}:01.1", "0x060400", gpu * nodes // gpus)
    tree.program("systemd-detect-virt", "echo none")
    tree.program("lscpu", "echo 'Vendor ID: AuthenticAMD'; echo 'CPU family: 26'")
    tree.program("dmesg", "echo '[    0.000000] Linux version 6.14.11-4-pve'")
    tree.program("sysctl", "exit 0")
    return tree


def _device(tree: Tree, bdf: str, class_: str, node: int) -> None:
    base = f"/sys/bus/pci/devices/{bdf}"
    bridge = class_.startswith("0x0604")
    values = {
        "class": class_,
        "vendor": "0x1022" if bridge else "0x10de",
        "device": "0x14a5" if bridge else "0x2bb5",
        "numa_node": str(node),
        "local_cpulist": "0-1",
        "current_link_width": "16",
        "max_link_width": "16",
        "current_link_speed": "32.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "power/control": "on",
        "d3cold_allowed": "0",
        "aer_dev_correctable": "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 0",
        "aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 0",
        "aer_dev_fatal": "TOTAL_ERR_FATAL 0",
        "resource": "0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200",
    }
    for name, text in values.items():
        tree.put(f"{base}/{name}", text + "\n")
    tree.put(f"{base}/config", configuration())
