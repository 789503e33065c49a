"""Is a difference between two runs real? Statistics on blocks, with the standard library alone.

The unit is a block of time inside a repetition, never a token or a request: neighbouring tokens
share everything that goes wrong. What is estimated is the logarithm of the ratio of two means. Its
standard error comes from the spread of blocks, widened for the correlation of neighbours, and, with
several repetitions, from the spread of these where it is larger. Intervals have the shape of a
bootstrap over repetitions and blocks and the width of that standard error.

`benchmarks/compare_power.py` prints how often equal runs are called different and how often a
change is found.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance
from typing import Final

RESAMPLES: Final = 500
POOL_ABOVE: Final = 0.7
"""Repetitions are pooled with blocks unless they differ more than chance does at this level."""
MAX_CORRELATION: Final = 0.8
POWER: Final = 0.8
_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Block:
    """One block: a mean, and how much it weighs (seconds of a rate, requests of a latency)."""

    value: float
    weight: float = 1.0


Arm = Sequence[Sequence[Block]]
"""Repetitions of one run, each a list of blocks in order of time."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """How two arms differ.

    Attributes:
        ratio: Mean of B over mean of A.
        low: Lower end of the 95 % interval of the ratio; likewise `high`.
        p: Chance of a difference at least this large if there were none, for this test alone.
        effect: Difference in standard deviations of a block.
        standard_error: Of the logarithm of the ratio.
        freedom: Degrees of freedom of that error.
        by_repetitions: Whether the spread between repetitions limits, and not that of blocks.
    """

    ratio: float
    low: float
    high: float
    p: float
    effect: float
    standard_error: float
    freedom: float
    by_repetitions: bool

    def within(self, change: float) -> bool:
        """Whether the difference is shown to be smaller than `change`, a share, at 95 %."""
        half = student_quantile(0.975, self.freedom) * self.standard_error
        return abs(math.log(self.ratio)) + half < math.log1p(change)

    def more_for(self, change: float, units: int, level: float = 0.05) -> int:
        """How many more units an arm would need to find a change of `change` four times in five.

        Args:
            change: As a share, such as 0.02.
            units: Blocks (or repetitions, where these limit) of the smaller arm.
            level: Of the test.
        """
        quantiles = student_quantile(1 - level / 2, self.freedom) + _NORMAL.inv_cdf(POWER)
        return self._more(math.log1p(abs(change)) / quantiles, units)

    def more_to_tell(self, change: float, units: int, level: float = 0.05) -> int:
        """How many more units until a difference as large as this one is decided, one at least.

        That is: until it is shown to be one, or shown to be smaller than `change` (`within`).
        Arguments as of `more_for`.
        """
        difference = abs(math.log(self.ratio))
        shown = difference / student_quantile(1 - level / 2, self.freedom)
        below = (math.log1p(change) - difference) / student_quantile(0.975, self.freedom)
        return max(1, self._more(max(shown, below), units))

    def _more(self, error: float, units: int) -> int:
        """How many more units bring the standard error down to this."""
        return max(0, math.ceil(units * (self.standard_error / error) ** 2 - 1e-9) - units)


@dataclass(frozen=True, slots=True)
class Floor:
    """How much equal runs differ from each other.

    Attributes:
        deviation: Standard deviation of the logarithm of a run's mean.
        freedom: Degrees of freedom of that: runs less one.
    """

    deviation: float
    freedom: float


def floor_of(means: Sequence[float]) -> Floor | None:
    """The floor that the means of equal runs show; None for fewer than four of them."""
    if len(means) < 4 or not min(means) > 0:
        return None
    return Floor(math.sqrt(variance([math.log(value) for value in means])), len(means) - 1.0)


def mean(arm: Arm) -> float:
    """Weighted mean over all blocks."""
    total = sum(block.weight for part in arm for block in part)
    return sum(block.weight * block.value for part in arm for block in part) / total


def judge(a: Arm, b: Arm, seed: int = 1, floor: Floor | None = None) -> Estimate | None:
    """Estimate how B differs from A.

    Args:
        a: The run to compare with; empty repetitions are ignored.
        b: The run in question.
        seed: Of the bootstrap: equal input gives equal output.
        floor: How much equal runs differ. Used where an arm has a single repetition, which cannot
            show it itself.

    Returns:
        None where there is too little: fewer than two blocks in an arm, or a mean that is not
        above 0.
    """
    a, b = [part for part in a if part], [part for part in b if part]
    if min(sum(map(len, a)), sum(map(len, b))) < 2:
        return None
    if not all(block.weight > 0 for arm in (a, b) for part in arm for block in part):
        return None
    means = mean(a), mean(b)
    if not (min(means) > 0 and all(map(math.isfinite, means))):
        return None
    scaled = _relative(a, means[0]), _relative(b, means[1])
    error, freedom, by_repetitions = _standard_error(*scaled)
    if floor is not None and min(len(a), len(b)) < 2 and 2 * floor.deviation**2 > error**2:
        error, freedom, by_repetitions = math.sqrt(2) * floor.deviation, floor.freedom, True
    difference = math.log(means[1]) - math.log(means[0])
    if error == 0:
        # Not one block differs from another: any difference is one.
        p = 1.0 if difference == 0 else 0.0
        ratio = _exp(difference)
        return Estimate(ratio, ratio, ratio, p, 0.0, 0.0, freedom, by_repetitions)
    spread = math.sqrt(
        variance([value for arm in scaled for part in arm for value in part]) or error**2
    )
    low, high = _interval(a, b, difference, error, freedom, random.Random(seed))
    return Estimate(
        ratio=_exp(difference),
        low=_exp(low),
        high=_exp(high),
        p=student_p(difference / error, freedom),
        effect=difference / spread,
        standard_error=error,
        freedom=freedom,
        by_repetitions=by_repetitions,
    )


def _exp(value: float) -> float:
    """The exponential, within what a float can hold: an end as far out says enough."""
    return math.exp(min(max(value, -700.0), 700.0))


def _relative(arm: Arm, middle: float) -> list[list[float]]:
    """Deviations from the mean, relative to it: those of the logarithm, to first order."""
    weight = fmean(block.weight for part in arm for block in part)
    return [
        [block.weight / weight * (block.value - middle) / middle for block in part] for part in arm
    ]


def _standard_error(a: list[list[float]], b: list[list[float]]) -> tuple[float, float, bool]:
    """Standard error of the difference, degrees of freedom, whether repetitions limit."""
    parts = a + b
    length = sum(map(len, parts)) / len(parts)
    correlation = _neighbours(parts)
    correlation = min(MAX_CORRELATION, max(0.0, correlation + (1 + 3 * correlation) / length))
    inflation = (1 + correlation) / (1 - correlation)
    within, freedom = 0.0, 0.0
    for arm in (a, b):
        blocks = sum(map(len, arm))
        free = sum(len(part) - 1 for part in arm)
        if free == 0:
            continue
        squares = sum(sum((x - fmean(part)) ** 2 for x in part) for part in arm)
        # The spread inside a short correlated stretch is too small by this much.
        short = (1 - 1 / length) / (1 - min(0.8, inflation / length))
        within += squares / free * inflation * short / blocks
        freedom += free / inflation
    if min(len(a), len(b)) < 2:
        return math.sqrt(within), max(1.0, freedom), False
    between = sum(variance([fmean(part) for part in arm]) / len(arm) for arm in (a, b))
    few = float(len(a) + len(b) - 2)
    if within == 0 or fisher_p(between / within, few, max(1.0, freedom)) < POOL_ABOVE:
        return math.sqrt(between), few, True
    pooled = (few * between + freedom * within) / (few + freedom)
    return math.sqrt(max(pooled, between)), few + freedom, False


def _neighbours(parts: list[list[float]]) -> float:
    """Correlation of neighbouring blocks, over all repetitions of both arms."""
    products = squares = 0.0
    for part in parts:
        middle = fmean(part)
        squares += sum((x - middle) ** 2 for x in part)
        products += sum((x - middle) * (y - middle) for x, y in itertools.pairwise(part))
    return products / squares if squares else 0.0


def _interval(
    a: Arm, b: Arm, difference: float, error: float, freedom: float, chance: random.Random
) -> tuple[float, float]:
    """Bootstrap percentiles, stretched so that their width is that of the standard error."""
    draws_a, draws_b = _resample(a, chance), _resample(b, chance)
    draws = sorted(
        math.log(y) - math.log(x) - difference
        for x, y in zip(draws_a, draws_b, strict=True)
        if x > 0 < y
    )
    if len(draws) < RESAMPLES // 2:
        half = student_quantile(0.975, freedom) * error
        return difference - half, difference + half
    deviation = math.sqrt(fmean(x * x for x in draws)) or error
    stretch = error / deviation * student_quantile(0.975, freedom) / _NORMAL.inv_cdf(0.975)
    low = draws[int(0.025 * len(draws))]
    high = draws[-1 - int(0.025 * len(draws))]
    return difference + min(low, 0.0) * stretch, difference + max(high, 0.0) * stretch


def _resample(arm: Arm, chance: random.Random) -> list[float]:
    """Means of resampled arms: repetitions are drawn, then blocks inside each of them."""
    sums = [
        ([block.weight for block in part], [block.weight * block.value for block in part])
        for part in arm
    ]
    draws: list[float] = []
    for _ in range(RESAMPLES):
        weight = total = 0.0
        for weights, products in chance.choices(sums, k=len(sums)):
            count = len(weights)
            chosen = [int(chance.random() * count) for _ in range(count)]
            weight += sum([weights[i] for i in chosen])
            total += sum([products[i] for i in chosen])
        draws.append(total / weight)
    return draws


def holm(values: Sequence[tuple[float, float]], level: float = 0.05) -> list[float]:
    """Adjust chances for being many: Holm's step-down method, with weights.

    Args:
        values: Of each test its p and its weight, its share of `level`; weights are relative.
        level: Only fixes the scale; adjusted values are to be compared with it.

    Returns:
        Adjusted p, in the order given: rejecting where it is at most `level` keeps the chance of
        any false alarm at `level`.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal
    of Statistics 6 (1979).
    """
    adjusted = [1.0] * len(values)
    order = sorted(range(len(values)), key=lambda i: values[i][0] / values[i][1])
    left = sum(weight for _, weight in values)
    highest = 0.0
    for place in order:
        p, weight = values[place]
        highest = max(highest, min(1.0, p * left / weight))
        adjusted[place] = highest
        left -= weight
    return adjusted


def student_p(t: float, freedom: float) -> float:
    """Two-sided chance of Student's t."""
    return _beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def fisher_p(f: float, above: float, below: float) -> float:
    """Chance of a ratio of variances at least as large as `f`."""
    return _beta(below / 2, above / 2, below / (below + above * f))


@functools.lru_cache(maxsize=128)
def student_quantile(share: float, freedom: float) -> float:
    """The value of Student's t below which `share` (above one half) of it lies."""
    # The tail is convex, and wider than that of the normal distribution: from that one's value
    # Newton's method comes nearer from one side.
    value = _NORMAL.inv_cdf(share)
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    scale -= math.log(freedom * math.pi) / 2
    for _ in range(100):
        density = math.exp(scale - (freedom + 1) / 2 * math.log1p(value * value / freedom))
        step = (student_p(value, freedom) / 2 - (1 - share)) / density
        value += step
        if abs(step) < 1e-7 * value:
            break
    return value


def _beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(b, a, 1 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d or tiny)
    fraction = d
    for m in range(1, 500):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + step * d) or tiny)
            c = (1 + step / c) or tiny
            fraction *= d * c
        if abs(d * c - 1) < 1e-13:
            break
    return front * fraction / a
