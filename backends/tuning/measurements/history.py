"""Measurements of a host in the history, and two of them side by side."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from backends.storage.measurement_tables import MeasurementHistory, StoredMeasurement
from backends.tuning.facts import FactsDocument, decode
from backends.tuning.measurements.figures import Row, rows

T = TypeVar("T")
BASELINES: int = 5
"""Of so many earlier measurements the median is the baseline."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure in two measurements; None where one of them lacks it."""

    what: str
    unit: str
    a: float | None
    b: float | None
    lower_is_better: bool = False

    @property
    def change_pct(self) -> float | None:
        """B against A; positive is more."""
        if self.a is None or self.b is None or not self.a:
            return None
        return 100.0 * (self.b - self.a) / self.a


def document_of(stored: StoredMeasurement) -> FactsDocument:
    """The facts of a stored measurement."""
    return decode(stored.facts)


def figures_of(document: FactsDocument) -> list[Row]:
    """All figures of a document, from whichever vantage they were measured."""
    found: list[Row] = []
    for vantage in dict.fromkeys(fact.vantage for fact in document.facts):
        found += rows(document, vantage)
    return found


def compare(a: FactsDocument, b: FactsDocument) -> list[Compared]:
    """Two measurements, figure by figure, in the order of the first."""
    first = {row.key: row for row in figures_of(a)}
    second = {row.key: row for row in figures_of(b)}
    result = []
    for key in [*first, *(key for key in second if key not in first)]:
        one, other = first.get(key), second.get(key)
        row = one or other
        if row is not None:
            values = (one.value if one else None, other.value if other else None)
            result.append(Compared(row.what, row.unit, *values, row.lower_is_better))
    return result


def compared_table(found: Sequence[Compared]) -> str:
    """For people."""
    lines = []
    for one in found:
        cells = [
            f"{value:>10.1f}" if value is not None else f"{'-':>10}" for value in (one.a, one.b)
        ]
        change = f"{one.change_pct:+7.1f} %" if one.change_pct is not None else ""
        lines.append(f"{one.what:<34} {' '.join(cells)} {one.unit:<8} {change}".rstrip())
    return "\n".join(lines) + "\n"


async def stored(work: Callable[[MeasurementHistory], T]) -> T:
    """Do something with the history, off the event loop."""

    def do() -> T:
        with contextlib.closing(MeasurementHistory.at_home()) as history:
            return work(history)

    return await asyncio.to_thread(do)
