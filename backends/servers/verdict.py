"""What a log shows, in one answer: outcome, cause, the line that shows it, what to try."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from backends.servers.catalogue import fill, fill_title
from backends.servers.engines import EngineId, Phase
from backends.servers.judge import LogJudge
from backends.servers.run import Evidence, Place, Run, Warned
from backends.servers.tracebacks import PyException

_KILLED_EXITS = frozenset({-9, 137, 9 + 128})
KILLED = "killed-no-message"
STOPPED = "operator-stop"
WAITING = "workers-wait"
_LAST_LINES = 2
_ECHO_LINES = 200
_WAITS = 5
"""Reports of waiting, one a minute, without a word of anything else."""
_NOT_WHY = ("symptom", "echo")
_EXPLICIT_STOP = re.compile(r"SIGTERM|SIGINT|\[shutdown\]|KeyboardInterrupt|\^C", re.IGNORECASE)
_DIED = re.compile(r"(?i)\b(?:is dead|died|crashed|exited)\b")
_ECHO_OF_DEATH = re.compile(r"EngineDeadError")


class Outcome(StrEnum):
    """How a run ended, or where it stands."""

    READY = "ready"
    CRASH = "crash"
    STALLED = "stalled"
    LOADING = "loading"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of one log."""

    engine: EngineId
    version: str | None
    outcome: Outcome
    phase: Phase
    """Where the run stands, or where it ended."""
    ready_line: int | None
    cause: str | None
    """Id in the catalogue; None where nothing failed, or nothing known did."""
    evidence: Place | None
    title: str
    remedies: tuple[str, ...]
    reference: str
    warnings: tuple[Warned, ...]
    exception: PyException | None = None
    """The traceback that belongs to a failure, where there is one."""


def judge_run(judge: LogJudge, exit_code: int | None = None) -> Verdict:
    """Weigh what the newest run of a log has shown.

    Args:
        judge: Has taken all lines there are.
        exit_code: Of the main process, where it is known; negative for a signal.
    """
    judge.settle()
    run = judge.run
    failure = _first_failure(run)
    if run.stop_line is not None and (
        failure is None or run.stop_line <= failure or _only_echoes_a_stop(run, failure)
    ):
        return _stopped(judge)
    finding = _failed(judge, exit_code) or _waiting(judge)
    if finding is not None:
        return finding
    if run.ready is not None:
        return _answer(judge, Outcome.READY, run.ready, "ready")
    if run.serving is not None:
        return _answer(judge, Outcome.READY, run.serving, "serving; the log begins after readiness")
    return _loading(judge)


def _answer(
    judge: LogJudge,
    outcome: Outcome,
    evidence: Place | None,
    title: str,
    cause: str | None = None,
    remedies: tuple[str, ...] = (),
    reference: str = "",
    exception: PyException | None = None,
) -> Verdict:
    run = judge.run
    return Verdict(
        engine=judge.engine.id,
        version=judge.version,
        outcome=outcome,
        phase=run.memory_phase,
        ready_line=None if run.ready is None else run.ready.line,
        cause=cause,
        evidence=evidence,
        title=title,
        remedies=remedies,
        reference=reference,
        warnings=tuple(sorted(run.warnings.values(), key=lambda warned: warned.line)),
        exception=exception,
    )


def _stopped(judge: LogJudge) -> Verdict:
    run = judge.run
    evidence = run.stops[min(run.stops)] if run.stops else None
    cause = judge.catalogue_entry(STOPPED)
    return _answer(
        judge,
        Outcome.STOPPED,
        evidence,
        cause.entry.title if cause else "stopped",
        cause.id if cause else None,
    )


def _only_echoes_a_stop(run: Run, failure: int) -> bool:
    """Whether all that failed is that one process noticed another's end just before the stop.

    A stop signal reaches all processes of a server at once, and the engine may be quicker than
    the web server. Whatever it says itself would be more than an echo.
    """
    explicit = [place for place in run.stops.values() if _EXPLICIT_STOP.search(place.text)]
    return (
        bool(explicit)
        and min(place.line for place in explicit) - failure < _ECHO_LINES
        and all(exception.wrapper for exception in run.exceptions)
        and all(evidence.cause.kind in _NOT_WHY for evidence in _telling(run))
        and (run.dead is None or _ECHO_OF_DEATH.search(run.dead.text) is not None)
    )


