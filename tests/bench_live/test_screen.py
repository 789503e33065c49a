"""The benchmark's screen under keys."""

from __future__ import annotations

import asyncio

import pytest
from textual.events import Key

from backends.bench.desk import BenchDesk, Live
from backends.bench.plan import Plan
from backends.bench.results import StepResult, Summary, Throughput
from backends.bench.run_events import Progress, RequestEnded, StepEnded
from backends.telemetry.history import Window
from screens.bench import BenchScreen
from screens.bench_live import resampled
from tests.ui.fakes import drawn, make_app, make_clock, make_hub, ready, screen_text
from tui.widgets.big_digits import big, tall

SIZES = [(80, 24), (120, 40), (200, 60)]


def progress(**changes: object) -> Progress:
    fields: dict[str, object] = {
        "step": 1, "of": 3, "label": "16 streams", "phase": "measure", "at_s": 12.0,
        "in_flight": 16, "sent": 80, "succeeded": 64, "failed": 2, "output_tokens": 9000,
        "input_tokens": 40000, "output_tokens_per_s": 1234.0, "total_tokens_per_s": 5678.0,
        "requests_per_s": 8.0, "ttft_s": 0.2, "e2e_s": 1.5, "limited": (),
    }  # fmt: skip
    return Progress(**(fields | changes))  # type: ignore[arg-type]


def summary(value: float) -> Summary:
    return Summary(
        n=3, mean=value, stdev=0.0, min=value, p50=value, p90=value, p95=value, p99=value, max=value
    )


def step(label: str = "4 streams") -> StepResult:
    rates = Throughput(
        start_s=0.0, end_s=10.0, requests=20, input_tokens=4000, output_tokens=1000,
        requests_per_s=2.0, output_tokens_per_s=321.5, total_tokens_per_s=987.6,
    )  # fmt: skip
    return StepResult(
        index=0, repetition=0, label=label, load={}, start_s=0.0, end_s=10.0, succeeded=20,
        steady=rates, ttft_s=summary(0.111), tpot_s=summary(0.0222), e2e_s=summary(2.5),
        joules_per_output_token=1.75, bound="memory",
    )  # fmt: skip


def with_run(state: str = "running") -> tuple[BenchDesk, Live]:
    """A desk on which a run of gpu01 stands as if it were there."""
    desk = BenchDesk("test", clock=make_clock())
    live = Live("gpu01", "http://127.0.0.1:8000", Plan(name="sweep"))
    desk._lives["gpu01"] = live
    desk._take(live, progress(step=0, label="4 streams"))
    desk._take(live, StepEnded(step()))
    desk._take(live, progress())
    for number in range(40):
        desk._take(live, RequestEnded(1, 0.2, 0.025, 1.0 + number / 40))
    live.state = state
    return desk, live


@pytest.mark.parametrize("size", SIZES)
async def test_b_opens_plans_and_says_what_they_do(size: tuple[int, int]) -> None:
    app = make_app(make_hub())
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await pilot.press("b")
        await drawn(pilot)
        assert isinstance(app.screen, BenchScreen)
        text = screen_text(app)
        assert "smoke" in text
        assert "server 8000 on gpu01" in text
        assert "steps" in text
        await pilot.press(
            "e", "backspace", "backspace", "backspace", "backspace", "9", "1", "enter"
        )
        await drawn(pilot)
        assert "server 91 on gpu01" in screen_text(app)
        await pilot.press("s")  # A fake session cannot carry a load: said, not crashed.
        await drawn(pilot)
        assert app.screen.live is None


async def test_keys_of_one_packet_act_in_their_order() -> None:
    """As a link that stalls brings them: letters must not overtake the backspaces before them."""
    app = make_app(make_hub())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("b")
        await drawn(pilot)
        await pilot.press("e")
        await drawn(pilot)
        screen = app.screen
        assert isinstance(screen, BenchScreen)
        assert screen.box.value == "8000"
        keys = [("end", None), *[("backspace", "\x7f")] * 4, *((n, n) for n in "18955")]
        for key, character in (*keys, ("left", None), ("delete", None), ("enter", "\r")):
            app.post_message(Key(key, character))
        async with asyncio.timeout(20):
            while screen.box.has_class("-open"):
                await pilot.pause(0.02)
        assert screen.server == "1895"


