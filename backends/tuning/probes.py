"""What a gatherer reads on a host, as a table: it executes these kinds and knows no check.

Each probe gives facts whose key is the path, or the name given here, with value, error, source
and time. Everything is read only. What is derived from it (`pci/...`, `gpu/...`) comes about in
`backends.tuning.normalise`, on our side.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.tuning.facts import Vantage


class ProbeKind(StrEnum):
    """What the gatherer has to be able to do."""

    FILE = "file"
    """Read one file whole, cut at `limit_bytes`; the key is its path."""
    GLOB = "glob"
    """Read every file that matches; the keys are their paths."""
    LISTING = "listing"
    """Names in a folder, as a list; the key is its path."""
    LINK = "link"
    """Target of each symbolic link that matches; the keys are the links' paths."""
    BYTES = "bytes"
    """Read files that match as bytes, in hexadecimal; the keys are their paths."""
    COMMAND = "command"
    """Run an argument vector; the key is `cmd/` and its words joined by blanks; value is stdout."""
    STAT = "stat"
    """`MAJOR:MINOR MODE USER GROUP` of each device node that matches; key `node/` and the path."""
    OPEN = "open"
    """Open each match for reading and writing and close it; `OK` or errno; key `open/` and path."""
    STATVFS = "statvfs"
    """Size and free bytes and inodes of a file system; keys below `statvfs/` and the path."""
    NVML = "nvml"
    """One NVML call for each GPU; key `nvml/INDEX/` and the call."""
    CUDA = "cuda"
    """In a child process: load libcuda, cuInit, cuDriverGetVersion, cuDeviceGetCount."""
    PROCESS = "process"
    """For each process that holds a GPU: one file below /proc/PID; key `proc/PID/` and its name."""
    ENGINE = "engine"
    """Of those processes: chosen variables and options, open files, mappings, the model's place."""
    IRQ = "irq"
    """Of GPUs and network cards: where their interrupts are served; keys below `irq/NUMBER/`."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing to read.

    Attributes:
        kind: How.
        target: Path, pattern, NVML call or words of a command.
        root: Whether it needs root to be complete; without it the error is kept.
        vantages: From where it makes sense.
        limit_bytes: Longest value kept.
        argv: Argument vector of a command.
    """

    kind: ProbeKind
    target: str
    root: bool = False
    vantages: tuple[Vantage, ...] = (Vantage.HOST, Vantage.GUEST)
    limit_bytes: int = 65_536
    argv: tuple[str, ...] = ()


HOST_ONLY: Final = (Vantage.HOST,)
CPU: Final = "/sys/devices/system/cpu"
PCI: Final = "/sys/bus/pci/devices"
LOADER_INFO: Final = "LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
"""The EFI variable in which a boot loader says its name (Boot Loader Interface)."""


def _files(*paths: str, root: bool = False) -> tuple[Probe, ...]:
    return tuple(Probe(ProbeKind.GLOB if "*" in p else ProbeKind.FILE, p, root) for p in paths)


def _commands(*lines: str, root: bool = False, limit_bytes: int = 1 << 20) -> tuple[Probe, ...]:
    return tuple(
        Probe(ProbeKind.COMMAND, line, root, limit_bytes=limit_bytes, argv=tuple(line.split()))
        for line in lines
    )


def _nvml(*calls: str) -> tuple[Probe, ...]:
    return tuple(Probe(ProbeKind.NVML, call) for call in calls)


