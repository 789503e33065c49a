"""Lines of a log that are shown as one: bars that were printed a line a step, tracebacks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from backends.servers.lines import LogLine
from backends.servers.logquery import Kind, kind_of
from backends.servers.logtext import Item

Shown = tuple[Item, int]
"""An item and how many lines are folded into it."""


def folded_bars(items: Sequence[Item], opened: Collection[int]) -> list[Shown]:
    """Each run of lines that are steps of the same bar as its newest step.

    Args:
        items: In order.
        opened: A run that holds a line which begins at one of these places stays unfolded.

    Returns:
        Items that cover the same bytes: a folded one begins where the first step does, ends where
        the last one does and shows the last.
    """
    result: list[Shown] = []
    at = 0
    while at < len(items):
        end = at + 1
        while end < len(items) and _same_bar(items[end - 1].line, items[end].line):
            end += 1
        run = items[at:end]
        if len(run) == 1 or any(item.offset in opened for item in run if opened):
            result += [(item, 0) for item in run]
        else:
            first, last = run[0], run[-1]
            folded = Item(first.offset, last.end - first.offset, last.line)
            result.append((folded, len(run) - 1))
        at = end
    return result


def _same_bar(before: LogLine | None, line: LogLine | None) -> bool:
    """Whether a line is a later step of the bar on the line before, and nothing else."""
    if before is None or line is None or before.progress is None or line.progress is None:
        return False
    if before.message or line.message or before.source != line.source:
        return False
    one, two = before.progress, line.progress
    # Some have in brackets what changes with each step: Capturing batches (bs=8 ...).
    same = one.label.partition("(")[0] == two.label.partition("(")[0] and one.total == two.total
    return same and one.done <= two.done


def folded_tracebacks(shown: Sequence[Shown], opened: Collection[int]) -> list[Shown]:
    """Each traceback as its head and its exception.

    Args:
        shown: In order.
        opened: A traceback whose head begins at one of these places stays unfolded.
    """
    result: list[Shown] = []
    head = -1
    for item, folded in shown:
        kind = kind_of(item.line) if item.line is not None else Kind.PLAIN
        if kind is Kind.HEAD:
            head = len(result)
        elif kind is not Kind.FRAME:
            head = -1
        elif head >= 0 and result[head][0].offset not in opened:
            result[head] = (result[head][0], result[head][1] + 1)
            continue
        result.append((item, folded))
    return result
