"""CPU frequency and idle states, NUMA and memory: cases of their rules."""

from __future__ import annotations

from collections.abc import Mapping

from tests.tuning.cases.base import (
    CPU,
    GA,
    NODE,
    ONE_NODE,
    ONLINE,
    PCI,
    TWO_NODES,
    VM,
    A,
    Case,
    Missing,
    every_cpu,
    idle,
    node_memory,
)

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
}
