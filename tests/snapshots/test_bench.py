"""The benchmark's screens: choose, live, over; runs of the past, a result, a comparison."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from backends.bench.desk import BenchDesk, Live, Point
from backends.bench.plan import Plan
from backends.bench.run_events import Progress, RequestEnded, StepEnded
from tests.bench_screens.made_up import fill, saturating
from tests.snapshots.test_screens import pressing
from tests.ui.fakes import make_app, make_clock, make_hub
from tui.app import RoomApp

SIZES = [(80, 24), (200, 60)]
each_size = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
Compare = Callable[..., bool]


def desk_with(state: str) -> BenchDesk:
    """A run of gpu01 in its fourth step, or after its end."""
    chance = random.Random(1)
    desk = BenchDesk("test", clock=make_clock())
    live = Live("gpu01", "http://127.0.0.1:30000", Plan(name="sweep"), state)
    desk._lives["gpu01"] = live
    for second in range(0, 240):
        wave = 1 + 0.06 * math.sin(second / 9)
        live.curve.append(
            Point(9_940.0 + second / 4, 1_780 * wave, 3_560 * wave, 0.18 / wave, 64)
        )  # fmt: skip
    measured = saturating(1)
    for step in measured.steps[: len(measured.steps) if state == "over" else 3]:
        desk._take(live, StepEnded(step))
    live.possible = measured.possible
    live.progress = Progress(
        step=3, of=10, label="64 streams", phase="measure", at_s=61.0, in_flight=64, sent=900,
        succeeded=836, failed=0, output_tokens=90_000, input_tokens=90_000,
        output_tokens_per_s=1_782.0, total_tokens_per_s=3_564.0, requests_per_s=17.8, ttft_s=0.18,
        e2e_s=3.7, limited=(),
    )  # fmt: skip
    for _ in range(800):
        desk._take(
            live,
            RequestEnded(
                3, chance.gauss(0.179, 0.01), chance.gauss(0.0359, 0.001),
                3.73 * chance.lognormvariate(0, 0.06),
            ),
        )  # fmt: skip
    if state == "over":
        live.run_id = measured.run_id
    return desk


def with_desk(app: RoomApp, state: str) -> RoomApp:
    app.shell.bench = desk_with(state)
    return app


@each_size
@pytest.mark.parametrize("state", ["choose", "running", "over"])
def test_bench(snap_compare: Compare, state: str, size: tuple[int, int]) -> None:
    """Choose a plan, watch it, read its steps."""
    app = make_app(make_hub())
    if state != "choose":
        with_desk(app, state)
    assert snap_compare(app, terminal_size=size, run_before=pressing("b"))


PAST: dict[str, tuple[str, ...]] = {
    "history": ("h", "j", "space", "j", "space"),
    "result": ("h", "j", "enter"),
    "maximum": ("h", "j", "enter", "m"),
    "conditions": ("h", "enter", "i"),
    "compare": ("h", "G", "space", "k", "space", "k", "k", "space", "C", "j"),
}


@each_size
@pytest.mark.parametrize("screen", PAST)
def test_runs(snap_compare: Compare, screen: str, size: tuple[int, int]) -> None:
    """Runs of the past."""
    fill()
    app = make_app(make_hub())
    assert snap_compare(app, terminal_size=size, run_before=pressing(*PAST[screen]))


@pytest.mark.parametrize("keys", [("b",), ("h", "j", "enter")], ids=["live", "result"])
def test_ascii_without_colour(snap_compare: Compare, keys: tuple[str, ...]) -> None:
    """The least that a terminal can do."""
    fill()
    app = with_desk(make_app(make_hub(), theme="mono", ascii_set=True), "running")
    assert snap_compare(app, terminal_size=(100, 30), run_before=pressing(*keys))
