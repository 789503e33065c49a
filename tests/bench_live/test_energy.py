"""Joules of a window: by the driver's counter where it can be, else by power over time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from backends.bench.gpuwindow import GpuSampler, energy_source, joules_per_token
from backends.bench.results import EnergySource, GpuWindow
from backends.model import GpuReadings, GpuStatus, HostSnapshot, LinkState, LinkStatus

Row = tuple[float, float | None, float | None]
"""Time in seconds, power in watts, the counter in joules."""


def watched(*gpus: Sequence[Row], end_s: float = 10.0) -> tuple[GpuWindow, ...]:
    """What a window of 0 to `end_s` says; rows of all GPUs have the same times."""
    snapshots = [
        HostSnapshot(
            "gpu01",
            number,
            LinkStatus(LinkState.LIVE, 0.0),
            0.25,
            sampled_s=rows[0][0],
            gpus=tuple(
                GpuStatus(
                    uuid=f"GPU-{index}",
                    index=index,
                    name="X",
                    bus_id="0000:01:00.0",
                    readings=GpuReadings(power_w=power_w, energy_j=energy_j),
                )
                for index, (_, power_w, energy_j) in enumerate(rows)
            ),
        )
        for number, rows in enumerate(zip(*gpus, strict=True))
    ]
    now = iter(snapshots)
    sampler = GpuSampler(lambda: next(now), lambda: 0.0)
    for _ in snapshots:
        sampler.look()
    return sampler.between(0.0, end_s)


def test_the_counter_sees_what_the_power_samples_miss() -> None:
    # Samples fall between bursts: 100 W each time, 3,000 J in truth.
    (gpu,) = watched([(0.0, 100.0, 5e6), (5.0, 100.0, 5e6 + 1500), (10.0, 100.0, 5e6 + 3000)])
    assert (gpu.energy_source, gpu.energy_j) == (EnergySource.COUNTER, pytest.approx(3000))
    assert joules_per_token([gpu], 1000) == pytest.approx(3.0)


def test_what_lies_outside_the_counters_readings_is_power_by_time() -> None:
    (gpu,) = watched([(1.0, 100.0, 0.0), (9.0, 100.0, 2400.0)])
    assert gpu.energy_j == pytest.approx(2400 + 2 * 100)
    assert gpu.energy_source is EnergySource.COUNTER


@pytest.mark.parametrize(
    "counter",
    [
        pytest.param((None, None, None), id="absent"),
        pytest.param((7.0, 7.0, 7.0), id="read once"),
        pytest.param((900.0, 20.0, 40.0), id="set back"),
        pytest.param((None, 10.0, None), id="too seldom"),
    ],
)
def test_a_counter_that_cannot_carry_it_leaves_power_by_time(
    counter: tuple[float | None, ...],
) -> None:
    rows = [(at_s, 200.0, joules) for at_s, joules in zip((0.0, 5.0, 10.0), counter, strict=True)]
    (gpu,) = watched(rows)
    assert (gpu.energy_source, gpu.energy_j) == (EnergySource.POWER, pytest.approx(2000))


def test_without_both_there_is_no_energy() -> None:
    (gpu,) = watched([(0.0, None, None), (10.0, None, None)])
    assert (gpu.energy_source, gpu.energy_j) == (None, None)
    assert joules_per_token([gpu], 10) is None


def test_one_gpu_without_a_counter_makes_the_sum_power() -> None:
    both = watched(
        [(0.0, 100.0, 0.0), (10.0, 100.0, 1000.0)], [(0.0, 100.0, None), (10.0, 100.0, None)]
    )
    assert energy_source(both) is EnergySource.POWER
    assert energy_source(both[:1]) is EnergySource.COUNTER
