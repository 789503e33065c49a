"""Facts that no probe of one gathering gives, and where they come from instead.

Two readings some time apart, a load, a peer or the operator's word cannot be had by looking once.
A rule that asks for one of these stays UNKNOWN or INCONCLUSIVE until it is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

MEASURED: Final = "a measurement (`gpuroom tuning HOST measure`)"
WATCHED: Final = "two readings some time apart, under load"
PASTED: Final = "printed output of a tool (`gpuroom tuning read`)"
STATED: Final = "the operator (`[tuning]` in the configuration, or a facts file)"

ELSEWHERE: Final[Mapping[str, str]] = {
    "bench/*": MEASURED,
    "roofline/*": MEASURED,
    "gpu/*/under_load": MEASURED,
    "pcie_flaps/*": WATCHED,
    "gpu/*/replays_per_minute": WATCHED,
    "gpu/*/nvlink/*/errors_delta": WATCHED,
    "cgroup/cpu/nr_throttled_delta": WATCHED,
    "cgroup/memory/high_delta": WATCHED,
    "cpu/throttle_delta/*": WATCHED,
    "cpu/below_base_clock": WATCHED,
    "net/link_downed_delta/*": WATCHED,
    "net/listen_overflows_delta": WATCHED,
    "net/qos/*": WATCHED,
    "net/mtu_probe/*": "a probe to the peer",
    "net/peer_mtu/*": "the peers' own facts",
    "vmstat/pswpin_delta": WATCHED,
    "nvme/*/critical_warning": "`nvme smart-log`, as root",
    "nvme/*/percentage_used": "`nvme smart-log`, as root",
    "nvme/*/media_errors": "`nvme smart-log`, as root",
    "nvme/*/media_errors_delta": WATCHED,
    "engine/*/remote_pages_pct": "`numastat -p PID`: reading numa_maps stops the engine meanwhile",
    "engine/tokens_per_s": "the engine's metrics",
    "engine/tokens_per_s_batch1": "the engine's metrics",
    "engine/resident": STATED,
    "host/use": STATED,
    "host/gpu_count": PASTED,
    "host/gpu_name": PASTED,
    "net/firewall_closed": STATED,
    "gpu/holders": "`/proc/*/fd` as root; NVML lists what it knows of as gpu/processes",
    "gpu/pollers": PASTED,
    "gpu/profilers": PASTED,
    "docker/explicit_devices": "each container's own definition",
    "journal/boots": "/var/log/journal, which is read",
    "gpu_binding/*": PASTED,
    "p2p_by_kernel/*": PASTED,
    "cgroup/devices_list_before": PASTED,
    "nccl/*": PASTED,
    "nvml/unreached/*": PASTED,
    "trace/*": PASTED,
    "cpupower/*": PASTED,
    "cpu/boost_supported": PASTED,
    "nvml/library_version": PASTED,
    "gpu/*/reasons_seen": PASTED,
    "gpu/*/ecc_*_complete": PASTED,
    "gpu/*/app_clock_sm_mhz": PASTED,
    "gpu/*/app_clock_sm_default_mhz": PASTED,
    "pci/*/aer_uncorrectable": PASTED,
    "pci/*/aer_correctable": PASTED,
    "log/open_module_needed": "the kernel log, where the driver refuses a GPU",
    "log/module_refused": "the kernel log, where it refuses the driver's module",
    "log/no_gpu": "the kernel log, where the driver finds no GPU",
    "log/limited/*": "the kernel log, where a link came up narrow",
    "log/cpu_throttled/*": "the kernel log, where CPUs were too hot",
    "gpu/*/driver_model": PASTED,
    "gpu/*/temp_slowdown_c": PASTED,
    "pci/*/name": PASTED,
    "pci/*/bar_unassigned": PASTED,
    "pci/*/width_note": PASTED,
    "gpu/*/nvlink": "NVLINK's states, which are read",
}
"""Pattern of a fact's key, and who gives it."""


def elsewhere(key: str) -> str:
    """Who gives a fact that is not gathered; empty for one that is."""
    return next((who for pattern, who in ELSEWHERE.items() if fnmatchcase(key, pattern)), "")
