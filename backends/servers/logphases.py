"""Which phase of a start the lines of a log belong to, in the words of the engine that wrote it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from backends.servers.engines import Engine, EngineGuess, Phase
from backends.servers.lines import LogLine
from backends.servers.logquery import Query
from backends.servers.logstore import LogStore
from backends.servers.logtext import Item
from backends.servers.phrases import Phrases

MAX_GUESS_LINES: Final = 2000
MAX_READ_CHARS: Final = 1024


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


def of_phase(engine: Engine, phase: Phase) -> Callable[[LogLine], bool]:
    """A test for `Query` that says yes of the lines of a phase; it must see all lines in order."""
    reader = PhaseReader(engine)
    return lambda line: reader.take(line) is phase
