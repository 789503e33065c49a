"""What cases are made of: three fact sets of a rule, and facts that many of them share.

A value of type `Missing` stands for a fact that was asked for and has an error instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from backends.tuning.facts import Fact, FactsDocument, Value, Vantage


@dataclass(frozen=True, slots=True)
class Missing:
    """A reading that failed."""

    errno: str = "ENOENT"


@dataclass(frozen=True, slots=True)
class Guest:
    """A value seen from inside the guest, in a document that also holds the host's."""

    value: Value


Facts: TypeAlias = Mapping[str, Value | Missing | Guest]


@dataclass(frozen=True, slots=True)
class Case:
    """Three fact sets and the verdicts they must come to."""

    good: Facts
    bad: Facts
    none: Facts
    good_verdict: str = "PASS"
    bad_verdict: str = "FAIL"
    none_verdict: str = "N/A"
    expected: Mapping[str, str] = field(default_factory=dict)


def document(facts: Facts) -> FactsDocument:
    """The facts as a document."""
    result = []
    for key, value in facts.items():
        if isinstance(value, Missing):
            result.append(Fact(key, None, "test", value.errno))
        elif isinstance(value, Guest):
            result.append(Fact(key, value.value, "test", vantage=Vantage.GUEST))
        else:
            result.append(Fact(key, value, "test"))
    return FactsDocument(result)


CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
PCI = "/sys/bus/pci/devices"
A, B = "0000:06:00.0", "0000:07:00.0"
GA, GB = f"gpu/{A}", f"gpu/{B}"
PA = f"pci/{A}"
BARE = {"virt/kind": "none"}
VM = {"virt/kind": "kvm"}
LXC = {"virt/kind": "lxc"}
TWO_NODES = {f"{NODE}/online": "0-1"}
ONE_NODE = {f"{NODE}/online": "0"}
ONE_GPU = {"gpu/attached": 1}
TWO_GPUS = {f"{GA}/name": "NVIDIA H100 PCIe", f"{GB}/name": "NVIDIA H100 PCIe", "gpu/attached": 2}
NO_RDMA: Facts = {"/sys/class/infiniband": []}
RDMA: Facts = {"/sys/class/infiniband": ["mlx5_0"]}
GPU_PCI = {f"{PA}/class": "3D controller", f"{PA}/name": "NVIDIA Corporation Device 2bb5"}
NIC_PCI = {f"{PA}/class": "Ethernet controller", f"{PA}/name": "Mellanox ConnectX-7"}
PORT = "0000:00:01.1"
BELOW_PORT = {
    **GPU_PCI,
    f"{PA}/parent": PORT,
    f"pci/{PORT}/class": "PCI bridge",
    f"pci/{PORT}/port_type": "root port",
}
ONLINE = {f"{CPU}/online": "0-1"}
DEVICES = ["195 nvidia", "226 drm", "235 nvidia-caps", "509 nvidia-uvm"]
LXC_BASE = ["cores: 8", "memory: 65536", "swap: 0", "unprivileged: 1", "features: nesting=1"]
MOUNTS = [
    "lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind",
    "lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind",
]
ALLOW = ["lxc.cgroup2.devices.allow: c 195:* rwm", "lxc.cgroup2.devices.allow: c 509:* rwm"]
STALE = ["lxc.cgroup2.devices.allow: c 195:* rwm", "lxc.cgroup2.devices.allow: c 504:* rwm"]
DEVN = [f"dev{n}: /dev/nvidia{x},mode=0666" for n, x in enumerate(("0", "ctl", "-uvm"))]
PLAIN_LXC: Facts = {"pve/lxc/129": LXC_BASE}
QEMU = ["machine: q35", "bios: ovmf", "cpu: host", "hostpci0: 0000:06:00.0,pcie=1", "balloon: 0"]
LOG = "log/kernel"


def both(name: str, value: Value) -> Facts:
    """One field of two GPUs."""
    return {f"{GA}/{name}": value, f"{GB}/{name}": value}


def every_cpu(name: str, value: Value) -> Facts:
    """One file of both CPUs."""
    return {f"{CPU}/cpu{n}/{name}": value for n in (0, 1)}


def idle(latency: int, disable: int = 0, name: str = "C6") -> Facts:
    """One idle state on both CPUs."""
    base = "cpuidle/state3"
    return {
        **every_cpu(f"{base}/latency", latency),
        **every_cpu(f"{base}/disable", disable),
        **every_cpu(f"{base}/name", name),
    }


def node_memory(first: int, second: int) -> Facts:
    """Memory of two nodes in GiB, half of it free."""
    return {
        f"{NODE}/node{n}/meminfo": f"Node {n} MemTotal: {g << 20} kB\n"
        f"Node {n} MemFree: {g << 19} kB"
        for n, g in enumerate((first, second))
    }


def meminfo(**fields_gib: int) -> str:
    """/proc/meminfo with these fields, in GiB."""
    return "\n".join(f"{name}: {gib << 20} kB" for name, gib in fields_gib.items())


def units(**states: str) -> Facts:
    """Unit states."""
    return {f"unit/{name.replace('_', '-')}/active": state for name, state in states.items()}


PPD_OFF = units(
    power_profiles_daemon="inactive",
    tlp="inactive",
    auto_cpufreq="inactive",
    thermald="active",
    laptop_mode="inactive",
    cpupower="inactive",
)
IB = "/sys/class/infiniband/mlx5_0/ports/1"
IB_UP = {
    f"{IB}/state": "4: ACTIVE",
    f"{IB}/phys_state": "5: LinkUp",
    f"{IB}/rate": "400 Gb/sec (4X NDR)",
}
STAT = "statvfs/model"
AER = f"{PCI}/{A}/aer_dev_"
QUIET = {
    f"{AER}fatal": "TOTAL_ERR_FATAL 0",
    f"{AER}nonfatal": "TOTAL_ERR_NONFATAL 0",
    f"{AER}correctable": "TOTAL_ERR_COR 0",
    "log/aer_owner": "os",
}
LINK16 = {f"{GA}/link_width": 16, f"{GA}/link_width_max": 16}
GEN5 = {f"{GA}/link_gen": 5, f"{GA}/link_gen_max": 5}
SWITCH = "0000:01:00.0"
BELOW_SWITCH = {
    **GPU_PCI,
    f"{PA}/parent": SWITCH,
    f"{PA}/max_width": 16,
    f"{PA}/max_speed_gts": 32.0,
    f"pci/{SWITCH}/class": "PCI bridge",
    f"pci/{SWITCH}/port_type": "upstream port",
    f"pci/{SWITCH}/max_width": 16,
    f"pci/{SWITCH}/max_speed_gts": 32.0,
    f"pci/{SWITCH}/speed_gts": 32.0,
}
