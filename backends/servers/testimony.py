"""The witnesses of a server in words, and where they contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backends.servers.engines import Phase
from backends.servers.verdict import Outcome, Verdict
from backends.servers.witnesses import (
    ActivitySeen,
    HttpSeen,
    PortOwner,
    ProcessSeen,
    Witness,
    Witnesses,
)

Fresh = Callable[[float], bool]
"""Whether an answer of that time still counts."""


@dataclass(frozen=True, slots=True)
class Testimony:
    """What one witness said, and when."""

    witness: Witness
    said: str
    at_s: float
    stale: bool = False


def testimonies(seen: Witnesses, fresh: Fresh) -> tuple[Testimony, ...]:
    """What each witness that was heard has said."""
    said: list[tuple[Witness, str, float]] = []
    if seen.stop_asked_at_s is not None:
        words = f"stop, by {seen.stop_asked_by}" if seen.stop_asked_by else "stop"
        if seen.restart_by:
            words = f"restart, by {seen.restart_by}"
        said.append((Witness.OPERATOR, words, seen.stop_asked_at_s))
    if seen.link is not None:
        said.append((Witness.LINK, "up" if seen.link.up else "down", seen.link.at_s))
    if seen.process is not None:
        said.append((Witness.PROCESS, _process(seen.process), seen.process.at_s))
    if seen.log is not None:
        said.append((Witness.LOG, _log(seen.log.verdict), seen.log.at_s))
    if seen.http is not None:
        said.append((Witness.HTTP, f"{seen.http.path} {_answer(seen.http)}", seen.http.at_s))
    if seen.port is not None:
        words = f"{seen.port.port}: {seen.port.owner.value} {seen.port.holder}".rstrip()
        said.append((Witness.PORT, words, seen.port.at_s))
    if seen.activity is not None:
        said.append((Witness.ACTIVITY, _activity(seen.activity), seen.activity.at_s))
    if seen.completion is not None:
        words = "completed" if seen.completion.ok else f"failed: {seen.completion.detail}"
        said.append((Witness.COMPLETION, words, seen.completion.at_s))
    if seen.kernel is not None:
        said.append((Witness.KERNEL, seen.kernel.text[:200], seen.kernel.at_s))
    return tuple(Testimony(who, words, at_s, not fresh(at_s)) for who, words, at_s in said)


def disagreements(seen: Witnesses, fresh: Fresh) -> tuple[str, ...]:
    """Contradictions, each in one sentence."""
    found: list[str] = []
    http, process, port, log = seen.http, seen.process, seen.port, seen.log
    alive = process is not None and process.alive
    http_good = http is not None and http.good and fresh(http.at_s)
    stranger = port is not None and port.owner is PortOwner.STRANGER and fresh(port.at_s)
    log_ready = log is not None and log.phase is Phase.READY
    failing = log is not None and log.verdict.outcome in (Outcome.CRASH, Outcome.STALLED)
    if stranger and port is not None:
        answer = " and answers as if it were ready" if http_good else ""
        holder = port.holder or "unknown"
        found.append(f"port {port.port} belongs to another process{answer}: {holder}")
    if http_good and not stranger and log is not None and not log_ready:
        if failing:
            found.append("HTTP answers well although the log shows a failure")
        else:
            found.append("ready by HTTP, while the log has not said so")
    if log_ready and alive and http is not None and not http_good and fresh(http.at_s):
        found.append(f"the log says ready, while {http.path} says {_answer(http)}")
    answered_since = http is not None and process is not None and http.at_s >= process.at_s
    if process is not None and not alive and http_good and answered_since:
        found.append("its process is gone, and something still answers")
    if alive and failing and not http_good:
        found.append("the log shows a failure, while the process lives")
    if seen.completion is not None and not seen.completion.ok and http_good:
        found.append("HTTP answers well, while a completion fails")
    if alive and process is not None and process.dead_workers:
        found.append("the main process lives, while workers are dead")
    return tuple(found)


def _answer(http: HttpSeen) -> str:
    return str(http.code) if http.code is not None else http.reason or "nothing"


def _process(process: ProcessSeen) -> str:
    number = "1 process" if process.members == 1 else f"{process.members} processes"
    words = f"alive, {number}" if process.alive else "gone"
    if process.dead_workers:
        words += f", dead: {', '.join(process.dead_workers[:4])}"
    if process.exit_code is not None:
        words += f", exit code {process.exit_code}"
    return words


def _activity(activity: ActivitySeen) -> str:
    last = activity.last()
    if last is None:
        return "nothing moves"
    return f"{last[1]} {max(0.0, activity.at_s - last[0]):.0f} s ago"


def _log(verdict: Verdict) -> str:
    if verdict.outcome in (Outcome.CRASH, Outcome.STALLED):
        return f"{verdict.outcome.value}: {verdict.title}"
    if verdict.outcome is Outcome.READY:
        return f"ready (line {verdict.ready_line})"
    if verdict.outcome is Outcome.STOPPED:
        return "stopped"
    return verdict.phase.words
