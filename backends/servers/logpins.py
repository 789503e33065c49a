"""What must not scroll by: the newest errors and the performance warnings of a log. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from backends.servers.engines import ENGINES
from backends.servers.engines.base import Advice
from backends.servers.lines import LogLine
from backends.servers.logquery import ERRORS
from backends.servers.logtext import parse_line
from backends.servers.phrases import Phrases

MAX_PINS: Final = 40
MAX_JUDGED_CHARS: Final = 4096
"""What a line is, its beginning says; a pattern is never tried on more."""
_HINT: Final = re.compile(
    rb"(?i)warn|perform|optimal|fall|default|disab|overrid|overrul|reset|balanc|availab|adjust|"
    rb"reduc|ignor|slow|not |no "
)


@dataclass(frozen=True, slots=True)
class Pin:
    """A line to be kept in view.

    Attributes:
        offset: Its place, the newest where it came more than once.
        title: The advice in words, or the line itself.
        error: An error; else a performance warning.
        count: How often it came.
    """

    offset: int
    title: str
    error: bool
    count: int = 1


class Pins:
    """Takes lines and keeps what must not scroll by."""

    def __init__(self) -> None:
        advice = {one.pattern.pattern: one for engine in ENGINES.values() for one in engine.advice}
        self._advice: list[Advice] = list(advice.values())
        self._phrases = Phrases(one.pattern for one in self._advice)
        self._ready = Phrases(p for engine in ENGINES.values() for p in engine.ready)
        self._begins = Phrases(
            mark.pattern for engine in ENGINES.values() for mark in engine.marks if not mark.ends
        )
        self._pins: dict[str, Pin] = {}
        self.version = 0
        self.errors = 0
        """Lines of at least the level error."""

    @property
    def pins(self) -> Iterable[Pin]:
        """Performance warnings first, then errors; of each, the newest last."""
        return sorted(self._pins.values(), key=lambda pin: (pin.error, pin.offset))

    def says_ready(self, line: LogLine) -> bool:
        """Whether some engine prints this line when it serves."""
        return self._ready.found_in(line.message[:MAX_JUDGED_CHARS])

    def begins_phase(self, line: LogLine) -> bool:
        """Whether some engine prints this line when a phase of its start begins."""
        return self._begins.found_in(line.message[:MAX_JUDGED_CHARS])

    def take(self, raw: bytes, offset: int) -> None:
        """Look at the next line."""
        if ERRORS.wants_raw(raw, offset):
            line = parse_line(raw, offset)
            self.errors += 1
            self._pin(line.message[:120], line.message, offset, error=True)
        elif _HINT.search(raw):
            message = parse_line(raw, offset).message[:MAX_JUDGED_CHARS]
            if self._phrases.found_in(message):
                for one in self._advice:
                    if one.pattern.search(message):
                        self._pin(one.id, one.title, offset, error=False)
                        break

    def _pin(self, key: str, title: str, offset: int, *, error: bool) -> None:
        before = self._pins.pop(key, None)
        self._pins[key] = Pin(offset, title, error, 1 + (before.count if before else 0))
        if len(self._pins) > MAX_PINS:
            oldest = next((k for k, pin in self._pins.items() if pin.error), next(iter(self._pins)))
            del self._pins[oldest]
        self.version += 1
