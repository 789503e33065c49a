"""Filled curves from braille dots (or ASCII columns). Pure functions.

A cell is two points wide and four dots high. A point without a value leaves its column empty.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    heights = [
        None if value is None
        else max(1, min(levels, round((value - low) / span * levels)))
        for value in values
    ]  # fmt: skip
    if len(heights) % 2:
        heights.insert(0, None)
    lines = []
    for row in range(height - 1, -1, -1):
        floor = row * 4
        if glyphs.braille:
            lines.append(
                "".join(
                    _cell(_dots(left, floor, _LEFT) | _dots(right, floor, _RIGHT))
                    for left, right in zip(heights[::2], heights[1::2], strict=True)
                )
            )
        else:
            lines.append(
                "".join(
                    _ascii_cell(left, right, floor)
                    for left, right in zip(heights[::2], heights[1::2], strict=True)
                )
            )
    return lines


def _dots(height: int | None, floor: int, bits: Sequence[int]) -> int:
    if height is None or height <= floor:
        return 0
    return bits[min(4, height - floor) - 1]


def _cell(dots: int) -> str:
    return chr(_BASE + dots) if dots else " "


def _ascii_cell(left: int | None, right: int | None, floor: int) -> str:
    known = [value for value in (left, right) if value is not None]
    if not known:
        return " "
    filled = max(known) - floor
    return " " if filled <= 0 else ".:|#"[min(4, filled) - 1]


def sparkline(values: Sequence[float | None], low: float, high: float, glyphs: Glyphs) -> str:
    """One line: a column of eight heights a value, blank where there is none."""
    span = (high - low) or 1.0
    top = len(glyphs.levels) - 1
    return "".join(
        " " if value is None
        else glyphs.levels[max(0, min(top, round((value - low) / span * top)))]
        for value in values
    )  # fmt: skip
