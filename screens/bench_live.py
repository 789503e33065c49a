"""A run while it goes on: large figures, curves over time, the spread of latencies, its steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from backends.bench.desk import Live, Point
from backends.bench.overview import loads
from backends.bench.results import Finding
from backends.model import HostSnapshot
from backends.telemetry.history import TOTAL, History, Window
from screens import bench_rows as rows
from screens.result_table import LoadLine, head_row, table_row
from tui import format as fmt
from tui.rows import Line, Row, text_row
from tui.themes import Look
from tui.widgets.history_chart import Curve, Source, watts_scale
from tui.widgets.host_state import wrap
from tui.widgets.row_list import RowList
from tui.widgets.rows_view import RowsView

LARGE: Final = (150, 44)
"""Columns and lines from which on figures are five lines high."""
SPREADS: Final = ("latency", "time to first token", "time per output token")
MIN_SPREAD: Final = 30
WORD_LINES: Final = 2
"""Of a word with its reasons, where there is little room."""


class Figures(RowsView):
    """The running step, large, with the GPUs' power below."""

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="figures")
        self.large = False
        self._shown: tuple[Live, HostSnapshot] | None = None

    def show(self, live: Live, snapshot: HostSnapshot) -> None:
        """Draw; the one call a frame."""
        self._shown = (live, snapshot)
        self.redraw()

    def fit(self, width: int, height: int) -> None:
        """Choose the size of the digits for a screen of that size."""
        self.large = width >= LARGE[0] and height >= LARGE[1]
        self.styles.height = rows.figure_height(large=self.large) + 1

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """Figures, then power."""
        if self._shown is None:
            return []
        live, snapshot = self._shown
        glyphs = self.look.glyphs
        drawn = rows.figure_rows(live, width, glyphs, large=self.large)
        return [*drawn, rows.power_row(snapshot, width, glyphs)]


