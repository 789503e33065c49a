"""Counters: average power, shares of time, and what resets them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.telemetry.host_clock import HostClock
from backends.telemetry.rates import EnergyMeter, HeldShares, reason_names
from tests.telemetry.wire import Host


def test_average_power_is_energy_over_time() -> None:
    meter = EnergyMeter()
    assert meter.average_w() is None
    for second in range(0, 61, 5):
        meter.add(float(second), 1e6 + 450.0 * second)
    assert meter.average_w() == pytest.approx(450.0)


def test_average_power_is_of_the_last_minute() -> None:
    meter = EnergyMeter()
    energy_j = 0.0
    for second in range(0, 301, 5):
        meter.add(float(second), energy_j)
        energy_j += 5 * (100.0 if second < 240 else 500.0)
    assert meter.average_w() == pytest.approx(500.0)
    assert meter.average_w(10.0) == pytest.approx(500.0)


@pytest.mark.parametrize(
    ("at_s", "energy_j"),
    [(10.0, 5.0), (10.0, 1e12), (500.0, 51_000.0), (10.0, None)],
    ids=["driver reload", "jump", "long silence", "absent"],
)
def test_a_counter_that_jumps_gives_no_power(at_s: float, energy_j: float | None) -> None:
    meter = EnergyMeter()
    meter.add(0.0, 50_000.0)
    meter.add(5.0, 50_500.0)
    meter.add(at_s, energy_j)
    assert meter.average_w() is None
    if energy_j is not None:
        meter.add(at_s + 5.0, energy_j + 1000.0)
        assert meter.average_w() == pytest.approx(200.0)


def test_less_than_a_second_of_energy_is_noise() -> None:
    meter = EnergyMeter()
    meter.add(0.0, 100.0)
    meter.add(0.5, 200.0)
    assert meter.average_w() is None


def counters(**totals_us: int | None) -> dict[str, int | None]:
    return {f"time_{name}_us": value for name, value in totals_us.items()}


def test_shares_are_exact_from_counters() -> None:
    shares = HeldShares()
    for second in range(0, 61, 5):
        shares.add_counters(
            float(second), counters(power_cap=7_000_000 + second * 370_000, thermal=0)
        )
    assert shares.pct() == pytest.approx({"power_cap": 37.0, "thermal": 0.0})


def test_counters_win_over_sampled_bits() -> None:
    shares = HeldShares()
    for second in range(0, 31, 5):
        shares.add_bits(float(second), 0x4)
        shares.add_counters(float(second), counters(power_cap=second * 500_000))
    assert shares.pct()["power_cap"] == pytest.approx(50.0)


def test_without_counters_the_sampled_bits_give_the_share() -> None:
    shares = HeldShares()
    for second in range(61):
        shares.add_bits(float(second), 0x4 if second % 4 == 0 else 0x0)
        shares.add_counters(float(second), counters(power_cap=None))
    assert shares.pct()["power_cap"] == pytest.approx(25.0, abs=2)
    assert shares.pct()["power_brake"] == 0.0


def test_a_counter_that_never_moves_does_not_hide_what_samples_saw() -> None:
    shares = HeldShares()
    for second in range(61):
        shares.add_bits(float(second), 0x4 if second % 2 else 0x0)
        if second % 5 == 0:
            shares.add_counters(float(second), counters(power_cap=0, thermal=0))
    assert shares.pct()["power_cap"] == pytest.approx(50.0, abs=2)
    assert shares.pct()["thermal"] == 0.0


def test_what_was_never_read_has_no_share() -> None:
    shares = HeldShares()
    shares.add_bits(0.0, None)
    shares.add_bits(1.0, None)
    shares.add_counters(0.0, counters(power_cap=None))
    assert shares.pct() == {}


def test_sampled_shares_do_not_reach_over_a_gap() -> None:
    shares = HeldShares()
    for second in range(10):
        shares.add_bits(float(second), 0x0)
    shares.add_bits(10.0, None)
    for second in range(40, 50):
        shares.add_bits(float(second), 0x4)
    assert shares.pct()["power_cap"] == pytest.approx(50.0, abs=1)


@pytest.mark.parametrize("jump_us", [-12_000_000, 10**12], ids=["reload", "other unit"])
def test_a_counter_that_jumps_starts_anew(jump_us: int) -> None:
    shares = HeldShares()
    total_us = 10_000_000
    for second in range(0, 31, 5):
        shares.add_counters(float(second), counters(power_cap=total_us))
        total_us += 5_000_000
    total_us += jump_us
    shares.add_counters(35.0, counters(power_cap=total_us))
    assert "power_cap" not in shares.pct()
    shares.add_counters(40.0, counters(power_cap=total_us + 1_000_000))
    assert shares.pct()["power_cap"] == pytest.approx(20.0)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e6), st.none() | st.integers(0, 2**63), st.none() | st.integers(0, 2**62)
        ),
        max_size=40,
    )
)
def test_shares_stay_between_0_and_100_whatever_comes(steps: list[tuple[float, Any, Any]]) -> None:
    shares = HeldShares()
    for at_s, total_us, bits in steps:
        shares.add_counters(at_s, counters(power_cap=total_us, thermal=total_us))
        shares.add_bits(at_s, bits)
        assert all(0.0 <= share <= 100.0 for share in shares.pct().values())


def test_event_reasons_have_names() -> None:
    assert reason_names(0) == ()
    assert reason_names(0x4 | 0x40 | 0x80) == ("sw_power_cap", "hw_thermal", "hw_power_brake")
    assert reason_names(1 << 9) == ("bit_9",)


def test_within_two_samples_of_the_counter_the_share_is_there_to_two_points() -> None:
    host = Host(gpus=1)
    for second in range(11):
        host.fast({"power_w": 450.0, "power_limit_enforced_w": 450.0}, step_s=0.0)
        if second % 5 == 0:
            host.slow({"time_power_cap_us": 3_000_000 + second * 630_000})
        host.clock.advance(1.0)
    assert host.snapshot().gpus[0].held_pct["power_cap"] == pytest.approx(63.0, abs=2)


def test_the_offset_of_the_clocks_is_the_quickest_way_less_half_the_round_trip() -> None:
    clock = HostClock()
    assert clock.here_s(1) is None
    for second, way_s in enumerate((0.30, 0.05, 0.80, 0.06)):
        clock.observe(int((100 + second) * 1e9), 5000.0 + second + way_s)
    clock.observe_round_trip(0.10, 5004.0)
    assert clock.here_s(int(103e9)) == pytest.approx(5003.0)


def test_a_clock_that_drifts_is_followed() -> None:
    clock = HostClock()
    for second in range(3600):
        clock.observe(int(second * 1e9), 10.0 + second * (1 + 50e-6))
    assert clock.here_s(int(3599e9)) == pytest.approx(10.0 + 3599 * (1 + 50e-6), abs=0.01)


def test_a_step_back_of_the_host_s_clock_is_another_clock() -> None:
    clock = HostClock()
    clock.observe(int(9000e9), 100.0)
    clock.observe(int(5e9), 200.0)
    assert clock.here_s(int(5e9)) == pytest.approx(200.0)
