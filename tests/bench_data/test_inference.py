"""Statistics: known values of distributions, and properties that must hold."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backends.bench.inference import (
    Block,
    Estimate,
    fisher_p,
    holm,
    judge,
    mean,
    student_p,
    student_quantile,
)


@pytest.mark.parametrize(
    ("share", "freedom", "value"),
    [(0.975, 1, 12.706), (0.975, 4, 2.776), (0.975, 18, 2.101), (0.995, 10, 3.169),
     (0.975, 1e6, 1.960), (0.95, 5, 2.015)],
)  # fmt: skip
def test_quantiles_of_student(share: float, freedom: float, value: float) -> None:
    assert student_quantile(share, freedom) == pytest.approx(value, abs=0.001)
    assert student_p(value, freedom) == pytest.approx(2 * (1 - share), rel=0.01)


@pytest.mark.parametrize(
    ("f", "above", "below", "chance"),
    [(4.96, 1, 10, 0.05), (3.84, 4, 8, 0.05), (2.71, 1, 1e6, 0.1), (1.0, 7, 7, 0.5)],
)
def test_chances_of_fisher(f: float, above: float, below: float, chance: float) -> None:
    assert fisher_p(f, above, below) == pytest.approx(chance, rel=0.02)


def test_holm_by_hand() -> None:
    adjusted = holm([(0.01, 1), (0.04, 1), (0.03, 1), (0.005, 1)])
    assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_spends_half_on_the_first_when_it_weighs_as_much_as_all_others() -> None:
    adjusted = holm([(0.025, 4), (0.9, 1), (0.9, 1), (0.9, 1), (0.9, 1)])
    assert adjusted[0] == pytest.approx(0.05)
    assert adjusted[1:] == [1.0] * 4


def test_nothing_to_adjust() -> None:
    assert holm([]) == []


def arm(*values: float) -> list[list[Block]]:
    return [[Block(value) for value in values]]


def test_a_plain_difference() -> None:
    estimate = judge(arm(99, 101, 100, 100, 99, 101), arm(109, 111, 110, 110, 109, 111))
    assert estimate is not None
    assert estimate.ratio == pytest.approx(1.1)
    assert 1.05 < estimate.low < 1.1 < estimate.high < 1.15
    assert estimate.p < 0.001
    assert estimate.effect > 2


def test_equal_input_gives_equal_output_and_no_difference() -> None:
    same = arm(1, 2, 3, 2, 1)
    first, second = judge(same, same), judge(same, same)
    assert first == second
    assert first is not None
    assert first.ratio == 1
    assert first.p == pytest.approx(1)
    assert first.low < 1 < first.high


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (arm(1), arm(1, 2)),
        ([], arm(1, 2)),
        ([[]], arm(1, 2)),
        (arm(0, 0), arm(1, 2)),
        (arm(1, math.inf), arm(1, 2)),
        ([[Block(1, 0), Block(1, 0)]], arm(1, 2)),
    ],
)
def test_too_little_is_said_and_not_guessed(a: list[list[Block]], b: list[list[Block]]) -> None:
    assert judge(a, b) is None


def test_blocks_that_never_differ() -> None:
    estimate = judge(arm(2, 2, 2), arm(3, 3, 3))
    assert estimate is not None
    assert (estimate.ratio, estimate.p) == (pytest.approx(1.5), 0.0)
    estimate = judge(arm(2, 2, 2), arm(2, 2, 2))
    assert estimate is not None
    assert estimate.p == 1.0


def test_a_stall_counts() -> None:
    """A block without a single token is a measurement, not a gap."""
    estimate = judge(arm(100, 100, 101, 99), arm(100, 100, 0, 100))
    assert estimate is not None
    assert estimate.ratio == pytest.approx(0.75)
    assert estimate.low < 0.75 < estimate.high


def test_weights_count() -> None:
    assert mean([[Block(1.0, 3.0), Block(5.0, 1.0)]]) == 2.0


def test_repetitions_that_differ_more_than_their_blocks_are_the_unit() -> None:
    a = [arm(100, 100.1, 99.9)[0], arm(103, 103.1, 102.9)[0], arm(97, 97.1, 96.9)[0]]
    b = [arm(101, 101.1, 100.9)[0], arm(104, 104.1, 103.9)[0], arm(98, 98.1, 97.9)[0]]
    estimate = judge(a, b)
    assert estimate is not None
    assert estimate.by_repetitions
    assert estimate.p > 0.3


def test_how_many_more() -> None:
    chance = random.Random(3)
    a, b = (arm(*(chance.gauss(100, 5) for _ in range(10))) for _ in range(2))
    estimate = judge(a, b)
    assert estimate is not None
    more = estimate.more_for(0.02, 10)
    # (z + z)^2 x 2 variances / change^2, about: (1.96 + 0.84)^2 x 2 x 0.05^2 / 0.02^2 = 98.
    assert 50 < more + 10 < 200
    assert estimate.more_for(0.2, 10) == 0
    assert estimate.more_for(0.01, 10) > more


@given(st.floats(0.9, 1.1), st.floats(1e-5, 0.1), st.integers(2, 50))
def test_what_one_pair_would_take_decides_it(ratio: float, error: float, units: int) -> None:
    """The same difference, with the error of so many units, is shown or shown to be small."""
    pair = Estimate(ratio, 0, 9, 0.5, 0, error, 18.0, False)
    factor = units / (units + pair.more_to_tell(0.02, units, 0.01))
    later = dataclasses.replace(pair, standard_error=error * math.sqrt(factor))
    t = abs(math.log(ratio)) / later.standard_error
    assert later.within(0.02) or student_p(t, 18.0) <= 0.01 * (1 + 1e-6)


blocks = st.lists(st.floats(0, 1e6), min_size=0, max_size=6).map(
    lambda values: [Block(value) for value in values]
)


@settings(max_examples=100, deadline=None)
@example([[Block(1.0), Block(5e-324)]], [[Block(0.0), Block(1.0)]])
@example([[Block(5e-324), Block(5e-324)]], [[Block(1e6), Block(1.0)]])
@given(st.lists(blocks, max_size=3), st.lists(blocks, max_size=3))
def test_any_blocks_give_an_ordered_estimate_or_none(
    a: list[list[Block]], b: list[list[Block]]
) -> None:
    estimate = judge(a, b)
    if estimate is not None:
        assert estimate.low <= estimate.ratio * (1 + 1e-9)
        assert estimate.high >= estimate.ratio * (1 - 1e-9)
        assert 0 <= estimate.p <= 1
        assert estimate.more_for(0.02, 5) >= 0
