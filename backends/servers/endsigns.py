"""What a line says of a server that ends: a stop, a wait for others, a death, and why."""

from __future__ import annotations

import re
from typing import Final

from backends.servers.catalogue import Catalogue, Context
from backends.servers.engines import Engine, EngineId
from backends.servers.engines.base import SUPERVISED
from backends.servers.lines import LogLine
from backends.servers.prefixes import Level
from backends.servers.run import Evidence, Place, Run
from backends.servers.tracebacks import PyException
from backends.servers.words import Words

CALM: Final = frozenset({Level.DEBUG, Level.INFO, Level.WARNING})
GRAVE: Final = frozenset({Level.ERROR, Level.CRITICAL})
_REASSURING: Final = re.compile(
    r"(?i)can be (?:safely )?ignored|harmless|not fatal|non-fatal|falling back|fallback to|"
    r"will (?:be )?(?:retr(?:y|ied)|ignored|fall)|\bretrying\b|\bskipp(?:ing|ed)\b|"
    r"\bto silence this\b|\bthrown while requesting (?:HEAD|GET)\b|"
    r"\bignor(?:e|ing)\b|\b(?:is|are|was|were) ignored\b|\bha(?:s|ve) no effect\b|"
    r"this is (?:expected|normal)"
)
_MAYBE_QUIET: Final = re.compile(
    r"(?i)in use|killed|oom|lost|bus\b|bind|terminated by sig|cuda|nvidia|nvml|driver|"
    r"leaked|time limit|/dev/"
)
_SUPERVISED: Final = re.compile(SUPERVISED)
_WARNS: Final = re.compile(r"(?i)^warn(?:ing)?\b|^\S{0,200}:\d+: \w*warning: |^\S{1,80}: warning: ")


class EndSigns:
    """Reads them in the words of one engine, and notes them in the run at hand."""

    def __init__(self, engine: Engine, words: Words, catalogue: Catalogue) -> None:
        self._engine = engine
        self._words = words
        self._catalogue = catalogue

    def find_wait(self, run: Run, line: LogLine, message: str) -> None:
        """Count reports of waiting that follow each other."""
        if not self._words.waiting.found_in(message):
            run.waits, run.first_wait = 0, None
            return
        run.waits += 1
        run.first_wait = run.first_wait or Place(line.number, line.text[:400])

    def find_stop(self, run: Run, line: LogLine, message: str) -> None:
        """Note the line of an orderly stop."""
        if not self._words.stop.found_in(message):
            return
        for index, pattern in enumerate(self._engine.stop.marks):
            if pattern.search(message) is not None:
                if self._engine.id is EngineId.LLAMACPP and index == 0 and _failing(run):
                    return
                if run.stop_line is None:
                    run.stop_line = line.number
                run.stops.setdefault(index, Place(line.number, line.text[:400]))
                return

    def find_end(self, run: Run, line: LogLine, message: str) -> None:
        """Note the line that only a dying server prints, or that takes readiness back."""
        if line.level in CALM and _SUPERVISED.match(message) is None:
            return
        if run.ready is not None and self._words.not_ready.found_in(message):
            run.dead = run.dead or Place(line.number, line.text[:400])
            run.withdraw()
        if run.dead is None and self._words.fatal.found_in(message):
            run.dead = Place(line.number, line.text[:400])

    def find_cause(
        self,
        run: Run,
        line: LogLine,
        message: str,
        context: Context,
        *,
        inside: bool,
        ignored: bool,
        exception: PyException | None,
    ) -> None:
        """Note what the catalogue knows of a line.

        Args:
            run: Where to note it.
            line: As it was read.
            message: Of the line, without blanks around it.
            context: Phase and version.
            inside: The line belongs to a traceback.
            ignored: Python itself ignored that one.
            exception: The line ends a traceback with it.
        """
        quiet = line.level in CALM or (
            line.level is None and not inside and _WARNS.search(message) is not None
        )
        if quiet and _MAYBE_QUIET.search(message) is None:
            return
        if not inside and line.level not in GRAVE and _REASSURING.search(message):
            return
        if exception is not None and exception.orderly:
            return
        context = Context(context.engine, context.phase, context.version, quiet)
        for match in self._catalogue.find(message, context):
            cause = match.cause
            if cause.kind == "stop" or (ignored and cause.kind != "cause"):
                continue
            if inside and exception is None and cause.kind in ("general", "silent", "echo"):
                continue  # source lines of a traceback quote much that is not an error
            evidence = run.causes.get(cause.id)
            if evidence is None:
                evidence = Evidence(cause, line.number)
                run.causes[cause.id] = evidence
            evidence.loud |= not quiet
            if match.signature not in evidence.places:
                place = Place(line.number, line.text[:2000])
                evidence.places[match.signature] = (place, match)


def _failing(run: Run) -> bool:
    return any(evidence.cause.kind in ("cause", "symptom") for evidence in run.causes.values())
