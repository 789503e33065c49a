"""Filled curves from braille dots (or ASCII columns). Pure functions.

A cell is two points wide and four dots high. A point without a value leaves its column empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from tui.glyphs import Glyphs

_LEFT = (0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x80, 0xA0, 0xB0, 0xB8)
_BASE = 0x2800

FULL = frozenset("\u28ff#")
"""Cells that are filled to the top."""


def points_for(width: int) -> int:
    """How many points a chart of that width shows."""
    return width * 2


def curve(
    values: Sequence[float | None], height: int, low: float, high: float, glyphs: Glyphs
) -> list[str]:
    """Lines of text, top first, for `values` between `low` (bottom) and `high` (top).

    A value at or below `low` still shows its lowest dot: it was measured, and a gap was not.
    """
    levels = height * 4
    span = (high - low) or 1.0
    # 0 stands for a gap: what was measured has one dot at least.
    heights = tuple(
        0 if value is None else max(1, min(levels, round((value - low) / span * levels)))
        for value in values
    )
    return list(_lines(heights if len(heights) % 2 == 0 else (0, *heights), height, glyphs.braille))


@lru_cache(64)
def _lines(heights: tuple[int, ...], height: int, braille: bool) -> tuple[str, ...]:
    """Lines for heights in dots; a curve that has not moved is not drawn again."""
    pairs = list(zip(heights[::2], heights[1::2], strict=True))
    table = _BRAILLE if braille else _COLUMNS
    lowest, highest = min(heights, default=0), max(heights, default=0)
    lines = []
    for row in range(height - 1, -1, -1):
        floor = row * 4
        if highest <= floor:
            lines.append(" " * len(pairs))
        elif lowest >= floor + 4:
            lines.append(table[4][4] * len(pairs))
        else:
            cells = [
                table[min(4, max(0, left - floor))][min(4, max(0, right - floor))]
                for left, right in pairs
            ]
            lines.append("".join(cells))
    return tuple(lines)


def _table(cell: Callable[[int, int], str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(cell(left, right) for right in range(5)) for left in range(5))


def _dots(left: int, right: int) -> str:
    dots = (_LEFT[left - 1] if left else 0) | (_RIGHT[right - 1] if right else 0)
    return chr(_BASE + dots) if dots else " "


_BRAILLE = _table(_dots)
_COLUMNS = _table(lambda left, right: " .:|#"[max(left, right)])
"""Cells by the dots (0 to 4) of their left and right half."""


def sparkline(values: Sequence[float | None], low: float, high: float, glyphs: Glyphs) -> str:
    """One line: a column of eight heights a value, blank where there is none."""
    span = (high - low) or 1.0
    top = len(glyphs.levels) - 1
    return "".join(
        " " if value is None
        else glyphs.levels[max(0, min(top, round((value - low) / span * top)))]
        for value in values
    )  # fmt: skip
