"""GPUs and CUDA: cases of their rules."""

from __future__ import annotations

from collections.abc import Mapping

from tests.tuning.cases.base import GA, IB, LOG, LXC, NO_RDMA, ONE_GPU, RDMA, Case, Missing

CASES: Mapping[str, Case] = {
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
}
