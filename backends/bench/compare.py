"""Compare runs, paired by step: faster, slower, no difference shown, or not comparable.

Over all tests of one comparison together (the whole run, and every metric of every step) the
chance of calling equal runs different is at most 5 in 100: half of it is spent on the more exact
metric of the whole, half on all others, by Holm's method. `benchmarks/compare_power.py` prints what
comes of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.bench import conditions
from backends.bench.compare_blocks import (
    Metric,
    Noise,
    Pair,
    arms_of,
    means_of,
    paired,
    whole_arms,
)
from backends.bench.conditions import Difference
from backends.bench.inference import Arm, Estimate, Floor, holm, judge, mean
from backends.bench.results import RunResult, RunStatus

LEVEL: Final = 0.05
"""Chance of a false alarm anywhere in a comparison."""
ALL_STEPS: Final = "all steps"
SMALLEST_CHANGE: Final = 0.02
"""The change that a comparison should be able to find."""


class Word(StrEnum):
    """What a comparison says."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference shown"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one step, or of the whole."""

    step: str
    metric: Metric
    word: Word
    a: float | None = None
    b: float | None = None
    estimate: Estimate | None = None
    adjusted_p: float | None = None
    blocks: tuple[int, int] = (0, 0)
    repetitions: tuple[int, int] = (0, 0)
    remark: str = ""
    more: int = 0
    """How many more blocks (or repetitions, `more_unit`) it would take to find the change.

    Where the word is "no difference shown" and this is 0, the difference is shown to be below half
    of that change.
    """
    more_unit: str = "blocks"

    @property
    def change(self) -> float | None:
        """B against A as a share: 0.02 is 2 % more of the metric."""
        return self.estimate.ratio - 1 if self.estimate else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side."""

    a: RunResult
    b: RunResult
    word: Word
    overall: Row
    rows: tuple[Row, ...]
    obstacles: tuple[Difference, ...]
    changes: tuple[Difference, ...]
    remarks: tuple[str, ...]
    smallest_change: float

    def slower_by(self) -> float | None:
        """How much slower B is overall, as a share of A's speed; None if that is not shown."""
        if self.word is not Word.SLOWER or self.overall.estimate is None:
            return None
        ratio = self.overall.estimate.ratio
        speed = ratio if self.overall.metric.higher_is_better else 1 / ratio
        return 1 - speed

    def could_be_slower_by(self, share: float) -> bool:
        """Whether the interval leaves room for B being slower overall by `share`."""
        estimate = self.overall.estimate
        if estimate is None:
            return True
        worst = estimate.low if self.overall.metric.higher_is_better else 1 / estimate.high
        return worst <= 1 - share


def compare(
    a: RunResult,
    b: RunResult,
    *,
    metric: Metric | None = None,
    smallest_change: float = SMALLEST_CHANGE,
    across_tools: bool = False,
    equals: Sequence[RunResult] = (),
) -> Comparison:
    """Compare run B with run A.

    Args:
        a: What is compared with, such as a baseline.
        b: The run in question.
        metric: Decides over the whole; by default output tokens a second and the latency, or the
            latency alone where the load's rate is fixed (an open loop: throughput is then given).
        smallest_change: That should be found, as a share; decides how many blocks are enough.
            A difference that is shown to be less than half of it has no word.
        across_tools: Compare runs of different tools in spite of their different definitions:
            whole-run output tokens a second alone.
        equals: Earlier runs under the same conditions as A (`equal_conditions`). From four runs
            on, A among them, they tell how much runs differ from one to the next.
    """
    obstacles = conditions.obstacles(a, b)
    if across_tools:
        obstacles = [o for o in obstacles if o.key not in _OF_TOOLS]
    pairs = paired(a, b)
    remarks = _remarks(a, b, pairs)
    if not pairs:
        obstacles.append(Difference("steps", _labels(a), _labels(b)))
    whole = [metric] if metric else _whole_metrics(pairs)
    metrics = list(Metric)
    if across_tools and a.harness != b.harness:
        whole = metrics = [Metric.OUTPUT]
    sound = [pair for pair in pairs if not pair.obstacles]
    if obstacles or (pairs and not sound):
        whys = {pair.label: "" if obstacles else _why(pair) for pair in pairs}
        # Of each kind one is enough for the whole: every step says its own.
        of_steps = {o.key: o for pair in reversed(pairs) for o in reversed(pair.obstacles)}
        obstacles = obstacles or list(of_steps.values())[::-1]
        rows = tuple(
            Row(pair.label, one, Word.NOT_COMPARABLE, *means_of(pair, one), remark=whys[pair.label])
            for pair in pairs
            for one in metrics
        )
        overall = Row(ALL_STEPS, whole[0], Word.NOT_COMPARABLE)
        return _comparison(a, b, overall, rows, obstacles, remarks, smallest_change)
    noise = Noise((a, *(run for run in equals if run.run_id not in (a.run_id, b.run_id))))
    labels = tuple(pair.label for pair in sound)
    wholes = [
        _judged(ALL_STEPS, one, *whole_arms(sound, one), noise.of(labels, one)) for one in whole
    ]
    parts = [_row(pair, one, noise) for pair in pairs for one in metrics]
    if noise.known and any(min(row.repetitions) < 2 for row in wholes):
        remarks = [remark for remark in remarks if not remark.startswith(_ALONE)]
        remarks.append(
            f"differences from run to run are those of {len(noise.runs)} equal runs of the history"
        )
    judged = _worded(wholes, parts, smallest_change)
    overall, rows = _deciding(judged[: len(wholes)]), tuple(judged[len(wholes) :])
    return _comparison(a, b, overall, rows, [], remarks, smallest_change)