@pytest.mark.parametrize("size", SIZES)
async def test_a_running_step_shows_output_and_total_and_its_latencies(
    size: tuple[int, int],
) -> None:
    app = make_app(make_hub(), ascii_set=True)
    app.shell.bench, _ = with_run()
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await pilot.press("b")
        await drawn(pilot)
        text = screen_text(app)
    for expected in (
        "output tokens/s", "input + output tokens/s", "step 2 of 3: 16 streams",
        "TTFT ms, median", "TPOT ms, median", "latency ms, median", "in flight", "failed",
        "GPU power",
        "4 streams", "322", "988", "111 ms", "22.2 ms", "1.75", "memory", "p50 1.50 s",
    ):  # fmt: skip
        assert expected in text, expected
    if size != (200, 60):
        for figure in ("1,234", "5,678", "200", "25.0", "1,500"):
            assert figure in text, figure
        return
    # Five lines high, of blocks: the same figures.
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if "input + output tokens/s" in line)
    for number, row in enumerate(tall("1,234", ascii_only=True)):
        assert lines[first - 5 + number].startswith(f"  {row.rstrip()}")


async def test_the_end_of_a_run_has_words_and_opens_its_result() -> None:
    from backends.bench.compare import compare
    from backends.bench.compare_steps import step_words
    from backends.storage.history import History
    from screens.result import ResultScreen
    from tests.bench_data.runs import run

    base, slower = run(1, streams=(64,)), run(2, streams=(64,), speed=0.9)
    with History.at_home() as history:
        history.save(base)
        history.save(slower)
        history.pin(base.run_id)
    app = make_app(make_hub())
    desk, live = with_run("over")
    live.steps = list(slower.steps)
    live.run_id = slower.run_id
    live.words = step_words(compare(base, slower))
    app.shell.bench = desk
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("b")
        await drawn(pilot)
        text = screen_text(app)
        assert "against the baseline" in text
        assert "slower -10." in text
        await pilot.press("r")
        await drawn(pilot)
        await drawn(pilot)
        assert isinstance(app.screen, ResultScreen)
        assert "SLOWER" in screen_text(app)


async def test_d_shows_the_spread_of_another_latency() -> None:
    app = make_app(make_hub())
    app.shell.bench, live = with_run()
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("b")
        await drawn(pilot)
        assert "latency p50 1.50 s" in screen_text(app)
        await pilot.press("d")
        await drawn(pilot)
        assert "time to first token p50 200 ms" in screen_text(app)
        await pilot.press("d", "d")
        await drawn(pilot)
        assert "latency p50 1.50 s" in screen_text(app)
        live.state = "over"


async def test_somebody_elses_load_is_said_before_anything_else() -> None:
    from backends.bench.results import Finding, Severity
    from backends.bench.run_events import Noticed

    app = make_app(make_hub())
    app.shell.bench, live = with_run()
    text = "17.9 % of the server's tokens were not ours"
    app.shell.bench._take(
        live, Noticed(Finding(key="foreign_load", severity=Severity.ERROR, text=text))
    )
    info = Finding(key="clock", severity=Severity.INFO, text="a small thing")
    app.shell.bench._take(live, Noticed(info))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("b")
        await drawn(pilot)
        assert text in screen_text(app)
        live.state = "over"


@pytest.mark.parametrize("draw", [big, tall])
def test_large_digits_of_one_figure_are_of_one_width_and_differ(draw: object) -> None:
    assert callable(draw)
    for text in ("1,234,567", "0.89", "–"):
        assert len({len(line) for line in draw(text)}) == 1
    assert len({draw(digit) for digit in "0123456789"}) == 10
    # What is no figure is written as it is.
    assert "n/a" in draw("n/a")


async def test_the_run_goes_on_when_the_screen_is_left_and_the_room_shows_it() -> None:
    app = make_app(make_hub())
    desk, live = with_run()
    app.shell.bench = desk
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("b", "escape")
        await drawn(pilot)
        assert not isinstance(app.screen, BenchScreen)
        assert "1,234 output" in screen_text(app)
        assert live.going
        desk._take(live, progress(output_tokens_per_s=4321.0))
        await drawn(pilot)
        assert "4,321 output" in screen_text(app)
        live.state = "over"


