"""Throughput against concurrency, latency against throughput: the runs over each other. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from backends.bench.overview import Load, loads_of
from backends.bench.results import RunResult
from screens.bench_rows import seconds
from screens.result_table import MARKS, TOKENS
from tui.glyphs import Glyphs
from tui.rows import Line, Row
from tui.widgets.xy_chart import Axis, Series, xy_rows

MIN_WIDTH = 36
Figure = Callable[[Load], float | None]


def short(value: float) -> str:
    """A number in five characters: `12.3`, `1,234`, `56k`."""
    if value < 100:
        return f"{value:.3g}"
    return f"{value:,.0f}" if value < 10_000 else f"{value / 1000:.3g}k"


def chart_rows(runs: Sequence[RunResult], width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Two or three charts side by side; the letters are those of the runs, in order."""
    shown = [(run, loads_of(run)) for run in runs]
    open_loop = any(load.rate_per_s is not None for _, loads in shown for load in loads)
    load_axis = Axis("requests due/s" if open_loop else "streams", short)
    output = Axis("output tokens/s", short)

    def offered(load: Load) -> float | None:
        return load.rate_per_s if open_loop else load.concurrency

    def produced(load: Load) -> float | None:
        return load.output_tokens_per_s

    charts: list[tuple[str, Axis, Figure, Axis, Figure]] = [
        ("throughput", load_axis, offered, output, produced),
        ("latency", output, produced, Axis("p50", seconds), lambda load: load.e2e_s),
        ("time to first token", output, produced, Axis("p50", seconds), lambda load: load.ttft_s),
        ("time per output token", output, produced, Axis("p50", seconds), lambda load: load.tpot_s),
    ]
    count = max(1, min(len(charts), (width + 2) // (MIN_WIDTH + 2)))
    each = (width - 2 * (count - 1)) // count
    parts = [
        xy_rows(title, x_axis, y_axis, _series(shown, x, y), each, height, glyphs)
        for title, x_axis, x, y_axis, y in charts[:count]
    ]
    rows = []
    for row_parts in zip(*parts, strict=True):
        line = Line()
        for number, row in enumerate(row_parts):
            line.add("  " if number else "").extend(row.spans)
        rows.append(line.row(width))
    return rows


def _series(
    shown: Sequence[tuple[RunResult, Sequence[Load]]], x: Figure, y: Figure
) -> list[Series]:
    found = []
    for place, (_, loads) in enumerate(shown):
        points = [
            (one, other)
            for load in loads
            if (one := x(load)) is not None and (other := y(load)) is not None
        ]
        token = TOKENS[place % len(TOKENS)]
        found.append(Series(MARKS[place % len(MARKS)], token, tuple(points)))
    return found