def _deciding(wholes: list[Row]) -> Row:
    """The row that speaks for the run: the first with a difference, else the most exact one."""
    for row in wholes:
        if row.word is not Word.NO_DIFFERENCE:
            return row
    known = [row for row in wholes if row.estimate]
    return min(known, key=_inexactness) if known else wholes[0]


def _inexactness(row: Row) -> float:
    return row.estimate.standard_error if row.estimate else math.inf


def compare_many(
    baseline: RunResult, others: Sequence[RunResult], *, metric: Metric | None = None
) -> list[Comparison]:
    """Compare each of `others` with the baseline."""
    return [compare(baseline, other, metric=metric) for other in others]


_OF_TOOLS: Final = frozenset(
    {"tool that measured", "prompts and lengths", "route", "version of the generator",
     "place of the client"}
)  # fmt: skip


def _comparison(
    a: RunResult,
    b: RunResult,
    overall: Row,
    rows: tuple[Row, ...],
    obstacles: list[Difference],
    remarks: list[str],
    smallest_change: float,
) -> Comparison:
    return Comparison(
        a, b, overall.word, overall, rows, tuple(obstacles), tuple(conditions.changes(a, b)),
        tuple(remarks), smallest_change,
    )  # fmt: skip


def _labels(run: RunResult) -> str:
    return ", ".join(dict.fromkeys(step.label for step in run.steps)) or "none"


def _whole_metrics(pairs: list[Pair]) -> list[Metric]:
    """What speaks for a whole run.

    In a closed loop throughput is streams over latency (Little's law), so both say the same, and
    blocks of latency are often much quieter. Where the rate is fixed, throughput is given.
    """
    open_loop = pairs and all(step.rate_per_s is not None for pair in pairs for step in pair.a)
    return [Metric.E2E] if open_loop else [Metric.OUTPUT, Metric.E2E]


def equal_conditions(a: RunResult, b: RunResult) -> bool:
    """Whether two runs should give the same figures: nothing but time and boot lies between."""
    changed = [d for d in conditions.changes(a, b) if d.key != "boot"]
    return (
        a.plan.digest == b.plan.digest
        and a.status is b.status is RunStatus.COMPLETE
        and not changed
        and not conditions.obstacles(a, b)
    )


def _why(pair: Pair) -> str:
    return "; ".join(map(str, pair.obstacles))


def _row(pair: Pair, metric: Metric, noise: Noise) -> Row:
    if pair.obstacles:
        return Row(
            pair.label,
            metric,
            Word.NOT_COMPARABLE,
            *means_of(pair, metric),
            remark=_why(pair),
        )
    floor = noise.of((pair.label,), metric)
    return _judged(pair.label, metric, *arms_of(pair, metric), floor)


def _judged(label: str, metric: Metric, a: Arm, b: Arm, floor: Floor | None) -> Row:
    """A row with its estimate; the word comes when all are known."""
    estimate = judge(a, b, floor=floor)
    means = [mean(arm) if any(arm) else None for arm in (a, b)]
    return Row(
        label,
        metric,
        Word.NO_DIFFERENCE,
        means[0],
        means[1],
        estimate,
        blocks=(sum(map(len, a)), sum(map(len, b))),
        repetitions=(sum(map(bool, a)), sum(map(bool, b))),
        remark="" if estimate else "too few blocks or repetitions to judge by",
    )