FILES: Final = _files(
    "/proc/cmdline",
    "/proc/version",
    "/proc/devices",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/mounts",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/proc/pressure/cpu",
    "/etc/kernel/cmdline",
    "/etc/default/grub",
    "/etc/default/grub.d/*.cfg",
    "/boot/loader/entries/*.conf",
    "/boot/efi/loader/entries/*.conf",
    "/efi/loader/entries/*.conf",
    "/etc/tuned/active_profile",
    "/run/reboot-required",
    "/proc/1/environ",
    "/etc/sysctl.conf",
    "/etc/sysctl.d/*.conf",
    "/usr/lib/sysctl.d/*.conf",
    "/etc/tmpfiles.d/*.conf",
    "/etc/modprobe.d/*.conf",
    f"{CPU}/online",
    f"{CPU}/offline",
    f"{CPU}/present",
    f"{CPU}/possible",
    f"{CPU}/isolated",
    f"{CPU}/smt/control",
    f"{CPU}/amd_pstate/status",
    f"{CPU}/intel_pstate/status",
    f"{CPU}/intel_pstate/no_turbo",
    f"{CPU}/cpufreq/boost",
    f"{CPU}/cpuidle/current_driver",
    f"{CPU}/cpu*/cpufreq/scaling_driver",
    f"{CPU}/cpu*/cpufreq/scaling_governor",
    f"{CPU}/cpu*/cpufreq/energy_performance_preference",
    f"{CPU}/cpu*/cpufreq/scaling_max_freq",
    f"{CPU}/cpu*/cpufreq/cpuinfo_max_freq",
    f"{CPU}/cpu*/cpufreq/boost",
    f"{CPU}/cpu*/cpuidle/state*/name",
    f"{CPU}/cpu*/cpuidle/state*/latency",
    f"{CPU}/cpu*/cpuidle/state*/disable",
    f"{CPU}/cpu*/topology/physical_package_id",
    f"{CPU}/cpu*/thermal_throttle/*_throttle_count",
    f"{CPU}/vulnerabilities/*",
    "/sys/devices/system/node/online",
    "/sys/devices/system/node/node*/cpulist",
    "/sys/devices/system/node/node*/meminfo",
    "/sys/devices/system/node/node*/distance",
    "/sys/devices/system/clocksource/clocksource0/*_clocksource",
    "/sys/devices/system/edac/mc/mc*/*e_count",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/kernel/mm/hugepages/*/nr_hugepages",
    "/sys/kernel/mm/hugepages/*/free_hugepages",
    "/sys/kernel/iommu_groups/*/type",
    "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm",
    "/sys/module/vfio_pci/parameters/disable_idle_d3",
    "/sys/module/nvidia/version",
    "/sys/module/pcie_aspm/parameters/policy",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/watchdog",
    "/proc/sys/vm/swappiness",
    "/proc/sys/vm/zone_reclaim_mode",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/max_map_count",
    "/proc/sys/vm/dirty_ratio",
    "/proc/sys/vm/dirty_bytes",
    "/proc/sys/vm/min_free_kbytes",
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/net/core/rmem_max",
    "/sys/fs/cgroup/cpu.max",
    "/sys/fs/cgroup/cpu.stat",
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory.pressure",
    f"{PCI}/*/class",
    f"{PCI}/*/vendor",
    f"{PCI}/*/device",
    f"{PCI}/*/numa_node",
    f"{PCI}/*/local_cpulist",
    f"{PCI}/*/current_link_width",
    f"{PCI}/*/max_link_width",
    f"{PCI}/*/current_link_speed",
    f"{PCI}/*/max_link_speed",
    f"{PCI}/*/power/control",
    f"{PCI}/*/d3cold_allowed",
    f"{PCI}/*/reset_method",
    f"{PCI}/*/aer_dev_correctable",
    f"{PCI}/*/aer_dev_nonfatal",
    f"{PCI}/*/aer_dev_fatal",
    f"{PCI}/*/resource",
    "/sys/class/infiniband/*/ports/*/state",
    "/sys/class/infiniband/*/ports/*/phys_state",
    "/sys/class/infiniband/*/ports/*/rate",
    "/sys/class/infiniband/*/ports/*/link_layer",
    "/sys/class/net/*/mtu",
    "/sys/block/*/queue/scheduler",
    "/sys/block/*/queue/read_ahead_kb",
    "/sys/class/bdi/*/read_ahead_kb",
    "/sys/class/nvme/*/state",
    "/sys/class/net/*/operstate",
    "/sys/fs/cgroup/devices/devices.list",
    "/etc/docker/daemon.json",
    "/etc/apt/apt.conf.d/20auto-upgrades",
    "/etc/systemd/system/*nvidia*.service",
    "/etc/systemd/system/*uvm*.service",
    "/usr/lib/systemd/system/nvidia-persistenced.service",
    "/proc/uptime",
)
CONFIGURATIONS: Final = tuple(
    Probe(ProbeKind.GLOB, path, root=True, vantages=HOST_ONLY)
    for path in ("/etc/pve/lxc/*.conf", "/etc/pve/qemu-server/*.conf")
)
OTHERS: Final = (
    Probe(ProbeKind.BYTES, f"{PCI}/*/config", root=True, limit_bytes=4096),
    Probe(ProbeKind.BYTES, f"/sys/firmware/efi/efivars/{LOADER_INFO}", limit_bytes=256),
    Probe(ProbeKind.LINK, f"{PCI}/*"),
    Probe(ProbeKind.LINK, f"{PCI}/*/driver"),
    Probe(ProbeKind.LINK, f"{PCI}/*/iommu_group"),
    Probe(ProbeKind.LISTING, f"{CPU}/cpu0/acpi_cppc"),
    Probe(ProbeKind.LISTING, f"{CPU}/cpu0/cpufreq"),
    Probe(ProbeKind.LISTING, f"{CPU}/cpu0/cpuidle"),
    Probe(ProbeKind.LISTING, "/sys/class/infiniband"),
    Probe(ProbeKind.LISTING, "/sys/class/nvme"),
    Probe(ProbeKind.LISTING, "/etc/tmpfiles.d"),
    Probe(ProbeKind.LISTING, "/etc/modprobe.d"),
    Probe(ProbeKind.LISTING, "/sys/kernel/iommu_groups"),
    Probe(ProbeKind.LISTING, "/proc/driver/nvidia/gpus"),
    Probe(ProbeKind.LISTING, "/var/log/journal"),
    Probe(ProbeKind.STAT, "/dev/nvidia*"),
    Probe(ProbeKind.STAT, "/dev/nvidia-caps/*"),
    Probe(ProbeKind.OPEN, "/dev/nvidiactl"),
    Probe(ProbeKind.OPEN, "/dev/nvidia-uvm"),
    Probe(ProbeKind.OPEN, "/dev/nvidia[0-9]*"),
    Probe(ProbeKind.STATVFS, "/dev/shm"),  # noqa: S108 - the mount itself is what is measured
    Probe(ProbeKind.STATVFS, "/"),
    Probe(ProbeKind.CUDA, "libcuda.so.1"),
    Probe(ProbeKind.ENGINE, "engine", root=True),
    Probe(ProbeKind.IRQ, "irq"),
    Probe(ProbeKind.LINK, "/boot/vmlinuz"),
    Probe(ProbeKind.LISTING, "/boot"),
    *(
        Probe(ProbeKind.LINK, f"{folder}/{library}.so.1")
        for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
        for library in ("libcuda", "libnvidia-ml")
    ),
    Probe(ProbeKind.LISTING, "/dev/char"),
    Probe(ProbeKind.LISTING, "/etc/systemd/system"),
    *(
        Probe(ProbeKind.GLOB, path, limit_bytes=1 << 20)
        for path in ("/etc/cdi/*.yaml", "/etc/cdi/*.json", "/run/cdi/*.yaml", "/run/cdi/*.json")
    ),
    Probe(ProbeKind.PROCESS, "limits", root=True),
    Probe(ProbeKind.PROCESS, "status", root=True),
)
COMMANDS: Final = _commands(
    "systemd-detect-virt",
    "lscpu",
    "nvidia-smi -q -x",
    "nvidia-smi topo -m",
    "nvidia-smi topo -p2p r",
    "nvidia-smi topo -p2p w",
    "pveversion",
    "proxmox-boot-tool status",
    "systemctl --failed --plain --no-legend",
    "timedatectl show -p NTPSynchronized",
    *(
        f"systemctl is-active {unit}"
        for unit in (
            "nvidia-persistenced",
            "nvidia-fabricmanager",
            "nvidia-imex",
            "tuned",
            "irqbalance",
            "power-profiles-daemon",
            "tlp",
            "auto-cpufreq",
            "thermald",
            "laptop-mode",
            "cpupower",
        )
    ),
    "systemctl is-enabled nvidia-persistenced",
    "dpkg --get-selections",
    "ss -ltn",
    "modinfo -F version nvidia",
    "proxmox-boot-tool kernel list",
    "grubby --default-kernel",
    "nvidia-smi nvlink -s",
    "nvidia-imex-ctl -q",
    "nv-fabricmanager --version",
    "powerprofilesctl get",
    "chronyc -n tracking",
    "docker info --format {{.CgroupDriver}}",
    "systemctl show *.service --property=Id,NRestarts",
) + _commands(
    "journalctl -k -b -o short-monotonic --no-pager",
    "dmesg",
    "dmidecode -t 17",
    root=True,
    limit_bytes=4 << 20,
)
NVML: Final = _nvml(
    "name",
    "uuid",
    "pci_bus_id",
    "arch",
    "persistence",
    "power_w",
    "power_limit_w",
    "power_default_w",
    "power_min_w",
    "power_max_w",
    "power_enforced_w",
    "temp_c",
    "mem_temp_c",
    "temp_margin_c",
    "util_pct",
    "vram_mib",
    "used_mib",
    "bar1_mib",
    "clock_sm_mhz",
    "clock_mem_mhz",
    "clock_sm_max_mhz",
    "clock_mem_max_mhz",
    "reasons",
    "pstate",
    "link_gen",
    "link_gen_max",
    "link_width",
    "link_width_max",
    "replays",
    "compute_mode",
    "ecc_current",
    "ecc_pending",
    "ecc_volatile_uncorrectable",
    "ecc_aggregate_uncorrectable",
    "rows_correctable",
    "rows_uncorrectable",
    "rows_pending",
    "rows_failure",
    "mig_current",
    "mig_pending",
    "recovery_action",
    "fabric_state",
)

PROBES: Final[tuple[Probe, ...]] = FILES + CONFIGURATIONS + OTHERS + COMMANDS + NVML
"""Everything, in an order that needs no other."""


def probes_for(vantage: Vantage) -> tuple[Probe, ...]:
    """The probes that make sense from there."""
    return tuple(probe for probe in PROBES if vantage in probe.vantages)
