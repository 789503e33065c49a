"""Curves of one figure against another, and the table of loads: pure functions."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from backends.bench.compare import Word, compare
from backends.bench.compare_steps import StepWord, step_words
from backends.bench.overview import loads_of
from backends.bench.results import ClientHealth
from screens.result_charts import chart_rows, short
from screens.result_table import LoadLine, columns_for, table_row
from tests.bench_data.runs import run
from tests.bench_screens.made_up import saturating
from tui.glyphs import ASCII, UNICODE
from tui.rows import between_words
from tui.widgets.xy_chart import Axis, Series, xy_rows

ROOT = Path(__file__).resolve().parents[2]
X, Y = Axis("streams", short), Axis("tok/s", short)


def drawn(*series: Series, width: int = 60, height: int = 12, ascii_set: bool = True) -> list[str]:
    glyphs = ASCII if ascii_set else UNICODE
    rows = xy_rows("a title", X, Y, series, width, height, glyphs)
    assert len(rows) == height
    assert {row.width for row in rows} == {width}
    return [row.plain for row in rows]


def marks(lines: list[str], mark: str) -> list[tuple[int, int]]:
    """(column, row from below) of each mark in the plot, from the left."""
    plot = lines[1:-1]
    found = [
        (x, len(plot) - 1 - y)
        for y, line in enumerate(plot)
        for x, character in enumerate(line)
        if character == mark and x >= 8
    ]
    return sorted(found)


def test_points_lie_where_they_should() -> None:
    lines = drawn(Series("A", "text", ((0.0, 0.0), (5.0, 40.0), (10.0, 100.0))))
    assert marks(lines, "A") == [(8, 0), (34, 4), (59, 9)]
    assert lines[1].startswith("    100")
    assert lines[-1].split()[0] == "0"
    assert lines[-1].rstrip().endswith("10")


def test_concurrencies_of_1_to_256_stand_at_even_distances() -> None:
    points = tuple((float(4**n), 1.0) for n in range(5))
    columns = [x for x, _ in marks(drawn(Series("A", "text", points)), "A")]
    steps = {b - a for a, b in pairwise(columns)}
    assert max(steps) - min(steps) <= 1
    assert "log" in drawn(Series("A", "text", points))[-1]
    assert "log" not in drawn(Series("A", "text", ((1.0, 1.0), (4.0, 2.0))))[-1]


def test_runs_over_each_other_are_told_apart_by_their_letters() -> None:
    a = Series("A", "accent", ((1.0, 10.0), (2.0, 20.0)))
    b = Series("B", "warning", ((1.0, 5.0), (2.0, 40.0)))
    lines = drawn(a, b)
    assert len(marks(lines, "A")) == len(marks(lines, "B")) == 2
    text = "".join(drawn(a, b, ascii_set=False))
    assert any(0x2800 < ord(character) <= 0x28FF for character in text)
    assert "".join(lines).isascii()


@pytest.mark.parametrize(
    "points", [(), ((4.0, 7.0),), ((4.0, 0.0), (4.0, 0.0)), ((0.0, 1e-9), (1e9, 1e12))]
)
def test_odd_data_is_drawn_or_said(points: tuple[tuple[float, float], ...]) -> None:
    lines = drawn(Series("A", "text", points))
    assert points or "nothing measured" in lines[1]
    assert not points or marks(lines, "A")


@pytest.mark.parametrize("size", [(8, 3), (15, 12), (30, 4), (200, 50)])
def test_any_size_is_filled_exactly(size: tuple[int, int]) -> None:
    drawn(Series("A", "text", ((1.0, 1.0), (2.0, 3.0))), width=size[0], height=size[1])


def test_an_open_loop_is_drawn_against_its_rate_and_absent_figures_are_left_out() -> None:
    measured = run(1, streams=(1, 64))
    steps = tuple(
        msgspec.structs.replace(step, concurrency=None, rate_per_s=rate, label=f"{rate:g}/s")
        for step, rate in zip(measured.steps, (0.5, 4.0), strict=True)
    )
    text = "\n".join(
        row.plain
        for row in chart_rows([msgspec.structs.replace(measured, steps=steps)], 80, 10, ASCII)
    )
    assert "requests due/s" in text
    bare = tuple(msgspec.structs.replace(step, steady=None, whole=None) for step in measured.steps)
    rows = chart_rows([msgspec.structs.replace(measured, steps=bare)], 80, 10, ASCII)
    assert "nothing measured to draw" in rows[1].plain


@pytest.mark.parametrize("width", [80, 100, 120, 160, 200, 260])
def test_output_and_total_stand_side_by_side_at_every_width_with_the_word(width: int) -> None:
    heads = [column.head for column in columns_for(width, marked=True)]
    assert heads[:2] == ["output/s", "in+out/s"]
    a, b = saturating(1), saturating(2, speed=0.9)
    words = step_words(compare(a, b))
    for load in loads_of(b):
        line = LoadLine(load, word=words[load.label])
        row = table_row(line, width, current=False, marked=False, glyphs=UNICODE)
        assert row.width == width
        assert re.search(r"slower -(9|1\d)\.\d %", row.plain)


def test_failures_and_a_limiting_client_are_never_left_out() -> None:
    (load,) = loads_of(run(1, streams=(64,)))
    bad = msgspec.structs.replace(
        load.steps[0], failed=7, client=msgspec.structs.replace(load.steps[0].client, valid=False)
    )
    from backends.bench.overview import loads

    (load,) = loads([bad])
    word = StepWord(load.label, Word.NOT_COMPARABLE)
    for width, failed in itertools.product((80, 100, 140, 200), (0, 7, 123, 10_240)):
        line = LoadLine(replace(load, failed=failed), word=word)
        row = table_row(line, width, current=False, marked=True, glyphs=UNICODE)
        assert row.width == width
        remarks = re.split(r" {2,}", row.plain.rstrip())[-1]
        assert re.fullmatch(r"(client-)?limited( \d+k? failed)?( not comparable)?", remarks)
        assert not failed or re.search(rf" ({failed}|{failed // 1000}k)\b", row.plain)


def test_the_ledger_says_that_the_server_counts_the_warm_up_too() -> None:
    from backends.bench.overview import loads
    from screens.result_text import ledger_line

    step = saturating(1).steps[0]
    (cold,) = loads([step])
    (warm,) = loads([msgspec.structs.replace(step, warm_up_s=4.0)])
    shown = ["".join(text for text, _ in ledger_line(load).spans) for load in (cold, warm)]
    assert "server 32,000" in shown[0]
    assert ["with the warm-up" in text for text in shown] == [False, True]


def test_commands_about_runs_do_not_import_textual_unless_a_picture_is_drawn() -> None:
    program = (
        "import sys\n"
        "from tui.cli import main\n"
        "codes = [main(['bench', *words]) for words in\n"
        "         (['list'], ['export', '--schema'], ['show', 'nothing'])]\n"
        "assert codes == [0, 0, 2], codes\n"
        "assert not {'textual', 'rich'} & {name.partition('.')[0] for name in sys.modules}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_line_that_goes_on_is_broken_between_words() -> None:
    spans = [("maximum  ", "dim"), ("54.8", "strong"), (" tok/s, ", "dim"), ("58.1%", "strong")]
    lines = between_words(spans, 22, 4)
    assert ["".join(text for text, _ in line) for line in lines] == [
        "maximum  54.8 tok/s, ",
        "58.1%",
    ]
    assert lines[1] == [("58.1%", "strong")]
    assert len(between_words(spans, 4, 2)) == 2
    assert between_words([], 10, 2) == [[]]


def test_what_is_wrong_with_a_load_is_never_cut_in_a_word() -> None:
    whole = {"client-limited", "limited", "client", "!", "1200", "1k", "3", "failed", "bad", ""}
    for valid in (True, False):
        for failures in (0, 3, 1200):
            client = ClientHealth(valid=valid)
            step = msgspec.structs.replace(run(1).steps[0], client=client, failed=failures)
            (load,) = loads_of(msgspec.structs.replace(run(1), steps=(step,)))
            line = LoadLine(load=load)
            for width in range(40, 121):
                row = table_row(
                    line, width, current=False, marked=False, glyphs=UNICODE, words=False
                )
                said = " ".join(text for text, token in row.spans if token == "critical")
                assert set(said.split()) <= whole, (width, said)
                assert bool(said.strip()) is (not valid or failures > 0)