def _worded(wholes: list[Row], parts: list[Row], smallest_change: float) -> list[Row]:
    """Words for the whole and its parts, so that all together keep the level.

    Half of it goes to the more exact metric of the whole: which one that is does not depend on how
    much it differs.
    """
    rows = wholes + parts
    tested = [i for i, row in enumerate(rows) if row.estimate]
    deciding = min(
        (i for i in tested if i < len(wholes)), key=lambda i: _inexactness(rows[i]), default=None
    )
    chances = [
        (estimate.p, float(len(tested) - 1 or 1) if i == deciding else 1.0)
        for i in tested
        if (estimate := rows[i].estimate) is not None
    ]
    adjusted = dict(zip(tested, holm(chances), strict=True))
    return [
        _with_word(row, adjusted[i], smallest_change) if i in adjusted else row
        for i, row in enumerate(rows)
    ]


def _with_word(row: Row, adjusted_p: float, smallest_change: float) -> Row:
    estimate = row.estimate
    assert estimate is not None
    word, remark, more, unit = Word.NO_DIFFERENCE, row.remark, 0, "blocks"
    negligible = smallest_change / 2
    if adjusted_p <= LEVEL and estimate.within(negligible):
        # Shown to be there, and shown to be too small to matter: two equal runs on a quiet host
        # differ by a tenth of a per cent, and no block of theirs says so.
        remark = f"a difference below {_percent(negligible)}"
    elif adjusted_p <= LEVEL:
        more_of_it = estimate.ratio > 1
        better = more_of_it == row.metric.higher_is_better
        word = Word.FASTER if better else Word.SLOWER
    elif _same(estimate, negligible):
        remark = f"the same within {_percent(negligible)}"
    else:
        units = min(row.repetitions) if estimate.by_repetitions else min(row.blocks)
        unit = "repetitions" if estimate.by_repetitions else "blocks"
        # The level that is left for one test when none has been decided: a share of the whole.
        level = LEVEL * min(1.0, estimate.p / adjusted_p) if adjusted_p < 1 else LEVEL / 2
        same = _same(estimate, smallest_change)
        change = negligible if same else smallest_change
        # Enough for most pairs of runs may still not have been enough for this one.
        more = estimate.more_for(change, units, level) or estimate.more_to_tell(
            change, units, level
        )
        remark = f"{more:,} more {unit} each would find {_percent(change)}"
        if same:
            remark = f"the same within {_percent(smallest_change)}; {remark}"
    return Row(
        row.step, row.metric, word, row.a, row.b, estimate, adjusted_p, row.blocks,
        row.repetitions, remark, more, unit,
    )  # fmt: skip


def _same(estimate: Estimate, change: float) -> bool:
    """Whether two runs are shown to be the same within a share, as the interval says too."""
    return (
        estimate.within(change) and estimate.low > 1 / (1 + change) and estimate.high < 1 + change
    )


def _percent(share: float) -> str:
    return f"{share * 100:g}%"


_ALONE: Final = "one repetition each"


def _remarks(a: RunResult, b: RunResult, pairs: list[Pair]) -> list[str]:
    remarks: list[str] = []
    if pairs and max(len(pair.a) for pair in pairs) < 2 > min(len(pair.b) for pair in pairs):
        remarks.append(
            f"{_ALONE}: what differs from one run to the next is not in the intervals; "
            "plan repetitions = 3 or more to have it in"
        )
    for name, run in (("A", a), ("B", b)):
        if any(step.warm_up_steady is False for step in run.steps):
            remarks.append(f"{name} was not steady when it was measured")
        if run.status.value == "stopped":
            remarks.append(f"{name} was stopped before its end")
        if any(not step.client.valid for step in run.steps):
            remarks.append(
                f"the client was the limit in {name}, not the server: measure again on a quieter "
                "machine, with longer answers or fewer streams"
            )
    missing = [step.label for step in a.steps if step.label not in {p.label for p in pairs}]
    if missing and pairs:
        remarks.append(f"steps only in A: {', '.join(dict.fromkeys(missing))}")
    extra = [step.label for step in b.steps if step.label not in {p.label for p in pairs}]
    if extra and pairs:
        remarks.append(f"steps only in B: {', '.join(dict.fromkeys(extra))}")
    return remarks
