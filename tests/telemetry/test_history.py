"""Histories: right means, gaps that stay gaps, and bounded memory."""

from __future__ import annotations

import pytest

from backends.telemetry.history import GPU_KEYS, TOTAL, History, Window


def filled(seconds: int, start: float = 1000.0) -> History:
    history = History()
    for second in range(seconds):
        history.record("GPU-0", start + second, {"power_w": float(second)})
    return history


def test_a_minute_sample_by_sample() -> None:
    history = filled(60)
    assert history.series("GPU-0", "power_w", Window.MINUTE, 60, 1059.0) == pytest.approx(range(60))


def test_more_points_than_samples_leave_no_holes() -> None:
    points = filled(60).series("GPU-0", "power_w", Window.MINUTE, 200, 1059.0)
    assert None not in points


def test_fewer_points_than_samples_give_means_and_extremes() -> None:
    spans = filled(60).spans("GPU-0", "power_w", Window.MINUTE, 6, 1059.0)
    assert [span and span.mean for span in spans] == pytest.approx([4.5 + 10 * n for n in range(6)])
    assert spans[1] is not None
    assert (spans[1].low, spans[1].high) == (10.0, 19.0)


@pytest.mark.parametrize("window", list(Window))
def test_a_gap_stays_a_gap(window: Window) -> None:
    history = History()
    step_s = window.seconds / 100
    for n in range(100):
        if not 40 <= n < 60:
            history.record("GPU-0", 5000 + (n + 1) * step_s, {"power_w": 300.0}, step_s)
    points = history.series("GPU-0", "power_w", window, 10, 5000 + window.seconds)
    assert points[4] is None or points[5] is None
    assert points[4] in (None, pytest.approx(300.0))
    assert points[0] == points[-1] == pytest.approx(300.0)


def test_absent_is_a_gap_and_not_zero() -> None:
    history = History()
    for second in range(60):
        history.record("GPU-0", 100.0 + second, {"power_w": None, "temperature_gpu_c": 40})
    for window in Window:
        assert set(history.series("GPU-0", "power_w", window, 30, 160.0)) == {None}
        assert 40.0 in history.series("GPU-0", "temperature_gpu_c", window, 30, 160.0)


def test_silence_moves_out_of_the_window() -> None:
    history = filled(60)
    points = history.series("GPU-0", "power_w", Window.MINUTE, 60, 1059.0 + 30)
    assert points[-30:] == [None] * 30
    assert points[0] == pytest.approx(30.0)
    assert set(history.series("GPU-0", "power_w", Window.MINUTE, 60, 9999.0)) == {None}


def test_the_hour_keeps_minimum_mean_maximum() -> None:
    history = History()
    for second in range(3600):
        history.record(
            "GPU-0", 36_000.0 + second, {"power_w": 600.0 if second % 10 == 0 else 100.0}
        )
    spans = history.spans("GPU-0", "power_w", Window.HOUR, 60, 39_600.0)
    assert all(span is not None for span in spans)
    for span in spans[1:]:
        assert span is not None
        assert (span.low, span.high) == (100.0, 600.0)
        assert span.mean == pytest.approx(150.0, abs=25)


def test_a_ring_that_went_round_holds_the_newest() -> None:
    history = filled(5000)
    now = 1000.0 + 4999
    assert history.series("GPU-0", "power_w", Window.MINUTE, 1, now)[0] == pytest.approx(
        4969.5, abs=1
    )
    hour = history.series("GPU-0", "power_w", Window.HOUR, 10, now)
    assert None not in hour
    assert hour[-1] == pytest.approx(4819, abs=10)


def test_late_samples_are_dropped() -> None:
    history = filled(10)
    history.record("GPU-0", 1003.0, {"power_w": 9999.0})
    for window in Window:
        for span in history.spans("GPU-0", "power_w", window, 7, 1010.0):
            assert span is None or span.high <= 9.0


def test_unknown_gpu_or_key_is_all_gaps() -> None:
    history = filled(10)
    assert history.series("GPU-9", "power_w", Window.MINUTE, 3, 1010.0) == [None] * 3
    assert history.series("GPU-0", "nonsense", Window.MINUTE, 3, 1010.0) == [None] * 3


def test_the_number_of_series_is_bounded() -> None:
    history = History()
    for n in range(400):
        history.record(f"GPU-{n}", float(n), dict.fromkeys(GPU_KEYS, 1.0))
    history.record(TOTAL, 500.0, {"power_w": 1.0})
    assert len(history.uuids()) <= 256
    assert "GPU-399" in history.uuids()
