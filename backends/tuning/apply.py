"""Carries a plan out, one fix at a time, each read back; judges again what the checks say.

Whatever is sent to a host is written down first, so that a lost link or an ended room leaves
something that can be taken back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from backends.errors import AgentGone, LinkError, ReadOnlyError, RequestTimeout, RoomError
from backends.storage.failure import StorageError
from backends.tuning import changes
from backends.tuning.changed import Done
from backends.tuning.facts import Fact, Vantage
from backends.tuning.findings import Finding, Verdict
from backends.tuning.gather import Reading
from backends.tuning.machines import Machines
from backends.tuning.plans.loaders import Loader
from backends.tuning.prepare import resolve
from backends.tuning.snapshot import GOOD, Outcome, Result, Snapshot, same_value
from backends.tuning.steps import File, Known, Plan, Step, Task
from backends.tuning.unfinished import NOT_JUDGED

WRONG: Final = (Verdict.FAIL, Verdict.WARN)


async def nowhere(results: Sequence[Result]) -> None:
    """Keep nothing."""


async def apply(
    machines: Machines,
    planned: Plan,
    *,
    reading: Reading | None = None,
    told: Callable[[Result], None] = lambda result: None,
    keep: Callable[[Sequence[Result]], Awaitable[None]] = nowhere,
) -> list[Result]:
    """Carry a plan out, one fix after the other; one that fails stops no other.

    The snapshot must be kept before. Results are of the writes; `verify` judges the checks.

    Args:
        machines: Where.
        planned: What, as shown.
        reading: The folder for `/`, and sudo.
        told: Is called with each fix as it begins (`BEGUN`) and with its result.
        keep: Stores all results so far, before each fix and after it; a fix that can't be
            written down first is not begun.
    """
    reading = reading or Reading()
    state: Known = dict(planned.known)
    results: list[Result] = []
    lost: dict[Vantage, str] = {}
    for task in planned.tasks:
        again = resolve(
            task,
            state,
            planned.loader.get(task.vantage, Loader()),
            planned.form,
            planned.snapshot.snapshot_id,
        )
        if again.problem:
            result = _result(again, Outcome.REFUSED, again.problem)
        elif not again.changing:
            result = _result(again, Outcome.ALREADY_SO)
        elif task.vantage in lost:
            result = _result(again, Outcome.FAILED, f"not begun: {lost[task.vantage]}")
        else:
            begun = _begun(again)
            told(begun)
            try:
                await keep([*results, begun])
            except StorageError as error:
                words = f"not begun, since it can't be written down first: {error}"
                result = _result(again, Outcome.REFUSED, words)
            else:
                result = await _one(machines, planned.snapshot, again, reading, lost)
        for path, data in result.after.items():
            old = state.get((task.vantage, path), File(None))
            state[task.vantage, path] = replace(old, data=data)
        results.append(result)
        with contextlib.suppress(StorageError):  # it stands there as begun; no other is begun
            await keep(results)
        told(result)
    return results


def verify(
    results: Sequence[Result],
    plan: Plan,
    findings: Sequence[Finding],
    facts: Sequence[Fact] = (),
) -> list[Result]:
    """The results, with what the checks say on facts that were read afterwards.

    Args:
        results: Of the writes.
        plan: What was carried out.
        findings: Of those facts.
        facts: The facts themselves: a value that reads otherwise by now was changed back.
    """
    now = {finding.check: finding for finding in findings}
    tasks = {task.check: task for task in plan.tasks}
    last = {(r.vantage, path): r.check for r in results for path in r.after}
    values = {(f.vantage, f.key): f.value for f in facts if isinstance(f.value, str)}
    checked = []
    for result in results:
        done = result.outcome in GOOD
        result = _verified(result, tasks[result.check], now.get(result.check))
        for path, data in result.after.items():
            value = values.get((result.vantage, path))
            if (
                done
                and path.startswith(("/proc/", "/sys/"))
                and last[result.vantage, path] == result.check
                and value is not None
                and data is not None
                and not same_value(data, value.encode())
            ):
                result = _with(result, Outcome.FAILED, CHANGED_BACK.format(path, value.strip()))
                break
        checked.append(result)
    return checked


CHANGED_BACK: Final = (
    "{} was written and read back, and reads {!r} by now: something else sets it"
    " (tuned, a unit, another operator)"
)


def _verified(result: Result, task: Task, finding: Finding | None) -> Result:
    if result.outcome not in (Outcome.APPLIED, Outcome.ALREADY_SO):
        return result
    if finding is None:
        return _with(result, result.outcome, "")
    if finding.verdict not in WRONG:
        words = f"{finding.verdict.value}: {finding.evidence}"
        if result.outcome is Outcome.APPLIED and task.fix.restarts and not task.fix.reboot:
            return _with(result, Outcome.NEEDS_RESTART, f"restart {task.fix.restarts}; {words}")
        return _with(result, result.outcome, words)
    if task.fix.reboot:
        return _with(result, Outcome.NEEDS_REBOOT, "takes effect with the next boot")
    wrote_values = any(step.kind == "write" for step in task.steps)
    if task.fix.restarts or not task.fix.runtime:
        what = task.fix.restarts or "what reads the file"
        return _with(result, Outcome.NEEDS_RESTART, f"restart {what}")
    if not wrote_values and any(step.kind == "file" for step in task.steps):
        return _with(result, Outcome.NEEDS_REBOOT, "written for the next boots alone")
    said = f"written, but the check still says: {finding.evidence}"
    return _with(result, Outcome.FAILED, said)


async def _one(
    machines: Machines,
    snapshot: Snapshot,
    task: Task,
    reading: Reading,
    lost: dict[Vantage, str],
) -> Result:
    """Carry one fix out; whatever goes wrong is its result."""
    boot_id = snapshot.boot_ids.get(task.vantage, "")
    try:
        done = await changes.carry_out(machines, task.vantage, task.changing, boot_id, reading)
    except ReadOnlyError as error:
        return _result(task, Outcome.REFUSED, str(error))
    except LinkError as error:
        lost[task.vantage] = str(error)
        return _result(task, Outcome.FAILED, f"not begun: {error}")
    except (AgentGone, RequestTimeout) as error:
        lost[task.vantage] = str(error)
        words = f"{error}; what was done is not known: a roll back finds out"
        return msgspec.structs.replace(_begun(task), outcome=Outcome.FAILED, detail=words)
    except RoomError as error:
        return _result(task, Outcome.FAILED, str(error))
    if done.refused:
        return _result(task, Outcome.REFUSED, done.refused)
    after: dict[str, bytes | None] = {}
    ran: list[str] = []
    wrong = ""
    for step, result in zip(task.changing, done.steps, strict=False):
        if step.kind == "command":
            if result.ok:
                ran.append(step.where)
        elif step.compare:
            after[step.path] = result.after
        wrong = _wrong(step, result)
        if wrong:
            break
    outcome = Outcome.FAILED if wrong else Outcome.APPLIED
    kernel = done.kernel if wrong else ()
    words = wrong or NOT_JUDGED
    return Result(task.check, outcome, words, kernel, after, tuple(ran), task.vantage)


def _wrong(step: Step, done: Done) -> str:
    """What is wrong with a step that was carried out; empty for nothing."""
    if not done.ok:
        return f"{step.where}: {done.error} {done.output}".strip()
    if step.kind == "command":
        return ""
    right = same_value(step.new, done.after) if step.kind == "write" else done.after == step.goal
    if right:
        return ""
    now = "nothing"
    if done.after is not None:
        now = repr(done.after.decode("utf-8", "replace").strip()[:80])
    return f"{step.where}: the write was accepted and ignored, it reads {now}"


def _begun(task: Task) -> Result:
    """As if all of it were done: what a roll back has to look at when no answer comes."""
    steps = task.changing
    return Result(
        task.check,
        Outcome.BEGUN,
        "",
        (),
        {s.path: s.goal for s in steps if s.kind != "command" and s.compare},
        tuple(s.where for s in steps if s.kind == "command"),
        task.vantage,
    )


def _result(task: Task, outcome: Outcome, detail: str = "") -> Result:
    return Result(task.check, outcome, detail, vantage=task.vantage)


def _with(result: Result, outcome: Outcome, detail: str) -> Result:
    return msgspec.structs.replace(result, outcome=outcome, detail=detail)