def _waiting(judge: LogJudge) -> Verdict | None:
    """A stall: processes wait for each other where nothing is compiled that would explain it."""
    run = judge.run
    cause = judge.catalogue_entry(WAITING)
    nothing_compiles = run.up or run.phase in (Phase.LAUNCHING, Phase.DISTRIBUTED)
    if run.first_wait is None or run.waits < _WAITS or not nothing_compiles or cause is None:
        return None
    return _answer(
        judge,
        Outcome(cause.entry.outcome),
        run.first_wait,
        cause.entry.title,
        cause.id,
        tuple(cause.entry.remedies),
        cause.entry.reference,
    )


def _loading(judge: LogJudge) -> Verdict:
    run = judge.run
    if not run.phases:
        place = run.last[-1] if run.last else None
        binary = judge.unreadable * 2 > judge.lines
        title = "starting" if place is not None and not binary else _nothing(judge)
        return _answer(judge, Outcome.LOADING, place, title)
    entry = run.phases[-1]
    title = f"loading: {entry.phase.words}"
    if run.progress is not None and run.progress.fraction is not None:
        title += f", {run.progress.fraction:.0%}"
    return _answer(judge, Outcome.LOADING, Place(entry.line, entry.text), title)


def _nothing(judge: LogJudge) -> str:
    """Why no line tells anything."""
    if judge.unreadable:
        return f"no log, it seems: {judge.unreadable} of its {judge.lines} lines are no text"
    return "the log is empty" if not judge.lines else "nothing is written in the log yet"


def _telling(run: Run) -> list[Evidence]:
    """Causes that count as a failure of this run."""
    if run.up and run.dead is None:
        return []
    return [
        evidence
        for evidence in run.causes.values()
        if evidence.cause.kind not in ("silent", "stop")
    ]


def _unknown(run: Run) -> PyException | None:
    """The exception that ended the run: the first that passes on no other's failure."""
    if run.up and run.dead is None:
        return None
    real = [exception for exception in run.exceptions if not exception.ignored]
    for exception in real:
        if not exception.wrapper:
            return exception
    return real[-1] if real else None


def _first_failure(run: Run) -> int | None:
    """Line of the first sign that the run failed."""
    lines = [evidence.first_line for evidence in _telling(run) if evidence.loud]
    if run.dead is not None:
        lines.append(run.dead.line)
    exception = _unknown(run)
    if exception is not None:
        lines.append(exception.line)
    return min(lines, default=None)


def _failed(judge: LogJudge, exit_code: int | None) -> Verdict | None:
    run = judge.run
    exception = _unknown(run)
    found = _telling(run)
    loud = [evidence for evidence in found if evidence.loud]
    chosen = _first(loud, exception, "cause") or _first(loud, exception, "general")
    if chosen is not None:
        return _explain(judge, _refined(chosen, found), exception)
    killed = _killed(run, exit_code)
    if killed is not None and (exception is None or killed.line < exception.line):
        return _silent(judge, killed)
    if exception is None and run.dead is not None:
        chosen = _first(found, None, "cause")  # said only as a warning, and nothing else is
    chosen = (
        chosen
        or _died_first(loud, exception)
        or _first(loud, exception, "echo")
        or _first(loud, exception, "symptom")
    )
    if chosen is not None:
        return _explain(judge, _refined(chosen, list(run.overcome.values())), exception)
    if exception is not None:
        return _answer(
            judge, Outcome.CRASH, _line_of(exception), str(exception), exception=exception
        )
    ended = _ended_silently(run)
    if ended is not None:
        return _silent(judge, ended)
    if run.dead is not None:
        return _answer(judge, Outcome.CRASH, run.dead, run.dead.text.strip()[:200])
    if run.prompt_line is not None and not run.up:
        last = next((place for place in reversed(run.last) if place.line < run.prompt_line), None)
        return _answer(judge, Outcome.CRASH, last, "ended without a word; the shell came back")
    return None


