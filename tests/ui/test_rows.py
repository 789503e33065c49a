"""Rows, formats, filters, plans: pure functions of the screens."""

from __future__ import annotations

import pytest

from screens.processes import ranges
from screens.room_plan import plan_room
from tests.ui.fakes import gpu, link, mixed_gpus, mixed_verdicts, processes, snapshot
from tui import filters
from tui import format as fmt
from tui.glyphs import ASCII, UNICODE, ascii_only
from tui.rows import Line, Row, changes, fit_row
from tui.themes import THEME_NAMES, choose, palette
from tui.widgets.braille import curve, sparkline
from tui.widgets.gpu_columns import fit_columns, held_text, plan_grid
from tui.widgets.gpu_items import items_of, totals_of
from tui.widgets.gpu_rows import gpu_spans, host_row
from tui.widgets.host_state import wrap

NOW_S = 10_000.0


@pytest.mark.parametrize(
    ("text", "width", "align", "expected"),
    [
        ("abc", 5, "<", "abc  "),
        ("abc", 5, ">", "  abc"),
        ("abcdef", 4, "<", "abc…"),
        ("漢字漢字", 5, "<", "漢字…"),
        ("漢字", 3, "<", "漢…"),
        ("", 3, "^", "   "),
        ("abc", 0, "<", ""),
    ],
)
def test_fit_gives_exactly_the_width(text: str, width: int, align: str, expected: str) -> None:
    fitted = fmt.fit(text, width, align)
    assert fitted == expected
    assert fmt.width_of(fitted) == width


def test_a_host_without_python_says_what_cannot_be_read() -> None:
    room = snapshot("gpu09", [gpu(0)], link=link(via="nvidia-smi"))
    text = host_row(room, 80, stale=False).plain
    assert "read through nvidia-smi: no python3 there" in text
    assert fmt.ABSENT not in text


def test_absent_values_are_a_dash_everywhere() -> None:
    for function in (
        fmt.whole, fmt.watts, fmt.percent, fmt.celsius, fmt.gigahertz, fmt.gibibytes,
        fmt.size, fmt.rate, fmt.duration, fmt.yes_no, fmt.plain,
    ):  # fmt: skip
        assert function(None) == fmt.ABSENT  # type: ignore[operator]
    assert fmt.of(None, 600.0, "W") == "–/600W"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0B"), (512, "512B"), (81 * 2**30, "81G"), (4.2 * 2**30, "4.2G"), (1023 * 2**20, "1.0G")],
)
def test_sizes_have_two_or_three_figures(count: float, text: str) -> None:
    assert fmt.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0s"), (59.9, "59s"), (200, "3m 20s"), (15_000, "4h 10m"), (1_036_800, "12d 0h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert fmt.duration(seconds) == text


def test_changes_are_the_cells_that_differ() -> None:
    old = Line().add("power ", "dim").add("598", "strong").add(" of 600 W", "dim").row(30)
    new = Line().add("power ", "dim").add("592", "strong").add(" of 600 W", "dim").row(30)
    assert changes(old, new) == [(8, 9)]
    assert changes(old, old) == []


def test_changes_see_a_token_and_a_moved_border_of_a_bar() -> None:
    old = Row((("━━━━", "busy"), ("──────", "bar-back"), ("   ok", "good")))
    new = Row((("━━━━━", "busy"), ("─────", "bar-back"), ("   ok", "warning")))
    assert changes(old, new) == [(4, 15)]
    far = Row((("━" * 4, "busy"), ("─" * 26, "bar-back"), ("ok", "good")))
    far_new = Row((("━" * 5, "busy"), ("─" * 25, "bar-back"), ("ok", "warning")))
    assert changes(far, far_new) == [(4, 5), (30, 32)]


def test_changes_with_wide_characters_repaint_the_whole_span() -> None:
    old = Row((("漢字 server", "text"), ("1", "strong")))
    new = Row((("漢子 server", "text"), ("1", "strong")))
    assert changes(old, new) == [(0, 11)]


def test_rows_are_cut_and_padded_by_cells() -> None:
    assert fit_row(Row((("漢字漢字", "text"),)), 5).width == 5
    assert fit_row(Row((("ab", "text"),)), 5).width == 5


