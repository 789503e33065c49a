"""Did a change show? Figures of several runs with and without it, judged one against the other."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
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
    DRIFT = "drift"
    """Without the change it came out as differently from one time to the other."""
    TOO_FEW = "too few runs"


class Line(msgspec.Struct, frozen=True):
    """One figure before and after.

    Attributes:
        before: One value a run; likewise `after`.
        change_pct: Of the medians; None where there is none.
        p: Chance of such a difference if there were none, adjusted for all figures.
        again: As `before`, once it was taken back; empty where that was not measured.
    """

    key: str
    what: str
    unit: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    word: Word
    change_pct: float | None = None
    p: float | None = None
    again: tuple[float, ...] = ()

    @property
    def drift_pct(self) -> float | None:
        """Of the medians before and again: what changed by itself."""
        a, b = _median(self.before), _median(self.again)
        return 100.0 * (b - a) / a if a and b is not None else None

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


def compare(
    before: Sequence[Sequence[Row]],
    after: Sequence[Sequence[Row]],
    again: Sequence[Sequence[Row]] = (),
) -> list[Line]:
    """Every figure that was measured in runs before and after.

    Where it was measured again once the change was taken back, both times without it count
    together: what drifts evenly is the same on average as in the middle. A figure whose two times
    without the change differ by as much as the change shows is called drift.

    The chance of calling any figure changed where none did is at most 5 in 100 (t on the runs'
    logarithms, Holm over the figures; `backends.bench.inference`).

    Args:
        before: The figures of each run, one row a figure.
        after: Likewise.
        again: Likewise.
    """
    opening, second, closing = _by_key(before), _by_key(after), _by_key(again)
    first = {key: [*values, *closing.get(key, ())] for key, values in opening.items()}
    rows = {row.key: row for run in before for row in run if row.key in second}
    estimates = _estimates(rows, first, second)
    drifts = _estimates(rows, opening, closing)
    adjusted, drifting = _adjusted(estimates), _adjusted(drifts)
    lines = []
    for key, row in rows.items():
        values = (tuple(opening[key]), tuple(second[key]))
        back = tuple(closing.get(key, ()))
        estimate = estimates.get(key)
        if estimate is None:
            lines.append(Line(key, row.what, row.unit, *values, Word.TOO_FEW, again=back))
            continue
        a, b = statistics.median(first[key]), statistics.median(second[key])
        change = (b - a) / a if a else 0.0
        shown = adjusted[key] <= LEVEL and abs(change) >= SMALLEST_CHANGE
        better = (change < 0) is row.lower_is_better
        word = (Word.BETTER if better else Word.WORSE) if shown else Word.NO_CHANGE
        line = Line(
            key, row.what, row.unit, *values, word, 100.0 * change, adjusted[key], again=back
        )
        drift = abs(line.drift_pct or 0.0)
        if drift >= 100.0 * max(SMALLEST_CHANGE, abs(change)) and drifting.get(key, 1.0) <= LEVEL:
            line = msgspec.structs.replace(line, word=Word.DRIFT)
        lines.append(line)
    return lines


def _estimates(
    keys: Iterable[str], first: Mapping[str, list[float]], second: Mapping[str, list[float]]
) -> dict[str, Estimate]:
    """The difference between two times, of each figure that was measured often enough."""
    estimates = {}
    for key in keys:
        one, other = first.get(key, []), second.get(key, [])
        if min(len(one), len(other)) < 2:
            continue
        found = judge([[Block(value)] for value in one], [[Block(value)] for value in other])
        if found is not None:
            estimates[key] = found
    return estimates


def _adjusted(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """The chance of each, adjusted for all of them."""
    p = holm([(one.p, 1.0) for one in estimates.values()])
    return dict(zip(estimates, p, strict=True))


def summary(lines: Sequence[Line]) -> str:
    """All of it in one line."""
    better = [line for line in lines if line.word is Word.BETTER]
    worse = [line for line in lines if line.word is Word.WORSE]
    if not lines:
        return "nothing was measured both before and after"
    drifted = [line for line in lines if line.word is Word.DRIFT]
    if not better and not worse and drifted:
        line = max(drifted, key=lambda one: abs(one.drift_pct or 0))
        return f"drift: {line.what} changed by itself ({line.drift_pct:+.1f} %); nothing is proved"
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
        for values in (line.before, line.after, line.again):
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
