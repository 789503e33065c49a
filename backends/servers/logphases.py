"""Which phase of a start the lines of a log belong to, in the words of the engine that wrote it."""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from backends.servers.engines import Engine, EngineGuess, Phase
from backends.servers.lines import LogLine
from backends.servers.logquery import Query
from backends.servers.logsieve import Sieve
from backends.servers.logstore import LogStore
from backends.servers.logtext import Item, each_line, parse_line
from backends.servers.phrases import Phrases, required_text, split_alternatives

MAX_GUESS_LINES: Final = 2000
MAX_READ_CHARS: Final = 1024
CHUNK_BYTES: Final = 128 * 1024
ESCAPE: Final = b"\x1b"
"""Colours may stand within words: such lines are read."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9 _.:=-]{4,}")
"""What stands in the bytes of a line as it does in its message, whatever is wrapped around it."""


class PhaseReader:
    """Takes all lines of a log in order and says the phase of each.

    A server that is ready stays so until the first line of another run.

    Args:
        engine: Whose words count.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._marks = Phrases(mark.pattern for mark in engine.marks)
        self._ready = Phrases(engine.ready)
        self._banner = Phrases(engine.banner)
        self.phase: Phase | None = None

    def take(self, line: LogLine) -> Phase | None:
        """The phase that a line belongs to; None before the first one."""
        message = line.message[:MAX_READ_CHARS]
        if self.phase is Phase.READY and not self._banner.found_in(message):
            return self.phase
        if self._ready.found_in(message):
            self.phase = Phase.READY
        elif self._marks.found_in(message):
            for mark in self._engine.marks:
                if mark.pattern.search(message) is not None:
                    # The line that ends a phase still belongs to it.
                    self.phase = mark.phase
                    break
        elif line.progress is not None:
            for label, phase in self._engine.bars:
                if label.search(line.progress.label) is not None:
                    self.phase = phase
                    break
        return self.phase


class PhaseFinder:
    """Takes a log in chunks and says where its phase changes; most lines are not even parsed.

    Args:
        engine: Whose words count.

    Attributes:
        reader: Knows the phase of the last line that was taken.
    """

    def __init__(self, engine: Engine) -> None:
        self.reader = PhaseReader(engine)
        marks = [mark.pattern for mark in engine.marks]
        bars = [label for label, _ in engine.bars]
        self._banner = _sieve(engine.banner)
        self._any = _sieve([*marks, *engine.ready, *engine.banner, *bars])

    def take(self, offset: int, data: bytes) -> Iterator[tuple[int, Phase]]:
        """The next whole lines; gives the places from which on they belong to another phase."""
        found: dict[bool, list[tuple[int, int]]] = {}
        at = 0
        while True:
            ready = self.reader.phase is Phase.READY  # then only another run matters
            if ready not in found:
                found[ready] = _lines(self._banner if ready else self._any, data)
            index = bisect_left(found[ready], (at, 0))
            if index == len(found[ready]):
                return
            begin, at = found[ready][index]
            before = self.reader.phase
            phase = self.reader.take(parse_line(data[begin:at], offset + begin))
            if phase is not None and phase is not before:
                yield offset + begin, phase


def _lines(sieve: Sieve | None, data: bytes) -> list[tuple[int, int]]:
    if sieve is not None:
        return sieve.lines(data)
    return [(begin, begin + len(raw)) for begin, raw in each_line(data, 0)]


def _sieve(patterns: Iterable[re.Pattern[str]]) -> Sieve | None:
    """Finds every line that one of them may fit; None where that can be any line."""
    words = {ESCAPE}
    for pattern in patterns:
        for alternative in split_alternatives(pattern.pattern):
            plain = max(_PLAIN.findall(required_text(alternative)), key=len, default="")
            if not plain.strip():
                return None
            words.add(plain.lower().encode())
    return Sieve(tuple(words))


async def stretches(
    store: LogStore, finder: PhaseFinder, phase: Phase, until: int
) -> list[tuple[int, int]]:
    """The stretches of a log, from its beginning to the start of a line, that are of a phase.

    Raises:
        RoomError: It can't be read.
    """
    found: list[tuple[int, int]] = []
    begin: int | None = None
    at = store.text.start
    while at < until:
        chunk = await store.settle(partial(store.text.chunk, at, CHUNK_BYTES, back=False))
        if chunk is None:
            break
        start, data = chunk
        for place, now in finder.take(start, data[: until - start]):
            if begin is not None:
                found.append((begin, place))
            begin = place if now is phase else None
        at = start + max(len(data), 1)
        await asyncio.sleep(0)
    if begin is not None:
        found.append((begin, until))
    return found


async def guess_engine(store: LogStore) -> Engine:
    """Who wrote a log, from its first lines.

    Raises:
        RoomError: It can't be read.
    """
    guess, seen = EngineGuess(), 0

    def look(item: Item) -> bool:
        nonlocal seen
        if item.line is not None:
            guess.look(item.line.text[:MAX_READ_CHARS], item.line.message[:MAX_READ_CHARS])
            seen += 1
        return not guess.settled and seen < MAX_GUESS_LINES

    await store.scan(Query(), store.text.start, back=False, on_item=look)
    return guess.best


def of_phase(reader: PhaseReader, phase: Phase) -> Callable[[LogLine], bool]:
    """A test for `Query` that says yes of the lines of a phase; it must see all that follow."""
    return lambda line: reader.take(line) is phase
