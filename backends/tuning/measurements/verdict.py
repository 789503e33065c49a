"""Did a change show? Figures of several runs before and after it, judged one against the other."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from backends.bench.compare import LEVEL
from backends.bench.inference import Block, Estimate, holm, judge
from backends.tuning.measurements.figures import Row

SMALLEST_CHANGE: Final = 0.01
"""Less than that is no matter, however sure: GPUs copy within parts of a thousand of each other."""


class Word(StrEnum):
    """What an experiment says of one figure."""

    BETTER = "better"
    WORSE = "worse"
    NO_CHANGE = "no measurable change"
    TOO_FEW = "too few runs"


class Line(msgspec.Struct, frozen=True):
    """One figure before and after.

    Attributes:
        before: One value a run; likewise `after`.
        change_pct: Of the medians; None where there is none.
        p: Chance of such a difference if there were none, adjusted for all figures.
    """

    key: str
    what: str
    unit: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    word: Word
    change_pct: float | None = None
    p: float | None = None

    @property
    def medians(self) -> tuple[float | None, float | None]:
        """Of before and after."""
        return _median(self.before), _median(self.after)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def spread_pct(values: Sequence[float]) -> float:
    """How far runs lie apart, in percent of their median."""
    middle = statistics.median(values)
    return 100.0 * (max(values) - min(values)) / middle if middle else 0.0


def compare(before: Sequence[Sequence[Row]], after: Sequence[Sequence[Row]]) -> list[Line]:
    """Every figure that was measured in runs before and after.

    The chance of calling any figure changed where none did is at most 5 in 100 (t on the runs'
    logarithms, Holm over the figures; `backends.bench.inference`).

    Args:
        before: The figures of each run, one row a figure.
        after: Likewise.
    """
    first, second = _by_key(before), _by_key(after)
    rows = {row.key: row for run in before for row in run if row.key in second}
    estimates: dict[str, Estimate] = {}
    for key in rows:
        found = judge(
            [[Block(value)] for value in first[key]], [[Block(value)] for value in second[key]]
        )
        if found is not None and min(len(first[key]), len(second[key])) >= 2:
            estimates[key] = found
    adjusted = dict(zip(estimates, holm([(one.p, 1.0) for one in estimates.values()]), strict=True))
    lines = []
    for key, row in rows.items():
        values = (tuple(first[key]), tuple(second[key]))
        estimate = estimates.get(key)
        if estimate is None:
            lines.append(Line(key, row.what, row.unit, *values, Word.TOO_FEW))
            continue
        a, b = (statistics.median(one) for one in values)
        change = (b - a) / a if a else 0.0
        shown = adjusted[key] <= LEVEL and abs(change) >= SMALLEST_CHANGE
        better = (change < 0) is row.lower_is_better
        word = (Word.BETTER if better else Word.WORSE) if shown else Word.NO_CHANGE
        lines.append(Line(key, row.what, row.unit, *values, word, 100.0 * change, adjusted[key]))
    return lines


def summary(lines: Sequence[Line]) -> str:
    """All of it in one line."""
    better = [line for line in lines if line.word is Word.BETTER]
    worse = [line for line in lines if line.word is Word.WORSE]
    if not lines:
        return "nothing was measured both before and after"
    if not better and not worse:
        few = all(line.word is Word.TOO_FEW for line in lines)
        return Word.TOO_FEW.value if few else Word.NO_CHANGE.value
    told = [
        f"{line.what} {line.word.value} ({line.change_pct:+.1f} %)"
        for line in sorted([*better, *worse], key=lambda line: -abs(line.change_pct or 0))
    ]
    more = f" and {len(told) - 3} more" if len(told) > 3 else ""
    return "; ".join(told[:3]) + more


def table(lines: Sequence[Line]) -> str:
    """For people: medians, spread of the runs, word."""
    result = []
    for line in lines:
        cells = []
        for values in (line.before, line.after):
            if values:
                middle = statistics.median(values)
                cells.append(f"{middle:>9.2f} ±{spread_pct(values) / 2:4.1f} %")
        change = f"{line.change_pct:+6.1f} %" if line.change_pct is not None else ""
        told = f"{line.what:<30} {' -> '.join(cells)} {line.unit:<8} {change}  {line.word.value}"
        result.append(told)
    return "\n".join(result) + "\n"


def _by_key(runs: Sequence[Sequence[Row]]) -> Mapping[str, list[float]]:
    found: dict[str, list[float]] = {}
    for run in runs:
        for row in run:
            found.setdefault(row.key, []).append(row.value)
    return found
