"""What is printed, fitted to a terminal; piped or in a file it stays as wide as it is."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TextIO

LEAST: Final = 40
"""Columns below which nothing is fitted any more."""
GAP: Final = 2


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal that a stream goes to; None where it goes elsewhere."""
    try:
        if not stream.isatty():
            return None
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return None
    return max(LEAST, columns) if columns else None


def wrapped(text: str, width: int | None) -> Iterator[str]:
    """A line, broken between words, what follows indented below it."""
    if width is None or len(text) <= width:
        yield text
        return
    indent = " " * (len(text) - len(text.lstrip()))
    yield from textwrap.wrap(
        text.lstrip(), width, initial_indent=indent, subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
    )  # fmt: skip


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Sequence[int] = (),
    *,
    width: int | None = None,
    drop: Sequence[int] = (),
) -> str:
    """Columns as wide as they must be.

    Args:
        header: Their names.
        rows: Their cells.
        right: Columns that end flush.
        width: What a line may take; None for as much as it is.
        drop: Columns that are left out where a line is longer, in this order. What is still too
            long is broken between words.
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    kept = list(range(len(header)))
    for place in drop:
        if width is None or _total(widths, kept) <= width:
            break
        kept.remove(place)
    return "\n".join(
        part
        for line in lines
        for part in wrapped(
            "  ".join(
                line[i].rjust(widths[i]) if i in right else line[i].ljust(widths[i]) for i in kept
            ).rstrip(),
            width,
        )
    )


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[i] for i in kept) + GAP * (len(kept) - 1)