async def test_stopping_is_confirmed() -> None:
    app = make_app(make_hub())
    desk, live = with_run()
    app.shell.bench = desk
    stopped: list[str] = []
    desk.stop = stopped.append  # type: ignore[method-assign]
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("b", "x", "escape")
        assert stopped == []
        await pilot.press("x", "ctrl+y")
        await pilot.pause()
        assert stopped == ["gpu01"]
        live.state = "over"


async def test_what_failed_says_why_and_s_chooses_again() -> None:
    app = make_app(make_hub())
    desk, live = with_run("failed")
    live.error = "no answer from http://127.0.0.1:8000 on the host: refused"
    app.shell.bench = desk
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("b")
        await drawn(pilot)
        assert "refused" in screen_text(app)
        await pilot.press("s")
        await drawn(pilot)
        assert "server 8000" in screen_text(app)
        await pilot.press("escape")
        await drawn(pilot)
        assert "refused" in screen_text(app)


def test_samples_fall_into_their_spans_and_gaps_stay_gaps() -> None:
    samples = [(0.0, 9.0), (41.0, 1.0), (42.0, 3.0), (99.0, 5.0)]
    values = resampled(reversed(samples), Window.MINUTE, 6, 100.0)
    assert values == [2.0, None, None, None, None, 5.0]


async def test_what_was_found_before_a_run_stands_there_until_a_step_has_ended() -> None:
    from backends.bench.results import Finding, Severity
    from backends.bench.run_events import Noticed

    app = make_app(make_hub())
    desk, live = with_run()
    live.steps.clear()
    for key, severity, text in (
        ("clock_unknown", Severity.INFO, "whether the clock is synchronised cannot be told"),
        ("gpu_shared", Severity.WARNING, "1 other processes are on the server's own GPUs: job"),
        ("tuning_fails", Severity.WARNING, "2 checks of the host's tuning failed 3 h ago: a, b"),
    ):
        desk._take(live, Noticed(Finding(key=key, severity=severity, text=text)))
    app.shell.bench = desk
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("b")
        await drawn(pilot)
        text = screen_text(app)
        for expected in ("no step has ended yet", "1 other processes", "2 checks of the host's"):
            assert expected in text, expected
        assert text.index("1 other processes") < text.index("whether the clock")
        desk._take(live, StepEnded(step()))
        await drawn(pilot)
        assert "no step has ended yet" not in screen_text(app)
        live.state = "over"


async def test_a_plan_is_told_in_full_and_a_broken_one_with_its_error() -> None:
    from backends.paths import config_file

    folder = config_file().parent / "plans"
    folder.mkdir(parents=True)
    (folder / "aaa.toml").write_text("seed = 'one'\n")
    app = make_app(make_hub())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("b", "g")
        await drawn(pilot)
        text = screen_text(app)
        assert "cannot be read" in text
        assert "the plan is not valid" in text
        await pilot.press("s")
        await drawn(pilot)
        assert isinstance(app.screen, BenchScreen)
        told = [f"{notice.title}{notice.message}" for notice in app._notifications]
        assert told
        assert told[0].startswith("The plan aaa cannot be read")
        await pilot.press("G")
        await drawn(pilot)
        words = " ".join(screen_text(app).split())
        assert "Closed loop from 1 to 256 streams: the curve of throughput against" in words
        assert words.count("concurrency") >= 1


async def test_the_word_of_the_load_under_the_cursor_stands_there_in_full() -> None:
    from backends.bench.compare import Word
    from backends.bench.compare_steps import StepWord

    app = make_app(make_hub())
    desk, live = with_run()
    why = "because these differ: client kept up: streams stood idle: 17.2 % of the time / yes"
    desk._words(live, {"4 streams": StepWord("4 streams", Word.NOT_COMPARABLE, why=why)})
    app.shell.bench = desk
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("b")
        await drawn(pilot)
        assert f"4 streams: not comparable, {why}" in " ".join(screen_text(app).split())
        live.state = "over"


def test_short_times_keep_their_distance_from_the_next_column() -> None:
    from screens.bench_rows import seconds

    values = (1.48e-4, 9.994e-4, 9.996e-4, 0.00594, 0.0999, 0.512, 12.3, 1234.0)
    texts = [seconds(value) for value in values]
    assert texts[:4] == ["148 us", "999 us", "1 ms", "5.94 ms"]
    assert max(map(len, texts)) < 8
