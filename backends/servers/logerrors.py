"""Which lines of a log are errors of their own, and which belong to one that was told. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from backends.servers.lines import LogLine
from backends.servers.logquery import ERRORS, Kind, kind_of
from backends.servers.tracebacks import CHAIN, TracebackReader

_Voice = tuple[str | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class ErrorSeen:
    """A line worth keeping in view.

    Attributes:
        key: The same for the same error.
        counts: Whether it is an error of its own; else it says more of the one before.
        replaces: Key of a line that says less of the same error; empty where there is none.
    """

    key: str
    counts: bool
    replaces: str = ""


class ErrorReader:
    """Takes the lines that may be errors, in order; the others need not be shown to it.

    A traceback is one error: its head counts, and its exception says what it was. So is one that
    a logger announces on the line before, one chained to another, and one whose every line has
    the level error, as vLLM prints them.
    """

    def __init__(self) -> None:
        self._tracebacks = TracebackReader()
        self._heads: dict[str | None, str] = {}
        self._announced_until = -1
        """Where a line ends that may announce the traceback behind it."""
        self._words_until = -1
        """Where an exception's words end, which may go on in the voice of its line."""
        self._voice: _Voice | None = None
        self._chained: set[str | None] = set()

    def take(self, line: LogLine, end: int) -> ErrorSeen | None:
        """Look at a line.

        Args:
            line: It may be cut.
            end: Where the next one begins.
        """
        exception = self._tracebacks.take(line)
        message, source = line.message, line.source
        voice: _Voice = (line.stamp, source, line.level)
        announced = line.offset == self._announced_until
        goes_on = line.offset == self._words_until and voice == self._voice
        if CHAIN.match(message.lstrip()):
            self._chained.add(source)
            return None
        if exception is not None:
            self._words_until, self._voice = end, voice
            head = self._heads.pop(source, None) or self._heads.pop(None, "")
            return ErrorSeen(_key(message), counts=False, replaces=head)
        if not ERRORS.wants(line):
            return None
        if kind_of(line) is Kind.HEAD:
            return self._head(message, source, announced=announced)
        if goes_on and line.stamp is not None:
            self._words_until = end
            return None
        if self._tracebacks.inside or not message.strip():
            return None
        self._announced_until = end
        return ErrorSeen(_key(message), counts=True)

    def _head(self, message: str, source: str | None, *, announced: bool) -> ErrorSeen | None:
        chained = source in self._chained
        self._chained.discard(source)
        if len(self._heads) > 64:
            self._heads.clear()
        bare = message.lstrip().startswith("Traceback")
        if bare and (chained or announced):
            return None
        key = _key(message) + f" {source}" if bare else _key(message)
        if bare:
            self._heads[source] = key
        return ErrorSeen(key, counts=not chained)


def _key(message: str) -> str:
    return message[:120]