def _refined(chosen: Evidence, found: list[Evidence]) -> Evidence:
    """What says more precisely than the cause itself why: an error, or a warning before it."""
    finer = [
        item
        for item in found
        if chosen.cause.id in item.cause.entry.refines
        and (item.loud or item.first_line <= chosen.first_line)
    ]
    return min(finer, key=lambda item: item.first_line, default=chosen)


def _first(found: list[Evidence], exception: PyException | None, *kinds: str) -> Evidence | None:
    """The earliest cause of some kinds, but for those that echo an earlier exception."""

    def echoes(evidence: Evidence) -> bool:
        return (
            exception is not None
            and not exception.wrapper
            and exception.line < evidence.first_line
            and (evidence.cause.entry.echoes or evidence.cause.kind == "echo")
        )

    candidates = [item for item in found if item.cause.kind in kinds and not echoes(item)]
    return min(candidates, key=lambda item: (item.first_line, item.cause.order), default=None)


def _died_first(found: list[Evidence], exception: PyException | None) -> Evidence | None:
    """What says outright that a process died, before those that depend on it missed it."""
    symptom = _first(found, exception, "symptom")
    echo = _first(found, exception, "echo")
    if symptom is None or echo is None or _DIED.search(symptom.best[0].text) is None:
        return None
    missed = echo.first_line if exception is None else exception.head_line
    only_echo = exception is None or exception.wrapper
    return symptom if only_echo and symptom.first_line < missed else None


def _explain(judge: LogJudge, chosen: Evidence, exception: PyException | None) -> Verdict:
    place, match = chosen.best
    groups: dict[str, str] = {}
    for _, other in chosen.places.values():
        groups = {**other.groups, **groups}
    groups = {**groups, **match.groups}
    entry = chosen.cause.entry
    if exception is not None and exception.wrapper and _DIED.search(place.text) is not None:
        exception = None
    if entry.kind == "symptom" and exception is not None and not judge.run.up:
        # A start that fails is told by its exception; a crash while serving by its moment.
        place = _line_of(exception)
    title = fill_title(entry.title, groups)
    if entry.kind == "symptom" and exception is not None:
        title = f"{title}: {exception}"
    remedies = tuple(
        filled for filled in (fill(remedy, groups) for remedy in entry.remedies) if filled
    )
    return _answer(
        judge,
        Outcome(entry.outcome),
        place,
        title,
        entry.id,
        remedies,
        entry.reference,
        exception,
    )


def _killed(run: Run, exit_code: int | None) -> Place | None:
    """Where it is said outright that a process of it was killed."""
    evidence = run.causes.get(KILLED)
    if evidence is not None and (not run.up or run.dead is not None):
        place, match = evidence.best
        if not match.weak:
            return place
    if exit_code in _KILLED_EXITS:
        return run.last[-1] if run.last else Place(0, "")
    return None


def _ended_silently(run: Run) -> Place | None:
    """The line that shows that it was killed, where nothing else explains the end.

    The shell's word counts only where the server did not kill itself; what Python's resource
    tracker prints about leaks counts only as the last thing that is said.
    """
    evidence = run.causes.get(KILLED)
    if evidence is None:
        return None
    place, _ = evidence.best
    if run.dead is not None and run.dead.line < place.line:
        return None
    if "leaked" in place.text and run.last and run.last[-1].line - place.line > _LAST_LINES:
        return None
    return place


def _silent(judge: LogJudge, place: Place) -> Verdict:
    cause = judge.catalogue_entry(KILLED)
    return _answer(
        judge,
        Outcome.CRASH,
        place,
        cause.entry.title if cause else "killed without a word",
        KILLED,
        tuple(cause.entry.remedies) if cause else (),
    )


def _line_of(exception: PyException) -> Place:
    words = f"{exception.type}: {exception.words}" if exception.words else exception.type
    return Place(exception.line, words)
