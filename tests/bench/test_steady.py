"""When a warm-up has come to rest."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from backends.bench.generator.steady import SteadyCheck


def ends_after(token_s: Callable[[float], float], most_s: float = 600.0, batch: int = 4) -> float:
    """Time when requests one after another have come to rest; `most_s` if they don't."""
    check = SteadyCheck(batch)
    now = 0.0
    while not check.steady and now < most_s:
        check.add(ended(2 * token_s(now), token_s(now), now))
        now += 10 * token_s(now) / batch
    return min(now, most_s)


def ended(ttft_s: float, tpot_s: float, sent_s: float = 1.0) -> dict[str, object]:
    first_s = sent_s + ttft_s
    return {
        "ok": True, "sent_s": sent_s, "first_token_s": first_s,
        "last_token_s": first_s + tpot_s * 8, "output_tokens": 8,
    }  # fmt: skip


@pytest.mark.parametrize("tau_s", [1.0, 4.0, 20.0])
def test_a_server_that_catches_up_is_measured_when_it_has(tau_s: float) -> None:
    """However slowly it does, against the length of a batch."""
    at_s = ends_after(lambda now: 0.04 * (1 + 3 * math.exp(-now / tau_s)))
    left = 3 * math.exp(-at_s / tau_s)
    assert left < 0.01
    assert at_s < 10 * tau_s, "and not much later"


def test_a_warm_server_takes_three_batches() -> None:
    chance = random.Random(1)
    assert ends_after(lambda _: 0.04 * chance.gauss(1, 0.01)) == pytest.approx(1.2, rel=0.05)


def test_noise_takes_longer_and_comes_to_rest() -> None:
    chance = random.Random(2)
    assert 1.5 < ends_after(lambda _: 0.04 * math.exp(chance.gauss(0, 0.2))) < 60


def test_failures_and_what_has_no_times_say_nothing() -> None:
    check = SteadyCheck(2)
    for place in range(50):
        check.add({**ended(0.1, 0.01), "ok": False})
        check.add({"ok": True, "sent_s": float(place), "last_token_s": None})
    assert not check.steady
    for place in range(6):  # Not streamed: the whole time alone.
        check.add({"ok": True, "sent_s": float(place), "last_token_s": place + 0.5})
    assert check.steady


def test_figures_that_agree_are_steady() -> None:
    check = SteadyCheck(4)
    for i in range(12):
        assert not check.steady
        check.add(ended(0.1 + 0.002 * (i % 3), 0.02))
    assert check.steady


@pytest.mark.parametrize("which", ["ttft", "tpot"])
def test_a_cold_server_is_not_steady_until_it_is_warm(which: str) -> None:
    check = SteadyCheck(4)
    for block in range(6):
        slow = 1.0 + max(0, 3 - block)
        for _ in range(4):
            check.add(
                ended(
                    0.1 * (slow if which == "ttft" else 1), 0.02 * (slow if which == "tpot" else 1)
                )
            )
        assert check.steady == (block == 5)


def test_answers_that_come_in_one_piece_have_no_time_per_token() -> None:
    check = SteadyCheck(2)
    for tpot in (0.0, 0.0, 0.0, 0.0, 0.01, 0.01):
        check.add(ended(0.1, tpot))
    assert not check.steady
    for _ in range(6):
        check.add(ended(0.1, 0.0))
    assert check.steady
