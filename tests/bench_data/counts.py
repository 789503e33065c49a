"""How often comparisons of made-up runs are wrong."""

from __future__ import annotations

from dataclasses import dataclass

from backends.bench.compare import Comparison, Word, compare
from tests.bench_data.runs import run

PAIRS = 100
ALARMS = 5
"""In 100 pairs of equal runs."""
FOUND = 90
"""Of 100 runs that are 2 % slower, where a block varies by 1 %."""


def wolf(comparison: Comparison) -> bool:
    """Whether anything was called different."""
    return any(
        row.word in (Word.FASTER, Word.SLOWER) for row in (comparison.overall, *comparison.rows)
    )


def alarms(how: dict[str, float], enough: int = PAIRS) -> int:
    """False alarms among pairs of equal runs, counted up to `enough`."""
    found = 0
    for i in range(PAIRS):
        a, b = (run(number, **how) for number in (2 * i, 2 * i + 1))  # type: ignore[arg-type]
        found += wolf(compare(a, b))
        if found >= enough:
            break
    return found


@dataclass
class Power:
    """What 100 comparisons with a run that is 2 % slower said."""

    found: int = 0
    told: int = 0
    wrong: int = 0


def power() -> Power:
    """Ten blocks that vary by 1 %."""
    counts = Power()
    for i in range(PAIRS):
        count(counts, compare(run(2 * i), run(2 * i + 1, speed=0.98)))
    return counts


def count(counts: Power, comparison: Comparison) -> None:
    """Sort a comparison with a slower run in."""
    counts.found += comparison.word is Word.SLOWER
    counts.told += comparison.word is Word.NO_DIFFERENCE and comparison.overall.more > 0
    counts.wrong += comparison.word is Word.FASTER
