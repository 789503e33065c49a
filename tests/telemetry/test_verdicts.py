"""What readings mean together: each verdict when it is due, and not when it is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from backends.model import (
    DriverState,
    DriverStatus,
    EventReasons,
    GpuProcess,
    GpuReadings,
    GpuState,
    GpuStatus,
    HostSnapshot,
    KernelEvent,
    Severity,
    Verdict,
)
from backends.verdicts import judge
from tests.telemetry.wire import LIVE, START

IDLE = GpuReadings(
    power_w=39.0,
    power_average_w=39.0,
    power_limit_enforced_w=600.0,
    power_limit_default_w=600.0,
    power_limit_max_w=600.0,
    utilization_gpu_pct=0.0,
    utilization_memory_pct=0.0,
    memory_used_bytes=0,
    temperature_gpu_c=30.0,
    sm_clock_mhz=180,
    sm_clock_max_mhz=2430,
    event_reasons=int(EventReasons.IDLE),
    pcie_generation=1,
    pcie_width=16,
    pcie_generation_max=5,
    pcie_width_max=16,
)
BUSY = replace(
    IDLE,
    power_w=450.0,
    power_average_w=450.0,
    utilization_gpu_pct=100.0,
    utilization_memory_pct=55.0,
    memory_used_bytes=80 * 2**30,
    sm_clock_mhz=2370,
    event_reasons=0,
    pcie_generation=5,
)


def gpu(index: int = 0, readings: GpuReadings = BUSY, **changes: Any) -> GpuStatus:
    values = {"held_pct": {}} | changes
    bus_id = f"0000:{index + 6:02x}:00.0"
    return GpuStatus(f"GPU-{index}", index, "Card", bus_id, readings=readings, **values)


def host(*gpus: GpuStatus, **changes: Any) -> HostSnapshot:
    holders = {g.uuid: 2**36 for g in gpus if (g.readings.memory_used_bytes or 0) > 2**30}
    process = GpuProcess(7, 1, "llm", "serve", holders, model="a-model")
    values = {
        "link": LIVE,
        "driver": DriverStatus(DriverState.OK),
        "processes": (process,) if holders else (),
        "processes_listed": True,
        "sampled_s": 100.0,
        "sampled_at": START,
    } | changes
    return HostSnapshot("gpu01", 1, interval_s=1.0, gpus=gpus, **values)


def verdicts(snapshot: HostSnapshot, word: str, now_s: float = 100.0) -> list[Verdict]:
    return [verdict for verdict in judge(snapshot, now_s) if verdict.word == word]


def words(snapshot: HostSnapshot, now_s: float = 100.0) -> set[str]:
    return {verdict.word for verdict in judge(snapshot, now_s)}


def test_busy_and_idle_are_all_there_is_to_say_of_healthy_cards() -> None:
    assert words(host(*(gpu(i) for i in range(8)))) == {"BUSY"}
    assert words(host(*(gpu(i, IDLE) for i in range(8)))) == {"IDLE"}


def test_an_open_context_is_idle_with_its_clocks_up() -> None:
    readings = replace(IDLE, power_w=86.0, sm_clock_mhz=2430)
    (verdict,) = verdicts(host(gpu(0, readings)), "IDLE")
    assert "context is open" in verdict.evidence


def test_full_utilisation_at_little_power_with_busy_memory_is_said_to_be_normal() -> None:
    readings = replace(BUSY, power_w=180.0)
    (verdict,) = verdicts(host(gpu(0, readings)), "BUSY")
    assert verdict.severity is Severity.INFO
    assert "normal while decoding" in verdict.advice


def test_full_utilisation_at_little_power_with_idle_memory_is_spinning() -> None:
    readings = replace(BUSY, power_w=121.0, utilization_memory_pct=0.0)
    snapshot = host(gpu(0, readings))
    assert words(snapshot) == {"SPINNING", "BUSY"}, "a word from the first sample on"
    (verdict,) = verdicts(snapshot, "SPINNING")
    assert verdict.severity is Severity.INFO
    assert "121 W of 600 W" in verdict.evidence


def test_at_its_own_limit_is_capped_and_no_fault() -> None:
    readings = replace(BUSY, power_w=598.0, event_reasons=int(EventReasons.SW_POWER_CAP))
    (verdict,) = verdicts(host(gpu(0, readings, held_pct={"power_cap": 37.4})), "CAPPED")
    assert verdict.severity is Severity.INFO
    assert verdict.evidence == "capped 37 % of the last minute at 600 W"


def test_a_limit_below_what_was_shipped_is_a_warning() -> None:
    readings = replace(BUSY, power_w=449.0, power_limit_enforced_w=450.0)
    (verdict,) = verdicts(host(gpu(0, readings, held_pct={"power_cap": 88.0})), "CAPPED")
    assert verdict.severity is Severity.WARNING
    assert "450 W, set below the 600 W" in verdict.evidence


def test_a_low_limit_that_never_held_anything_is_not_capped() -> None:
    readings = replace(IDLE, power_limit_enforced_w=450.0)
    assert words(host(gpu(0, readings, held_pct={"power_cap": 0.0}))) == {"IDLE"}


def test_held_by_a_cap_far_below_the_limit_is_a_warning() -> None:
    readings = replace(BUSY, power_w=200.0, event_reasons=int(EventReasons.SW_POWER_CAP))
    (verdict,) = verdicts(host(gpu(0, readings, held_pct={"power_cap": 95.0})), "CAPPED")
    assert verdict.severity is Severity.WARNING
    assert "yet it draws 200 W" in verdict.evidence


@pytest.mark.parametrize(
    ("bits", "held", "word", "severity"),
    [
        (EventReasons.SW_THERMAL, {}, "HOT", Severity.WARNING),
        (EventReasons(0), {"thermal": 12.0}, "HOT", Severity.WARNING),
        (EventReasons.HW_THERMAL | EventReasons.HW_SLOWDOWN, {}, "HOT", Severity.CRITICAL),
        (EventReasons.HW_POWER_BRAKE, {}, "BRAKED", Severity.CRITICAL),
        (EventReasons(0), {"power_brake": 0.5}, "BRAKED", Severity.CRITICAL),
    ],
)
def test_heat_and_brake(
    bits: EventReasons, held: dict[str, float], word: str, severity: Severity
) -> None:
    snapshot = host(gpu(0, replace(BUSY, event_reasons=int(bits)), held_pct=held))
    (verdict,) = verdicts(snapshot, word)
    assert verdict.severity is severity


def test_a_narrow_link_counts_only_while_busy() -> None:
    narrow = replace(BUSY, pcie_width=4)
    (verdict,) = verdicts(host(gpu(0, narrow)), "DOWN-TRAINED")
    assert verdict.evidence == "PCIe gen 5 x4 while busy, gen 5 x16 at most"
    assert words(host(gpu(0, replace(IDLE, pcie_generation=1)))) == {"IDLE"}
    unknown = replace(BUSY, pcie_generation=None, pcie_width=None)
    assert words(host(gpu(0, unknown))) == {"BUSY"}


def test_the_slow_card_of_a_group_is_found_with_its_cause() -> None:
    cards = [gpu(i, replace(BUSY, sm_clock_mhz=2370 + 15 * (i % 2))) for i in range(8)]
    assert words(host(*cards)) == {"BUSY"}
    hot = replace(BUSY, sm_clock_mhz=1830, event_reasons=int(EventReasons.SW_THERMAL))
    cards[5] = gpu(5, hot)
    (verdict,) = verdicts(host(*cards), "STRAGGLER")
    assert verdict.gpu_uuid == "GPU-5"
    assert "1,830 MHz" in verdict.evidence
    assert "hot" in verdict.advice


def test_the_card_that_works_while_the_others_wait_is_found_by_power() -> None:
    cards = [gpu(i, replace(BUSY, power_average_w=300.0 + i)) for i in range(8)]
    cards[2] = gpu(2, replace(BUSY, power_average_w=480.0, pcie_width=8, pcie_width_max=8))
    (verdict,) = verdicts(host(*cards), "STRAGGLER")
    assert verdict.gpu_uuid == "GPU-2"
    assert "works while they wait" in verdict.evidence
    assert "x8" in verdict.advice


@pytest.mark.parametrize("others", ["idle", "other card", "other server", "two only"])
def test_what_does_not_belong_together_is_not_compared(others: str) -> None:
    slow = gpu(0, replace(BUSY, sm_clock_mhz=1200))
    rest = [gpu(i) for i in range(1, 8)]
    processes = None
    if others == "idle":
        rest = [gpu(i, replace(IDLE, sm_clock_mhz=2430)) for i in range(1, 8)]
    elif others == "other card":
        rest = [replace(g, name="Other card") for g in rest]
    elif others == "two only":
        rest = rest[:1]
    snapshot = host(slow, *rest)
    if others == "other server":
        processes = (
            GpuProcess(1, 1, "a", "serve", {"GPU-0": 2**36}, model="one"),
            GpuProcess(2, 1, "a", "serve", {g.uuid: 2**36 for g in rest}, model="two"),
        )
        snapshot = replace(snapshot, processes=processes)
    assert verdicts(snapshot, "STRAGGLER") == []


def test_memory_without_a_process_is_a_ghost() -> None:
    held = replace(IDLE, memory_used_bytes=5 * 2**30, power_w=122.0)
    (verdict,) = verdicts(host(gpu(0, held), processes=()), "GHOST")
    assert "5.0 GiB held, 122 W" in verdict.evidence
    small = replace(IDLE, memory_used_bytes=600 * 2**20)
    assert words(host(gpu(0, small), processes=())) == {"IDLE"}
    unknown = host(gpu(0, held), processes=(), processes_listed=False)
    assert verdicts(unknown, "GHOST") == [], "not yet said, or never: nvidia-smi can't say"


def test_with_mig_power_is_the_only_truth() -> None:
    busy = replace(BUSY, utilization_gpu_pct=None, utilization_memory_pct=None, mig_enabled=True)
    (verdict,) = verdicts(host(gpu(0, busy)), "MIG-BUSY")
    assert "450 W of 600 W" in verdict.evidence
    assert words(host(gpu(0, replace(busy, power_w=80.0)))) == {"MIG"}
    assert words(host(gpu(0, replace(busy, power_w=None)))) == {"MIG"}


def test_nothing_read_is_unknown_and_never_idle() -> None:
    assert words(host(gpu(0, GpuReadings()))) == {"UNKNOWN"}


@pytest.mark.parametrize(
    ("state", "word"),
    [(GpuState.LOST, "LOST"), (GpuState.STUCK, "STUCK"), (GpuState.ERROR, "ERROR")],
)
def test_a_gpu_that_does_not_answer_gets_that_verdict_alone(state: GpuState, word: str) -> None:
    snapshot = host(gpu(0, state=state, state_detail="why", held_pct={"thermal": 50.0}), gpu(1))
    assert [v.word for v in judge(snapshot, 100.0) if v.gpu_uuid == "GPU-0"] == [word]
    assert words(snapshot) == {word, "BUSY"}


@pytest.mark.parametrize("state", [s for s in DriverState if s is not DriverState.OK])
def test_every_driver_state_has_a_verdict_with_a_next_step(state: DriverState) -> None:
    snapshot = host(gpu(0), driver=DriverStatus(state, detail="in its words", since_s=40.0))
    first = judge(snapshot, 100.0)[0]
    assert first.gpu_uuid is None
    assert "in its words (for 60 s)" in first.evidence
    assert first.advice
    at_once = judge(snapshot, 40.0)[0]
    assert "in its words" in at_once.evidence
    assert "(for" not in at_once.evidence


def test_a_driver_without_gpus_is_said_once_it_has_been_looked_at() -> None:
    assert words(host()) == {"NO-GPU"}
    assert words(host(sampled_s=None)) == set()
    assert words(host(driver=None)) == set()


def test_an_old_sample_is_stale_with_its_age() -> None:
    snapshot = host(gpu(0))
    assert "STALE" not in words(snapshot, 102.9)
    (verdict,) = verdicts(snapshot, "STALE", 112.0)
    assert "12 s ago" in verdict.evidence
    assert "STALE" not in words(replace(snapshot, interval_s=10.0), 120.0)


@pytest.mark.parametrize(
    "spelling", ["0000:06:00", "00000000:06:00.0", "PCI:0000:06:00", "06:00.0"]
)
def test_a_recent_xid_lands_on_its_gpu(spelling: str) -> None:
    text = "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus."
    event = KernelEvent(START, "xid", text, spelling, 79)
    (verdict,) = verdicts(host(gpu(0), gpu(1), kernel_events=(event,)), "XID")
    assert (verdict.gpu_uuid, verdict.severity) == ("GPU-0", Severity.CRITICAL)
    assert verdict.evidence == "Xid 79: GPU has fallen off the bus."
    old = replace(event, at=START - timedelta(hours=1))
    assert verdicts(host(gpu(0), kernel_events=(old,)), "XID") == []


def test_row_remapping_and_ecc() -> None:
    pending = gpu(0, replace(BUSY, remapped_rows_pending=True))
    failed = gpu(1, replace(BUSY, remapped_rows_failed=True))
    ecc = gpu(2, replace(BUSY, ecc_uncorrected_count=2))
    found = {v.word: v.severity for v in judge(host(pending, failed, ecc), 100.0)}
    assert found["ROWS-PENDING"] is Severity.WARNING
    assert found["ROWS-FAILED"] is Severity.CRITICAL
    assert found["ECC"] is Severity.WARNING


def test_the_worst_comes_first() -> None:
    snapshot = host(gpu(0), gpu(1, state=GpuState.LOST), gpu(2, replace(BUSY, pcie_width=1)))
    severities = [verdict.severity for verdict in judge(snapshot, 100.0)]
    order = [Severity.CRITICAL, Severity.WARNING, Severity.INFO]
    assert severities == sorted(severities, key=order.index)
    assert severities[0] is Severity.CRITICAL
