"""Benchmark runs of the past under keys: search, tags, notes, baselines, marks, comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from backends.paths import data_dir
from backends.storage.database import FILE_NAME
from backends.storage.history import History
from screens.compare import CompareScreen
from screens.history import HistoryScreen, query_of
from screens.history_list import RunList
from screens.result import ResultScreen
from tests.bench_screens.made_up import fill
from tests.ui.fakes import drawn, make_app, make_hub, ready, screen_text, shown
from tui.cli.main import main
from tui.themes import make_look

SIZES = [(80, 24), (200, 60)]
each_size = pytest.mark.parametrize("size", SIZES)


async def press(pilot: Pilot[int], *keys: str) -> str:
    """Press keys, wait for what they ask of the history, draw; the screen's text."""
    for key in keys:
        await pilot.press(key)
        await drawn(pilot)
    await drawn(pilot)
    return screen_text(pilot.app)


@each_size
async def test_h_lists_runs_with_their_figures_and_remarks(size: tuple[int, int]) -> None:
    fill()
    app = make_app(make_hub())
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        text = await press(pilot, "h")
        assert isinstance(app.screen, HistoryScreen)
        for expected in ("output/s", "in+out/s", "BASELINE", "#tuned", "#cold", "1 note", "4 runs"):
            assert expected in text, expected
        assert "the governor was powersave" in await press(pilot, "j")


async def test_an_empty_history_says_how_to_fill_it() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        assert "no runs yet: b measures" in await press(pilot, "h")
        await press(pilot, "enter", "space", "C", "T", "N", "B")
        assert isinstance(app.screen, HistoryScreen)


async def test_it_is_reached_from_the_benchmark_and_from_the_palette() -> None:
    fill()
    app = make_app(make_hub())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await press(pilot, "b", "h")
        assert isinstance(app.screen, HistoryScreen)
        await press(pilot, "escape", "escape", "colon", *"runs", "enter")
        assert isinstance(app.screen, HistoryScreen)


async def test_search_while_typing() -> None:
    fill()
    app = make_app(make_hub())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        text = await press(pilot, "h", "slash", *"governor")
        assert "1 run that fits 'governor'" in text
        assert "#cold" in text
        assert "BASELINE" not in text
        text = await press(pilot, "enter", "slash", *(["backspace"] * 8), *"tag:tuned")
        assert "#tuned" in text
        assert "#cold" not in text
        assert "4 runs" in await press(pilot, "escape")
        assert "nothing fits" in await press(pilot, "slash", *"nosuchrun")


def test_what_a_search_means() -> None:
    found = query_of("glm tag:golden plan:sweep h200 profile:glm5 odd:word")
    assert (found.search, found.tag, found.plan, found.profile) == (
        "glm h200 odd:word", "golden", "sweep", "glm5",
    )  # fmt: skip


async def test_tags_notes_and_baseline_by_keyboard() -> None:
    newest, *_, oldest = fill()
    app = make_app(make_hub())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await press(pilot, "h", "T", *"fast", "space", *"kept", "enter")
        await shown(pilot, lambda text: "#fast #kept" in text)
        await press(pilot, "T", *"-fast", "enter")
        await shown(pilot, lambda text: "#fast" not in text and "#kept" in text)
        await press(pilot, "N", *"Tuned by hand", "enter")
        await shown(pilot, lambda text: "Tuned by hand" in text)
        await press(pilot, "B")
        await shown(pilot, lambda text: text.count("BASELINE") == 2)  # in its line and below
        with History.at_home() as history:
            assert history.row(newest).tags == ("kept",)
            assert [note.text for note in history.notes(newest)] == ["Tuned by hand"]
            assert history.row(newest).baseline
            assert not history.row(oldest).baseline  # one a profile and plan
        await press(pilot, "B")
        await shown(pilot, lambda text: "BASELINE" not in text)
        with History.at_home() as history:
            assert not history.row(newest).baseline


async def test_a_tag_that_is_none_is_refused_with_words() -> None:
    newest, *_ = fill()
    app = make_app(make_hub())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await press(pilot, "h", "T", *("x" * 70), "enter")
        with History.at_home() as history:
            assert history.row(newest).tags == ()


async def test_marks_are_compared_with_the_first_that_was_marked() -> None:
    ids = fill()
    app = make_app(make_hub())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        text = await press(pilot, "h", "G", "space", "k", "space", "k", "k", "space")
        assert "3 marked, C compares them" in text
        text = await press(pilot, "C")
        assert isinstance(app.screen, CompareScreen)
        assert app.screen.opened is not None
        assert app.screen.opened.runs[0].run_id == ids[-1]
        assert text.count("the reference") >= 2
        assert "SLOWER" in text
        assert "slower -10" in text
        text = await press(pilot, "i")
        assert "tokens, three ways" in text
        await press(pilot, "escape", "escape")
        assert isinstance(app.screen, HistoryScreen)
        # Esc takes the marks away before it leaves.
        await press(pilot, "escape")
        assert app.screen.list.marked == []


