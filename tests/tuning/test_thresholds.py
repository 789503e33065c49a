"""Every threshold from both sides: just below, exactly at and just above it.

A threshold of a profile is read by its name, so a changed figure moves its row along; a changed
comparison does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from backends.tuning.engine import Options, evaluate
from backends.tuning.profiles import load
from tests.tuning.cases import (
    GA,
    NO_RDMA,
    TWO_NODES,
    Facts,
    document,
)
from tests.tuning.scales import (
    GIB,
    busy,
    ceiling,
    flaps,
    h2d,
    h2d_spread,
    hugepages,
    intel_idle,
    limits,
    maps_in_use,
    membw,
    membw_odd,
    nodes,
    p2p,
    p2p_odd,
    pair_copy,
    quota,
    rank,
    reduce,
    roofline,
    shm,
    sizes,
    stat,
    throttle,
    two_nodes_with,
    uplink,
    xids,
)

Make = Callable[[float], Facts]
LIMITS = load().thresholds


@dataclass(frozen=True, slots=True)
class Row:
    """One threshold of one rule.

    Attributes:
        name: Of the profile's threshold, or the figure itself where the source is a vendor's.
        make: The facts for a value on the threshold's own scale.
        verdicts: Just below, at and just above.
        step: How far away "just" is.
    """

    name: str | float
    rule: str
    make: Make
    verdicts: str
    step: float = 1.0

    @property
    def at(self) -> float:
        return LIMITS[self.name] if isinstance(self.name, str) else self.name


ROWS = [
    Row("cpu_cstate_latency_us", "cpu.cstates", intel_idle, "INFO WARN WARN"),
    Row("cpu_cstate_quiet_us", "cpu.cstates", intel_idle, "PASS PASS INFO"),
    Row("cpu_freq_cap_pct", "cpu.freq_cap", ceiling, "PASS PASS WARN"),
    Row("cpu_quota_cores_per_gpu", "cpu.quota", quota, "WARN PASS PASS", 0.1),
    Row(
        "cpu_wakeup_warn_us", "bench.wakeup", lambda v: {"bench/wakeup_p50_us": v}, "INFO INFO WARN"
    ),
    Row(
        "cpu_wakeup_good_us", "bench.wakeup", lambda v: {"bench/wakeup_p50_us": v}, "PASS INFO INFO"
    ),
    Row("numa_size_difference_pct", "numa.memory_balance", sizes, "PASS PASS WARN"),
    Row(
        "numa_free_low_pct",
        "numa.memory_balance",
        lambda v: nodes(1000_000, int(v * 10_000), 1000_000, 600_000),
        "WARN PASS PASS",
    ),
    Row(
        "numa_free_high_pct",
        "numa.memory_balance",
        lambda v: nodes(1000_000, 10_000, 1000_000, int(v * 10_000)),
        "PASS PASS WARN",
    ),
    Row("numa_remote_pages_pct", "numa.rank_binding", rank, "PASS PASS WARN"),
    Row(
        "numa_cross_ratio_pct",
        "numa.interconnect",
        lambda v: {
            **TWO_NODES,
            "bench/p2p_same_node_gb_s": 100.0,
            "bench/p2p_cross_node_gb_s": v,
        },
        "WARN PASS PASS",
    ),
    Row("numa_node_min_cpus", "numa.nps", two_nodes_with, "WARN INFO INFO"),
    Row(
        "vm_swappiness",
        "vm.swappiness",
        lambda v: {"/proc/sys/vm/swappiness": str(int(v))},
        "PASS PASS INFO",
    ),
    Row(
        "vm_engine_swap_mib",
        "vm.engine_swap",
        lambda v: {"engine/41/swap_kib": int(v * 1024), "cgroup/memory/oom_kill": 0},
        "PASS WARN WARN",
    ),
    Row(
        "vm_map_count",
        "vm.max_map_count",
        lambda v: {"/proc/sys/vm/max_map_count": str(int(v))},
        "INFO PASS PASS",
    ),
    Row("vm_maps_warn_pct", "vm.max_map_count", maps_in_use, "PASS PASS WARN"),
    Row("vm_maps_fail_pct", "vm.max_map_count", maps_in_use, "WARN WARN FAIL"),
    Row(
        "vm_dirty_gib",
        "vm.dirty",
        lambda v: {"/proc/sys/vm/dirty_bytes": str(int(v * GIB))},
        "PASS PASS WARN",
    ),
    Row("vm_hugepages_unused_pct", "vm.hugepages", hugepages, "PASS PASS WARN"),
    Row("vm_shm_per_gpu_gib", "vm.shm", lambda v: shm(v * 8 * GIB), "WARN PASS PASS", 0.1),
    Row("vm_shm_enough_gib", "vm.shm", lambda v: shm(v * GIB, 32), "WARN PASS PASS"),
    Row("vm_shm_tiny_mib", "vm.shm", lambda v: shm(v * (1 << 20)), "FAIL FAIL WARN"),
    Row("vm_nofile_hard", "vm.nofile", limits, "WARN PASS PASS"),
    Row("vm_nofile_used_pct", "vm.nofile", lambda v: limits(1 << 20, v * 10), "PASS PASS FAIL"),
    Row(
        "vm_psi_full_pct",
        "vm.cgroup_mem",
        lambda v: {
            "/sys/fs/cgroup/memory.max": "max",
            "/sys/fs/cgroup/memory.pressure": f"full avg10=0.00 avg60={v:.2f} total=1",
        },
        "PASS PASS FAIL",
        0.01,
    ),
    Row("pcie_flaps_per_s", "pcie.link_flap", flaps, "INFO INFO WARN", 0.1),
    Row("pcie_oversubscription_fine", "pcie.path_bottleneck", uplink, "PASS PASS INFO", 0.25),
    Row("pcie_oversubscription_warn", "pcie.path_bottleneck", uplink, "INFO INFO WARN", 0.25),
    Row("gpu_power_cap_near_pct", "gpu.throttle", throttle, "INFO PASS PASS"),
    Row("gpu_power_cap_far_pct", "gpu.throttle", throttle, "WARN INFO INFO"),
    Row(
        "gpu_mem_clock_pct",
        "gpu.clocks",
        lambda v: {
            f"{GA}/clock_mem_mhz": int(v * 100),
            f"{GA}/clock_mem_max_mhz": 10_000,
            f"{GA}/pstate": "P0",
            f"{GA}/util_pct": 100,
        },
        "WARN PASS PASS",
    ),
    Row(
        "gpu_sm_clock_lock_pct",
        "gpu.clocks",
        lambda v: {
            f"{GA}/app_clock_sm_mhz": int(v * 10),
            f"{GA}/app_clock_sm_default_mhz": 1500,
            f"{GA}/clock_sm_max_mhz": 1000,
            f"{GA}/clock_mem_mhz": 10_000,
            f"{GA}/clock_mem_max_mhz": 10_000,
        },
        "INFO PASS PASS",
    ),
    Row(
        "gpu_temp_margin_c",
        "gpu.temperature",
        lambda v: {f"{GA}/temp_c": 50, f"{GA}/temp_margin_c": v},
        "WARN WARN PASS",
    ),
    Row(
        0,
        "gpu.temperature",
        lambda v: {f"{GA}/temp_c": 50, f"{GA}/temp_margin_c": v},
        "FAIL FAIL WARN",
    ),
    Row(
        "gpu_mem_temp_c",
        "gpu.temperature",
        lambda v: {f"{GA}/temp_c": 50, f"{GA}/temp_margin_c": 40, f"{GA}/mem_temp_c": v},
        "PASS WARN WARN",
    ),
    Row("gpu_busy_pct", "gpu.util_vs_power", lambda v: busy(util=v), "N/A INFO INFO"),
    Row("gpu_busy_power_pct", "gpu.util_vs_power", lambda v: busy(share=v), "INFO PASS PASS"),
    Row(
        "gpu_spin_power_pct",
        "gpu.util_vs_power",
        lambda v: busy(share=v, tokens=0),
        "FAIL WARN WARN",
    ),
    Row(
        "gpu_hidden_memory_mib",
        "gpu.stale_procs",
        lambda v: {f"{GA}/used_mib": int(v), "gpu/holders": []},
        "PASS PASS FAIL",
    ),
    Row("gpu_xid_processes", "gpu.xid", xids, "WARN FAIL FAIL"),
    Row(
        "net_somaxconn",
        "net.somaxconn",
        lambda v: {"/proc/sys/net/core/somaxconn": str(int(v))},
        "INFO PASS PASS",
    ),
    Row(
        "net_rmem_mib",
        "net.buffers",
        lambda v: {
            "/proc/sys/net/core/rmem_max": str(int(v * (1 << 20))),
            "net/peers": ["10.0.0.2"],
            **NO_RDMA,
        },
        "WARN PASS PASS",
    ),
    Row("fs_free_good_pct", "fs.free", stat, "INFO INFO PASS"),
    Row("fs_free_warn_pct", "fs.free", stat, "WARN INFO INFO"),
    Row("fs_free_fail_pct", "fs.free", stat, "FAIL WARN WARN"),
    Row("fs_free_fail_pct", "fs.free", lambda v: stat(50, v), "FAIL PASS PASS"),
    Row(
        "fs_readahead_kb",
        "fs.readahead",
        lambda v: {"/sys/block/nvme0n1/queue/read_ahead_kb": str(int(v))},
        "INFO PASS PASS",
    ),
    Row(
        "fs_readahead_nfs_kb",
        "fs.readahead",
        lambda v: {
            "model/fs_type": "nfs4",
            "model/bdi": "0:50",
            "/sys/class/bdi/0:50/read_ahead_kb": str(int(v)),
        },
        "INFO PASS PASS",
    ),
    Row("fs_read_good_mb_s", "fs.read_rate", lambda v: {"bench/read_mb_s": v}, "INFO PASS PASS"),
    Row("fs_read_warn_mb_s", "fs.read_rate", lambda v: {"bench/read_mb_s": v}, "WARN INFO INFO"),
    Row("fs_read_fail_mb_s", "fs.read_rate", lambda v: {"bench/read_mb_s": v}, "FAIL WARN WARN"),
    Row(
        "fs_nvme_used_pct",
        "fs.nvme",
        lambda v: {
            "nvme/nvme0/critical_warning": 0,
            "nvme/nvme0/percentage_used": v,
            "nvme/nvme0/media_errors": 0,
        },
        "PASS WARN WARN",
    ),
    Row(
        "svc_time_good_s",
        "svc.time_sync",
        lambda v: {"time/ntp_synchronized": "yes", "time/offset_s": v},
        "PASS WARN WARN",
        0.001,
    ),
    Row(
        "svc_time_fail_s",
        "svc.time_sync",
        lambda v: {"time/ntp_synchronized": "yes", "time/offset_s": -v},
        "WARN WARN FAIL",
        0.001,
    ),
    Row(
        "svc_restarts_per_h",
        "svc.failed_units",
        lambda v: {"systemd/failed": [], "unit/sglang/restarts_per_h": v},
        "PASS PASS FAIL",
    ),
    Row(
        "svc_pollers",
        "svc.monitors",
        lambda v: {"gpu/pollers": [f"exporter{n}|15" for n in range(int(v))]},
        "PASS PASS WARN",
    ),
    Row("bench_link_good_pct", "bench.h2d", h2d, "WARN PASS PASS"),
    Row("bench_link_warn_pct", "bench.h2d", h2d, "FAIL WARN WARN"),
    Row("bench_spread_pct", "bench.h2d", h2d_spread, "PASS PASS WARN"),
    Row("bench_p2p_latency_us", "bench.p2p", lambda v: p2p(latency=v), "PASS PASS FAIL"),
    Row("bench_p2p_floor_gb_s", "bench.p2p", p2p, "FAIL WARN WARN"),
    Row("bench_p2p_good_pct", "bench.p2p", lambda v: p2p(63.0 * v / 100), "WARN PASS PASS"),
    Row("bench_p2p_odd_pct", "bench.p2p", p2p_odd, "PASS PASS WARN"),
    Row("bench_p2p_copy_pct", "gpu.p2p_copy", pair_copy, "WARN PASS PASS"),
    Row("bench_membw_good_pct", "bench.membw", membw, "WARN PASS PASS"),
    Row("bench_membw_warn_pct", "bench.membw", membw, "FAIL WARN WARN"),
    Row("bench_membw_odd_pct", "bench.membw", membw_odd, "PASS PASS WARN"),
    Row("bench_allreduce_warn_pct", "bench.allreduce", reduce, "PASS PASS WARN"),
    Row("bench_allreduce_fail_pct", "bench.allreduce", reduce, "WARN WARN FAIL"),
    Row("bench_roofline_good_pct", "bench.roofline", roofline, "INFO INFO PASS"),
    Row("bench_roofline_warn_pct", "bench.roofline", roofline, "WARN INFO INFO"),
]


def test_every_threshold_has_a_row() -> None:
    assert {row.name for row in ROWS if isinstance(row.name, str)} == set(LIMITS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule}-{row.name}")
def test_both_sides(row: Row) -> None:
    found = [_verdict(row, row.at + step) for step in (-row.step, 0.0, row.step)]
    assert " ".join(found) == row.verdicts


def _verdict(row: Row, value: float) -> str:
    facts = document(row.make(value))
    findings = evaluate(facts, Options(only=frozenset({row.rule})))
    return next(f for f in findings if f.check.partition("@")[0] == row.rule).verdict.value
