"""Which lines of many can matter, found without looking at each of them. Pure.

Most lines of a log are routine. A word is found in a chunk of bytes at memory speed, a regular
expression tried on each of its lines takes a hundred times as long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final


class Sieve:
    """Finds the lines that hold one of some words, in any case, or that a pattern fits.

    Args:
        words: In small letters; ASCII.
        pattern: Tried on the whole chunk as it is; cheapest when it begins with a set of letters.
    """

    def __init__(self, words: Sequence[bytes], pattern: re.Pattern[bytes] | None = None) -> None:
        self._words = tuple(words)
        self._pattern = pattern

    def lines(self, data: bytes) -> list[tuple[int, int]]:
        """Where those lines begin and end (line feed included), in order, each once.

        Args:
            data: Whole lines.
        """
        found: dict[int, int] = {}
        small = data.lower()
        for word in self._words:
            at = small.find(word)
            while at >= 0:
                at = small.find(word, _note(data, at, found))
        if self._pattern is not None:
            match = self._pattern.search(data)
            while match is not None:
                match = self._pattern.search(data, _note(data, match.start(), found))
        return sorted(found.items())


def _note(data: bytes, at: int, found: dict[int, int]) -> int:
    """Keep the line that holds a place; gives where the next one begins."""
    end = data.find(b"\n", at) + 1 or len(data)
    found[data.rfind(b"\n", 0, at) + 1] = end
    return end


GRAVE: Final = Sieve(
    (b"warn", b"err", b"crit", b"fatal", b"exception", b"traceback", b"interrupt", b"exit"),
    re.compile(rb"[WEF](?<!\w[WEF])\d*\b"),
)
"""Every way in which a line can state a level of at least warning has one of these in it."""
