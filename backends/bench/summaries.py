"""Distributions as a result keeps them: mean, spread and exact percentiles."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from backends.bench.results import Summary


def summary(values: Iterable[float]) -> Summary | None:
    """Exact percentiles, linear between neighbours (Hyndman and Fan's type 7); None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Summary(
        n=len(ordered),
        mean=statistics.fmean(ordered),
        stdev=statistics.stdev(ordered) if len(ordered) > 1 else 0.0,
        min=ordered[0],
        p50=percentile(ordered, 0.50),
        p90=percentile(ordered, 0.90),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        max=ordered[-1],
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """A percentile of values in ascending order."""
    rank = share * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def counted_summary(counts: Mapping[int, float], unit: float) -> Summary | None:
    """Likewise of counted whole values, each worth `unit`: exact to one of them.

    Counts may be weights; percentiles are then those of the weighted distribution.
    """
    total = sum(counts.values())
    if total <= 0:
        return None
    ordered = sorted(counts)
    mean = sum(value * counts[value] for value in ordered) / total
    variance = sum((value - mean) ** 2 * counts[value] for value in ordered) / total
    shares = (0.50, 0.90, 0.95, 0.99)
    found: list[int] = []
    seen = 0.0
    for value in ordered:
        seen += counts[value]
        while len(found) < len(shares) and seen > shares[len(found)] * (total - 1):
            found.append(value)
    found.extend([ordered[-1]] * (len(shares) - len(found)))
    return Summary(
        n=round(total),
        mean=mean * unit,
        stdev=math.sqrt(variance) * unit,
        min=ordered[0] * unit,
        p50=found[0] * unit,
        p90=found[1] * unit,
        p95=found[2] * unit,
        p99=found[3] * unit,
        max=ordered[-1] * unit,
    )