class Spread(RowsView):
    """How the latencies of the running or the last step are spread; several where there is room.

    Attributes:
        first: Which of `SPREADS` comes first.
    """

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="spread")
        self.first = 0
        self._live: Live | None = None

    def show(self, live: Live) -> None:
        """Draw; the one call a frame."""
        self._live = live
        self.redraw()

    def next(self) -> None:
        """Another latency first."""
        self.first = (self.first + 1) % len(SPREADS)
        self.redraw()

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """Histograms side by side."""
        live = self._live
        if live is None:
            return []
        values = (live.e2e_s, live.ttft_s, live.tpot_s)
        count = max(1, min(len(SPREADS), (width + 2) // (MIN_SPREAD + 2)))
        each = (width - 2 * (count - 1)) // count
        order = [(self.first + number) % len(SPREADS) for number in range(count)]
        parts = [
            rows.distribution_rows(
                SPREADS[which], list(values[which]), each, height, self.look.glyphs
            )
            for which in order
        ]
        drawn = []
        for row_parts in zip(*parts, strict=True):
            line = Line()
            for number, row in enumerate(row_parts):
                line.add("  " if number else "").extend(row.spans)
            drawn.append(line.row(width))
        return drawn


class StepList(RowList):
    """The finished steps of a run, a line a load; repetitions come together."""

    opens = False

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="steps")
        self.lines: Sequence[LoadLine] = ()
        self.words = False
        self._seen: object = None
        self._findings: Sequence[Finding] = ()

    def show(self, live: Live) -> None:
        """Draw; the one call a frame."""
        self._findings = live.findings
        seen = (id(live), len(live.steps), live.possible, tuple(live.words.values()))
        if seen != self._seen:
            self._seen = seen
            possible = live.possible
            self.words = bool(live.words)
            self.lines = [
                LoadLine(
                    load,
                    word=live.words.get(load.label),
                    possible=None if possible is None else possible.step(load.label),
                )
                for load in loads(live.steps)
            ]
        self.redraw()

    def keys(self) -> Sequence[Hashable]:
        """Places in the run."""
        return range(len(self.lines))

    def head_rows(self, width: int) -> list[Row]:
        """Column titles."""
        against = "against the baseline" if self.words else ""
        return [head_row(width, False, against, self.words)]

    def empty_rows(self, width: int, height: int) -> Sequence[Row]:
        """Until a step has ended: what was found out before it and meanwhile."""
        found = rows.finding_rows(self._findings, width, max(1, height - 1))
        return [text_row("  no step has ended yet", width, "dim"), *found]

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """The loads; below them the whole word of the one under the cursor, and what was found."""
        if not self.lines:
            return super().rows_for(width, height)
        word = self.lines[self.cursor_index(self.keys())].word
        text = [] if word is None else wrap(f"{word.step}: {word.text}", width - 4)
        kept = max(2, height - min(len(text), WORD_LINES))
        drawn = list(super().rows_for(width, kept))
        drawn += [text_row(f"  {line}", width, "dim") for line in text[: height - len(drawn)]]
        room = height - len(drawn) - 1
        if room > 0 and self._findings:
            drawn += [text_row("", width), *rows.finding_rows(self._findings, width, room)]
        return drawn

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """One load."""
        return table_row(
            self.lines[int(str(key))], width, current=current, marked=False,
            glyphs=self.look.glyphs, words=self.words,
        )  # fmt: skip


def curves(live: Live, snapshot: HostSnapshot, history: History) -> list[Curve]:
    """The run over time, the most important first."""
    newest = live.curve[-1] if live.curve and live.going else None

    def of(figure: Callable[[Point], float | None]) -> Source:
        def source(window: Window, points: int, end_s: float) -> Sequence[float | None]:
            newest_first = (
                (point.at_s, value)
                for point in reversed(live.curve)
                if (value := figure(point)) is not None
            )
            return resampled(newest_first, window, points, end_s)

        return source

    def power(window: Window, points: int, end_s: float) -> Sequence[float | None]:
        return history.series(TOTAL, "power_w", window, points, end_s)

    caps = [gpu.readings.power_limit_enforced_w for gpu in snapshot.gpus]
    known = [cap for cap in caps if cap is not None]
    cap_w = sum(known) if known and len(known) == len(caps) else None
    return [
        Curve("output tokens/s", "utilization", of(lambda p: p.output_tokens_per_s),
              rows.rate(newest.output_tokens_per_s if newest else None), None, rows.rate),
        Curve("GPU power", "power", power, rows.power_text(snapshot), cap_w, watts_scale),
        Curve("TTFT", "memory", of(lambda p: p.ttft_s),
              rows.seconds(newest.ttft_s if newest else None), None, short_seconds),
        Curve("in + out tokens/s", "clocks", of(lambda p: p.total_tokens_per_s),
              rows.rate(newest.total_tokens_per_s if newest else None), None, rows.rate),
        Curve("in flight", "temperature", of(lambda p: float(p.in_flight)),
              str(newest.in_flight) if newest else fmt.ABSENT, None, lambda v: f"{v:.0f}"),
    ]  # fmt: skip


def short_seconds(value: float) -> str:
    """A latency in the five cells of a scale: `85ms`, `1.2s`."""
    return f"{value * 1e3:.0f}ms" if value < 1 else f"{value:.3g}s"


def resampled(
    samples: Iterable[tuple[float, float]], window: Window, points: int, end_s: float
) -> list[float | None]:
    """The mean of the samples in each of `points` spans before `end_s`; None where none is.

    Samples come newest first, so that no more of a long run is looked at than the window shows.
    """
    sums, counts = [0.0] * points, [0] * points
    begin_s = end_s - window.seconds
    for at_s, value in samples:
        if at_s < begin_s:
            break
        place = int((at_s - begin_s) / window.seconds * points)
        if 0 <= place < points:
            sums[place] += value
            counts[place] += 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]
