from __future__ import annotations

import random

from backends.backoff import Backoff


def test_waits_grow_between_one_second_and_a_minute_with_jitter() -> None:
    backoff = Backoff(rng=random.Random(1))
    waits = [backoff.next_s() for _ in range(200)]
    assert all(1.0 <= wait <= 60.0 for wait in waits)
    assert waits[0] <= 2.0
    assert max(waits[50:]) > 50.0
    assert min(waits[50:]) < 10.0, "the jitter spans the whole range"
    backoff.reset()
    assert backoff.next_s() <= 2.0
