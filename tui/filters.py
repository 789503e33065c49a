"""The filter language of lists: words that must occur, `!word` that must not, `power<200`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_COMPARISON = re.compile(r"^([a-z]+)\s*(<=|>=|<|>|=)\s*(-?\d+(?:\.\d+)?)$")
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b,
}


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter. An absent value fits no comparison."""

    words: tuple[str, ...] = ()
    not_words: tuple[str, ...] = ()
    comparisons: tuple[tuple[str, str, float], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.words or self.not_words or self.comparisons)

    def fits(self, text: str, numbers: Mapping[str, float | None]) -> bool:
        """Whether something with that text and those numbers is to be shown."""
        text = text.lower()
        if any(word not in text for word in self.words):
            return False
        if any(word in text for word in self.not_words):
            return False
        for name, operator, limit in self.comparisons:
            value = numbers.get(name)
            if value is None or not _OPERATORS[operator](value, limit):
                return False
        return True


def parse(text: str) -> Filter:
    """Parse what was typed; anything that is no comparison is a word, so no input is an error."""
    words, not_words, comparisons = [], [], []
    for part in text.lower().replace("&", " ").split():
        match = _COMPARISON.match(part)
        if match:
            comparisons.append((match[1], match[2], float(match[3])))
        elif part.startswith("!") and len(part) > 1:
            not_words.append(part[1:])
        elif part != "!":
            words.append(part)
    return Filter(tuple(words), tuple(not_words), tuple(comparisons))
