# ruff: noqa: E501 - lines of logs
"""What earlier starts teach: when silence is a stall, how much time is left."""

from __future__ import annotations

import pytest

from backends.servers.engines import Phase
from backends.servers.progress import Progress, parse_progress
from backends.servers.timing import (
    MIN_QUIET_S,
    UNKNOWN_QUIET_S,
    History,
    StepClock,
    phase_durations,
    quiet_limit_s,
    time_left_s,
)

HISTORY: History = {
    Phase.LOADING: [100.0, 120.0, 300.0],
    Phase.CAPTURING: [40.0, 50.0],
    Phase.WARMING: [5.0],
}


def test_silence_is_measured_by_earlier_starts() -> None:
    assert quiet_limit_s(HISTORY, Phase.LOADING) == 360.0
    assert quiet_limit_s(HISTORY, Phase.WARMING) == MIN_QUIET_S
    assert quiet_limit_s(HISTORY, Phase.COMPILING) == UNKNOWN_QUIET_S


def test_time_left_is_the_rest_of_this_phase_and_the_phases_after() -> None:
    assert time_left_s(HISTORY, Phase.LOADING, 20.0) == pytest.approx(100 + 45 + 5)
    assert time_left_s(HISTORY, Phase.LOADING, 140.0) == pytest.approx(50)
    assert time_left_s(HISTORY, Phase.LOADING, 500.0) is None, "it has outlasted all that is known"
    assert time_left_s(HISTORY, Phase.CAPTURING, 0.0) == pytest.approx(50)
    assert time_left_s({}, Phase.LOADING, 0.0) is None


def test_a_bar_with_known_steps_is_better_than_the_median() -> None:
    bar = Progress("shards", 60, 80)
    left = time_left_s(HISTORY, Phase.LOADING, 20.0, progress=bar, step_s=2.0)
    assert left == pytest.approx(40 + 45 + 5)
    assert time_left_s(HISTORY, Phase.LOADING, 20.0, progress=bar) == pytest.approx(150)


def test_a_start_is_kept_as_the_time_of_each_phase() -> None:
    entries = [
        (Phase.LAUNCHING, 0.0),
        (Phase.LOADING, 5.0),
        (Phase.CAPTURING, 105.0),
        (Phase.LOADING, 125.0),
        (Phase.READY, 130.0),
    ]
    assert phase_durations(entries, 130.0) == {
        Phase.LAUNCHING: 5.0,
        Phase.LOADING: 105.0,
        Phase.CAPTURING: 20.0,
    }
    assert phase_durations([], 1.0) == {}


def test_steps_are_timed_by_their_median_after_three() -> None:
    clock = StepClock()
    for done, at_s in ((0, 0.0), (1, 100.0), (2, 102.0)):
        clock.note(Progress("x", done, 10), at_s)
    assert clock.step_s is None
    clock.note(Progress("another label", 3, 10), 104.0)
    clock.note(Progress("x", 5, 10), 108.0)
    assert clock.step_s == pytest.approx(2.0)
    clock.note(Progress("x", 5, 10), 200.0)
    assert clock.step_s == pytest.approx(2.0)
    clock.note(Progress("draft", 0, 4), 201.0)
    assert clock.step_s is None


@pytest.mark.parametrize(
    ("text", "label", "done", "total", "rest"),
    [
        ("Loading safetensors checkpoint shards:  37% Completed | 60/163 [00:18<00:33, 3.11it/s]",
         "Loading safetensors checkpoint shards", 60, 163, ""),
        ("Capturing batches (bs=120 avail_mem=15.44 GB):   8%|8     | 1/12 [00:03<00:39,  3.59s/it]",
         "Capturing batches (bs=120 avail_mem=15.44 GB)", 1, 12, ""),
        ("  0%|          | 0/58 [00:00<?, ?it/s]", "", 0, 58, ""),
        ("model.safetensors:  12%|1 | 612M/4.97G [00:10<01:05, 66.3MB/s]", "model.safetensors",
         612e6, 4.97e9, ""),
        ("Load:  50%|##| 1/2 [00:01<00:01, 1.0s/it][2026-01-01] more", "Load", 1, 2,
         "[2026-01-01] more"),
        ("Fetching 12 files: 100%|#| 12/12 [1:02:03<00:00, 1.0s/it]", "Fetching 12 files", 12, 12, ""),
        (".....", "model", 5, 100, ""),
        ("......:0:rocdevice.cpp", "model", 6, 100, ":0:rocdevice.cpp"),
    ],
)  # fmt: skip
def test_forms_of_progress(text: str, label: str, done: float, total: float, rest: str) -> None:
    found = parse_progress(text)
    assert found is not None
    progress, glued = found
    assert (progress.label, progress.done, progress.total, glued) == (label, done, total, rest)


@pytest.mark.parametrize(
    "text", ["", "100% sure", "50 %|x", "...", "[00:01<00:02]", "it [is] so", "1/2", "% [it/s]"]
)
def test_what_is_no_progress(text: str) -> None:
    assert parse_progress(text) is None


def test_an_hour_on_the_clock() -> None:
    found = parse_progress("x: 100%|#| 12/12 [1:02:03<00:00, 1.0s/it]")
    assert found is not None
    assert found[0].elapsed_s == 3723
