"""When requests are due in an open loop, in seconds from the step's start.

Each worker makes the whole schedule from the same seed and takes its own share of it, so the load
does not depend on how many workers there are.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator


def schedule(load: dict[str, object], seed: str) -> Iterator[float]:
    """Due times, endless except for a trace.

    `load` has `kind`: `constant`, `poisson`, `gamma` (with `burstiness`, the shape: 1 is Poisson,
    below 1 is burstier) or `trace` (with `entries`); `rate_per_s`, and for a linear ramp also
    `rate_end_per_s` and `ramp_s`. A ramp is made by moving a steady stream of due times through
    the inverse of the expected count, which keeps the kind of arrivals at every rate.
    """
    kind = load["kind"]
    if kind == "trace":
        for entry in load["entries"]:  # type: ignore[attr-defined]
            yield float(entry[0])
        return
    rng = random.Random(seed)
    rate = float(load["rate_per_s"])  # type: ignore[arg-type]
    end = float(load.get("rate_end_per_s") or rate)  # type: ignore[arg-type]
    ramp_s = float(load.get("ramp_s") or 0.0)  # type: ignore[arg-type]
    shape = float(load.get("burstiness") or 1.0)  # type: ignore[arg-type]
    count = 0.0
    while True:
        yield _when(count, rate, end, ramp_s)
        if kind == "constant":
            count += 1.0
        elif kind == "poisson":
            count += rng.expovariate(1.0)
        else:
            count += rng.gammavariate(shape, 1.0 / shape)


def _when(count: float, rate: float, end: float, ramp_s: float) -> float:
    """The time at which `count` requests are expected to have been due."""
    if ramp_s <= 0 or rate == end:
        return count / rate
    in_ramp = (rate + end) / 2 * ramp_s
    if count >= in_ramp:
        return ramp_s + (count - in_ramp) / end
    slope = (end - rate) / ramp_s
    return 2 * count / (rate + math.sqrt(rate * rate + 2 * slope * count))
