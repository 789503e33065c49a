"""Network, file systems, services: cases of their rules."""

from __future__ import annotations

from collections.abc import Mapping

from tests.tuning.cases.base import (
    IB,
    IB_UP,
    LXC,
    NIC_PCI,
    NO_RDMA,
    PA,
    PPD_OFF,
    STAT,
    Case,
    Missing,
    meminfo,
    units,
)

CASES: Mapping[str, Case] = {
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
}