@each_size
async def test_a_result_has_a_word_a_step_the_maximum_and_the_ledger(size: tuple[int, int]) -> None:
    fill()
    app = make_app(make_hub(), ascii_set=True)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        text = await press(pilot, "h", "j", "enter")
        assert isinstance(app.screen, ResultScreen)
        for expected in (
            "SLOWER  output tok/s -1", "the baseline of 2026", "64 streams", "slower -1",
            "throughput", "output tokens/s", "latency", "of max", "asked 64,000", "server 64,000",
            "of paper", "memory: GPUs busy 98%",
        ):  # fmt: skip
            assert expected in text, expected
        text = await press(pilot, "m")
        for expected in ("theoretical maximum", "paper", "live clock", "realistic", "measured"):
            assert expected in text, expected
        assert "GB/s a card" in await press(pilot, "G")
        text = await press(pilot, "escape")
        assert "64 streams" in text
        text = await press(pilot, "i")
        assert "plan" in text
        assert "8 x NVIDIA H200" in text


async def test_foreign_load_is_said_and_the_step_is_not_comparable() -> None:
    fill()
    app = make_app(make_hub())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        text = await press(pilot, "h", "enter", "G")
        assert "not comparable" in text
        assert "somebody else's load: 0.0% / 17.9%" in text
        assert "17.9% of the server's are somebody else's" in text
        assert "server 78,000" in text


async def test_weights_that_do_not_fit_are_loud_in_table_and_screens(
    capsys: pytest.CaptureFixture[str],
) -> None:
    newest, *_ = fill()
    with History.at_home() as history:
        run = history.load(newest)
        assert run.possible is not None
        misfit = "the weights do not fit: 700.0 GB a card, and a card has 141 GB"
        possible = msgspec.structs.replace(run.possible, misfit=misfit)
        history.save(msgspec.structs.replace(run, possible=possible))
    assert main(["bench", "show", newest]) == 0
    assert f"DOES NOT FIT: {misfit}" in capsys.readouterr().out
    app = make_app(make_hub())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await press(pilot, "h", "enter")
        await shown(pilot, lambda text: "WEIGHTS DO NOT FIT" in text)
        await press(pilot, "m")
        await shown(pilot, lambda text: "DOES NOT FIT: the weights do not fit: 700.0 GB" in text)


async def test_a_run_without_baseline_says_how_to_pin_one_and_b_does() -> None:
    newest, *_, oldest = fill()
    with History.at_home() as history:
        history.unpin(oldest)
    app = make_app(make_hub())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        assert "no baseline is pinned for sweep of glm5  B pins this run" in await press(
            pilot, "h", "enter"
        )
        assert "the baseline for sweep of glm5" in await press(pilot, "B")
    with History.at_home() as history:
        assert history.row(newest).baseline


async def test_a_result_is_saved_as_picture_document_and_table(tmp_path: Path) -> None:
    newest, *_ = fill()
    app = make_app(make_hub())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await press(pilot, "h", "enter")
        for name in ("run.svg", "run.json", "run.csv", "run.md", "run.txt"):
            assert "Enter take it  Esc leave it" in await press(pilot, "S")
            assert isinstance(app.screen, ResultScreen)
            app.screen.edit_box.value = str(tmp_path / name)
            await press(pilot, "enter")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "run.csv", "run.json", "run.md", "run.svg",
    ]  # fmt: skip
    assert json.loads((tmp_path / "run.json").read_text())["run_id"] == newest
    assert (tmp_path / "run.svg").read_text().startswith("<svg")


async def test_a_run_that_is_gone_is_said() -> None:
    newest, *_ = fill()
    app = make_app(make_hub())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await press(pilot, "h")
        with History.at_home() as history:
            history.delete(newest)
        assert f"No run {newest}" in await press(pilot, "enter")


async def test_the_room_shows_the_newest_run_of_its_host() -> None:
    fill()
    app = make_app(make_hub())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await app.workers.wait_for_complete()
        await drawn(pilot)
        text = screen_text(app)
        assert "12:04 sweep" in text
        assert "3,062 output, 6,124 in+out tok/s" in text


async def test_a_room_without_history_says_so() -> None:
    app = make_app(make_hub())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await app.workers.wait_for_complete()
        await drawn(pilot)
        assert "nothing measured yet" in screen_text(app)


async def test_a_damaged_history_says_so_in_the_list() -> None:
    file = data_dir() / FILE_NAME
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"no database" * 1000)
    app = make_app(make_hub())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        text = await press(pilot, "h")
        await app.workers.wait_for_complete()
        await drawn(pilot)
        text = screen_text(app)
    assert "reading the history" not in text
    assert "The history's file is damaged. Move it away to begin anew" in text


@pytest.mark.parametrize("width", [80, 100, 120, 160, 200, 240])
def test_remarks_of_a_run_stand_whole_or_are_counted(width: int) -> None:
    (name, *_) = fill()
    with History.at_home() as history:
        row = replace(
            history.row(name), status="broken", valid=False, failed=123, baseline=True,
            tags=("tuned", "golden"), notes=2,
        )  # fmt: skip
    whole = ["BASELINE", "broken", "client-limited", "123 failed", "#tuned", "#golden", "2 notes"]
    runs = RunList(make_look("dark", ascii_set=False))
    runs.show([row])
    plain = runs.item_row(row.run_id, width, current=False).plain
    assert len(plain) == width
    shown = [remark for remark in whole if remark in plain]
    assert shown == whole[: len(shown)]
    assert len(shown) == len(whole) or f"+{len(whole) - len(shown)}" in plain.split()
