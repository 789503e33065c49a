"""For each rule: facts on which it is right, facts on which it is wrong, facts where it is none.

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

CASES: Mapping[str, Case] = {
    # CPU frequency and power
    "cpu.scaling_driver": Case(
        {f"{CPU}/cpu0/cpufreq/scaling_driver": "amd-pstate-epp"},
        {f"{CPU}/cpu0/cpufreq/scaling_driver": Missing()},
        VM,
    ),
    "cpu.pstate_mode": Case(
        {f"{CPU}/amd_pstate/status": "active"},
        {f"{CPU}/amd_pstate/status": "disable"},
        {f"{CPU}/amd_pstate/status": Missing(), f"{CPU}/intel_pstate/status": Missing()},
        bad_verdict="WARN",
    ),
    "cpu.governor": Case(
        {**ONLINE, **every_cpu("cpufreq/scaling_governor", "performance")},
        {**ONLINE, **every_cpu("cpufreq/scaling_governor", "ondemand")},
        {f"{CPU}/cpu0/cpufreq": Missing()},
        bad_verdict="WARN",
    ),
    "cpu.epp": Case(
        {**ONLINE, **every_cpu("cpufreq/energy_performance_preference", "performance")},
        {**ONLINE, **every_cpu("cpufreq/energy_performance_preference", "power")},
        {f"{CPU}/cpu0/cpufreq/energy_performance_preference": Missing()},
        bad_verdict="WARN",
    ),
    "cpu.boost": Case(
        {f"{CPU}/cpufreq/boost": 1},
        {
            f"{CPU}/cpufreq/boost": 0,
            "cpu/boost_supported": "yes",
            f"{CPU}/cpu0/cpufreq/scaling_driver": Missing(),
        },
        {f"{CPU}/cpufreq/boost": Missing(), f"{CPU}/intel_pstate/no_turbo": Missing()},
    ),
    "cpu.freq_cap": Case(
        {
            **ONLINE,
            **every_cpu("cpufreq/scaling_max_freq", 3700000),
            **every_cpu("cpufreq/cpuinfo_max_freq", 3700000),
        },
        {
            **ONLINE,
            **every_cpu("cpufreq/scaling_max_freq", 2000000),
            **every_cpu("cpufreq/cpuinfo_max_freq", 3700000),
        },
        VM,
        bad_verdict="WARN",
    ),
    "cpu.cstates": Case(
        {**ONLINE, "cpu/vendor": "GenuineIntel", **idle(2)},
        {**ONLINE, "cpu/vendor": "GenuineIntel", **idle(170)},
        {f"{CPU}/cpuidle/current_driver": "none"},
        bad_verdict="WARN",
    ),
    "cpu.cstate_flag_matches_driver": Case(
        {
            "/proc/cmdline": "root=/dev/sda1 processor.max_cstate=1",
            f"{CPU}/cpuidle/current_driver": "acpi_idle",
        },
        {
            "/proc/cmdline": "root=/dev/sda1 processor.max_cstate=1",
            f"{CPU}/cpuidle/current_driver": "intel_idle",
        },
        {"/proc/cmdline": "root=/dev/sda1"},
        bad_verdict="WARN",
    ),
    "cpu.offline": Case(
        {f"{CPU}/online": "0-3", f"{CPU}/present": "0-3"},
        {f"{CPU}/online": "0-2", f"{CPU}/present": "0-3"},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "cpu.smt": Case(
        {f"{CPU}/smt/control": "on"},
        {f"{CPU}/smt/control": "off"},
        VM,
        good_verdict="INFO",
        bad_verdict="WARN",
        expected={"cpu.smt": "on"},
    ),
    "cpu.quota": Case(
        {"/sys/fs/cgroup/cpu.max": "max 100000"},
        {"/sys/fs/cgroup/cpu.max": "200000 100000", "cgroup/cpu/nr_throttled_delta": 12},
        {},
        none_verdict="UNKNOWN",
    ),
    "cpu.thermal": Case(
        {"cpu/throttle_delta/0": 0}, {"cpu/throttle_delta/0": 7}, VM, bad_verdict="WARN"
    ),
    # NUMA and memory layout
    "numa.balancing": Case(
        {**TWO_NODES, "/proc/sys/kernel/numa_balancing": "0"},
        {**TWO_NODES, "/proc/sys/kernel/numa_balancing": "2"},
        ONE_NODE,
        bad_verdict="WARN",
    ),
    "numa.nps": Case(
        {**TWO_NODES, "cpu/sockets": 2},
        {f"{NODE}/online": "0-3", "cpu/sockets": 1, f"{NODE}/node0/cpulist": "0-3"},
        VM,
        bad_verdict="WARN",
    ),
    "numa.gpu_affinity": Case(
        {**TWO_NODES, f"{GA}/index": 0, f"{PCI}/{A}/numa_node": "1"},
        {**TWO_NODES, f"{GA}/index": 0, f"{PCI}/{A}/numa_node": "-1"},
        ONE_NODE,
        bad_verdict="WARN",
    ),
    "numa.rank_binding": Case(
        {**TWO_NODES, "engine/41/cpus_allowed": "0-7", "engine/41/gpu_cpus": "0-63"},
        {
            **TWO_NODES,
            "engine/41/cpus_allowed": "0-7",
            "engine/41/gpu_cpus": "0-63",
            "engine/41/remote_pages_pct": 70,
        },
        ONE_NODE,
        bad_verdict="WARN",
    ),
    "numa.zone_reclaim": Case(
        {**TWO_NODES, "/proc/sys/vm/zone_reclaim_mode": "0"},
        {**TWO_NODES, "/proc/sys/vm/zone_reclaim_mode": "1"},
        ONE_NODE,
        bad_verdict="WARN",
    ),
    "numa.memory_balance": Case(
        {**TWO_NODES, **node_memory(512, 512)},
        {**TWO_NODES, **node_memory(512, 384)},
        ONE_NODE,
        bad_verdict="WARN",
    ),
    "mem.dimms": Case(
        {
            "/sys/devices/system/edac/mc/mc0/ue_count": "0",
            "/sys/devices/system/edac/mc/mc0/ce_count": "0",
        },
        {
            "/sys/devices/system/edac/mc/mc0/ue_count": "2",
            "/sys/devices/system/edac/mc/mc0/ce_count": "0",
        },
        VM,
    ),
    "numa.interconnect": Case(
        {**TWO_NODES, "bench/p2p_same_node_gb_s": 54.0, "bench/p2p_cross_node_gb_s": 50.0},
        {**TWO_NODES, "bench/p2p_same_node_gb_s": 54.0, "bench/p2p_cross_node_gb_s": 20.0},
        ONE_NODE,
        bad_verdict="WARN",
    ),
    # Kernel and boot line
    "kernel.version": Case(
        {
            "/proc/sys/kernel/osrelease": "6.14.11-4-pve",
            "cpu/family": 26,
            "cpu/vendor": "AuthenticAMD",
        },
        {"/proc/sys/kernel/osrelease": "7.0.0-3-pve"},
        {},
        none_verdict="UNKNOWN",
    ),
    "kernel.reboot_pending": Case(
        {
            "/proc/sys/kernel/osrelease": "6.8.12-1-pve",
            "boot/default_kernel": "6.8.12-1-pve",
            "nvrm/version": "580.95.05",
            "module/nvidia/version": "580.95.05",
        },
        {"/proc/sys/kernel/osrelease": "6.8.12-1-pve", "boot/default_kernel": "6.14.11-4-pve"},
        LXC,
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "kernel.cmdline_drift": Case(
        {
            "/proc/cmdline": "root=ZFS=rpool iommu=pt",
            "/etc/kernel/cmdline": "root=ZFS=rpool iommu=pt",
            "boot/loader": "systemd-boot",
        },
        {
            "/proc/cmdline": "root=ZFS=rpool",
            "/etc/kernel/cmdline": "root=ZFS=rpool",
            "boot/grub_cmdline": "quiet iommu=pt",
            "boot/loader": "systemd-boot",
        },
        LXC,
    ),
    "kernel.iommu": Case(
        {"/sys/kernel/iommu_groups/1/type": "identity", **both("index", 0)},
        {"/sys/kernel/iommu_groups/1/type": "DMA-FQ", "gpu/attached": 8},
        LXC,
        none_verdict="UNKNOWN",
    ),
    "kernel.mitigations": Case(
        {f"{CPU}/vulnerabilities/meltdown": "Not affected"},
        {"/proc/cmdline": "root=/dev/sda mitigations=off"},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "kernel.pcie_port_pm": Case(
        {**BELOW_PORT, f"{PCI}/{PORT}/power/control": "on"},
        {
            **BELOW_PORT,
            f"{PCI}/{PORT}/power/control": "auto",
            f"{GA}/name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        },
        LXC,
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "kernel.pci_alloc": Case(
        {
            **GPU_PCI,
            f"{PCI}/{A}/resource": "0x00000000b8000000 0x00000000b8ffffff 0x0000000000040200\n"
            "0x000010ffc0000000 0x000010ffffffffff 0x000000000014220c",
        },
        {
            LOG: [
                "[ 1.0] nvidia 0000:06:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign;"
                " no space"
            ]
        },
        {},
        none_verdict="UNKNOWN",
    ),
    "kernel.clocksource": Case(
        {"/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc"},
        {"/sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "kernel.thp": Case(
        {"/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never"},
        {"/sys/kernel/mm/transparent_hugepage/defrag": "[always] defer madvise never"},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "kernel.watchdog": Case(
        {"/proc/sys/kernel/watchdog": "1", LOG: [], "log/complete": True},
        {LOG: ["[ 9.1] watchdog: BUG: soft lockup - CPU#3 stuck for 26s!"]},
        {},
        none_verdict="UNKNOWN",
    ),
    "kernel.isolation": Case(
        {f"{CPU}/isolated": ""},
        {f"{CPU}/isolated": "8-15", "engine/41/cpus_allowed": "8-15"},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "kernel.init_on_alloc": Case(
        {"/proc/cmdline": "root=/dev/sda init_on_alloc=0"},
        {"/proc/cmdline": "root=/dev/sda init_on_alloc=1"},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
        expected={"kernel.init_on_alloc": "off"},
    ),
    "kernel.gpu_binding": Case(
        {**GPU_PCI, f"{PA}/driver": "nvidia"},
        {**GPU_PCI, f"{PA}/driver": "nova_core"},
        {},
        none_verdict="UNKNOWN",
    ),
    # Memory management and limits
    "vm.swappiness": Case(
        {"/proc/sys/vm/swappiness": "10"},
        {"/proc/sys/vm/swappiness": "60", "engine/41/swap_kib": 524288},
        {"/proc/sys/vm/swappiness": "60", "/proc/meminfo": meminfo(SwapTotal=0)},
        bad_verdict="WARN",
    ),
    "vm.engine_swap": Case(
        {"engine/41/swap_kib": 0, "cgroup/memory/oom_kill": 0},
        {"cgroup/memory/oom_kill": 1},
        {},
        none_verdict="UNKNOWN",
    ),
    "vm.overcommit": Case(
        {"/proc/sys/vm/overcommit_memory": "0"},
        {
            "/proc/sys/vm/overcommit_memory": "2",
            "/proc/meminfo": meminfo(CommitLimit=100),
            "model/bytes": 400 << 30,
        },
        {},
        none_verdict="UNKNOWN",
    ),
    "vm.max_map_count": Case(
        {"/proc/sys/vm/max_map_count": "1048576"},
        {"/proc/sys/vm/max_map_count": "65530", "engine/41/maps": 64000},
        {},
        none_verdict="UNKNOWN",
    ),
    "vm.dirty": Case(
        {"/proc/sys/vm/dirty_bytes": "4294967296"},
        {
            "/proc/sys/vm/dirty_bytes": "0",
            "/proc/sys/vm/dirty_ratio": "40",
            "/proc/meminfo": meminfo(MemTotal=1024),
        },
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "vm.min_free": Case(
        {"/proc/sys/vm/min_free_kbytes": "135168"},
        {LOG: ["[ 5.0] swapper/0: page allocation failure: order:5"]},
        {},
        good_verdict="INFO",
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "vm.hugepages": Case(
        {
            "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0",
            "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "0",
        },
        {
            "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0",
            "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "0",
            "pve/qemu/100": [*QEMU, "hugepages: 1024"],
        },
        {},
        none_verdict="UNKNOWN",
    ),
    "vm.shm": Case(
        {"statvfs//dev/shm/size": "64G"},
        {"statvfs//dev/shm/size": "64M", "gpu/attached": 8},
        {"statvfs//dev/shm/size": "64M", **ONE_GPU},
        none_verdict="INFO",
    ),
    "vm.memlock": Case(
        {"limits/41/memlock_soft": "unlimited"},
        {**RDMA, "limits/41/memlock_soft": "65536"},
        {"limits/41/memlock_soft": "65536"},
        none_verdict="INFO",
    ),
    "vm.nofile": Case(
        {"limits/41/nofile_soft": "1024", "limits/41/nofile_hard": "1048576"},
        {
            "limits/41/nofile_soft": "1024",
            "limits/41/nofile_hard": "4096",
            "engine/41/open_files": 1000,
        },
        {},
        none_verdict="UNKNOWN",
    ),
    "vm.cgroup_mem": Case(
        {"/sys/fs/cgroup/memory.max": "max"},
        {
            "/sys/fs/cgroup/memory.max": "max",
            "/sys/fs/cgroup/memory.pressure": "some avg10=9.00 avg60=9.00 total=1\n"
            "full avg10=9.00 avg60=9.00 total=1",
        },
        {},
        none_verdict="UNKNOWN",
    ),
    # PCIe
    "pcie.link_width": Case(
        LINK16, {f"{GA}/link_width": 8, f"{GA}/link_width_max": 16}, {}, none_verdict="UNKNOWN"
    ),
    "pcie.link_gen": Case(
        GEN5,
        {f"{GA}/link_gen": 2, f"{GA}/link_gen_max": 5, f"{GA}/pstate": "P0", f"{GA}/util_pct": 99},
        {},
        none_verdict="UNKNOWN",
    ),
    "pcie.link_flap": Case(
        {f"pcie_flaps/{A}/changes": 0, f"pcie_flaps/{A}/seconds": 30},
        {f"pcie_flaps/{A}/changes": 90, f"pcie_flaps/{A}/seconds": 30},
        VM,
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "pcie.path_bottleneck": Case(
        {**BELOW_SWITCH, f"pci/{SWITCH}/width": 16},
        {**BELOW_SWITCH, f"pci/{SWITCH}/width": 8},
        ONE_GPU,
    ),
    "pcie.mps": Case(
        {**GPU_PCI, f"{PA}/mps_bytes": 256, f"{PA}/mps_max_bytes": 256},
        {
            **BELOW_PORT,
            f"{PA}/mps_bytes": 256,
            f"{PA}/mps_max_bytes": 256,
            f"pci/{PORT}/mps_bytes": 128,
            f"pci/{PORT}/mps_max_bytes": 512,
        },
        {**LXC, **GPU_PCI},
        none_verdict="UNKNOWN",
    ),
    "pcie.mrrs": Case(
        {**GPU_PCI, f"{PA}/mrrs_bytes": 512},
        {**GPU_PCI, f"{PA}/mrrs_bytes": 128},
        {f"pci/{PORT}/class": "PCI bridge", f"pci/{PORT}/mrrs_bytes": 128},
        bad_verdict="WARN",
    ),
    "pcie.relaxed_ordering": Case(
        {**GPU_PCI, f"{PA}/relaxed_ordering": True},
        {**GPU_PCI, f"{PA}/relaxed_ordering": False},
        {**GPU_PCI, f"{PA}/truncated": True},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "pcie.tag10": Case(
        {**GPU_PCI, f"{PA}/tag10_requester": True, f"{PA}/tag10_enabled": True},
        {
            **GPU_PCI,
            f"{PA}/tag10_requester": True,
            f"{PA}/tag10_enabled": False,
            f"{PA}/max_speed_gts": 32.0,
        },
        {
            **GPU_PCI,
            f"{PA}/tag10_requester": False,
            f"{PA}/tag10_enabled": False,
            f"{PA}/max_speed_gts": 8.0,
        },
        bad_verdict="WARN",
    ),
    "pcie.aspm": Case(
        {**GPU_PCI, f"{PA}/aspm": "Disabled"},
        {**GPU_PCI, f"{PA}/aspm": "L1 Enabled"},
        {**GPU_PCI, f"{PA}/truncated": True},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "pcie.acs": Case(
        {f"pci/{PORT}/acs_control": "SrcValid+ ReqRedir- CmpltRedir- UpstreamFwd+"},
        {
            f"pci/{PORT}/acs_control": "SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+",
            "/sys/kernel/iommu_groups/1/type": "DMA",
        },
        LXC,
        none_verdict="UNKNOWN",
    ),
    "pcie.aer": Case(
        QUIET,
        {
            **QUIET,
            f"{AER}nonfatal": "TOTAL_ERR_NONFATAL 3",
            f"pci/{A}/class": "0x030200",
            f"pci/{A}/vendor_id": "10de",
        },
        {"log/aer_owner": "firmware"},
    ),
    "pcie.replay": Case(
        {f"{GA}/replays": 0},
        {f"{GA}/replays_per_minute": 900, **LINK16, **GEN5},
        {f"{GA}/replays": Missing("NotSupported")},
    ),
    "pcie.bar1": Case(
        {f"{GA}/bar1_mib": 131072, f"{GA}/vram_mib": 97887},
        {f"{GA}/bar1_mib": 256, f"{GA}/vram_mib": 24564, "gpu/attached": 8},
        {},
        none_verdict="UNKNOWN",
    ),
    "pcie.runtime_pm": Case(
        {f"{GA}/index": 0, f"{PCI}/{A}/power/control": "on"},
        {f"{GA}/index": 0, f"{PCI}/{A}/power/control": "auto", f"{PCI}/{A}/d3cold_allowed": "1"},
        VM,
        bad_verdict="WARN",
    ),
    "pcie.reset_method": Case(
        {f"{GA}/index": 0, f"{PCI}/{A}/reset_method": "flr bus"},
        {
            f"{GA}/name": "NVIDIA RTX PRO 6000 Blackwell",
            f"{PCI}/{A}/reset_method": "flr",
            "pve/qemu/100": QEMU,
        },
        VM,
        good_verdict="INFO",
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    # GPU and driver
    "gpu.count": Case(
        {"nvml/count": 8, "driver/gpu_count": 8},
        {"nvml/count": 7, "driver/gpu_count": 8},
        {},
        none_verdict="UNKNOWN",
    ),
    "gpu.driver_floor": Case(
        {f"{GA}/name": "NVIDIA B200", "driver/version": "580.95.05"},
        {f"{GA}/name": "NVIDIA B200", "driver/version": "550.54.15"},
        {},
        none_verdict="UNKNOWN",
    ),
    "gpu.driver_match": Case(
        {"nvrm/version": "580.95.05", "library/libcuda": "580.95.05"},
        {"nvrm/version": "580.95.05", "library/libcuda": "575.57.08"},
        {},
        none_verdict="UNKNOWN",
    ),
    "gpu.open_module": Case(
        {f"{GA}/name": "NVIDIA B200", "nvrm/version": "580.95.05", "nvrm/open": True},
        {f"{GA}/name": "NVIDIA B200", "nvrm/version": "580.95.05", "nvrm/open": False},
        {},
        none_verdict="UNKNOWN",
    ),
    "gpu.gsp": Case(
        {f"{GA}/gsp_version": "580.95.05"},
        {f"{GA}/gsp_version": Missing("NotSupported"), "nvrm/open": True},
        {f"{GA}/gsp_version": Missing("NotSupported"), "nvrm/open": False},
        none_verdict="INFO",
    ),
    "gpu.persistence": Case(
        {f"{GA}/persistence": "Enabled"},
        {f"{GA}/persistence": "Disabled"},
        {**LXC, f"{GA}/persistence": "Disabled"},
        bad_verdict="WARN",
    ),
    "gpu.power_limit": Case(
        {f"{GA}/power_limit_w": 600.0, f"{GA}/power_default_w": 600.0},
        {f"{GA}/power_limit_w": 300.0, f"{GA}/power_default_w": 600.0},
        {f"{GA}/power_limit_w": Missing("NotSupported")},
        bad_verdict="WARN",
    ),
    "gpu.clocks": Case(
        {f"{GA}/clock_mem_mhz": 12481, f"{GA}/clock_mem_max_mhz": 12481},
        {
            f"{GA}/clock_mem_mhz": 7001,
            f"{GA}/clock_mem_max_mhz": 12481,
            f"{GA}/pstate": "P0",
            f"{GA}/util_pct": 100,
        },
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "gpu.throttle": Case(
        {f"{GA}/reasons": 1}, {f"{GA}/reasons": 0x48}, {f"{GA}/reasons": Missing("NotSupported")}
    ),
    "gpu.temperature": Case(
        {f"{GA}/temp_c": 45, f"{GA}/temp_margin_c": 40},
        {f"{GA}/temp_c": 93, f"{GA}/temp_margin_c": -1},
        {},
        none_verdict="UNKNOWN",
    ),
    "gpu.util_vs_power": Case(
        {f"{GA}/util_pct": 100, f"{GA}/power_w": 580, f"{GA}/power_limit_w": 600},
        {
            f"{GA}/util_pct": 100,
            f"{GA}/power_w": 140,
            f"{GA}/power_limit_w": 600,
            "engine/tokens_per_s": 0,
        },
        {f"{GA}/util_pct": 0, f"{GA}/power_w": 30, f"{GA}/power_limit_w": 600},
    ),
    "gpu.ecc_mode": Case(
        {f"{GA}/ecc_current": "Enabled", f"{GA}/ecc_pending": "Enabled"},
        {f"{GA}/ecc_current": "Enabled", f"{GA}/ecc_pending": "Disabled"},
        {f"{GA}/ecc_current": Missing("NotSupported")},
        bad_verdict="WARN",
    ),
    "gpu.ecc_errors": Case(
        {f"{GA}/ecc_volatile_uncorrectable": 0},
        {f"{GA}/ecc_volatile_uncorrectable": 3},
        {f"{GA}/ecc_volatile_uncorrectable": Missing("NotSupported")},
    ),
    "gpu.rows": Case(
        {f"{GA}/rows_pending": "No", f"{GA}/rows_failure": "No"},
        {f"{GA}/rows_pending": "No", f"{GA}/rows_failure": "Yes"},
        {
            f"{GA}/rows_pending": Missing("NotSupported"),
            f"{GA}/retired_pending": Missing("NotSupported"),
        },
    ),
    "gpu.xid": Case(
        {LOG: [], "log/complete": True},
        {LOG: ["[ 10.0] NVRM: Xid (PCI:0000:06:00): 79, pid=1, GPU has fallen off the bus."]},
        {LOG: Missing("EPERM")},
        none_verdict="UNKNOWN",
    ),
    "gpu.recovery_action": Case(
        {f"{GA}/recovery_action": 0},
        {f"{GA}/recovery_action": 2},
        {f"{GA}/recovery_action": Missing("NotSupported")},
    ),
    "gpu.compute_mode": Case(
        {f"{GA}/compute_mode": "Default"},
        {f"{GA}/compute_mode": "Prohibited"},
        {},
        none_verdict="UNKNOWN",
    ),
    "gpu.mig": Case(
        {f"{GA}/mig_current": "Disabled", f"{GA}/mig_pending": "Disabled"},
        {
            f"{GA}/mig_current": "Enabled",
            f"{GA}/mig_pending": "Enabled",
            f"{GA}/index": 0,
            "engine/41/gpus": "0,1",
        },
        {f"{GA}/mig_current": Missing("NotSupported")},
    ),
    "gpu.hmm": Case(
        {"/sys/module/nvidia_uvm/parameters/uvm_disable_hmm": "Y"},
        {f"{GA}/addressing_mode": "HMM", "gpu/attached": 8},
        {"/sys/module/nvidia_uvm/parameters/uvm_disable_hmm": Missing()},
        bad_verdict="WARN",
    ),
    "gpu.p2p": Case(
        {"p2p/r/0/1": "OK", "p2p/r/1/0": "OK"}, {"p2p/r/0/1": "CNS", "p2p/r/1/0": "CNS"}, ONE_GPU
    ),
    "gpu.topology": Case(
        {"topo/link/0/1": "NODE", "topo/link/1/0": "NODE"},
        {
            **{
                f"topo/link/{a}/{b}": "SYS" if {a, b} in ({0, 2}, {1, 2}) else "NODE"
                for a in range(3)
                for b in range(3)
                if a != b
            },
            "engine/gpu_indices": "0,2",
        },
        ONE_GPU,
        good_verdict="INFO",
        bad_verdict="WARN",
    ),
    "gpu.p2p_copy": Case(
        {
            "bench/p2p_copy/0/1/equal": True,
            "bench/p2p_copy/0/1/gb_s": 54.0,
            "bench/p2p_copy/0/1/link_gb_s": 63.0,
        },
        {
            "bench/p2p_copy/0/1/equal": False,
            "bench/p2p_copy/0/1/gb_s": 54.0,
            "bench/p2p_copy/0/1/link_gb_s": 63.0,
        },
        ONE_GPU,
    ),
    "gpu.nvlink": Case(
        {
            f"{GA}/name": "NVIDIA A100-SXM4-80GB",
            **{f"{GA}/nvlink/{n}/state": "Active" for n in range(12)},
        },
        {
            f"{GA}/name": "NVIDIA A100-SXM4-80GB",
            **{f"{GA}/nvlink/{n}/state": "Active" if n else "Inactive" for n in range(12)},
        },
        {f"{GA}/nvlink": Missing("NotSupported")},
    ),
    "gpu.fabric_manager": Case(
        {
            f"{GA}/name": "NVIDIA H100 80GB HBM3",
            f"{GA}/fabric_state": "Completed",
            "unit/nvidia-fabricmanager/active": "active",
        },
        {
            f"{GA}/name": "NVIDIA H100 80GB HBM3",
            f"{GA}/fabric_state": "In Progress",
            "unit/nvidia-fabricmanager/active": "inactive",
        },
        {
            f"{GA}/name": "NVIDIA RTX 6000 Ada Generation",
            "unit/nvidia-fabricmanager/active": "failed",
        },
    ),
    "gpu.imex": Case(
        {f"{GA}/name": "NVIDIA GB200", "imex/state": "READY"},
        {f"{GA}/name": "NVIDIA GB200", "imex/state": "UNAVAILABLE"},
        {f"{GA}/name": "NVIDIA H200", "imex/state": "UNAVAILABLE"},
    ),
    "gpu.peermem": Case(
        {**RDMA, "/proc/modules": ["nvidia_peermem 16384 0 - Live 0x0"]},
        {
            IB + "/state": "4: ACTIVE",
            "/proc/modules": ["nvidia 1 0 - Live 0x0"],
            "nvrm/open": False,
            "/proc/sys/kernel/osrelease": "6.8.0",
        },
        NO_RDMA,
        bad_verdict="WARN",
    ),
    "gpu.stale_procs": Case(
        {f"{GA}/used_mib": 4, "gpu/complete": True},
        {f"{GA}/used_mib": 40000, "gpu/holders": []},
        {},
        none_verdict="UNKNOWN",
    ),
    "gpu.reset_capable": Case(
        {"gpu/complete": True, f"{GA}/index": 0, "gpu/processes": []},
        {f"{GA}/recovery_action": 1, "gpu/processes": ["0|41|C|python3|1000"]},
        {"virt/kind": "docker"},
        good_verdict="INFO",
    ),
    # CUDA initialisation
    "cuda.init": Case({"cuda/init": 0}, {"cuda/init": 999}, {}, none_verdict="UNKNOWN"),
    "cuda.uvm_node": Case(
        {"open//dev/nvidia-uvm": "OK"},
        {"open//dev/nvidia-uvm": "EPERM"},
        {},
        none_verdict="UNKNOWN",
    ),
    "cuda.count": Case(
        {"cuda/count": 8, "nvml/count": 8},
        {"cuda/count": 7, "nvml/count": 8},
        {},
        none_verdict="UNKNOWN",
    ),
    "cuda.compat_lib": Case(
        {
            "cuda/libraries": ["/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"],
            "nvrm/version": "580.95.05",
        },
        {"cuda/libraries": ["/usr/local/cuda/lib64/stubs/libcuda.so"], "nvrm/version": "580.95.05"},
        {"cuda/libraries": []},
    ),
    # Virtualisation
    "virt.kind": Case(
        BARE, VM, {}, good_verdict="INFO", bad_verdict="INFO", none_verdict="UNKNOWN"
    ),
    "parse.devices": Case(
        {"/proc/devices": DEVICES},
        {"/proc/devices": DEVICES},
        {},
        good_verdict="INFO",
        bad_verdict="INFO",
        none_verdict="UNKNOWN",
    ),
    "virt.lxc_majors": Case(
        {"pve/lxc/129": [*LXC_BASE, *ALLOW, *MOUNTS], "/proc/devices": DEVICES},
        {"pve/lxc/129": [*LXC_BASE, *STALE, *MOUNTS], "/proc/devices": DEVICES},
        PLAIN_LXC,
    ),
    "virt.lxc_devn": Case(
        {"pve/lxc/129": [*LXC_BASE, *DEVN]},
        {"pve/lxc/129": [*LXC_BASE, *ALLOW, *MOUNTS]},
        PLAIN_LXC,
        bad_verdict="WARN",
    ),
    "virt.dev_nodes": Case(
        {
            "node//dev/nvidiactl": "195:255 666 root root",
            "node//dev/nvidia-uvm": "509:0 666 root root",
            "/proc/devices": DEVICES,
        },
        {
            "node//dev/nvidiactl": "195:255 666 root root",
            "node//dev/nvidia-uvm": "504:0 666 root root",
            "/proc/devices": DEVICES,
        },
        {},
        none_verdict="UNKNOWN",
    ),
    "virt.uvm_boot": Case(
        {"boot/uvm_before_guests": "nvidia-uvm.service"},
        {"node//dev/nvidia-uvm": Missing()},
        {"boot/uvm_before_guests": "no"},
        none_verdict="INFO",
    ),
    "virt.lxc_priv": Case(
        {"pve/lxc/129": [*LXC_BASE, *DEVN]},
        {"pve/lxc/129": ["unprivileged: 1", "hostname: docker-gpu", *DEVN]},
        VM,
    ),
    "virt.lxc_limits": Case(
        {"pve/lxc/129": [*LXC_BASE, *DEVN]},
        {"pve/lxc/129": [*LXC_BASE, "cpulimit: 2", *DEVN]},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "virt.module_order": Case(
        {**LXC, "packages/nvidia_dkms": "none"},
        {**LXC, "packages/nvidia_dkms": "nvidia-dkms-580"},
        BARE,
        bad_verdict="WARN",
    ),
    "virt.vm_machine": Case(
        {"pve/qemu/100": QEMU},
        {"pve/qemu/100": ["cpu: kvm64", *QEMU[:2], QEMU[3]]},
        {"pve/qemu/100": QEMU[:3]},
    ),
    "virt.vm_p2p": Case(
        {
            "pve/qemu/100": [
                *QEMU,
                "hostpci1: 0000:07:00.0,pcie=1",
                "args: -set device.hostpci0.x-nv-gpudirect-clique=0",
            ],
            "p2p/r/0/1": "OK",
            "p2p/r/1/0": "OK",
        },
        {"pve/qemu/100": ["cpu: host,hidden=1", *QEMU[3:], "hostpci1: 0000:07:00.0,pcie=1"]},
        ONE_GPU,
    ),
    "virt.vm_memory": Case(
        {"pve/qemu/100": QEMU},
        {"pve/qemu/100": [*QEMU[:4], "balloon: 2048"]},
        VM,
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "virt.vm_binding": Case(
        {
            **GPU_PCI,
            "pve/qemu/100": QEMU,
            f"{PA}/driver": "vfio-pci",
            f"{PA}/iommu_group_devices": [A, "0000:06:00.1"],
        },
        {
            **GPU_PCI,
            "pve/qemu/100": QEMU,
            f"{PA}/driver": "vfio-pci",
            f"{PA}/iommu_group_devices": [A, "0000:00:1f.2"],
        },
        {},
        none_verdict="UNKNOWN",
    ),
    "virt.vm_reset": Case(
        {
            "pve/qemu/100": QEMU,
            f"{GA}/name": "NVIDIA RTX PRO 6000 Blackwell",
            "/sys/module/vfio_pci/parameters/disable_idle_d3": "Y",
        },
        {LOG: ["[ 99.0] vfio-pci 0000:06:00.0: not ready 65535ms after FLR; giving up"]},
        {"pve/qemu/100": QEMU, f"{GA}/name": "NVIDIA H200"},
    ),
    "virt.container_toolkit": Case(
        {"cdi/driver_version": "580.95.05", "nvrm/version": "580.95.05"},
        {"cdi/driver_version": "575.57.08", "nvrm/version": "580.95.05"},
        {"docker/present": False},
    ),
    "virt.container_cgroup": Case(
        {"cgroup/devices_list": ["c 195:255 rw", "c 195:0 rw"]},
        {"cgroup/devices_list": ["c 195:* m"]},
        {},
        none_verdict="UNKNOWN",
    ),
    # Network
    "net.ib_port": Case(IB_UP, {**IB_UP, f"{IB}/state": "1: DOWN"}, NO_RDMA),
    "net.mtu": Case(
        {
            "net/peers": ["10.0.0.2"],
            "net/peer_mtu/eth0/10.0.0.2": 9000,
            "/sys/class/net/eth0/mtu": "9000",
            "net/mtu_probe/eth0/10.0.0.2": True,
        },
        {
            "net/peers": ["10.0.0.2"],
            "net/peer_mtu/eth0/10.0.0.2": 9000,
            "/sys/class/net/eth0/mtu": "1500",
            "net/mtu_probe/eth0/10.0.0.2": False,
        },
        {"net/peers": []},
    ),
    "net.roce_qos": Case(
        {
            "net/qos/eth0/trust": "dscp",
            "net/qos/eth0/prio0_bytes_delta": 10,
            "net/qos/eth0/lossless_bytes_delta": 1000000,
            "net/qos/eth0/reapplied_at_boot": True,
        },
        {
            "net/qos/eth0/trust": "pcp",
            "net/qos/eth0/prio0_bytes_delta": 1000000,
            "net/qos/eth0/lossless_bytes_delta": 0,
        },
        NO_RDMA,
        bad_verdict="WARN",
    ),
    "net.somaxconn": Case(
        {"/proc/sys/net/core/somaxconn": "4096"},
        {"/proc/sys/net/core/somaxconn": "128", "net/listen_overflows_delta": 9},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "net.buffers": Case(
        {"/proc/sys/net/core/rmem_max": "67108864", "net/peers": ["10.0.0.2"], **NO_RDMA},
        {"/proc/sys/net/core/rmem_max": "212992", "net/peers": ["10.0.0.2"], **NO_RDMA},
        {"/proc/sys/net/core/rmem_max": "212992", "net/peers": []},
        bad_verdict="WARN",
    ),
    "net.nic_pcie": Case(
        {
            **NIC_PCI,
            f"{PA}/width": 16,
            f"{PA}/max_width": 16,
            f"{PA}/speed_gts": 32.0,
            f"{PA}/max_speed_gts": 32.0,
            f"{PA}/mrrs_bytes": 4096,
            f"{PA}/relaxed_ordering": True,
        },
        {
            **NIC_PCI,
            f"{PA}/width": 8,
            f"{PA}/max_width": 16,
            f"{PA}/speed_gts": 32.0,
            f"{PA}/max_speed_gts": 32.0,
            f"{PA}/mrrs_bytes": 4096,
            f"{PA}/relaxed_ordering": True,
        },
        NO_RDMA,
    ),
    "net.ifname": Case(
        {"net/interfaces_up": ["lo", "eth0"]},
        {"net/interfaces_up": ["lo", "docker0", "eth0"]},
        {"net/interfaces_up": ["lo", "eth0"], "net/peers": []},
        bad_verdict="WARN",
        none_verdict="INFO",
    ),
    "net.server_port": Case(
        {"engine/port": 30000, "net/listening": ["127.0.0.1:30000"]},
        {"engine/port": 30000, "net/listening": ["127.0.0.1:22"]},
        {"engine/none": True},
    ),
    # Storage
    "fs.free": Case(
        {f"{STAT}/free_pct": 40.0, f"{STAT}/free_inodes_pct": 90.0},
        {f"{STAT}/free_pct": 2.0, f"{STAT}/free_inodes_pct": 90.0},
        {},
        none_verdict="UNKNOWN",
    ),
    "fs.type": Case(
        {"model/fs_type": "xfs", "model/mount_options": "rw,noatime"},
        {"model/fs_type": "9p", "model/mount_options": "rw"},
        {},
        none_verdict="UNKNOWN",
    ),
    "fs.readahead": Case(
        {"/sys/block/nvme0n1/queue/read_ahead_kb": "4096"},
        {"/sys/block/nvme0n1/queue/read_ahead_kb": "128", "bench/read_share_pct": 30.0},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "fs.read_rate": Case({"bench/read_mb_s": 5000}, {"bench/read_mb_s": 90}, {"model/none": True}),
    "fs.loader": Case(
        {"model/fs_type": "nfs4", "engine/load_mode": "prefetch"},
        {"model/fs_type": "nfs4", "engine/load_mode": "mmap"},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "fs.scheduler": Case(
        {"/sys/block/nvme0n1/queue/scheduler": "[none] mq-deadline"},
        {"/sys/block/nvme0n1/queue/scheduler": "none [bfq]"},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "fs.nvme": Case(
        {
            "nvme/nvme0/critical_warning": 0,
            "nvme/nvme0/percentage_used": 3,
            "nvme/nvme0/media_errors": 0,
        },
        {
            "nvme/nvme0/critical_warning": 4,
            "nvme/nvme0/percentage_used": 3,
            "nvme/nvme0/media_errors": 0,
        },
        {"/sys/class/nvme": Missing()},
    ),
    "fs.cache_fit": Case(
        {"model/bytes": 400 << 30, "/proc/meminfo": meminfo(MemAvailable=700)},
        {"model/bytes": 400 << 30, "/proc/meminfo": meminfo(MemAvailable=70)},
        {},
        bad_verdict="INFO",
        none_verdict="UNKNOWN",
    ),
    # Services
    "svc.tuned": Case(
        units(tuned="inactive"),
        {**units(tuned="active"), "/etc/tuned/active_profile": "balanced"},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "svc.ppd": Case(
        PPD_OFF,
        {**PPD_OFF, **units(tlp="active", auto_cpufreq="active")},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "svc.irqbalance": Case(
        {
            **units(irqbalance="active"),
            "irq/90/effective_affinity_list": "3",
            "irq/90/local_cpus": "0-31",
        },
        {
            **units(irqbalance="active"),
            "irq/90/effective_affinity_list": "40",
            "irq/90/local_cpus": "0-31",
        },
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "svc.persistenced": Case(
        {"unit/nvidia-persistenced/enabled": "enabled"},
        {"unit/nvidia-persistenced/enabled": "disabled"},
        LXC,
        bad_verdict="WARN",
    ),
    "svc.time_sync": Case(
        {"time/ntp_synchronized": "yes", "time/offset_s": 0.002},
        {"time/ntp_synchronized": "no", "time/offset_s": 0.002},
        LXC,
    ),
    "svc.auto_upgrade": Case(
        {"packages/unattended_upgrades": False, "packages/driver_upgraded_since_boot": []},
        {
            "packages/unattended_upgrades": True,
            "packages/held": [],
            "packages/driver_upgraded_since_boot": ["nvidia-driver-580"],
        },
        {},
        none_verdict="UNKNOWN",
    ),
    "svc.sysctl_drift": Case(
        {"sysctl/configured/vm.swappiness": "10", "/proc/sys/vm/swappiness": "10"},
        {"sysctl/configured/vm.swappiness": "10", "/proc/sys/vm/swappiness": "60"},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "svc.failed_units": Case(
        {"systemd/failed": []}, {"unit/sglang/restarts_per_h": 40}, {}, none_verdict="UNKNOWN"
    ),
    "svc.journal": Case(
        {"/var/log/journal": ["0a1b"], "journal/boots": 12},
        {"/var/log/journal": Missing()},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "svc.monitors": Case(
        {"gpu/pollers": ["dcgm-exporter|15"]},
        {"gpu/pollers": ["dcgm-exporter|15"], "gpu/profilers": ["dcgm-exporter", "nsys"]},
        {},
        none_verdict="UNKNOWN",
    ),
    # Measurements
    "bench.h2d": Case(
        {f"bench/h2d/{A}/gb_s": 53.0, f"bench/d2h/{A}/gb_s": 53.0, **LINK16, **GEN5},
        {f"bench/h2d/{A}/gb_s": 13.0, f"bench/d2h/{A}/gb_s": 53.0, **LINK16, **GEN5},
        {f"{GA}/index": 0, f"bench/h2d/{A}/busy": True},
    ),
    "bench.p2p": Case(
        {
            "bench/p2p/0/1/gb_s": 54.0,
            "bench/p2p/0/1/latency_us": 0.4,
            "bench/p2p/0/1/link_gb_s": 63.0,
            "bench/p2p/0/1/cross_node": False,
        },
        {
            "bench/p2p/0/1/gb_s": 11.0,
            "bench/p2p/0/1/latency_us": 14.0,
            "bench/p2p/0/1/link_gb_s": 63.0,
            "bench/p2p/0/1/cross_node": False,
        },
        ONE_GPU,
    ),
    "bench.membw": Case(
        {f"{GA}/index": 0, f"bench/membw/{A}/gb_s": 1460.0, f"bench/membw/{A}/theory_gb_s": 1597.0},
        {f"{GA}/index": 0, f"bench/membw/{A}/gb_s": 900.0, f"bench/membw/{A}/theory_gb_s": 1597.0},
        {f"{GA}/index": 0, f"bench/membw/{A}/busy": True},
    ),
    "bench.allreduce": Case(
        {"bench/allreduce/8k_us/value": 9.4, "bench/allreduce/8k_us/baseline": 9.2},
        {"bench/allreduce/8k_us/value": 24.0, "bench/allreduce/8k_us/baseline": 9.2},
        ONE_GPU,
    ),
    "bench.tools": Case(
        {"bench/tool/torch": "/opt/venv/bin/python"},
        {"bench/failed/allreduce": "NCCL error"},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "bench.roofline": Case(
        {"engine/tokens_per_s_batch1": 120.0, "roofline/tokens_per_s": 152.0},
        {"engine/tokens_per_s_batch1": 10.36, "roofline/tokens_per_s": 152.0},
        {"engine/none": True},
        bad_verdict="WARN",
    ),
    "bench.wakeup": Case(
        {"bench/wakeup_p50_us": 8.0},
        {"bench/wakeup_p50_us": 180.0},
        {},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
}
