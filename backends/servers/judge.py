"""Reads a log line by line and says, at any moment, what it shows: phase, readiness, failure.

Only what the log says is judged here; whether the process lives and answers are other witnesses
(`lifecycle`). Rules, in the order of their strength:

- Readiness is the line that the engine prints last, not the web server's first words; a bind error
  afterwards takes it back. It also settles what was complained about before.
- Once ready, errors and tracebacks are the clients' affair unless the engine says that it dies.
- An orderly stop that comes before the first failure makes all that follows part of the stop.
- The cause is the earliest plain one; a general one, an unknown exception, a line that only says
  that something died come after it, and what others print when a process dies comes last.
- Nothing at all is also a verdict: killed without a word, or still loading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from backends.servers.catalogue import Catalogue, Cause, Context
from backends.servers.endsigns import GRAVE, EndSigns
from backends.servers.engines import Engine, EngineGuess, EngineId
from backends.servers.lines import Event, LineUpdate, LogLine, Skimmed
from backends.servers.prefixes import split_prefix
from backends.servers.progress import parse_progress
from backends.servers.run import Place, Run, Warned
from backends.servers.startsigns import StartSigns
from backends.servers.tracebacks import PyException, TracebackReader
from backends.servers.words import Words

MAX_WARNINGS: Final = 64
_MAX_PENDING: Final = 256
_ENOUGH: Final = 4
_FRIGHTENING: Final = re.compile(r"(?i)error|fail|unable|cannot|could not")
_DUMP: Final = 800
_MAX_JUDGED: Final = 4096
_MAX_ASIDE: Final = 1024
"""Of each piece that a carriage return overwrote; a line may have four of them."""
_MAX_GUESSED: Final = 1024
_UNREADABLE: Final = "\ufffd"
_PROMPT: Final = re.compile(r"^(?:\([\w.-]+\) )?[\w.-]+@[\w.-]+[: ]\S*[$#%] ?$|^[$%] ?$")
_CHILD: Final = re.compile(r"\d{4,5}")
_LAST_WORDS: Final = 6


class LogJudge:
    """Takes the lines of a log and keeps the state of its newest run.

    Args:
        catalogue: Known causes.
        engine: Who writes the log, where that is known; else it is guessed from the lines, and
            the first lines are held back until the guess is good enough.
    """

    def __init__(self, catalogue: Catalogue, engine: EngineId | None = None) -> None:
        self._catalogue = catalogue
        self._guess = EngineGuess(engine)
        self._engine: Engine | None = self._guess.best if engine is not None else None
        self._listen(self._guess.best)
        self._pending: list[LogLine] = []
        self._tracebacks = TracebackReader()
        self.version: str | None = None
        self._version_is_old = False
        self.run = Run()
        self.runs = 1
        """How many runs the log has shown."""
        self.lines = 0
        self.unreadable = 0
        """How many lines were no text."""

    @property
    def engine(self) -> Engine:
        """Who writes this log, as far as is known."""
        return self._engine if self._engine is not None else self._guess.best

    def catalogue_entry(self, cause_id: str) -> Cause | None:
        """The catalogue's cause of that id, if it has one."""
        return self._catalogue.get(cause_id)

    def take_all(self, events: Iterable[Event]) -> None:
        """Take what a reader gave."""
        for event in events:
            if isinstance(event, LogLine):
                self.take(event)
            elif isinstance(event, LineUpdate):
                self.take_update(event)
            else:
                self.take_skimmed(event)

    def take(self, line: LogLine) -> None:
        """Take the next line."""
        self.lines = line.number
        if len(line.text) > _MAX_JUDGED:
            # What a line is, its beginning says; dozens of patterns on 64 KiB would take 0.1 s.
            line = replace(line, text=line.text[:_MAX_JUDGED], message=line.message[:_MAX_JUDGED])
        if self._engine is None:
            self._hold(line)
            return
        self._judge(line, self._engine)

    def take_update(self, update: LineUpdate) -> None:
        """Take a bar that moved within an unfinished line."""
        if self._engine is not None:
            self._starts.bar(self.run, update.progress, update.number, update.text)

    @property
    def skim(self) -> re.Pattern[bytes] | None:
        """Start of lines that need no reading now: what serving prints over and over."""
        if self._engine is None or not self.run.up or self.run.dead is not None:
            return None
        return self._words.skim

    def take_skimmed(self, skimmed: Skimmed) -> None:
        """Take note of lines that were passed over."""
        self.run.served += skimmed.count
        self.run.waits, self.run.first_wait = 0, None
        if self.run.causes or self.run.exceptions:
            for raw in skimmed.last:
                text = raw.decode("utf-8", "replace")
                if self._words.served.found_in(split_prefix(text).message):
                    self.run.forgive()
                    return

    def settle(self) -> None:
        """No better guess of the engine will come: judge the lines that were held back."""
        if self._engine is None:
            self._engine = self._guess.best
            self._listen(self._engine)
            pending, self._pending = self._pending, []
            for line in pending:
                self._judge(line, self._engine)

    def _listen(self, engine: Engine) -> None:
        self._words = Words(engine)
        self._starts = StartSigns(engine, self._words)
        self._ends = EndSigns(engine, self._words, self._catalogue)

    def _hold(self, line: LogLine) -> None:
        self._guess.look(line.text[:_MAX_GUESSED], line.message[:_MAX_GUESSED])
        self._pending.append(line)
        if self._guess.settled or len(self._pending) >= _MAX_PENDING:
            self.settle()

    def _judge(self, line: LogLine, engine: Engine) -> None:
        run, message = self.run, line.message
        if _UNREADABLE in message and message.count(_UNREADABLE) * 4 > len(message):
            self.unreadable += 1
            return  # binary
        if engine.routine is not None and engine.routine.match(message):
            if not run.up and not run.phases and run.dead is None:
                run.serving = Place(line.number, line.text[:400])
            if run.up:
                self._starts.served(run, line)
                return
        if line.overwritten:
            for text in line.overwritten:
                self._say(_as_line(line, text[:_MAX_ASIDE]), engine)
        if line.progress is not None:
            self._starts.bar(run, line.progress, line.number, line.text)
        if message.strip():
            self._say(line, engine)

    def _say(self, line: LogLine, engine: Engine) -> None:
        """Judge a line that says something."""
        message = line.message.strip()
        # A router's children have the port for a name: their banners are not the router's.
        child = engine.id is EngineId.LLAMACPP and _CHILD.fullmatch(line.source or "") is not None
        if self.run.over and not child and self._words.banner.found_in(message):
            self._new_run(line.number)
        run = self.run
        if self.version is None or not run.over:
            self._find_version(line, engine)
        was_inside = self._tracebacks.inside
        exception = self._tracebacks.take(line)
        inside = self._tracebacks.inside
        opens = inside and not was_inside  # "Scheduler hit an exception: Traceback ..."
        announces = False
        if not inside and line.level not in GRAVE:
            announces = self._starts.take(run, line, message)
        self._ends.find_wait(run, line, message)
        inner = child and run.up  # a model that fails or is put away; the router serves others
        if not inner:
            self._ends.find_stop(run, line, message)
        if exception is not None:
            self._note_exception(exception)
        if not inner and (not inside or opens or exception is not None):
            self._ends.find_end(run, line, message)
        # Lines that announce a phase dump configurations, which are full of frightening words.
        if not announces or (len(message) < _DUMP and _FRIGHTENING.search(message)):
            self._ends.find_cause(
                run,
                line,
                message,
                Context(engine.id, run.memory_phase, self.version),
                inside=inside,
                ignored=self._tracebacks.ignored,
                exception=exception,
            )
        if not inside and not (announces and len(message) >= _DUMP):
            self._find_advice(line, message, engine)
        run.prompt_line = line.number if _PROMPT.search(line.text) else None
        run.last.append(Place(line.number, line.text[:400]))
        del run.last[:-_LAST_WORDS]

    def _new_run(self, number: int) -> None:
        self.run = Run(first_line=number)
        self.runs += 1
        self._version_is_old = True
        self._tracebacks = TracebackReader()

    def _find_version(self, line: LogLine, engine: Engine) -> None:
        for pattern in engine.version:
            found = pattern.search(line.message) or pattern.search(line.text)
            if found is not None:
                if self.version is None or self._version_is_old:
                    self.version = engine.version_prefix + found[1].rstrip(".")[:60]
                    self._version_is_old = False
                return

    def _note_exception(self, exception: PyException) -> None:
        run = self.run
        if exception.orderly:
            return
        run.last_exception = exception
        if len(run.exceptions) < 64:
            run.exceptions.append(exception)

    def _find_advice(self, line: LogLine, message: str, engine: Engine) -> None:
        run = self.run
        serving = run.up
        words = self._words.serving_advice if serving else self._words.advice
        if not words.found_in(message):
            return
        for advice in engine.advice:
            if serving and not advice.while_serving:
                continue
            if advice.pattern.search(message) is None:
                continue
            known = run.warnings.get(advice.id)
            if known is not None:
                known.count += 1
            elif len(run.warnings) < MAX_WARNINGS:
                run.warnings[advice.id] = Warned(
                    advice.id, advice.title, line.number, message[:600]
                )
            return


def _as_line(line: LogLine, text: str) -> LogLine:
    """A piece that was overwritten, as a line of its own."""
    prefix = split_prefix(text)
    parsed = parse_progress(prefix.message)
    return LogLine(
        number=line.number,
        offset=line.offset,
        size=line.size,
        text=text,
        message=parsed[1] if parsed is not None else prefix.message,
        level=prefix.level,
        stamp=prefix.stamp,
        source=prefix.source,
        rank=prefix.rank,
    )
