"""A reading over time: title with the value now, a filled curve, its scale at the left.

Steps are aligned to the clock, not to now: between two steps only the newest column changes, and
the rest of the chart stays as it is on the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from backends.telemetry.history import Window
from tui import format as fmt
from tui.rows import Line, Row, Span, text_row
from tui.themes import Look
from tui.widgets.braille import FULL, curve, points_for
from tui.widgets.rows_view import RowsView

WINDOW_NAMES = {
    Window.MINUTE: "60 s",
    Window.TEN_MINUTES: "10 min",
    Window.HOUR: "1 h",
}
SCALE_WIDTH = 6

Source = Callable[[Window, int, float], Sequence[float | None]]
"""(window, points, right edge in monotonic seconds) -> values, oldest first."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What a chart shows.

    Attributes:
        title: What is drawn.
        token: Its token, for colour.
        source: Gives the values.
        now: The newest value as text.
        high: Top of the scale; None takes the highest value.
        scale: How a number is written at the scale.
        low: Bottom of the scale.
    """

    title: str
    token: str
    source: Source
    now: str
    high: float | None
    scale: Callable[[float], str]
    low: float = 0.0


def right_edge(now_s: float, window: Window, points: int) -> float:
    """The end of the step in which now lies; steps come in pairs, since a cell holds two."""
    pair_s = 2 * window.seconds / max(1, points)
    return ceil(now_s / pair_s) * pair_s


class HistoryChart(RowsView):
    """One curve, or several side by side where there is room."""

    MIN_WIDTH = 36

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.curves: Sequence[Curve] = ()
        self.window = Window.TEN_MINUTES
        self.now_s = 0.0
        self.subject = ""

    def show(self, curves: Sequence[Curve], window: Window, now_s: float, subject: str) -> None:
        """Draw curves, the most important first; the one call a frame."""
        self.curves, self.window, self.now_s, self.subject = curves, window, now_s, subject
        self.redraw()

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """Charts side by side, as many as are wide enough to be read."""
        if not self.curves or height < 2:
            return []
        count = max(1, min(len(self.curves), (width + 2) // (self.MIN_WIDTH + 2)))
        each = (width - 2 * (count - 1)) // count
        parts = [
            self._chart(c, each, height, number == 0)
            for number, c in enumerate(self.curves[:count])
        ]
        return [_beside(rows, width) for rows in zip(*parts, strict=True)]

    def _chart(self, shown: Curve, width: int, height: int, first: bool) -> list[Row]:
        glyphs = self.look.glyphs
        plot = width - SCALE_WIDTH
        points = points_for(plot)
        values = shown.source(self.window, points, right_edge(self.now_s, self.window, points))
        known = [value for value in values if value is not None]
        high = shown.high if shown.high else max(known, default=1.0) or 1.0
        high = max(high, max(known, default=0.0))
        title = Line().add(shown.title + " ", shown.token).add(shown.now, "strong")
        title.add(f"  {WINDOW_NAMES[self.window]}", "dim")
        if first and self.subject:
            title.add(f"  {self.subject}", "dim")
        title.add(" ").add(glyphs.rule * max(0, width - title.width), "faint")
        rows = [title.row(width)]
        if not known:
            return rows + [
                text_row("      no history yet" if y == 0 else "", width, "dim")
                for y in range(height - 1)
            ]
        lines = curve(values, height - 1, shown.low, high, glyphs)
        for y, text in enumerate(lines):
            label = ""
            if y == 0:
                label = shown.scale(high)
            elif y == len(lines) - 1 and len(lines) > 1:
                label = shown.scale(shown.low)
            elif len(lines) >= 5 and len(lines) % 2 and y == len(lines) // 2:
                label = shown.scale(shown.low + (high - shown.low) * (1 - (y + 0.5) / len(lines)))
            above = lines[y - 1] if y else ""
            rows.append(_curve_row(label, text, above, shown.token, width))
        return rows


@lru_cache(512)
def _beside(rows: tuple[Row, ...], width: int) -> Row:
    """Rows of charts that stand side by side; the same ones give the same row."""
    line = Line()
    for number, row in enumerate(rows):
        line.add("  " if number else "").extend(row.spans)
    return line.row(width)


@lru_cache(512)
def _curve_row(label: str, text: str, above: str, token: str, width: int) -> Row:
    """A label of the scale and a line of the curve."""
    line = Line().cell(label, SCALE_WIDTH - 1, "dim", ">").add(" ")
    return line.extend(_two_tones(text, above, token)).row(width)


def _two_tones(text: str, above: str, token: str) -> tuple[Span, ...]:
    """The edge of the curve in its colour, what lies below it darker."""
    spans: list[Span] = []
    below = [
        character in FULL and x < len(above) and above[x] != " " for x, character in enumerate(text)
    ]
    start = 0
    for x in range(1, len(text) + 1):
        if x == len(text) or below[x] is not below[start]:
            spans.append((text[start:x], f"{token}-fill" if below[start] else token))
            start = x
    return tuple(spans)


def watts_scale(value: float) -> str:
    """`600`, `5.6k`, `154k`."""
    if value < 1000:
        return f"{value:.0f}"
    return f"{value / 1000:.1f}k" if value < 99_950 else f"{value / 1000:.0f}k"


def percent_scale(value: float) -> str:
    """`100%`."""
    return fmt.percent(value)
