"""Curves of one figure against another, several runs over each other. Pure functions.

Each run has a letter that marks its points, so that runs are told apart without colour too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tui.glyphs import Glyphs
from tui.rows import Line, Row, text_row

LABEL_CELLS: Final = 8
_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille cell: column, then row from the top."""
_BRAILLE: Final = 0x2800
LOG_FROM: Final = 8.0
"""An axis whose values span more than this factor is logarithmic."""


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one run.

    Attributes:
        mark: One letter, at each point.
        token: Its colour.
        points: (x, y), in the order in which they are joined.
    """

    mark: str
    token: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """How an axis is written.

    Attributes:
        title: What it shows, with its unit.
        text: A value as text.
    """

    title: str
    text: Callable[[float], str]


def xy_rows(
    title: str,
    x_axis: Axis,
    y_axis: Axis,
    series: Sequence[Series],
    width: int,
    height: int,
    glyphs: Glyphs,
) -> list[Row]:
    """A chart in exactly `height` rows: title, plot, ends of the x axis.

    The y axis begins at 0; the x axis is logarithmic where its values span a factor of 8 or more.
    """
    head = Line().add(title, "title").add("  ").add(y_axis.title, "dim")
    if width <= LABEL_CELLS + 8 or height < 4:
        return [head.row(width), *(text_row("", width) for _ in range(height - 1))][:height]
    points = [point for one in series for point in one.points]
    if not points:
        empty = text_row("  nothing measured to draw", width, "dim")
        return [head.row(width), empty, *(text_row("", width) for _ in range(height - 2))]
    plot_width, plot_height = width - LABEL_CELLS, height - 2
    lowest_x, highest_x = min(x for x, _ in points), max(x for x, _ in points)
    highest_y = max(y for _, y in points) or 1.0
    logarithmic = lowest_x > 0 and highest_x / lowest_x >= LOG_FROM
    canvas = _Canvas(plot_width, plot_height, glyphs)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        """Shares of the plot's width and height."""
        x, y = point
        if highest_x == lowest_x:
            return 0.5, y / highest_y
        if logarithmic:
            share = math.log(x / lowest_x) / math.log(highest_x / lowest_x)
        else:
            share = (x - lowest_x) / (highest_x - lowest_x)
        return share, y / highest_y

    for one in series:
        places = [place(point) for point in one.points]
        for begin, end in pairwise(places):
            canvas.line(begin, end, one.token)
    for one in reversed(series):
        for point in one.points:
            canvas.mark(place(point), one.mark, one.token)
    rows = [head.row(width)]
    for y, spans in enumerate(canvas.spans()):
        label = ""
        if y == 0:
            label = y_axis.text(highest_y)
        elif y == plot_height - 1:
            label = y_axis.text(0.0)
        elif plot_height >= 9 and y == plot_height // 2:
            label = y_axis.text(highest_y * (1 - y / (plot_height - 1)))
        line = Line().cell(label, LABEL_CELLS - 1, "dim", ">").add(" ").extend(spans)
        rows.append(line.row(width))
    foot = Line().add(" " * LABEL_CELLS).add(x_axis.text(lowest_x), "dim")
    middle = f"{x_axis.title}{', log' if logarithmic else ''}"
    foot.pad_to(max(foot.width + 1, LABEL_CELLS + (plot_width - len(middle)) // 2))
    foot.add(middle, "dim")
    if highest_x != lowest_x:
        foot.right([(x_axis.text(highest_x), "dim")], width)
    rows.append(foot.row(width))
    return rows[:height]


class _Canvas:
    """Dots of lines below, letters above."""

    def __init__(self, width: int, height: int, glyphs: Glyphs) -> None:
        self._width, self._height = width, height
        self._fine = (2, 4) if glyphs.braille else (1, 1)
        self._braille = glyphs.braille
        self._bits: dict[tuple[int, int], int] = {}
        self._tokens: dict[tuple[int, int], str] = {}
        self._marks: dict[tuple[int, int], tuple[str, str]] = {}

    def _dot(self, place: tuple[float, float]) -> tuple[int, int]:
        columns, rows = self._width * self._fine[0], self._height * self._fine[1]
        x = round(place[0] * (columns - 1))
        y = round((1 - place[1]) * (rows - 1))
        return min(max(x, 0), columns - 1), min(max(y, 0), rows - 1)

    def line(self, begin: tuple[float, float], end: tuple[float, float], token: str) -> None:
        """Join two places."""
        (x0, y0), (x1, y1) = self._dot(begin), self._dot(end)
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(steps + 1):
            x, y = x0 + round((x1 - x0) * step / steps), y0 + round((y1 - y0) * step / steps)
            cell = (x // self._fine[0], y // self._fine[1])
            bit = _DOTS[x % 2][y % 4] if self._braille else 1
            self._bits[cell] = self._bits.get(cell, 0) | bit
            self._tokens.setdefault(cell, token)

    def mark(self, place: tuple[float, float], mark: str, token: str) -> None:
        """Put a letter there; of two on one cell the later one is seen."""
        x, y = self._dot(place)
        self._marks[(x // self._fine[0], y // self._fine[1])] = (mark, token)

    def spans(self) -> list[list[tuple[str, str]]]:
        """Spans of each line, top first."""
        lines = []
        for y in range(self._height):
            spans: list[tuple[str, str]] = []
            for x in range(self._width):
                text, token = self._cell((x, y))
                if spans and spans[-1][1] == token:
                    spans[-1] = (spans[-1][0] + text, token)
                else:
                    spans.append((text, token))
            lines.append(spans)
        return lines

    def _cell(self, cell: tuple[int, int]) -> tuple[str, str]:
        if cell in self._marks:
            return self._marks[cell]
        bits = self._bits.get(cell, 0)
        if not bits:
            return " ", "text"
        return (chr(_BRAILLE + bits) if self._braille else "."), self._tokens[cell]
