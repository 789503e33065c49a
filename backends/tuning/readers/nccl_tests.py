"""What all_reduce_perf of nccl-tests prints: time and bandwidth by size of the message.

Columns are found by their headings, since versions differ in them. Engines reduce in place, so of
the two halves the in-place one is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from backends.tuning.facts import Fact
from backends.tuning.readers.excerpt import Excerpt, Line

LARGE_BYTES: Final = 64 << 20
"""From here on the bandwidth counts, below the latency."""
_NUMBER: Final = re.compile(r"^\d{1,12}(?:\.\d{1,6})?(?:e[+-]\d{1,2})?$")
_RANK: Final = re.compile(r"^#\s+Rank\s+\d+\s")


def read(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts `bench/allreduce/SIZE_us/value` and `bench/allreduce/SIZE_busbw_gb_s/value`."""
    heads: list[str] = []
    ranks = 0
    other = False
    for line in excerpt.lines:
        text = line.text.strip()
        if _RANK.match(text):
            ranks += 1
        elif text.startswith("#"):
            words = text[1:].split()
            if words[:3] == ["size", "count", "type"] and "busbw" in words:
                heads = words
            elif match := re.search(r"(?:Collective test starting:\s*)(\w+)", text):
                other = match[1] != "all_reduce_perf"
        elif heads and not other:
            yield from _row(excerpt, heads, text.split(), ranks, line)


def _row(
    excerpt: Excerpt, heads: list[str], cells: list[str], ranks: int, line: Line
) -> Iterator[Fact]:
    if len(cells) < len(heads) or "redop" not in heads or not cells[0].isdecimal():
        return
    if len(cells[0]) > 15:
        return
    size = int(cells[0])
    # The last of each: in place, where both halves are printed.
    last = {head: cell for head, cell in zip(heads, cells, strict=False) if head not in ("size",)}
    time, rate = last.get("time", ""), last.get("busbw", "")
    wrong = last.get("#wrong", "N/A")
    if size <= 0 or not _NUMBER.match(time) or not _NUMBER.match(rate):
        return
    large = size >= LARGE_BYTES
    value = float(rate if large else time)
    if value <= 0:
        return
    name = size_words(size) + ("_busbw_gb_s" if large else "_us")
    yield excerpt.fact(f"bench/allreduce/{name}/value", value, line)
    if ranks:
        yield excerpt.fact(f"bench/allreduce/{name}/gpus", ranks, line)
    if wrong.isdecimal() and int(wrong):
        yield excerpt.fact(f"bench/allreduce/{name}/wrong", int(wrong), line)


def size_words(size: int) -> str:
    """`8KiB`, `256MiB`; bytes where it is no whole number of these."""
    for unit, words in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{words}"
    return f"{size}B"
