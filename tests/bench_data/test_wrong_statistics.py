"""The tests of false alarms and of power fail where the statistics are wrong.

Each test here puts a mistake in that is easily made, and counts as `test_compare` does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import pytest

from backends.bench import compare, inference
from backends.bench.inference import Arm, Block, Estimate, Floor, judge, student_p
from tests.bench_data.counts import ALARMS, FOUND, PAIRS, alarms, power

pytestmark = pytest.mark.usefixtures("words_only")


def with_error(factor: float, freedom: float = 1.0) -> Callable[..., Estimate | None]:
    """A judge whose standard error and degrees of freedom are wrong by factors."""

    def wrong(a: Arm, b: Arm, floor: Floor | None = None) -> Estimate | None:
        right = judge(a, b, floor=floor)
        if right is None:
            return None
        error, free = right.standard_error * factor, right.freedom * freedom
        p = student_p(math.log(right.ratio) / error, free)
        return dataclasses.replace(right, standard_error=error, freedom=free, p=p)

    return wrong


def in_one(arm: Arm) -> list[list[Block]]:
    return [[block for part in arm for block in part]]


def test_requests_as_if_they_were_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    """320 requests a block: each tells as much as a block, they say."""
    monkeypatch.setattr(compare, "judge", with_error(1 / math.sqrt(320), 320))
    assert alarms({"spread": 0.08}, ALARMS + 1) > ALARMS
    assert alarms({}, ALARMS + 1) > ALARMS


def test_tokens_as_if_they_were_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "judge", with_error(1 / math.sqrt(32_000), 32_000))
    assert alarms({"repetitions": 3, "between": 0.005}, ALARMS + 1) > ALARMS


def test_blocks_as_if_neighbours_were_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "_neighbours", lambda _: 0.0)
    assert alarms({"blocks": 20, "drift": 0.4}, ALARMS + 1) > ALARMS


def test_blocks_as_if_there_were_no_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        compare, "judge", lambda a, b, floor=None: judge(in_one(a), in_one(b), floor=floor)
    )
    assert alarms({"repetitions": 3, "between": 0.005}, ALARMS + 1) > ALARMS


def test_many_tests_as_if_each_were_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(values: Sequence[tuple[float, float]]) -> list[float]:
        return [p for p, _ in values]

    monkeypatch.setattr(compare, "holm", plain)
    assert alarms({}, ALARMS + 1) > ALARMS
    assert alarms({"spread": 0.08}, ALARMS + 1) > ALARMS


def test_too_much_caution_finds_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "judge", with_error(2.0))
    assert power().found < FOUND


def test_what_never_says_how_many_more_breaks_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("more_for", "more_to_tell"):
        monkeypatch.setattr(Estimate, name, lambda *_: 0)
    counts = power()
    assert counts.found + counts.told < PAIRS
