"""Runs of the history beside each other: what a run is compared with, and the noise of its host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from backends.bench.compare import Comparison, compare, equal_conditions
from backends.bench.results import RunResult
from backends.storage.history import Filter, History, Note

EQUAL_RUNS: Final = 10


@dataclass(frozen=True, slots=True)
class Opened:
    """Runs with what is known beside their documents.

    Attributes:
        runs: As asked for.
        reference: What they are compared with: the first of several, or the pinned baseline of
            a single one; None where there is none.
        comparisons: Of each run other than the reference with it, in order.
        notes: Of each run, in order.
        tags: Likewise.
        pinned: Ids of those that are baselines.
    """

    runs: tuple[RunResult, ...]
    reference: RunResult | None
    comparisons: tuple[Comparison, ...]
    notes: tuple[tuple[Note, ...], ...]
    tags: tuple[tuple[str, ...], ...]
    pinned: frozenset[str]

    def comparison_of(self, run_id: str) -> Comparison | None:
        """The comparison of a run with the reference; None of the reference itself."""
        return next((one for one in self.comparisons if one.b.run_id == run_id), None)


@dataclass(frozen=True, slots=True)
class Reference:
    """What a run is compared with while it goes on, read once.

    Attributes:
        run: The pinned baseline.
        equals: Runs under its conditions: the noise of its host.
    """

    run: RunResult
    equals: tuple[RunResult, ...]

    def compare(self, run: RunResult) -> Comparison:
        """Another run with it."""
        across = self.run.harness != run.harness
        equals = [one for one in self.equals if one.run_id != run.run_id]
        return compare(self.run, run, equals=equals, across_tools=across)


def equal_runs(history: History, run: RunResult, limit: int = EQUAL_RUNS) -> list[RunResult]:
    """Earlier runs under the same conditions as `run`: how much runs differ by themselves."""
    rows = history.runs(Filter(plan=run.plan.name, limit=200))
    candidates = [
        row.run_id
        for row in rows
        if row.plan_digest == run.plan.digest
        and row.profile == (run.target.profile or "")
        and row.run_id != run.run_id
    ]
    found = (history.load(run_id) for run_id in candidates[: 3 * limit])
    return [one for one in found if equal_conditions(run, one)][:limit]


def baseline_for(history: History, run: RunResult) -> RunResult | None:
    """The run that is pinned for this one's profile and plan; None where it is this one."""
    pinned = history.baseline_of(run)
    return None if pinned is None or pinned == run.run_id else history.load(pinned)


def reference_for(history: History, run: RunResult) -> Reference | None:
    """What a run is to be compared with; None where nothing is pinned for it."""
    baseline = baseline_for(history, run)
    return None if baseline is None else Reference(baseline, tuple(equal_runs(history, baseline)))


def against_baseline(history: History, run: RunResult) -> Comparison | None:
    """A run compared with its pinned baseline; None where none is pinned."""
    reference = reference_for(history, run)
    return None if reference is None else reference.compare(run)


def open_runs(history: History, run_ids: Sequence[str]) -> Opened:
    """Load runs and compare them: several with the first, a single one with its baseline.

    Raises:
        RunNotFound: One is not there any more.
        StorageError: One cannot be read.
    """
    rows = [history.row(run_id) for run_id in run_ids]
    return replace(
        beside(history, [history.load(run_id) for run_id in run_ids]),
        notes=tuple(tuple(history.notes(run_id)) for run_id in run_ids),
        tags=tuple(row.tags for row in rows),
        pinned=frozenset(row.run_id for row in rows if row.baseline),
    )


def beside(history: History, runs: Sequence[RunResult]) -> Opened:
    """Runs that need not be in the history, such as those of a file."""
    reference = runs[0] if len(runs) > 1 else baseline_for(history, runs[0])
    others = [run for run in runs if reference is None or run.run_id != reference.run_id]
    none: tuple[tuple[Note, ...], ...] = ((),) * len(runs)
    compared = tuple(_compared(history, reference, others)) if reference is not None else ()
    return Opened(tuple(runs), reference, compared, none, ((),) * len(runs), frozenset())


def _compared(
    history: History, reference: RunResult, others: Sequence[RunResult]
) -> list[Comparison]:
    ids = {run.run_id for run in others}
    equals = [one for one in equal_runs(history, reference) if one.run_id not in ids]
    return [
        compare(reference, other, equals=equals, across_tools=reference.harness != other.harness)
        for other in others
    ]
