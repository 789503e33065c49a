"""What the measuring programs share: how they say a result, and when they leave."""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
from typing import Any, Callable, List

RUNS = 3


def out(**message: Any) -> None:
    """One line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def fact(key: str, value: Any) -> None:
    """One result."""
    out(key="bench/" + key, value=round(value, 3) if isinstance(value, float) else value)


def rates(place: str, runs: List[float], unit: str = "gb_s") -> None:
    """The median of several runs, and how far they lie apart."""
    fact("%s/%s" % (place, unit), statistics.median(runs))
    fact(place + "/spread_pct", spread(runs))


def spread(runs: List[float]) -> float:
    """How far the runs lie apart, in percent of the largest."""
    return 100.0 * (max(runs) - min(runs)) / max(runs) if max(runs) else 0.0


def leave_with_stdin() -> None:
    """End when whoever started us has gone."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def repeat(count: int, work: Callable[[], Any]) -> Callable[[], None]:
    """`work` so many times."""

    def all_of_it() -> None:
        for _ in range(count):
            work()

    return all_of_it


def text_of(path: str) -> str:
    """What a small file says; empty where it can't be read."""
    try:
        with open(path) as file:
            return file.read(4096).strip()
    except OSError:
        return ""
