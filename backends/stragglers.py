"""The GPU that a group waits for: found by its distance from the median, in robust deviations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

from backends.model import EventReasons, GpuStatus, HostSnapshot, Severity, Verdict
from backends.thresholds import Thresholds, is_busy


def _groups(snapshot: HostSnapshot, limits: Thresholds) -> list[list[GpuStatus]]:
    """Busy GPUs that should do the same: one model of card, one model being served."""
    serves: dict[str, set[str]] = {}
    for process in snapshot.processes:
        for uuid in process.memory_bytes:
            serves.setdefault(uuid, set()).add(process.model or "")
    groups: dict[tuple[str, frozenset[str]], list[GpuStatus]] = {}
    for gpu in snapshot.gpus:
        if is_busy(gpu, limits) and not gpu.readings.mig_enabled:
            key = (gpu.name, frozenset(serves.get(gpu.uuid, ())))
            groups.setdefault(key, []).append(gpu)
    return [group for group in groups.values() if len(group) >= limits.straggler_group]


def stragglers(snapshot: HostSnapshot, limits: Thresholds) -> Iterable[Verdict]:
    """Every GPU that is far from the others of its group, with the likeliest cause."""
    for group in _groups(snapshot, limits):
        clock = _outliers(group, _sm_clock, limits.straggler_clock_share, limits)
        for gpu, value, middle in clock:
            if value < middle:
                evidence = f"SM clock {value:,.0f} MHz, the others {middle:,.0f} MHz"
                yield _straggler(gpu, group, evidence)
        slow = {gpu.uuid for gpu, _, _ in clock}
        power = _outliers(group, _average_power, limits.straggler_power_share, limits)
        for gpu, value, middle in power:
            if gpu.uuid in slow:
                continue
            # At equal clocks the one that works on draws more, those that wait for it draw less.
            what = "it works while they wait" if value > middle else "it does less than they"
            evidence = f"{value:.0f} W, the others {middle:.0f} W: {what}"
            yield _straggler(gpu, group, evidence)


def _sm_clock(gpu: GpuStatus) -> float | None:
    return gpu.readings.sm_clock_mhz


def _average_power(gpu: GpuStatus) -> float | None:
    average_w = gpu.readings.power_average_w
    return gpu.readings.power_w if average_w is None else average_w


def _outliers(
    group: list[GpuStatus],
    value_of: Callable[[GpuStatus], float | None],
    least_share: float,
    limits: Thresholds,
) -> list[tuple[GpuStatus, float, float]]:
    """(GPU, its value, the group's median) of each that is far from the median.

    Far is `straggler_deviations` times 1.4826 MAD, the robust standard deviation of a normal
    distribution, and at least `least_share` of the median, since the MAD of equal cards is 0.
    """
    values = [(gpu, value) for gpu in group if (value := value_of(gpu)) is not None]
    if len(values) < limits.straggler_group:
        return []
    middle = median(value for _, value in values)
    spread = 1.4826 * median(abs(value - middle) for _, value in values)
    far = max(limits.straggler_deviations * spread, least_share * middle)
    return [(gpu, value, middle) for gpu, value in values if abs(value - middle) > far]


def _straggler(gpu: GpuStatus, group: list[GpuStatus], evidence: str) -> Verdict:
    readings = gpu.readings
    bits = EventReasons(readings.event_reasons or 0)
    limit_w = readings.power_limit_enforced_w
    others_w = [g.readings.power_limit_enforced_w for g in group if g is not gpu]
    most_w = max((w for w in others_w if w is not None), default=None)
    widths = [g.readings.pcie_width for g in group if g.readings.pcie_width is not None]
    if bits & (EventReasons.SW_THERMAL | EventReasons.HW_THERMAL):
        cause = "It is hot: look at its airflow"
    elif bits & EventReasons.HW_POWER_BRAKE:
        cause = "The power brake holds it"
    elif limit_w is not None and most_w is not None and limit_w < most_w - 1:
        cause = f"Its power limit is {limit_w:.0f} W, that of others {most_w:.0f} W"
    elif readings.pcie_width is not None and readings.pcie_width < max(widths):
        cause = f"Its link is x{readings.pcie_width}, that of others x{max(widths)}"
    else:
        cause = "Compare its clocks, link and limits with the others'"
    return Verdict(
        "STRAGGLER",
        Severity.WARNING,
        evidence,
        f"{cause}; a tensor-parallel group is as fast as its slowest",
        gpu.uuid,
    )
