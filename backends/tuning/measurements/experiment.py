"""Tries a fix that no evidence bears out: without, with, without again, and what came of it.

A belief is no rule: whether it helps is for this host to say. It is taken back before the last
runs, so that what changes by itself meanwhile (heat, clocks, neighbours) is not taken for its
doing. Whatever happens after the fix was applied, cancellation included, it is taken back; one
that was to be kept is applied once more when all three times were measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from backends.errors import AgentError, RoomError, UsageError
from backends.tuning.desk import Desk, Judged
from backends.tuning.measurements import verdict
from backends.tuning.measurements.desk import Wishes, ask, vantage_of
from backends.tuning.measurements.figures import Row, rows
from backends.tuning.measurements.history import stored
from backends.tuning.measurements.joining import joined
from backends.tuning.measurements.parts import Part, not_measured, suited
from backends.tuning.prepare import choose
from backends.tuning.runs import boot_of
from backends.tuning.snapshot import Outcome
from backends.tuning.steps import Form, Plan

RUNS: Final = 3
MAX_RUNS: Final = 50
DONE: Final = (Outcome.APPLIED, Outcome.ALREADY_SO)


@dataclass(frozen=True, slots=True)
class Trial:
    """What would be tried, and how it is measured."""

    check: str
    planned: Plan
    parts: tuple[Part, ...]
    judged: Judged

    def lines(self) -> list[str]:
        """Exactly what would be done, for the confirmation."""
        names = ", ".join(part.what for part in self.parts)
        return [
            f"measure: {names}",
            *self.planned.lines(),
            "measure",
            "take it back, measure again",
        ]


class Tried(msgspec.Struct, frozen=True):
    """What came of it.

    Attributes:
        applied: Outcome of the fix, by finding.
        kept: Whether it was left in place: applied once more, after the last runs.
        restored: Outcome of taking it back, by finding; empty where it was kept.
        note: What went wrong, if anything.
    """

    check: str
    fix: str
    snapshot: str
    at: str
    runs: int
    lines: tuple[verdict.Line, ...]
    applied: dict[str, str]
    kept: bool
    restored: tuple[str, ...] = ()
    note: str = ""

    @property
    def summary(self) -> str:
        """In one line."""
        return verdict.summary(self.lines)

    @property
    def sound(self) -> bool:
        """Whether it was applied, measured on both sides, and is as it was meant to be now."""
        back = all(word in DONE for word in self.restored)
        return back and bool(self.lines) and not self.note


_DECODER: Final = msgspec.json.Decoder(Tried)


def decode(body: bytes) -> Tried:
    """A stored experiment.

    Raises:
        msgspec.DecodeError: It is none.
    """
    return _DECODER.decode(body)


async def prepare(desk: Desk, judged: Judged, check: str, parts: Sequence[Part] = ()) -> Trial:
    """What trying the fix of a check would be. Changes nothing.

    Raises:
        UsageError: There is no such check here, its fix does not act at once, or nothing that
            we measure shows what it does.
    """
    chosen = choose(judged.findings, [check])
    if not parts and (why := not_measured(chosen[0].rule)):
        raise UsageError(f"no measurement of ours shows what {check} does", why)
    late = [f for f in chosen if f.fix is not None and not f.fix.runtime]
    if late:
        raise UsageError(
            f"{late[0].check} can't be tried at once",
            f"{late[0].fix_text}: it acts after a reboot or a restart",
            "`measure` before and after, and `measure --compare` the two",
        )
    planned = await desk.plan(judged, [check], form=Form.RUNTIME)
    rule = chosen[0].rule
    return Trial(check, planned, tuple(parts) or suited(rule), judged)


async def carry_out(
    desk: Desk,
    trial: Trial,
    *,
    keep: bool = False,
    runs: int = RUNS,
    wishes: Wishes | None = None,
    told: Callable[[str], None] = lambda said: None,
) -> Tried:
    """Do it; it was confirmed.

    Args:
        desk: Of the host.
        trial: As it was shown.
        keep: Leave the fix in place afterwards.
        runs: On each side.
        wishes: How to measure.
        told: Is called with what it is at.

    Raises:
        ReadOnlyError: Processes hold the GPUs, or the host is read-only; nothing was changed.
        RoomError: It could not be measured before, or not be applied; it is as it was before.
    """
    if not trial.planned.changes:
        raise UsageError(f"{trial.check} is so already", hint="there is nothing to try")
    runs = min(max(2, runs), MAX_RUNS)
    told(f"before: {runs} runs")
    before = await _runs(desk, trial, runs, wishes, told)
    await desk.keep_snapshot(trial.planned)
    identity = trial.planned.snapshot.snapshot_id
    lines: list[verdict.Line] = []
    applied: dict[str, str] = {}
    restored: list[str] = []
    note = ""
    taken_back = finished = kept = False
    try:
        applied, note = await _apply(desk, trial.planned)
        if not note:
            told(f"after: {runs} runs")
            after = await _runs(desk, trial, runs, wishes, told)
            told("taking it back")
            taken_back = True
            restored = await _to_its_end(_take_back(desk, identity))
            lines = verdict.compare(before, after)
            if all(word in DONE for word in restored):
                told(f"again without it: {runs} runs")
                again = await _runs(desk, trial, runs, wishes, told)
                lines = verdict.compare(before, after, again)
                finished = True
            else:
                note = "not taken back, so not measured again without it"
    except RoomError as error:
        when = "again without it" if taken_back else "afterwards"
        note = f"not measured {when}: {error}"
    finally:
        if not taken_back:
            told("taking it back")
            restored = await _to_its_end(_take_back(desk, identity))
    if keep and finished:
        told("applying it once more, to stay")
        try:
            lasting = await desk.plan(trial.judged, [trial.check], form=Form.RUNTIME)
            await desk.keep_snapshot(lasting)
            identity = lasting.snapshot.snapshot_id
            applied, note = await _apply(desk, lasting)
        except RoomError as error:
            note = f"not applied once more: {error}"
        kept = not note
    result = Tried(
        check=trial.check,
        fix="; ".join(dict.fromkeys(task.fix.summary for task in trial.planned.tasks)),
        snapshot=identity,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        runs=runs,
        lines=tuple(lines),
        applied=applied,
        kept=kept,
        restored=tuple(restored),
        note=note,
    )
    body = msgspec.json.encode(result)
    operator = trial.planned.snapshot.operator
    host, boot = desk.machines.host.name, boot_of(trial.judged.gathered)
    await stored(lambda history: history.add_experiment(host, boot, operator, body))
    return result


async def _apply(desk: Desk, planned: Plan) -> tuple[dict[str, str], str]:
    """Outcome by finding, and what went wrong."""
    results, _ = await desk.apply(planned)
    wrong = [result for result in results if result.outcome not in DONE]
    applied = {result.check: result.outcome.value for result in results}
    return applied, f"not applied: {wrong[0].check}: {wrong[0].detail}" if wrong else ""


async def _runs(
    desk: Desk,
    trial: Trial,
    runs: int,
    wishes: Wishes | None,
    told: Callable[[str], None],
) -> list[list[Row]]:
    """The figures of each run."""
    found = []
    for number in range(1, runs + 1):
        told(f"run {number} of {runs}")
        measured = await ask(desk, trial.parts, wishes, told)
        whole = joined(trial.judged.gathered.document, measured.facts)
        own = {fact.key for fact in measured.facts.facts}
        found.append([row for row in rows(whole, vantage_of(desk)) if row.key in own])
    if not any(found):
        raise AgentError("nothing was measured", hint="see `measure` for what is missing")
    return found


async def _take_back(desk: Desk, identity: str) -> list[str]:
    """Put the snapshot back; what could not be is said by its outcome."""
    snapshots = await desk.snapshots()
    kept = next((one for one in snapshots if one.snapshot_id == identity), None)
    if kept is None or not kept.results:
        return []  # nothing was carried out
    try:
        return [result.outcome.value for result in await desk.roll_back(kept)]
    except RoomError as error:
        return [f"failed: {error}"]


async def _to_its_end(work: Coroutine[object, object, list[str]]) -> list[str]:
    """Wait for it, also when we are cancelled meanwhile; the cancellation comes after it."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
