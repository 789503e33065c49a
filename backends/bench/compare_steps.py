"""One word a step: what the rows of a comparison say together about each load."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from backends.bench.compare import Comparison, Row, Word
from backends.bench.compare_blocks import Metric

NO_SUCH_STEP: Final = "the baseline has no such step"


@dataclass(frozen=True, slots=True)
class StepWord:
    """What a comparison says about one load.

    Attributes:
        step: The load.
        word: In one word.
        metric: What the word was decided by; None where nothing is comparable.
        change: Of that metric, as a share: 0.02 is 2 % more of it.
        low: Lower end of its 95 % interval; likewise `high`.
        why: Why not comparable, what it would take, or which other metrics moved.
    """

    step: str
    word: Word
    metric: Metric | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""

    @property
    def text(self) -> str:
        """Such as `slower, output tok/s -2.1 % (-3.0 to -1.2)`."""
        parts = [self.word.value]
        if self.change is not None and self.low is not None and self.high is not None:
            parts.append(
                f"{self.metric} {self.change * 100:+.1f} % "
                f"({self.low * 100:+.1f} to {self.high * 100:+.1f})"
            )
        if self.why:
            parts.append(self.why)
        return ", ".join(parts)


def step_words(comparison: Comparison) -> dict[str, StepWord]:
    """By load, in the order of run B.

    Throughput and latency decide, as they do over the whole run (latency alone where the rate is
    fixed); time to first token and per output token stand beside, as why.
    """
    rows: dict[str, list[Row]] = {}
    for row in comparison.rows:
        rows.setdefault(row.step, []).append(row)
    found = {}
    for label in dict.fromkeys(step.label for step in comparison.b.steps):
        found[label] = _word(label, rows.get(label, []), comparison)
    return found


def _word(label: str, rows: list[Row], comparison: Comparison) -> StepWord:
    if not rows:
        why = _obstacles(comparison) or NO_SUCH_STEP
        return StepWord(label, Word.NOT_COMPARABLE, why=f"because {why}")
    if all(row.word is Word.NOT_COMPARABLE for row in rows):
        why = rows[0].remark or _obstacles(comparison) or "nothing was measured"
        return StepWord(label, Word.NOT_COMPARABLE, why=f"because {why}")
    open_loop = any(
        step.rate_per_s is not None for step in comparison.b.steps if step.label == label
    )
    deciding = [Metric.E2E] if open_loop else [Metric.OUTPUT, Metric.E2E]
    candidates = [row for row in rows if row.metric in deciding] or rows
    shown = [row for row in candidates if _moved(row)]
    row = shown[0] if shown else min(candidates, key=_inexactness)
    others = [
        f"{other.metric.value} {other.word.value}"
        for other in rows
        if other.metric not in deciding and _moved(other) and other.word is not row.word
    ]
    why = "; ".join(part for part in (row.remark, *others) if part)
    estimate = row.estimate
    return StepWord(
        label,
        row.word,
        row.metric,
        row.change,
        estimate.low - 1 if estimate else None,
        estimate.high - 1 if estimate else None,
        why,
    )


def _moved(row: Row) -> bool:
    return row.word in (Word.FASTER, Word.SLOWER)


def _inexactness(row: Row) -> float:
    return row.estimate.standard_error if row.estimate else math.inf


def _obstacles(comparison: Comparison) -> str:
    return "; ".join(map(str, comparison.obstacles[:3]))
