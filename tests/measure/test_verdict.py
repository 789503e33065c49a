"""What an experiment says of its runs: seldom a word for nothing, always one for something."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.tuning.measurements.figures import Row
from backends.tuning.measurements.verdict import Word, compare, summary, table

KEYS = [f"bench/h2d/{n}/gb_s" for n in range(4)]


def runs(
    chance: random.Random, factor: float = 1.0, noise: float = 0.01, unit: str = "GB/s"
) -> list[list[Row]]:
    return [
        [Row(key, key, 50.0 * factor * (1 + chance.gauss(0, noise)), unit) for key in KEYS]
        for _ in range(3)
    ]


def test_equal_runs_are_rarely_called_different() -> None:
    chance = random.Random(7)
    alarms = sum(
        any(line.word is not Word.NO_CHANGE for line in compare(runs(chance), runs(chance)))
        for _ in range(400)
    )
    assert alarms <= 32, "5 in 100 of 400 is 20; that many more has a chance of 1 in 200"
    drifts = sum(
        any(line.word is not Word.NO_CHANGE for line in compare(*(runs(chance) for _ in "ABA")))
        for _ in range(40)
    )
    assert drifts <= 12, "twice 5 in 100 of 40 is 4; that many has a chance of 1 in 2000"


def test_a_real_difference_is_found_and_has_its_sign() -> None:
    chance = random.Random(7)
    better = [compare(runs(chance), runs(chance, 1.2)) for _ in range(50)]
    found = sum(line.word is Word.BETTER for lines in better for line in lines)
    assert found >= 190
    slower = compare(runs(chance, unit="us"), runs(chance, 1.2, unit="us"))
    assert {line.word for line in slower} == {Word.WORSE}


def test_a_difference_that_is_sure_but_small_is_none() -> None:
    chance = random.Random(7)
    lines = compare(runs(chance, noise=1e-5), runs(chance, 1.005, noise=1e-5))
    assert {line.word for line in lines} == {Word.NO_CHANGE}
    assert summary(lines) == "no measurable change"


def test_one_run_is_too_few_and_what_lacks_a_side_is_left_out() -> None:
    one = [[Row("bench/read/gb_s", "read", 2.0, "GB/s"), Row("bench/x", "x", 1.0, "us")]]
    other = [[Row("bench/read/gb_s", "read", 3.0, "GB/s")]]
    (line,) = compare(one, other)
    assert line.word is Word.TOO_FEW
    assert summary([line]) == "too few runs"
    assert summary([]) == "nothing was measured both before and after"


def test_an_even_drift_is_neither_better_nor_worse() -> None:
    chance = random.Random(7)
    words = [
        line.word
        for _ in range(20)
        for line in compare(runs(chance), runs(chance, 0.95), runs(chance, 0.9))
    ]
    assert {Word.BETTER, Word.WORSE}.isdisjoint(words)
    assert words.count(Word.DRIFT) >= 70


def test_an_effect_larger_than_the_drift_is_still_one() -> None:
    chance = random.Random(7)
    words = [
        line.word
        for _ in range(20)
        for line in compare(runs(chance), runs(chance, 1.3), runs(chance, 1.02))
    ]
    assert words.count(Word.BETTER) >= 70


VALUES = st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=5)


@settings(max_examples=200, deadline=None)
@given(VALUES, VALUES, st.sampled_from(["us", "GB/s"]))
def test_any_runs_get_a_word_and_a_line(a: list[float], b: list[float], unit: str) -> None:
    def sides(values: list[float]) -> list[list[Row]]:
        return [[Row("bench/k", "k", value, unit)] for value in values]

    (line,) = compare(sides(a), sides(b))
    assert line.word in Word
    assert line.word.value in table([line])
    if sorted(a) == sorted(b):
        assert line.word in (Word.NO_CHANGE, Word.TOO_FEW)


def test_the_largest_changes_come_first_in_the_summary() -> None:
    chance = random.Random(7)
    before = runs(chance, noise=0.001)
    factors = (1.5, 1.1, 0.5, 1.3)
    after = [
        [
            Row(key, key, 50.0 * factor * (1 + chance.gauss(0, 0.001)), "GB/s")
            for key, factor in zip(KEYS, factors, strict=True)
        ]
        for _ in range(3)
    ]
    told = summary(compare(before, after))
    assert told.index(KEYS[0]) < told.index(KEYS[3])
    assert "and 1 more" in told
    assert told.count("%") == 3
