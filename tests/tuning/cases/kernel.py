"""The kernel, its command line and its virtual memory: cases of their rules."""

from __future__ import annotations

from collections.abc import Mapping

from tests.tuning.cases.base import (
    BELOW_PORT,
    CPU,
    GA,
    GPU_PCI,
    LOG,
    LXC,
    ONE_GPU,
    PA,
    PCI,
    PORT,
    QEMU,
    RDMA,
    A,
    Case,
    both,
    meminfo,
)

CASES: Mapping[str, Case] = {
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
}