@pytest.mark.parametrize("width", range(24, 240, 7))
def test_every_gpu_line_has_exactly_its_width(width: int) -> None:
    shown = snapshot("h", mixed_gpus(), verdicts=mixed_verdicts())
    plan = plan_grid(8, width, 20)
    for item in items_of(shown, NOW_S, frozenset()):
        for glyphs in (UNICODE, ASCII):
            spans = gpu_spans(item, plan, glyphs, current=False)
            assert sum(fmt.width_of(text) for text, _ in spans) == plan.tile_width


def test_columns_appear_in_order_of_importance() -> None:
    narrow = {column.key for column, _ in fit_columns(30)}
    assert {"bar", "power", "utilization"} <= narrow
    assert "runs" not in narrow
    at_80 = {column.key for column, _ in fit_columns(80)}
    assert {"memory", "temperature", "state", "held", "sm_clock", "link", "runs"} <= at_80
    wide = {column.key for column, _ in fit_columns(200)}
    assert {"memory_busy", "nvlink", "name", "temperature_memory"} <= wide


@pytest.mark.parametrize(
    ("count", "width", "height", "tiles"),
    [(8, 80, 8, 1), (16, 80, 16, 1), (64, 120, 42, 2), (64, 200, 50, 2), (256, 80, 15, 0),
     (256, 120, 42, 0)],
)  # fmt: skip
def test_gpus_are_laid_out_side_by_side_or_as_heat(
    count: int, width: int, height: int, tiles: int
) -> None:
    assert plan_grid(count, width, height).tiles == tiles


@pytest.mark.parametrize("gpus", [8, 16])
def test_8_and_16_gpus_with_totals_and_a_server_line_fit_80x24(gpus: int) -> None:
    plan = plan_room(80, 22, gpus, 3)
    assert plan.grid >= gpus + 3
    assert plan.panes == 3
    assert plan.grid + plan.chart + plan.panes == 22


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (120, 50), (200, 60), (40, 12), (20, 8)])
@pytest.mark.parametrize("gpus", [0, 1, 8, 16, 64, 256])
def test_the_room_never_needs_more_than_it_has(size: tuple[int, int], gpus: int) -> None:
    for panes in range(4):
        plan = plan_room(size[0], size[1] - 2, gpus, panes)
        assert plan.grid + plan.chart + plan.panes <= size[1] - 2
        assert min(plan.grid, plan.chart, plan.panes) >= 0


@pytest.mark.parametrize("height", [8, 13, 22, 58])
@pytest.mark.parametrize("said", [1, 4, 9, 70])
def test_rows_that_a_host_without_gpus_leaves_over_go_to_panes_that_have_something(
    height: int, said: int
) -> None:
    filled = (True, False, True)
    plan = plan_room(80, height, 0, 3, without_gpus=said, filled=filled)
    assert plan.grid + plan.panes == height
    assert plan.panes == sum(plan.heights)
    assert plan.grid >= min(said, height - 3)
    assert plan.heights[1] == 1
    assert 0 <= plan.heights[0] - plan.heights[2] <= 1
    empty = plan_room(80, height, 0, 3, without_gpus=said, filled=(False, False, False))
    assert (empty.panes, empty.heights) == (3, ())


@pytest.mark.parametrize("gpus", [0, 8])
@pytest.mark.parametrize("height", [1, 3, 6])
def test_in_a_tiny_window_the_gpus_come_before_the_panes(height: int, gpus: int) -> None:
    plan = plan_room(20, height, gpus, 3)
    assert (plan.grid, plan.chart, plan.panes) == (height, 0, 0)
    assert plan_room(20, 7, gpus, 3).panes == 3


def test_totals_count_only_what_was_read() -> None:
    gpus = [gpu(0, power_w=100.0), gpu(1, power_w=None), mixed_gpus()[3]]
    totals = totals_of(gpus)
    assert (totals.count, totals.answering) == (3, 2)
    assert totals.power_w == 100.0
    assert totals_of([]).power_w is None


