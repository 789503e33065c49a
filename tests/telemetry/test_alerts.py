"""Verdicts over time, and the notices that come of it."""

from __future__ import annotations

from dataclasses import replace

from backends.alerts import HOLD_IN_S, HOLD_ON_S, Steady, alerts
from backends.model import (
    Alert,
    DriverState,
    DriverStatus,
    GpuState,
    HostSnapshot,
    Severity,
    Verdict,
)
from tests.telemetry.test_verdicts import gpu, host
from tests.telemetry.wire import START

HOT = Verdict("HOT", Severity.WARNING, "hot", "", "GPU-0")
LAG = Verdict("STRAGGLER", Severity.WARNING, "slow", "", "GPU-0")
BUSY = Verdict("BUSY", Severity.INFO, "100 %", "", "GPU-0")
STALE = Verdict("STALE", Severity.CRITICAL, "old")


def told(old: HostSnapshot | None, new: HostSnapshot) -> list[tuple[str, bool]]:
    return [(alert.title, alert.ended) for alert in alerts(old, new, START)]


def given(*verdicts: Verdict, state: GpuState = GpuState.OK) -> HostSnapshot:
    return host(gpu(0, state=state), verdicts=verdicts)


def test_what_needs_time_is_held_back_and_one_odd_sample_is_nothing() -> None:
    steady = Steady()
    wait_s = HOLD_IN_S["STRAGGLER"]
    assert steady.update([LAG], 0.0) == ()
    assert steady.update([], 1.0) == ()
    assert steady.update([LAG], 2.0) == ()
    assert steady.update([LAG], wait_s + 1.0) == (), "counted from when it came again"
    assert steady.update([LAG], wait_s + 2.0) == (LAG,)


def test_a_warning_that_flickers_stays_one_warning() -> None:
    steady = Steady()
    for second in range(20):
        assert steady.update([HOT] if second % 4 == 0 else [], float(second)) == (HOT,)
    assert steady.update([], 16.0 + HOLD_ON_S + 0.1) == ()


def test_what_it_does_follows_at_once_with_new_evidence() -> None:
    steady = Steady()
    steady.update([BUSY], 0.0)
    newer = replace(BUSY, evidence="99 %")
    assert steady.update([newer], 1.0) == (newer,)
    assert steady.update([], 2.0) == ()


def test_while_stale_the_last_verdicts_of_the_gpus_stay() -> None:
    steady = Steady()
    steady.update([HOT, BUSY], 0.0)
    assert steady.update([STALE], 60.0, stale=True) == (STALE, HOT, BUSY)
    assert steady.update([BUSY], 61.0) == (STALE, BUSY)


def test_a_warning_is_told_once_when_it_comes_and_once_when_it_goes() -> None:
    assert told(None, given(HOT, BUSY)) == [("GPU 0 HOT", False)]
    assert told(given(HOT, BUSY), given(replace(HOT, evidence="hotter"), BUSY)) == []
    assert told(given(HOT, BUSY), given(BUSY)) == [("GPU 0 HOT", True)]
    worse = replace(HOT, severity=Severity.CRITICAL)
    assert told(given(HOT), given(worse)) == [("GPU 0 HOT", False)]
    assert told(given(worse), given(HOT)) == []


def test_nothing_ends_because_nothing_answers() -> None:
    lost = Verdict("LOST", Severity.CRITICAL, "gone", "", "GPU-0")
    assert told(given(HOT), given(lost, state=GpuState.LOST)) == [("GPU 0 LOST", False)]
    missing = replace(given(), driver=DriverStatus(DriverState.MISSING))
    assert told(given(HOT), missing) == []
    assert told(given(lost, state=GpuState.LOST), given()) == [("GPU 0 LOST", True)]


def test_a_stuck_driver_is_told_once_and_not_for_each_gpu() -> None:
    stuck = Verdict("STUCK", Severity.CRITICAL, "call", "", "GPU-0")
    driver = Verdict("DRIVER-STUCK", Severity.CRITICAL, "call")
    new = replace(
        given(driver, stuck, state=GpuState.STUCK), driver=DriverStatus(DriverState.STUCK)
    )
    found = alerts(None, new, START)
    assert [alert.title for alert in found] == ["DRIVER-STUCK"]
    assert found[0] == Alert(START, "gpu01", Severity.CRITICAL, "DRIVER-STUCK", "call")
