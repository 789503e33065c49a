"""Lines of a log as rows of spans: level and rank in a gutter, wrapped or cut, matches marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import chop_cells

from backends.servers.logquery import Kind, Pattern, PatternTooSlow, kind_of, level_of
from backends.servers.logtext import Item
from backends.servers.prefixes import Level
from tui.format import width_of
from tui.rows import Line, Row, Span
from tui.themes import Look

GUTTER: Final = 6
MAX_WRAPPED: Final = 20
"""Rows that one line may take; what is beyond is reached by scrolling to the side, unwrapped."""
LETTERS: Final = {
    Level.DEBUG: "D", Level.INFO: "I", Level.WARNING: "W", Level.ERROR: "E", Level.CRITICAL: "C",
}  # fmt: skip
TOKENS: Final = {
    Level.DEBUG: "dim", Level.INFO: "text", Level.WARNING: "warning", Level.ERROR: "critical",
    Level.CRITICAL: "critical",
}  # fmt: skip
RANK_TOKENS: Final = ("accent", "busy", "good", "info", "title", "memory", "temperature", "power")


def spans_of(item: Item, glyph: str, folded: int = 0) -> list[Span]:
    """The text of an item, prefix dimmed, level coloured."""
    line = item.line
    if line is None:
        return [(f"{glyph * 3} {item.mark.strip()} {glyph * 3}", "info")]
    level = level_of(line)
    token = TOKENS[level] if level is not None else "text"
    if kind_of(line) is Kind.FRAME:
        token = "dim"
    text, message = line.text.rstrip("\ufffd") if line.updates else line.text, line.message
    spans: list[Span] = []
    if message and len(message) < len(text) and text.endswith(message):
        spans += [(text[: -len(message)], "dim"), (message, token)]
    else:
        spans.append((text, "busy" if line.progress is not None else token))
    if line.updates > 1:
        spans.append((f"  ({line.updates} updates)", "dim"))
    for other in line.overwritten:
        spans.append((f"  [before: {other}]", "dim"))
    if line.truncated:
        spans.append((f"  [{line.size} bytes, cut]", "warning"))
    if folded:
        spans.append((f"  [{folded} line{'' if folded == 1 else 's'} folded, z opens]", "info"))
    return spans


def gutter_of(item: Item, look: Look, *, current: bool, marked: bool) -> list[Span]:
    """Cursor, letter of the level, rank: six cells."""
    cursor = look.glyphs.cursor if current else look.glyphs.marked if marked else " "
    line = item.line
    level = level_of(line) if line is not None else None
    letter = LETTERS[level] if level is not None else " "
    token = TOKENS[level] if level is not None and level is not Level.INFO else "dim"
    rank = line.rank if line is not None else None
    shown = "" if rank is None else str(rank)[-3:]
    rank_token = "dim" if rank is None else RANK_TOKENS[rank % len(RANK_TOKENS)]
    return [(cursor, "accent"), (letter, token), (f"{shown:>3} ", rank_token)]


def highlighted(spans: Sequence[Span], pattern: Pattern | None) -> list[Span]:
    """Spans with what fits a pattern set off."""
    if pattern is None:
        return list(spans)
    text = "".join(piece for piece, _ in spans)
    try:
        found = pattern.spans(text)
    except PatternTooSlow:
        return list(spans)
    if not found:
        return list(spans)
    result: list[Span] = []
    at = 0
    for piece, token in spans:
        here = 0
        for start, end in found:
            low, high = max(start - at, here), min(end - at, len(piece))
            if low < high:
                result += [(piece[here:low], token), (piece[low:high], "badge")]
                here = high
        result.append((piece[here:], token))
        at += len(piece)
    return [span for span in result if span[0]]


def cropped(spans: Sequence[Span], left: int, width: int) -> list[Span]:
    """The spans that lie in `width` cells from `left` on."""
    result: list[Span] = []
    at = 0
    for text, token in spans:
        length = width_of(text)
        low, high = left - at, left + width - at
        at += length
        if high <= 0:
            break
        if length <= low:
            continue
        simple = length == len(text)
        piece = text[max(0, low) : high] if simple else _crop_wide(text, low, high)
        if piece:
            result.append((piece, token))
    return result


def _crop_wide(text: str, low: int, high: int) -> str:
    kept = []
    at = 0
    for character in text:
        width = width_of(character)
        if at >= high:
            break
        if at >= low and at + width <= high:
            kept.append(character)
        elif at + width > low:
            kept.append(" " * (min(at + width, high) - max(at, low)))
        at += width
    return "".join(kept)


def wrapped(spans: Sequence[Span], width: int, most: int) -> list[list[Span]]:
    """The spans in rows of at most `width` cells."""
    rows: list[list[Span]] = [[]]
    left = width
    for text, token in spans:
        rest = text
        while rest:
            if width_of(rest) <= left:
                rows[-1].append((rest, token))
                left -= width_of(rest)
                break
            piece = rest[:left] if rest.isascii() else _fitting(rest, left)
            if piece:
                rows[-1].append((piece, token))
                rest = rest[len(piece) :]
            if len(rows) == most:
                return rows
            rows.append([])
            left = width
    return rows


def _fitting(text: str, width: int) -> str:
    if width <= 1:
        return ""
    return chop_cells(text[: width + 1], width)[0]


def rows_of(
    item: Item,
    width: int,
    look: Look,
    *,
    left: int = 0,
    wrap: bool = False,
    most: int = MAX_WRAPPED,
    pattern: Pattern | None = None,
    current: bool = False,
    marked: bool = False,
    folded: int = 0,
) -> list[Row]:
    """The rows that an item takes."""
    spans = spans_of(item, look.glyphs.rule, folded)
    space = max(4, width - GUTTER)
    base = "cursor-row" if current else "bar-row" if marked else "text"
    gutter = gutter_of(item, look, current=current, marked=marked)
    if not wrap:
        # Far more than a screen is never worth marking.
        short = cropped(highlighted(_short(spans, left + space + 400), pattern), left, space)
        return [Line().extend(gutter).extend(short).row(width, base)]
    short = highlighted(_short(spans, space * most + 400), pattern)
    rows = []
    for number, piece in enumerate(wrapped(short, space, max(1, most))):
        line = Line()
        if number == 0:
            line.extend(gutter)
        else:
            line.add(" " * GUTTER)
        rows.append(line.extend(piece).row(width, base))
    return rows


def _short(spans: Sequence[Span], most: int) -> list[Span]:
    result: list[Span] = []
    for text, token in spans:
        result.append((text[:most], token))
        most -= len(text)
        if most <= 0:
            break
    return result
