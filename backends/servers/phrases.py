"""Many patterns looked for in one go.

Most lines of a log match nothing, so what counts is how fast nothing is found: patterns that can
only match at the start of a line are tried there once, all the others are searched for together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"\(\?P<\w+>")
_COUNTED = re.compile(r"\{\d*,?\d*\}")
_LONER = re.compile(r"\(\?[aiLmsux]|\\[1-9]|\(\?P=")
"""Flags and back references, which do not survive being joined with others."""


class Phrases:
    """Tells whether any of some patterns is found in a text."""

    def __init__(self, patterns: Iterable[re.Pattern[str]]) -> None:
        anchored: list[str] = []
        free: list[str] = []
        self._alone: list[re.Pattern[str]] = []
        for pattern in patterns:
            source = _NAME.sub("(?:", pattern.pattern)
            if _LONER.search(source):
                self._alone.append(pattern)
                continue
            for alternative in split_alternatives(source):
                (anchored if alternative.startswith("^") else free).append(alternative)
        self._anchored = _join(anchored)
        self._free = _join(free)

    def found_in(self, text: str) -> bool:
        """Whether any pattern is found."""
        if self._anchored is not None and self._anchored.match(text) is not None:
            return True
        if self._free is not None and self._free.search(text) is not None:
            return True
        return any(pattern.search(text) is not None for pattern in self._alone)


def split_alternatives(pattern: str) -> list[str]:
    """Split a regular expression at the bars that lie outside all groups and sets."""
    parts: list[str] = []
    depth, in_set, start, index = 0, False, 0, 0
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            index += 1
        elif in_set:
            in_set = char != "]"
        elif char == "[":
            in_set = True
            if pattern[index + 1 : index + 2] == "]":
                index += 1
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "|" and depth == 0:
            parts.append(pattern[start:index])
            start = index + 1
        index += 1
    parts.append(pattern[start:])
    return parts


def _join(alternatives: list[str]) -> re.Pattern[str] | None:
    if not alternatives:
        return None
    return re.compile("|".join(f"(?:{alternative})" for alternative in alternatives))


def required_text(pattern: str) -> str:
    """The longest text that anything matching a regular expression must contain.

    Only what stands outside groups and sets and is not optional is looked at; empty where there
    is none, or where the whole pattern is a choice.
    """
    if len(split_alternatives(pattern)) > 1:
        return ""
    runs, run, index = [""], "", 0
    while index < len(pattern):
        char, width = pattern[index], 1
        literal = char if char not in "^$.|?*+{}()[]" else ""
        if char == "\\":
            width = 2
            escaped = pattern[index + 1 : index + 2]
            literal = escaped if not escaped.isalnum() else ""
        elif char == "(":
            width = _group_width(pattern, index)
        elif char == "[":
            width = _set_width(pattern, index)
        after = pattern[index + width : index + width + 1]
        if literal and after not in ("?", "*", "{"):
            run += literal
        else:
            runs.append(run)
            run = ""
        if after == "+":
            runs.append(run)
            run = ""
        counted = _COUNTED.match(pattern, index + width)
        if counted is not None:
            width += len(counted[0])
        index += width
    return max((*runs, run), key=len)


def _group_width(pattern: str, start: int) -> int:
    depth, index = 0, start
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            index += 1
        elif char == "[":
            index += _set_width(pattern, index) - 1
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth == 0:
                return index - start + 1
        index += 1
    return len(pattern) - start


def _set_width(pattern: str, start: int) -> int:
    index = start + 1
    if pattern[index : index + 1] == "^":
        index += 1
    if pattern[index : index + 1] == "]":
        index += 1
    while index < len(pattern) and pattern[index] != "]":
        index += 2 if pattern[index] == "\\" else 1
    return index - start + 1
