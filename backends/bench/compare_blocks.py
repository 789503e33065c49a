"""What of two runs is compared with what: steps paired by their load, blocks of each metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.bench import conditions
from backends.bench.conditions import Difference
from backends.bench.inference import Arm, Block, Floor, floor_of, mean
from backends.bench.results import RunResult, StepResult, TimeBlock


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
class Pair:
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


def paired(a: RunResult, b: RunResult) -> list[Pair]:
    """Steps of equal label, in the order of run A."""
    of_b: dict[str, list[StepResult]] = {}
    for step in b.steps:
        of_b.setdefault(step.label, []).append(step)
    of_a: dict[str, list[StepResult]] = {}
    for step in a.steps:
        of_a.setdefault(step.label, []).append(step)
    return [
        Pair(label, tuple(steps), tuple(of_b[label]))
        for label, steps in of_a.items()
        if label in of_b
    ]


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


def arms_of(pair: Pair, metric: Metric) -> tuple[Arm, Arm]:
    """Blocks of one step, repetition by repetition, in both runs."""
    return (
        [blocks_of(step, metric) for step in pair.a],
        [blocks_of(step, metric) for step in pair.b],
    )


def means_of(pair: Pair, metric: Metric) -> tuple[float | None, float | None]:
    """The means of both runs; None where one has no figure."""
    a, b = (
        mean(arm) if any(arm) and sum(x.weight for part in arm for x in part) > 0 else None
        for arm in arms_of(pair, metric)
    )
    return a, b


def whole_arms(pairs: list[Pair], metric: Metric) -> tuple[Arm, Arm]:
    """All steps as one: each block relative to its step's mean in A, averaged over the steps.

    Steps of one repetition share its luck, so they are averaged before anything is judged.
    """
    sides: list[list[list[list[Block]]]] = [[], []]
    for pair in pairs:
        arms = arms_of(pair, metric)
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
        out.append([_average(list(blocks)) for blocks in zip(*_even(parts, count), strict=True)])
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


class Noise:
    """How much equal runs differ, by steps and metric."""

    def __init__(self, runs: Sequence[RunResult]) -> None:
        self.runs = runs

    @property
    def known(self) -> bool:
        """Whether there are enough of them."""
        return len(self.runs) >= 4

    def of(self, labels: Sequence[str], metric: Metric) -> Floor | None:
        """The floor of the mean over these steps."""
        if not self.known:
            return None
        means = [self._mean(run, labels, metric) for run in self.runs]
        return floor_of([value for value in means if value is not None])

    @staticmethod
    def _mean(run: RunResult, labels: Sequence[str], metric: Metric) -> float | None:
        """Geometric mean over the steps of a run; None where one has no figure."""
        total = 0.0
        for label in labels:
            arm = [blocks_of(step, metric) for step in run.steps if step.label == label]
            value = mean(arm) if any(arm) else 0.0
            if not value > 0:
                return None
            total += math.log(value)
        return math.exp(total / len(labels)) if labels else None
