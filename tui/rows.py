"""Rows of text as data: what widgets make of values, before any colour.

A row is a tuple of spans, a span is a text and a token that says what it is. Rows compare, so
that a widget repaints only the cells that differ: `changes` finds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from tui.format import fit, width_of

Span = tuple[str, str]
"""Text and token (`tui.themes`)."""

MERGE_GAP = 10
"""Changed pieces closer than this are painted as one: moving the cursor costs as much."""


class Row(NamedTuple):
    """One line.

    Attributes:
        spans: Pieces of text, left to right.
        base: What kind of row it is (`text`, `cursor-row`, `bar-row`).
        cells: Its width, where it is known; 0 has it counted.
    """

    spans: tuple[Span, ...]
    base: str = "text"
    cells: int = 0

    @property
    def plain(self) -> str:
        """The text alone."""
        return "".join(text for text, _ in self.spans)

    @property
    def width(self) -> int:
        """Cells."""
        return self.cells or sum(width_of(text) for text, _ in self.spans)


_PIECES: Final = re.compile(r"\S+|\s+")


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
            self.width += len(text) if text.isascii() else width_of(text)
        return self

    def cell(self, text: str, width: int, token: str = "text", align: str = "<") -> Line:
        """Append text in exactly `width` cells."""
        if width > 0:
            self.spans.append((fit(text, width, align), token))
            self.width += width
        return self

    def extend(self, spans: Iterable[Span]) -> Line:
        """Append spans."""
        for span in spans:
            text = span[0]
            if text:
                self.spans.append(span)
                self.width += len(text) if text.isascii() else width_of(text)
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
        return fit_row(Row(tuple(self.spans), base, self.width), width)


def fit_row(row: Row, width: int) -> Row:
    """Cut or pad a row to exactly `width` cells."""
    spans, base, _ = row
    used = row.width
    if used == width:
        return row if row.cells else Row(spans, base, width)
    if used < width:
        return Row((*spans, (" " * (width - used), "text")), base, width)
    kept: list[Span] = []
    left = width
    for text, token in spans:
        length = width_of(text)
        if length > left:
            if left:
                kept.append((fit(text, left), token))
            break
        kept.append((text, token))
        left -= length
    return Row(tuple(kept), base, width)


def text_row(text: str, width: int, token: str = "text", base: str = "text") -> Row:
    """A row of one span."""
    return Row(((fit(text, width), token),), base, width)


def blank_row(width: int) -> Row:
    """An empty row."""
    return Row(((" " * width, "text"),), "text", width)


def between_words(spans: Iterable[Span], width: int, most: int) -> list[list[Span]]:
    """Spans in lines of at most `width` cells, broken at spaces where there are any.

    Args:
        spans: What to break.
        width: Of a line.
        most: Lines that there may be; the last one holds the rest.
    """
    lines: list[list[Span]] = [[]]
    used = 0
    for text, token in spans:
        for piece in _PIECES.findall(text):
            cells = width_of(piece)
            may_break = bool(lines[-1]) and lines[-1][-1][0].isspace() and not piece.isspace()
            if may_break and used + cells > width and len(lines) < most:
                lines.append([])
                used = 0
            lines[-1].append((piece, token))
            used += cells
    return lines


def changes(old: Row, new: Row) -> list[tuple[int, int]]:
    """Cell ranges `(start, end)` in which two rows of the same width differ."""
    if old.spans == new.spans and old.base == new.base:
        return []
    if old.base != new.base:
        return [(0, new.width)]
    ranges: list[tuple[int, int]] = []
    x = 0
    old_left, new_left = list(reversed(old.spans)), list(reversed(new.spans))
    while old_left and new_left:
        before, after = old_left.pop(), new_left.pop()
        if before == after:
            x += width_of(after[0])
            continue
        # Take as many spans of either side as it needs for both to end at the same cell.
        befores, afters = [before], [after]
        behind = width_of(before[0]) - width_of(after[0])
        while behind and (old_left if behind < 0 else new_left):
            if behind < 0:
                befores.append(old_left.pop())
                behind += width_of(befores[-1][0])
            else:
                afters.append(new_left.pop())
                behind -= width_of(afters[-1][0])
        x = _compare(_cells(befores), _cells(afters), x, ranges)
    if old_left or new_left:
        _append(ranges, x, max(old.width, new.width))
    return ranges


def _compare(old: list[Span], new: list[Span], x: int, ranges: list[tuple[int, int]]) -> int:
    start = None
    for number in range(max(len(old), len(new))):
        same = number < len(old) and number < len(new) and old[number] == new[number]
        if not same and start is None:
            start = x + number
        elif same and start is not None:
            _append(ranges, start, x + number)
            start = None
    end = x + max(len(old), len(new))
    if start is not None:
        _append(ranges, start, end)
    return end


def _append(ranges: list[tuple[int, int]], start: int, end: int) -> None:
    if ranges and start - ranges[-1][1] < MERGE_GAP:
        ranges[-1] = (ranges[-1][0], end)
    else:
        ranges.append((start, end))


def _cells(spans: Iterable[Span]) -> list[Span]:
    cells: list[Span] = []
    for text, token in spans:
        if text.isascii() or width_of(text) == len(text):
            cells += [(character, token) for character in text]
        else:
            # Wide characters: the span stands or falls as one.
            cells += [(text, token)] * width_of(text)
    return cells
