"""What readings mean together: one word, the evidence, the next step.

Pure: the same snapshot gives the same verdicts. What needs time to be believed (a straggler, a
narrow link) is held back, and what flickers is held on, by `backends.alerts`. Whatever a verdict
says it says with the numbers it was drawn from, so that nobody has to trust it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final

from backends.model import (
    DriverState,
    EventReasons,
    GpuState,
    GpuStatus,
    HostSnapshot,
    LinkState,
    Severity,
    Verdict,
)
from backends.stragglers import stragglers
from backends.thresholds import LIMITS, Thresholds, is_busy, power_share

FATAL_XIDS: Final = frozenset({48, 64, 74, 79, 94, 95, 119, 120, 140, 143, 149, 154})
"""Xids after which the GPU needs a reset or a look (NVIDIA's Xid catalogue)."""

_XID_PREFIX: Final = re.compile(r".*NVRM: Xid \([^)]*\): \d+,?\s*")

_RANKS: Final = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}

_DRIVER_VERDICTS: Final[Mapping[DriverState, tuple[str, str]]] = {
    DriverState.MISSING: (
        "NO-DRIVER",
        "Check with lspci that there is an NVIDIA GPU, then install the driver or load the module",
    ),
    DriverState.MISMATCH: (
        "MISMATCH",
        "The driver was updated under a loaded module: stop what uses the GPUs and reload the "
        "modules, or reboot",
    ),
    DriverState.STUCK: (
        "DRIVER-STUCK",
        "Look for Xid and GSP lines in the kernel log; a hung driver mostly needs a reboot. Don't "
        "start more nvidia-smi: each would hang too",
    ),
    DriverState.RELOADING: ("RELOADING", "Nothing to do: it is being waited for"),
    DriverState.NO_PERMISSION: (
        "NO-PERMISSION",
        "Check who may open /dev/nvidia*; in a container, whether its device rules have today's "
        "major numbers",
    ),
    DriverState.ERROR: ("DRIVER-ERROR", "Look at the kernel log"),
}


def judge(snapshot: HostSnapshot, now_s: float, limits: Thresholds = LIMITS) -> tuple[Verdict, ...]:
    """Every verdict that is due now, worst first, the host's before its GPUs'.

    Each GPU gets at least one, about what it does, where the driver answers.

    Args:
        snapshot: What is known.
        now_s: Monotonic seconds here.
        limits: The thresholds.
    """
    found = list(_of_host(snapshot, now_s, limits))
    driver = snapshot.driver
    if driver is None or driver.state in (DriverState.OK, DriverState.STUCK):
        owned = {uuid for process in snapshot.processes for uuid in process.memory_bytes}
        for gpu in snapshot.gpus:
            found += _of_gpu(gpu, limits)
            if snapshot.processes_listed and gpu.state is GpuState.OK and gpu.uuid not in owned:
                found += _ghost(gpu, limits)
        found += stragglers(snapshot, limits)
        found += _xids(snapshot, limits)
    return worst_first(found)


def rank(severity: Severity) -> int:
    """0 for the worst."""
    return _RANKS[severity]


