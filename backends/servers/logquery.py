"""Which lines are wanted, and what kind a line is: levels, ranks, patterns, tracebacks.

A pattern comes from a person and may be a bad one: each search has a deadline, and one that keeps
missing it is refused in words instead of holding anything up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import regex

from backends.errors import UsageError
from backends.servers.lines import LogLine
from backends.servers.logsieve import GRAVE
from backends.servers.logtext import parse_line, text_of
from backends.servers.prefixes import Level

LINE_DEADLINE_S: Final = 0.008
MAX_SLOW_LINES: Final = 8
MAX_PATTERN_CHARS: Final = 500
LEVELS: Final = (Level.DEBUG, Level.INFO, Level.WARNING, Level.ERROR, Level.CRITICAL)
_ORDER: Final = {level: number for number, level in enumerate(LEVELS)}
_PLAIN: Final = re.compile(r"[\w \-:/,=%@!'\"<>;&~#]+")
_HEAD: Final = "Traceback (most recent call last)"
_FRAME: Final = re.compile(r'^\s+(?:File "[^"]{1,400}", line \d+|\S)')
_EXCEPTION: Final = re.compile(
    r"^(?:[A-Za-z_]\w*\.){0,12}\w*(?:Error|Exception|Interrupt|Exit)(?::|$)"
)


class PatternTooSlow(UsageError):
    """A pattern takes too long on the lines of this log."""


class Pattern:
    """A regular expression with a deadline. Small letters alone mean: in any case.

    Args:
        text: What was typed.

    Raises:
        UsageError: It is no regular expression.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_PATTERN_CHARS:
            raise UsageError("the pattern is too long", f"{len(text)} characters")
        self.text = text
        self.any_case = text == text.lower()
        flags = regex.IGNORECASE if self.any_case else 0
        try:
            self._compiled = regex.compile(text, flags)
        except (regex.error, RecursionError, OverflowError, MemoryError) as error:
            raise UsageError(
                f"no regular expression: {text!r}", str(error), r"escape ( [ * + ? . with \ "
            ) from None
        self.slow_lines = 0
        plain = _PLAIN.fullmatch(text) is not None
        self._literal = text.encode() if plain and not self.any_case else None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where it fits in a line; nowhere where it takes too long.

        Raises:
            PatternTooSlow: It took too long on many lines.
        """
        try:
            found = self._compiled.finditer(text, timeout=LINE_DEADLINE_S)
            return [match.span() for match, _ in zip(found, range(200), strict=False)]
        except TimeoutError:
            self._count_slow()
            return []

    def fits(self, text: str) -> bool:
        """Whether it fits somewhere in a line; see `spans`."""
        try:
            return self._compiled.search(text, timeout=LINE_DEADLINE_S) is not None
        except TimeoutError:
            self._count_slow()
            return False

    def may_fit(self, raw: bytes) -> bool:
        """False where the bytes of one line or many can't hold it."""
        return self._literal is None or self._literal in raw or b"\x1b" in raw

    def _count_slow(self) -> None:
        self.slow_lines += 1
        if self.slow_lines >= MAX_SLOW_LINES:
            raise PatternTooSlow(
                f"the pattern takes too long: {self.text}",
                f"more than {LINE_DEADLINE_S * 1000:.0f} ms on {self.slow_lines} lines",
                "avoid a repeat within a repeat, such as (a+)+",
            )


class Kind(StrEnum):
    """What part of a Python traceback a line is."""

    PLAIN = "plain"
    HEAD = "head"
    FRAME = "frame"
    EXCEPTION = "exception"


def kind_of(line: LogLine) -> Kind:
    """By the line alone; whether a frame belongs to a traceback, its head decides."""
    message = line.message
    if _HEAD in message:
        return Kind.HEAD
    if message[:1] in (" ", "\t") and _FRAME.match(message):
        return Kind.FRAME
    return Kind.EXCEPTION if _EXCEPTION.match(message) else Kind.PLAIN


def level_of(line: LogLine) -> Level | None:
    """The level a line states; tracebacks and bare exceptions count as errors."""
    if line.level is not None:
        return line.level
    return Level.ERROR if kind_of(line) in (Kind.HEAD, Kind.EXCEPTION) else None


@dataclass(frozen=True, slots=True)
class Query:
    """Lines that are wanted; an empty one wants all.

    Attributes:
        level: The least level.
        rank: Of this process alone.
        pattern: Must fit the line.
        without: The pattern must not fit.
        test: Must say yes of the line.
        between: Must begin there or behind, and before the second; None: to the end.
    """

    level: Level | None = None
    rank: int | None = None
    pattern: Pattern | None = None
    without: bool = False
    test: Callable[[LogLine], bool] | None = None
    between: tuple[int, int | None] | None = None

    def __bool__(self) -> bool:
        parts = (self.level, self.rank, self.pattern, self.test, self.between)
        return any(part is not None for part in parts)

    def covers(self, offset: int) -> bool:
        """Whether a line that begins there lies in the stretch that is wanted."""
        if self.between is None:
            return True
        begin, end = self.between
        return begin <= offset and (end is None or offset < end)

    def wants(self, line: LogLine) -> bool:
        """Whether a line is wanted."""
        if not self.covers(line.offset) or not self._takes(line):
            return False
        return self.pattern is None or self.pattern.fits(line.text) is not self.without

    def _takes(self, line: LogLine) -> bool:
        """By all but its place and the pattern."""
        if self.rank is not None and line.rank != self.rank:
            return False
        if self.level is not None:
            level = level_of(line)
            if level is None or _ORDER[level] < _ORDER[self.level]:
                return False
        return self.test is None or self.test(line)

    def wants_raw(self, raw: bytes, offset: int) -> bool:
        """Whether the line of these bytes is wanted; reads no more of it than it must.

        A pattern is looked for in the whole of it, also in what no screen shows of a long one.
        """
        if not self.covers(offset):
            return False
        pattern = self.pattern
        if pattern is not None and not self.without and not pattern.may_fit(raw):
            return False
        grave = self.level is not None and _ORDER[self.level] >= _ORDER[Level.WARNING]
        if grave and not GRAVE.lines(raw):
            return False
        if pattern is not None and pattern.fits(text_of(raw)) is self.without:
            return False
        if self.level is None and self.rank is None and self.test is None:
            return True
        return self._takes(parse_line(raw, offset))

    def narrowed(self, **changes: object) -> Query:
        """The same with other fields."""
        return replace(self, **changes)  # type: ignore[arg-type]


ERRORS: Final = Query(level=Level.ERROR)
