"""Rows of text as data: what widgets make of values, before any colour.

A row is a tuple of spans, a span is a text and a token that says what it is. Rows compare, so
that a widget repaints only the cells that differ: `changes` finds them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tui.format import fit, width_of

Span = tuple[str, str]
"""Text and token (`tui.themes`)."""

MERGE_GAP = 10
"""Changed pieces closer than this are painted as one: moving the cursor costs as much."""


class Row(NamedTuple):
    """One line: its spans, and what kind of row it is (`text`, `cursor-row`, `bar-row`)."""

    spans: tuple[Span, ...]
    base: str = "text"

    @property
    def plain(self) -> str:
        """The text alone."""
        return "".join(text for text, _ in self.spans)

    @property
    def width(self) -> int:
        """Cells."""
        return sum(width_of(text) for text, _ in self.spans)


class Line:
    """Builds a row from left to right."""

    __slots__ = ("spans", "width")

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.width = 0

    def add(self, text: str, token: str = "text") -> Line:
        """Append text as it is."""
        if text:
            self.spans.append((text, token))
            self.width += width_of(text)
        return self

    def cell(self, text: str, width: int, token: str = "text", align: str = "<") -> Line:
        """Append text in exactly `width` cells."""
        if width > 0:
            self.spans.append((fit(text, width, align), token))
            self.width += width
        return self

    def extend(self, spans: Iterable[Span]) -> Line:
        """Append spans."""
        for text, token in spans:
            self.add(text, token)
        return self

    def pad_to(self, column: int, token: str = "text") -> Line:
        """Fill with spaces up to a column."""
        if self.width < column:
            self.add(" " * (column - self.width), token)
        return self

    def right(self, spans: Iterable[Span], width: int) -> Line:
        """Append spans so that they end at `width`; dropped where there is no room."""
        spans = tuple(spans)
        length = sum(width_of(text) for text, _ in spans)
        if self.width + length <= width:
            self.pad_to(width - length)
            self.extend(spans)
        return self

    def row(self, width: int, base: str = "text") -> Row:
        """The row, cut or padded to `width`."""
        return fit_row(Row(tuple(self.spans), base), width)


def fit_row(row: Row, width: int) -> Row:
    """Cut or pad a row to exactly `width` cells."""
    used = 0
    for number, (text, token) in enumerate(row.spans):
        length = width_of(text)
        if used + length > width:
            kept = row.spans[:number]
            if used < width:
                kept = (*kept, (fit(text, width - used), token))
            return Row(kept, row.base)
        used += length
    if used < width:
        return Row((*row.spans, (" " * (width - used), "text")), row.base)
    return row


def text_row(text: str, width: int, token: str = "text", base: str = "text") -> Row:
    """A row of one span."""
    return Row(((fit(text, width), token),), base)


def blank_row(width: int) -> Row:
    """An empty row."""
    return Row(((" " * width, "text"),))


def changes(old: Row, new: Row) -> list[tuple[int, int]]:
    """Cell ranges `(start, end)` in which two rows of the same width differ."""
    if old == new:
        return []
    if old.base != new.base:
        return [(0, new.width)]
    ranges: list[tuple[int, int]] = []
    old_cells, new_cells = _cells(old), _cells(new)
    length = max(len(old_cells), len(new_cells))
    start = None
    for x in range(length):
        same = x < len(old_cells) and x < len(new_cells) and old_cells[x] == new_cells[x]
        if not same and start is None:
            start = x
        elif same and start is not None:
            _append(ranges, start, x)
            start = None
    if start is not None:
        _append(ranges, start, length)
    return ranges


def _append(ranges: list[tuple[int, int]], start: int, end: int) -> None:
    if ranges and start - ranges[-1][1] < MERGE_GAP:
        ranges[-1] = (ranges[-1][0], end)
    else:
        ranges.append((start, end))


def _cells(row: Row) -> list[Span]:
    cells: list[Span] = []
    for text, token in row.spans:
        if text.isascii() or width_of(text) == len(text):
            cells.extend((character, token) for character in text)
        else:
            # Wide characters: the span stands or falls as one.
            cells.extend([(text, token)] * width_of(text))
    return cells
