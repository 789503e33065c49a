"""What must not scroll by: the newest errors and the performance warnings of a log. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from backends.servers.engines import ENGINES
from backends.servers.engines.base import Advice
from backends.servers.lines import LogLine
from backends.servers.logerrors import ErrorReader
from backends.servers.logsieve import GRAVE, Sieve
from backends.servers.logtext import parse_line
from backends.servers.phrases import Phrases

MAX_PINS: Final = 40
MAX_JUDGED_CHARS: Final = 1024
"""What a line is, its beginning says; a pattern is never tried on more."""
_MAX_READ_BYTES: Final = 8192
_HINTS: Final = Sieve(
    (
        b"adjust", b"are set", b"availab", b"balanc", b"casting", b"context", b"cpu kv", b"default",
        b"device_map", b"disab", b"during inf", b"equivalent", b"fail", b"fall", b"full", b"ignor",
        b"library=", b"meta device", b"n_ctx", b"no ", b"not ", b"offload", b"optimal", b"overrid",
        b"overrul", b"perf", b"preempt", b"re-proc", b"reduc", b"reset", b"retract", b"running on",
        b"set to", b"skipping", b"slow", b"specified", b"truncat", b"warn", b"work with",
    )
)  # fmt: skip
"""Every advice of an engine has one of these in it; a test holds that."""
_DIGITS: Final = b"0123456789"
_MAX_ROUTINE_BYTES: Final = 1 << 20


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
        self._errors = ErrorReader()
        self._routine: set[bytes] = set()
        self._routine_bytes = 0
        self.version = 0
        self.errors = 0
        """Errors that were logged; a traceback is one, however many lines it has."""

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

    def take(self, data: bytes, offset: int) -> None:
        """Look at the next lines.

        Args:
            data: Whole lines.
            offset: Where they begin.
        """
        if self._is_routine(data):
            return
        grave, hinted = dict(GRAVE.lines(data)), dict(_HINTS.lines(data))
        for begin, end in sorted((grave | hinted).items()):
            line = parse_line(_telling(data, begin, end), offset + begin)
            message = line.message[:MAX_JUDGED_CHARS]
            error = self._errors.take(line, offset + end) if begin in grave else None
            if error is not None:
                self.errors += error.counts
                self._pins.pop(error.replaces, None)
                self._pin(error.key, message.strip(), offset + begin, error=True)
            elif begin in hinted and self._phrases.found_in(message):
                for one in self._advice:
                    if one.pattern.search(message):
                        self._pin(one.id, one.title, offset + begin, error=False)
                        break
        if not grave and not hinted:
            self._remember(data)

    def _is_routine(self, data: bytes) -> bool:
        """Whether lines like all of these, but for their digits, were passed over before."""
        return self._routine.issuperset(data.translate(None, _DIGITS).split(b"\n"))

    def _remember(self, data: bytes) -> None:
        self._routine_bytes += len(data)
        if self._routine_bytes > _MAX_ROUTINE_BYTES:
            self._routine, self._routine_bytes = set(), len(data)
        self._routine.update(data.translate(None, _DIGITS).split(b"\n"))

    def _pin(self, key: str, title: str, offset: int, *, error: bool) -> None:
        before = self._pins.pop(key, None)
        self._pins[key] = Pin(offset, title, error, 1 + (before.count if before else 0))
        if len(self._pins) > MAX_PINS:
            oldest = next((k for k, pin in self._pins.items() if pin.error), next(iter(self._pins)))
            del self._pins[oldest]
        self.version += 1


def _telling(data: bytes, begin: int, end: int) -> bytes:
    """The bytes that say what a line is: its beginning, or the newest state of a rewritten one."""
    if end - begin <= _MAX_READ_BYTES:
        return data[begin:end]
    if data.find(b"\r", begin, end - 2) >= 0:
        return data[end - _MAX_READ_BYTES : end]
    return data[begin : begin + _MAX_READ_BYTES]
