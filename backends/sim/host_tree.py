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

from backends.sim import boot, host_programs
from backends.sim.host_programs import DRIVER, KERNEL
from backends.sim.scenarios import MODEL_FOLDER

CPU: Final = "/sys/devices/system/cpu"
IDLE: Final = (("POLL", 0), ("C1", 1), ("C2", 100))
CONTAINER: Final = """\
arch: amd64
cores: 64
features: nesting=1
hostname: inference
memory: 524288
ostype: debian
rootfs: local-zfs:subvol-129-disk-0,size=200G
swap: 0
unprivileged: 1
lxc.cgroup2.devices.allow: c 195:* rwm
lxc.cgroup2.devices.allow: c 511:* rwm
lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file
lxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file
lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file"""
"""A container whose rules are from before a driver update: nvidia-uvm has another major now."""
REDIRECTED: Final = 6
"""The card whose port still has access control as for virtual machines."""
NOISY: Final = 3
"""The card whose riser loses packets, which are sent again."""
VALUES: Final = {
    "/proc/version": f"Linux version {KERNEL} (build@proxmox) #1 SMP PREEMPT_DYNAMIC PMX",
    "/proc/devices": "Character devices:\n195 nvidia\n235 nvidia-caps\n509 nvidia-uvm",
    "/proc/modules": "nvidia_uvm 1 1 - Live 0x0\nnvidia 1 9 nvidia_uvm, Live 0x0",
    "/proc/mounts": (
        "/dev/mapper/pve-root / ext4 rw,relatime 0 0\n/dev/nvme0n1p1 /models xfs rw,noatime 0 0"
    ),
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
    f"/boot/vmlinuz-{KERNEL}": "",
    boot.GRUB: (
        'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="iommu=pt quiet"\nGRUB_CMDLINE_LINUX=""'
    ),
    "/etc/apt/apt.conf.d/20auto-upgrades": 'APT::Periodic::Unattended-Upgrade "1";',
    "/etc/modprobe.d/nvidia.conf": "options nvidia_uvm uvm_disable_hmm=0",
    "/etc/docker/daemon.json": json.dumps(
        {"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}
    ),
    "/etc/pve/lxc/129.conf": CONTAINER,
    "/etc/sysctl.d/99-vendor.conf": (
        "# of the maker's installer\nkernel.numa_balancing = 1\nvm.zone_reclaim_mode = 1"
    ),
    "/etc/systemd/system/multi-user.target.wants/README": "",
    "/etc/tmpfiles.d/demo.conf": "# nothing yet",
    "/usr/lib/systemd/system/nvidia-persistenced.service": "[Unit]\nDescription=NVIDIA Persistence",
    f"{CPU}/cpuidle/current_driver": "acpi_idle",
    f"{CPU}/isolated": "",
    f"{CPU}/smt/control": "off",
    f"{CPU}/vulnerabilities/spectre_v2": "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional",
    f"{CPU}/cpufreq/boost": "1",
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
    nodes = [card * boot.NODES // cards for card in range(cards)]
    lists = [cpu_list(cpus, node) for node in range(boot.NODES)]
    values = VALUES | _cpus(cpus) | _nodes(lists)
    values[f"{host_programs.SMI}/topo"] = host_programs.topology(nodes, lists)
    values[f"{host_programs.SMI}/p2p"] = host_programs.peers(cards)
    values[f"{host_programs.SMI}/q"] = host_programs.details(
        [bus_id(card) for card in range(cards)]
    )
    values[f"{host_programs.SMI}/cuda"] = json.dumps(
        {"init": 0, "count": cards, "driver_version": 13020, "libraries": [_library("libcuda")]}
    )
    for path, text in values.items():
        boot.put(folder, path, text + "\n")
    for cpu in range(cpus):
        socket = boot.SOCKET.format(cpu * boot.NODES // cpus).rpartition("/")[2]
        (folder / f"{CPU[1:]}/cpu{cpu}").symlink_to(f"../{socket}")
    for card, node in enumerate(nodes):
        _card(folder, card, node, lists[node])
        boot.put(folder, f"/proc/driver/nvidia/gpus/{bus_id(card)}/information", "")
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{card}" for card in range(cards))):
        boot.put(folder, f"/dev/{name}", "")  # Opens, as the node would; only root could make one.
    for name in ("libcuda", "libnvidia-ml"):
        boot.put(folder, _library(name), "")
        (folder / f"usr/lib/x86_64-linux-gnu/{name}.so.1").symlink_to(f"{name}.so.{DRIVER}")
    for number in range(4):
        _weights(folder / MODEL_FOLDER.lstrip("/"), number)
    for name, script in host_programs.scripts().items():
        boot.put(folder, f"/usr/bin/{name}", script).chmod(0o755)
    boot.begin(folder)


def cpu_list(cpus: int, node: int) -> str:
    """CPUs of a NUMA node."""
    each = cpus // boot.NODES
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
    for node in range(boot.NODES):
        base = boot.SOCKET.format(node)
        values |= {f"{base}/cpufreq/{name}_max_freq": "3200000" for name in ("scaling", "cpuinfo")}
        values[f"{base}/topology/physical_package_id"] = str(node)
        values[f"{base}/acpi_cppc/highest_perf"] = "196"
        for number, (state, latency) in enumerate(IDLE):
            one = f"{base}/cpuidle/state{number}"
            values |= {f"{one}/name": state, f"{one}/latency": f"{latency}", f"{one}/disable": "0"}
    return values


def _nodes(lists: list[str]) -> dict[str, str]:
    base = "/sys/devices/system/node"
    values = {f"{base}/online": f"0-{boot.NODES - 1}"}
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
    lost = 214 if card == NOISY else 0
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
        "aer_dev_correctable": f"RxErr 0\nBadTLP {lost}\nTOTAL_ERR_COR {lost}",
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
        (port, common | bridge, configuration(bridge=True, redirects=card == REDIRECTED)),
        (device, common | own, configuration()),
    ):
        for name, text in values.items():
            boot.put(folder, f"{place}/{name}", text + "\n")
        boot.put(folder, f"{place}/config", data)
    group = f"/sys/kernel/iommu_groups/{20 + card}"
    boot.put(folder, f"{group}/type", "identity\n")
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


def configuration(*, bridge: bool = False, redirects: bool = False) -> bytes:
    """Configuration space with one PCI Express capability: payload 256, requests of 512 bytes.

    Args:
        bridge: That of a root port, with access control.
        redirects: Whether that leads requests between its peers through the root.
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
        struct.pack_into("<IHH", data, 0x100, 0x0001000D, 0x005F, 0x001D if redirects else 0)
    return bytes(data)
