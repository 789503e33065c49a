"""How often a comparison calls equal runs different, and how often it finds a change.

Run it as a script: `python benchmarks/compare_power.py [PAIRS]`. Servers are simulated with a true
speed: blocks vary by a coefficient of variation, neighbours may be correlated, repetitions may
differ from each other. "any" counts a pair if any word of its table is wrong.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backends.bench import inference
from backends.bench.compare import Comparison, Word, compare
from tests.bench_data.runs import run

CASES: tuple[tuple[str, dict[str, float]], ...] = (
    ("10 blocks, CV 1 %", {}),
    ("5 blocks", {"blocks": 5}),
    ("20 blocks, CV 3 %", {"blocks": 20, "spread": 0.03}),
    ("10 blocks, neighbours correlated 0.3", {"drift": 0.3}),
    ("20 blocks, neighbours correlated 0.5", {"blocks": 20, "drift": 0.5}),
    ("2 repetitions", {"repetitions": 2}),
    ("3 repetitions", {"repetitions": 3}),
    ("3 repetitions that differ by 0.3 %", {"repetitions": 3, "between": 0.003}),
    ("3 repetitions that differ by 0.5 %", {"repetitions": 3, "between": 0.005}),
    ("3 repetitions that differ by 1 %", {"repetitions": 3, "between": 0.01}),
    ("5 repetitions that differ by 1 %", {"repetitions": 5, "between": 0.01}),
)
CHANGES = (0.01, 0.02, 0.05)


def main() -> int:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    # Words do not depend on the bootstrap, only the shape of intervals does.
    inference.RESAMPLES = 2  # type: ignore[misc]
    begun = time.monotonic()
    print(f"{pairs} pairs of runs with 2 steps a case; goal: at most 5 % false alarms, 2 % found")
    print(f"{'':<40}{'false alarms':^16}{'found, or told how many more blocks':^42}")
    print(
        f"{'case':<40}{'whole':>8}{'any':>8}"
        + "".join(f"{f'-{change:.0%}':>14}" for change in CHANGES)
    )
    for name, how in CASES:
        equal = [compared(i, how) for i in range(pairs)]
        whole = sum(alarm(c.word) for c in equal) / pairs
        anywhere = sum(any(alarm(r.word) for r in (c.overall, *c.rows)) for c in equal) / pairs
        cells = ""
        for change in CHANGES:
            some = [compared(i, how, 1 - change) for i in range(max(1, pairs // 3))]
            found = sum(c.word is Word.SLOWER for c in some) / len(some)
            told = sum(c.word is not Word.SLOWER and c.overall.more > 0 for c in some) / len(some)
            cells += f"{f'{found:.0%} + {told:.0%}':>14}"
        print(f"{name:<40}{whole:>8.1%}{anywhere:>8.1%}{cells}", flush=True)
    print(f"in {time.monotonic() - begun:.0f} s")
    return 0


def compared(number: int, how: dict[str, float], speed: float = 1.0) -> Comparison:
    a = run(2 * number, **how)  # type: ignore[arg-type]
    return compare(a, run(2 * number + 1, speed=speed, **how))  # type: ignore[arg-type]


def alarm(word: Word) -> bool:
    return word in (Word.FASTER, Word.SLOWER)


if __name__ == "__main__":
    sys.exit(main())
