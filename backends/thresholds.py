"""Every number that verdicts depend on, and the two questions that several of them ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from backends.model import GpuState, GpuStatus


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Every number that a verdict depends on.

    Those without a source are ours, set on an H200 and on simulated cards, and open to better ones.

    Attributes:
        busy_utilization_pct: A GPU with at least this share of time in kernels works. Ours.
        full_utilization_pct: "100 %" as the driver rounds it. Ours.
        low_power_share: Of the limit: below, "100 %" is not heavy work. An H200 at "100 %" drew
            99 % of its limit in a matrix product, 67 % in a copy, 17 % with nothing but a context.
        idle_memory_pct: Memory utilisation below which kernels move next to nothing. Ours; a
            decoding server keeps memory busy, a spinning wait does not.
        mig_busy_power_share: Of the limit: above, a GPU cut by MIG is at work. Ours, between the
            17 % of an open context and the 42 to 62 % of busy cards.
        capped_pct: Share of the last minute under the power cap that is worth a word. Ours.
        near_cap_share: Of the limit: a GPU drawing this much is at its cap. The driver regulates
            within about 5 W.
        far_below_cap_share: Of the limit: a GPU whose clocks are held by the power cap at less
            than this draws too little for that to be normal.
        thermal_pct: Share of the last minute held by temperature that is worth a word. Ours.
        brake_pct: The same for the power brake: any at all.
        straggler_deviations: Robust deviations (1.4826 MAD) from the group's median; the usual
            3 sigma.
        straggler_clock_share: Least relative difference of SM clocks. Ours: cards of one model
            under one load differ by 1 to 2 %.
        straggler_power_share: Least relative difference of power. Ours: the same cards differ by
            up to 10 %.
        straggler_group: Fewest GPUs that have a median worth the name.
        ghost_bytes: Memory held by nobody that is worth a word. Ours: an idle driver holds 0.6 GiB.
        xid_recent_s: How long an Xid stays a verdict.
        stale_intervals: Samples that may be missing before the picture is old; as for the link.
    """

    busy_utilization_pct: float = 5.0
    full_utilization_pct: float = 95.0
    low_power_share: float = 0.35
    idle_memory_pct: float = 5.0
    mig_busy_power_share: float = 0.25
    capped_pct: float = 10.0
    near_cap_share: float = 0.95
    far_below_cap_share: float = 0.70
    thermal_pct: float = 2.0
    brake_pct: float = 0.01
    straggler_deviations: float = 3.0
    straggler_clock_share: float = 0.08
    straggler_power_share: float = 0.20
    straggler_group: int = 3
    ghost_bytes: int = 2**30
    xid_recent_s: float = 600.0
    stale_intervals: float = 3.0


LIMITS: Final = Thresholds()


def is_busy(gpu: GpuStatus, limits: Thresholds = LIMITS) -> bool:
    """Whether it works: by utilisation, or by power where MIG hides that."""
    readings = gpu.readings
    if gpu.state is not GpuState.OK:
        return False
    if readings.utilization_gpu_pct is not None:
        return readings.utilization_gpu_pct >= limits.busy_utilization_pct
    share = power_share(gpu)
    return share is not None and share >= limits.mig_busy_power_share


def power_share(gpu: GpuStatus) -> float | None:
    """Power against the limit in force, 0 to 1; None where either is absent."""
    power_w, limit_w = gpu.readings.power_w, gpu.readings.power_limit_enforced_w
    return None if power_w is None or not limit_w else power_w / limit_w