def worst_first(found: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """By severity, the host's before its GPUs', else as they came."""
    return tuple(sorted(found, key=lambda v: (rank(v.severity), v.gpu_uuid is not None)))


def is_stale(snapshot: HostSnapshot, now_s: float, limits: Thresholds = LIMITS) -> bool:
    """Whether what is known of the host is of the past."""
    if snapshot.sampled_s is None:
        return False
    return now_s - snapshot.sampled_s > max(2.0, limits.stale_intervals * snapshot.interval_s)


def _of_host(snapshot: HostSnapshot, now_s: float, limits: Thresholds) -> Iterable[Verdict]:
    if snapshot.sampled_s is not None and is_stale(snapshot, now_s, limits):
        state = snapshot.link.state
        way = "connected, but silent" if state in (LinkState.LIVE, LinkState.STALE) else str(state)
        yield Verdict(
            "STALE",
            Severity.CRITICAL,
            f"last sample {now_s - snapshot.sampled_s:.0f} s ago; {way}",
            snapshot.link.hint or "What is shown is of the past; it comes back by itself",
        )
    driver = snapshot.driver
    if driver is None:
        return
    if driver.state is DriverState.OK:
        if not snapshot.gpus and snapshot.sampled_s is not None:
            yield Verdict(
                "NO-GPU",
                Severity.WARNING,
                "the driver answers and lists no GPU",
                "Look with lspci whether the cards are there; in a container, whether any is "
                "passed in",
            )
        return
    word, advice = _DRIVER_VERDICTS[driver.state]
    since_s = max(0.0, now_s - driver.since_s)
    evidence = driver.detail or str(driver.state)
    if since_s >= 1:  # the alert of the first moment is kept: "for 0 s" would stay in it for good
        evidence += f" (for {since_s:.0f} s)"
    reloading = driver.state is DriverState.RELOADING
    severity = Severity.WARNING if reloading else Severity.CRITICAL
    yield Verdict(word, severity, evidence, advice)


def _of_gpu(gpu: GpuStatus, limits: Thresholds) -> Iterable[Verdict]:
    uuid = gpu.uuid
    if gpu.state is GpuState.LOST:
        yield Verdict(
            "LOST",
            Severity.CRITICAL,
            gpu.state_detail or "the driver no longer knows it",
            "Look for Xid 79 and PCIe errors in the kernel log; mostly it takes a reset or a "
            "reboot, and if it comes again, another slot, riser or power cable",
            uuid,
        )
        return
    if gpu.state is GpuState.STUCK:
        yield Verdict(
            "STUCK",
            Severity.CRITICAL,
            gpu.state_detail or "a call about it has not come back",
            "Other GPUs are still read. Look for Xid lines in the kernel log",
            uuid,
        )
        return
    if gpu.state is GpuState.ERROR:
        advice = "Look for Xid lines in the kernel log; it may need a reset"
        yield Verdict("ERROR", Severity.CRITICAL, gpu.state_detail, advice, uuid)
        return
    yield from _held(gpu, limits)
    yield from _memory_faults(gpu)
    if is_busy(gpu, limits):
        yield from _link(gpu)
    yield from _activity(gpu, limits)


def _watts(gpu: GpuStatus) -> str:
    power_w, limit_w = gpu.readings.power_w, gpu.readings.power_limit_enforced_w
    if power_w is None:
        return "power unknown"
    return f"{power_w:.0f} W" + (f" of {limit_w:.0f} W" if limit_w else "")


def _activity(gpu: GpuStatus, limits: Thresholds) -> Iterable[Verdict]:
    """What it does: the one verdict that each answering GPU has, and whether it merely spins."""
    readings, uuid = gpu.readings, gpu.uuid
    utilization = readings.utilization_gpu_pct
    if utilization is None:
        yield _activity_by_power(gpu, limits)
        return
    evidence = f"{utilization:.0f} %, {_watts(gpu)}"
    if utilization < limits.busy_utilization_pct:
        if (readings.sm_clock_mhz or 0) > 0.5 * (readings.sm_clock_max_mhz or 1e9):
            evidence += ", clocks up: a context is open"
        yield Verdict("IDLE", Severity.INFO, evidence, "", uuid)
        return
    share = power_share(gpu)
    low = share is not None and share < limits.low_power_share
    if utilization < limits.full_utilization_pct or not low:
        yield Verdict("BUSY", Severity.INFO, evidence, "", uuid)
        return
    yield Verdict(
        "BUSY",
        Severity.INFO,
        evidence,
        "Little power at full utilisation is normal while decoding for few requests; throughput "
        "tells whether it is enough",
        uuid,
    )
    memory_pct = readings.utilization_memory_pct
    if memory_pct is not None and memory_pct < limits.idle_memory_pct:
        yield Verdict(
            "SPINNING",
            Severity.INFO,
            f"{evidence}, memory {memory_pct:.0f} %: kernels run and move next to nothing",
            "A server that waits looks like this. If it should be serving, look whether requests "
            "run and tokens come",
            uuid,
        )


def _activity_by_power(gpu: GpuStatus, limits: Thresholds) -> Verdict:
    """The same where utilisation can't be read."""
    watts = _watts(gpu)
    busy = is_busy(gpu, limits)
    if gpu.readings.mig_enabled:
        return Verdict(
            "MIG-BUSY" if busy else "MIG",
            Severity.INFO,
            f"{watts}; utilisation is not measured while MIG is on",
            "Power is the only truth here",
            gpu.uuid,
        )
    reason = gpu.absent.get("utilization_gpu_pct", "")
    word = "UNKNOWN" if power_share(gpu) is None else "BUSY" if busy else "IDLE"
    evidence = f"{watts}; utilisation: {reason}" if reason else watts
    return Verdict(word, Severity.INFO, evidence, "", gpu.uuid)


def _held(gpu: GpuStatus, limits: Thresholds) -> Iterable[Verdict]:
    """Cap, temperature, brake: what takes clock away."""
    readings, uuid = gpu.readings, gpu.uuid
    bits = EventReasons(readings.event_reasons or 0)
    brake_pct = gpu.held_pct.get("power_brake", 0.0)
    if brake_pct >= limits.brake_pct or bits & EventReasons.HW_POWER_BRAKE:
        yield Verdict(
            "BRAKED",
            Severity.CRITICAL,
            f"power brake held the clocks {brake_pct:.1f} % of the last minute; {_watts(gpu)}",
            "The chassis pulls the brake: look at power supplies, their budget and redundancy",
            uuid,
        )
    thermal_pct = gpu.held_pct.get("thermal", 0.0)
    thermal_now = bits & (EventReasons.SW_THERMAL | EventReasons.HW_THERMAL)
    if thermal_pct >= limits.thermal_pct or thermal_now:
        evidence = f"temperature held the clocks {thermal_pct:.0f} % of the last minute"
        if readings.temperature_gpu_c is not None:
            evidence += f"; {readings.temperature_gpu_c:.0f} °C"
        if readings.temperature_margin_c is not None:
            evidence += f", {readings.temperature_margin_c:.0f} °C from its limit"
        yield Verdict(
            "HOT",
            Severity.CRITICAL if bits & EventReasons.HW_THERMAL else Severity.WARNING,
            evidence,
            "Look at airflow, fans and inlet temperature; a lower power limit helps meanwhile",
            uuid,
        )
    yield from _capped(gpu, bits, limits)


def _capped(gpu: GpuStatus, bits: EventReasons, limits: Thresholds) -> Iterable[Verdict]:
    readings = gpu.readings
    limit_w = readings.power_limit_enforced_w
    held_pct = gpu.held_pct.get("power_cap", 0.0)
    share = power_share(gpu)
    capped_now = bool(bits & EventReasons.SW_POWER_CAP)
    at_cap = capped_now and share is not None and share >= limits.near_cap_share
    if held_pct < limits.capped_pct and not at_cap:
        return
    evidence = f"capped {held_pct:.0f} % of the last minute"
    evidence += f" at {limit_w:.0f} W" if limit_w else ""
    full_w = readings.power_limit_default_w or readings.power_limit_max_w
    if limit_w and full_w and limit_w < full_w - 1:
        yield Verdict(
            "CAPPED",
            Severity.WARNING,
            f"{evidence}, set below the {full_w:.0f} W it was shipped with",
            f"If that is not on purpose, raise the limit to {full_w:.0f} W (nvidia-smi -pl)",
            gpu.uuid,
        )
    elif capped_now and share is not None and share < limits.far_below_cap_share:
        yield Verdict(
            "CAPPED",
            Severity.WARNING,
            f"{evidence}, yet it draws {_watts(gpu)}",
            "Held by a cap that is not the board's own: look for a module, chassis or power "
            "smoothing limit (nvidia-smi -q -d POWER,PERFORMANCE)",
            gpu.uuid,
        )
    else:
        advice = "Works as hard as its limit allows: normal for compute-bound work"
        yield Verdict("CAPPED", Severity.INFO, evidence, advice, gpu.uuid)


def _memory_faults(gpu: GpuStatus) -> Iterable[Verdict]:
    readings, uuid = gpu.readings, gpu.uuid
    if readings.remapped_rows_failed:
        advice = "The memory has no spare rows left: have the GPU replaced"
        yield Verdict("ROWS-FAILED", Severity.CRITICAL, "row remapping failed", advice, uuid)
    if readings.remapped_rows_pending:
        advice = "Reset the GPU or reboot when it is drained; no reason to replace it by itself"
        yield Verdict(
            "ROWS-PENDING", Severity.WARNING, "a row remapping waits for a reset", advice, uuid
        )
    if readings.ecc_uncorrected_count:
        count = readings.ecc_uncorrected_count
        yield Verdict(
            "ECC",
            Severity.WARNING,
            f"{count} uncorrected ECC error{'s' if count > 1 else ''} since the driver loaded",
            "Look for Xid 48, 94 and 95 in the kernel log: what ran then may have died or be wrong",
            uuid,
        )


def _link(gpu: GpuStatus) -> Iterable[Verdict]:
    """A link below its maximum; looked at while busy only, since idle ones slow down on purpose."""
    readings = gpu.readings
    now = (readings.pcie_generation, readings.pcie_width)
    most = (readings.pcie_generation_max, readings.pcie_width_max)
    slower = now[0] is not None and most[0] is not None and now[0] < most[0]
    narrower = now[1] is not None and most[1] is not None and now[1] < most[1]
    if slower or narrower:
        yield Verdict(
            "DOWN-TRAINED",
            Severity.WARNING,
            f"PCIe {_link_text(*now)} while busy, {_link_text(*most)} at most",
            "Reseat the card, look at riser and slot wiring, and at AER lines in the kernel log",
            gpu.uuid,
        )


def _link_text(generation: int | None, width: int | None) -> str:
    return " ".join(
        part
        for part in (
            "" if generation is None else f"gen {generation}",
            "" if width is None else f"x{width}",
        )
        if part
    )


def _ghost(gpu: GpuStatus, limits: Thresholds) -> Iterable[Verdict]:
    used = gpu.readings.memory_used_bytes
    if used is None or used < limits.ghost_bytes:
        return
    doing = f", {_watts(gpu)}" if gpu.readings.power_w is not None else ""
    yield Verdict(
        "GHOST",
        Severity.INFO,
        f"{used / 2**30:.1f} GiB held{doing}, and no process is visible here",
        "In a guest or container its owner may run outside: look there. Else something died and "
        "left it: fuser -v /dev/nvidia* finds who still has it open",
        gpu.uuid,
    )


def _xids(snapshot: HostSnapshot, limits: Thresholds) -> Iterable[Verdict]:
    now = snapshot.sampled_at
    if now is None:
        return
    recent = now - timedelta(seconds=limits.xid_recent_s)
    by_bus = {_slot(gpu.bus_id): gpu.uuid for gpu in snapshot.gpus}
    newest: dict[tuple[str | None, int], str] = {}
    for event in snapshot.kernel_events:
        if event.kind == "xid" and event.xid is not None and event.at >= recent:
            uuid = by_bus.get(_slot(event.bus_id or ""))
            newest[uuid, event.xid] = _XID_PREFIX.sub("", event.text)
    for (uuid, xid), text in newest.items():
        severity = Severity.CRITICAL if xid in FATAL_XIDS else Severity.WARNING
        advice = f"See Xid {xid} in NVIDIA's Xid catalogue, and what ran on the GPU at that moment"
        yield Verdict("XID", severity, f"Xid {xid}: {text}", advice, uuid)


def _slot(bus_id: str) -> str:
    """Bus and device of a PCI address in any of its spellings: `10:1c`."""
    parts = bus_id.lower().split(".")[0].split(":")
    return ":".join(parts[-2:]) if len(parts) >= 2 else bus_id.lower()
