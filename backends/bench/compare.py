"""Compare runs, paired by step: faster, slower, no difference shown, or not comparable.

Over all tests of one comparison together (the whole run, and every metric of every step) the
chance of calling equal runs different is at most 5 in 100: half of it is spent on the whole, half
on the parts, by Holm's method. `benchmarks/compare_power.py` prints what comes of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.bench import conditions
from backends.bench.conditions import Difference
from backends.bench.inference import Arm, Block, Estimate, holm, judge, mean
from backends.bench.results import RunResult, StepResult, TimeBlock

LEVEL: Final = 0.05
"""Chance of a false alarm anywhere in a comparison."""
SMALLEST_CHANGE: Final = 0.02
"""The change that a comparison should be able to find."""


class Word(StrEnum):
    """What a comparison says."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference shown"
    NOT_COMPARABLE = "not comparable"


class Metric(StrEnum):
    """What is compared."""

    OUTPUT = "output tok/s"
    TTFT = "time to first token"
    TTFT_P99 = "time to first token, p99"
    TPOT = "time per output token"
    E2E = "latency"

    @property
    def higher_is_better(self) -> bool:
        """Whether more is faster."""
        return self is Metric.OUTPUT

    @property
    def unit(self) -> str:
        """Unit of the figures."""
        return "tok/s" if self is Metric.OUTPUT else "s"


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
    """How many more blocks (or repetitions, `more_unit`) it would take to find the change."""
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
    """
    obstacles = conditions.obstacles(a, b)
    if across_tools:
        obstacles = [o for o in obstacles if o.key not in _OF_TOOLS]
    pairs = _paired(a, b)
    remarks = _remarks(a, b, pairs)
    if not pairs:
        obstacles.append(Difference("steps", _labels(a), _labels(b)))
    whole = [metric] if metric else _whole_metrics(pairs)
    metrics = list(Metric)
    if across_tools and a.harness != b.harness:
        whole = metrics = [Metric.OUTPUT]
    sound = [pair for pair in pairs if not pair.obstacles]
    if pairs and not sound:
        obstacles += [o for pair in pairs for o in pair.obstacles][:20]
    if obstacles:
        rows = tuple(
            Row(pair.label, one, Word.NOT_COMPARABLE, *_means(pair, one))
            for pair in pairs
            for one in metrics
        )
        overall = Row("all steps", whole[0], Word.NOT_COMPARABLE)
        return _comparison(a, b, overall, rows, obstacles, remarks, smallest_change)
    wholes = [_judged("all steps", one, *_whole(sound, one)) for one in whole]
    parts = [_row(pair, one) for pair in pairs for one in metrics]
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


@dataclass(frozen=True, slots=True)
class _Pair:
    """The repetitions of one step in both runs."""

    label: str
    a: tuple[StepResult, ...]
    b: tuple[StepResult, ...]

    @property
    def obstacles(self) -> list[Difference]:
        """Why this step cannot be compared."""
        found: dict[str, Difference] = {}
        for x in self.a:
            for y in self.b:
                for difference in conditions.step_obstacles(x, y):
                    found.setdefault(difference.key, difference)
        return list(found.values())


def _paired(a: RunResult, b: RunResult) -> list[_Pair]:
    """Steps of equal label, in the order of run A."""
    of_b: dict[str, list[StepResult]] = {}
    for step in b.steps:
        of_b.setdefault(step.label, []).append(step)
    of_a: dict[str, list[StepResult]] = {}
    for step in a.steps:
        of_a.setdefault(step.label, []).append(step)
    return [
        _Pair(label, tuple(steps), tuple(of_b[label]))
        for label, steps in of_a.items()
        if label in of_b
    ]


def _labels(run: RunResult) -> str:
    return ", ".join(dict.fromkeys(step.label for step in run.steps)) or "none"


def _whole_metrics(pairs: list[_Pair]) -> list[Metric]:
    """What speaks for a whole run.

    In a closed loop throughput is streams over latency (Little's law), so both say the same, and
    blocks of latency are often much quieter. Where the rate is fixed, throughput is given.
    """
    open_loop = pairs and all(step.rate_per_s is not None for pair in pairs for step in pair.a)
    return [Metric.E2E] if open_loop else [Metric.OUTPUT, Metric.E2E]


_OF_BLOCK: Final[dict[Metric, Callable[[TimeBlock], float | None]]] = {
    Metric.OUTPUT: lambda block: block.output_tokens / (block.end_s - block.start_s),
    Metric.TTFT: lambda block: block.ttft_s,
    Metric.TTFT_P99: lambda block: block.ttft_p99_s,
    Metric.TPOT: lambda block: block.tpot_s,
    Metric.E2E: lambda block: block.e2e_s,
}


def blocks_of(step: StepResult, metric: Metric) -> list[Block]:
    """The blocks of one repetition; the whole repetition as one where it has none."""
    found: list[Block] = []
    for block in step.blocks:
        if block.end_s <= block.start_s:
            continue
        value = _OF_BLOCK[metric](block)
        weight = block.end_s - block.start_s if metric is Metric.OUTPUT else float(block.requests)
        if value is not None and weight > 0:
            found.append(Block(value, weight))
    if found:
        return found
    value = _of_step(step, metric)
    return [] if value is None else [Block(value)]


def _of_step(step: StepResult, metric: Metric) -> float | None:
    if metric is Metric.OUTPUT:
        rates = step.steady or step.whole
        return rates.output_tokens_per_s if rates else None
    summary = {
        Metric.TTFT: step.ttft_s,
        Metric.TTFT_P99: step.ttft_s,
        Metric.TPOT: step.tpot_s,
        Metric.E2E: step.e2e_s,
    }[metric]
    if summary is None:
        return None
    return summary.p99 if metric is Metric.TTFT_P99 else summary.mean


def _arms(pair: _Pair, metric: Metric) -> tuple[Arm, Arm]:
    return (
        [blocks_of(step, metric) for step in pair.a],
        [blocks_of(step, metric) for step in pair.b],
    )


def _means(pair: _Pair, metric: Metric) -> tuple[float | None, float | None]:
    a, b = (
        mean(arm) if any(arm) and sum(x.weight for part in arm for x in part) > 0 else None
        for arm in _arms(pair, metric)
    )
    return a, b


def _whole(pairs: list[_Pair], metric: Metric) -> tuple[Arm, Arm]:
    """All steps as one: each block relative to its step's mean in A, averaged over the steps.

    Steps of one repetition share its luck, so they are averaged before anything is judged.
    """
    sides: list[list[list[list[Block]]]] = [[], []]
    for pair in pairs:
        arms = _arms(pair, metric)
        if not all(any(arm) for arm in arms) or not (scale := mean(arms[0])):
            continue
        for side, arm in zip(sides, arms, strict=True):
            side.append([[Block(x.value / scale, x.weight) for x in part] for part in arm])
    a, b = (_averaged(side) for side in sides)
    return a, b


def _averaged(steps: list[list[list[Block]]]) -> list[list[Block]]:
    if not steps:
        return []
    repetitions = min(map(len, steps))
    out: list[list[Block]] = []
    for place in range(repetitions):
        parts = [step[place] for step in steps if step[place]]
        count = min(map(len, parts), default=0)
        out.append([_average([part[i] for part in _even(parts, count)]) for i in range(count)])
    return out


def _even(parts: list[list[Block]], count: int) -> list[list[Block]]:
    """Each part in `count` blocks: neighbours of a longer one are joined."""
    return [
        [_joined(part[i * len(part) // count : (i + 1) * len(part) // count]) for i in range(count)]
        for part in parts
    ]


def _joined(blocks: list[Block]) -> Block:
    weight = sum(block.weight for block in blocks)
    return Block(sum(block.value * block.weight for block in blocks) / weight, weight)


def _average(blocks: list[Block]) -> Block:
    return Block(sum(block.value for block in blocks) / len(blocks))


def _row(pair: _Pair, metric: Metric) -> Row:
    if pair.obstacles:
        why = "; ".join(map(str, pair.obstacles))
        return Row(pair.label, metric, Word.NOT_COMPARABLE, *_means(pair, metric), remark=why)
    return _judged(pair.label, metric, *_arms(pair, metric))


def _judged(label: str, metric: Metric, a: Arm, b: Arm) -> Row:
    """A row with its estimate; the word comes when all are known."""
    estimate = judge(a, b)
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
    """Words for the whole and its parts, half of the level for each, so that all keep it."""
    rows = wholes + parts
    tested = [i for i, row in enumerate(rows) if row.estimate and row.word is Word.NO_DIFFERENCE]
    first = len(wholes)
    share = max(1, sum(i >= first for i in tested)) / max(1, sum(i < first for i in tested))
    chances = [
        (estimate.p, share if i < first else 1.0)
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
        remark = f"a difference below {negligible:.1%}"
    elif adjusted_p <= LEVEL:
        more_of_it = estimate.ratio > 1
        better = more_of_it == row.metric.higher_is_better
        word = Word.FASTER if better else Word.SLOWER
    elif estimate.within(smallest_change):
        remark = f"the same within {smallest_change:.0%}"
    else:
        units = min(row.repetitions) if estimate.by_repetitions else min(row.blocks)
        unit = "repetitions" if estimate.by_repetitions else "blocks"
        # The level that is left for one test when none has been decided: a share of the whole.
        level = LEVEL * min(1.0, estimate.p / adjusted_p) if adjusted_p < 1 else LEVEL / 2
        more = estimate.more_for(smallest_change, units, level)
        if more:
            remark = f"{more} more {unit} each would find {smallest_change:.0%}"
    return Row(
        row.step, row.metric, word, row.a, row.b, estimate, adjusted_p, row.blocks,
        row.repetitions, remark, more, unit,
    )  # fmt: skip


def _remarks(a: RunResult, b: RunResult, pairs: list[_Pair]) -> list[str]:
    remarks: list[str] = []
    if pairs and max(len(pair.a) for pair in pairs) < 2 > min(len(pair.b) for pair in pairs):
        remarks.append(
            "one repetition each: what differs from one run to the next is not in the intervals; "
            "plan repetitions = 3 or more to have it in"
        )
    for name, run in (("A", a), ("B", b)):
        if any(step.warm_up_steady is False for step in run.steps):
            remarks.append(f"{name} was not steady when it was measured")
        if run.status.value == "stopped":
            remarks.append(f"{name} was stopped before its end")
    missing = [step.label for step in a.steps if step.label not in {p.label for p in pairs}]
    if missing and pairs:
        remarks.append(f"steps only in A: {', '.join(dict.fromkeys(missing))}")
    extra = [step.label for step in b.steps if step.label not in {p.label for p in pairs}]
    if extra and pairs:
        remarks.append(f"steps only in B: {', '.join(dict.fromkeys(extra))}")
    return remarks