def test_the_worst_and_most_telling_verdict_stands_for_a_gpu() -> None:
    shown = snapshot("h", mixed_gpus(), verdicts=mixed_verdicts())
    words = {
        item.gpu.index: item.verdict.word
        for item in items_of(shown, NOW_S, frozenset())
        if item.verdict
    }
    assert words[1] == "CAPPED"
    assert words[6] == "IDLE"


def test_what_holds_the_clocks_comes_from_the_counters_first() -> None:
    assert held_text(gpu(0, held_pct={"power_cap": 37.4})) == ("cap 37%", "warning")
    assert held_text(gpu(0, event_reasons=0x80)) == ("brake", "critical")
    assert held_text(gpu(0)) == ("", "dim")


def test_what_runs_is_the_model() -> None:
    shown = snapshot("h", [gpu(0), gpu(1)])
    assert shown.processes == processes(2)
    assert [item.runs for item in items_of(shown, NOW_S, frozenset())] == [
        "GLM-5.2-NVFP4 +1",
        "GLM-5.2-NVFP4",
    ]


@pytest.mark.parametrize(
    ("text", "numbers", "fits"),
    [
        ("glm", {}, True),
        ("!glm", {}, False),
        ("glm power<200", {"power": 150.0}, True),
        ("power<200", {"power": 250.0}, False),
        ("power<200", {"power": None}, False),
        ("temp>=90 & util<5", {"temp": 90.0, "util": 3.0}, True),
        ("", {}, True),
        ("!", {}, True),
        ("power<", {}, False),
    ],
)
def test_filters(text: str, numbers: dict[str, float | None], fits: bool) -> None:
    assert filters.parse(text).fits("gpu 3 glm-5.2 capped", numbers) is fits


def test_curves_leave_gaps_where_nothing_was_read() -> None:
    lines = curve([0.0, None, None, None, 100.0, 100.0], 2, 0, 100, UNICODE)
    assert lines == ["  ⣿", "⡀ ⣿"]
    assert curve([None, None], 1, 0, 1, UNICODE) == [" "]
    assert all(line.isascii() for line in curve([1.0, 5.0, None, 9.0], 3, 0, 9, ASCII))
    assert sparkline([0.0, None, 1.0], 0, 1, UNICODE) == "▁ █"


@pytest.mark.parametrize("text", ["–°×…›漢", "naïve", "● ▲ ✖ ━╸─ ⣿"])
def test_ascii_only_is_ascii(text: str) -> None:
    assert ascii_only(text).isascii()
    assert len(ascii_only(text)) == len(text)


def test_glyph_sets_have_single_cells() -> None:
    for glyphs in (UNICODE, ASCII):
        for name in glyphs.__dataclass_fields__:
            value = getattr(glyphs, name)
            if isinstance(value, str):
                assert fmt.width_of(value) == len(value), name


@pytest.mark.parametrize(
    ("wanted", "environment", "theme"),
    [
        ("auto", {"COLORTERM": "truecolor"}, "dark"),
        ("auto", {"COLORTERM": "truecolor", "COLORFGBG": "0;15"}, "light"),
        ("auto", {}, "ansi"),
        ("light", {}, "light"),
        ("dark", {"NO_COLOR": "1", "COLORTERM": "truecolor"}, "mono"),
        ("auto", {"NO_COLOR": ""}, "ansi"),
    ],
)
def test_the_theme_follows_the_terminal(
    wanted: str, environment: dict[str, str], theme: str
) -> None:
    assert choose(wanted, environment) == theme


def test_every_theme_has_every_token() -> None:
    tokens = {frozenset(palette(name).styles) for name in THEME_NAMES}
    assert len(tokens) == 1


def test_mono_uses_no_colour() -> None:
    assert all(
        style.color is None and style.bgcolor is None for style in palette("mono").styles.values()
    )


def test_ranges() -> None:
    assert ranges([0, 1, 2, 3]) == "0-3"
    assert ranges([1, 3, 4, 7]) == "1,3-4,7"
    assert ranges([]) == ""


def test_wrap_cuts_words_that_are_too_long() -> None:
    assert wrap("a bb ccc", 4) == ["a bb", "ccc"]
    assert all(fmt.width_of(piece) <= 8 for piece in wrap("x" * 50 + " y", 8))
