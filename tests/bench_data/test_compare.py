"""Comparisons: false alarms, power, pairing, and what cannot be compared."""

from __future__ import annotations

import msgspec
import pytest

from backends.bench.compare import (
    Word,
    compare,
    compare_many,
    equal_conditions,
)
from backends.bench.compare_blocks import Metric
from backends.bench.results import (
    ClientHealth,
    Environment,
    RunResult,
    RunStatus,
    TokenLedger,
    TokenSource,
)
from tests.bench_data.counts import ALARMS, FOUND, PAIRS, alarms, power, wolf
from tests.bench_data.runs import run, summary

replace = msgspec.structs.replace


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"blocks": 20, "drift": 0.4},
        {"repetitions": 3},
        {"repetitions": 3, "between": 0.005},
        {"spread": 0.08},
    ],
    ids=str,
)
@pytest.mark.timeout(300)
def test_equal_runs_cry_wolf_at_most_5_times_in_100(how: dict[str, float]) -> None:
    assert alarms(how) <= ALARMS


@pytest.mark.usefixtures("words_only")
def test_2_percent_is_found_within_10_blocks_or_it_says_how_many_more() -> None:
    counts = power()
    assert counts.found >= FOUND
    assert counts.found + counts.told == PAIRS
    assert counts.wrong == 0


@pytest.mark.usefixtures("words_only")
def test_what_it_says_it_would_take_is_about_right() -> None:
    noisy = [compare(run(2 * i, spread=0.03), run(2 * i + 1, spread=0.03)) for i in range(30)]
    more = sorted(c.overall.more for c in noisy)[15]
    assert more > 0
    found = sum(
        compare(
            run(2 * i, spread=0.03, blocks=10 + more),
            run(2 * i + 1, spread=0.03, blocks=10 + more, speed=0.98),
        ).word
        is Word.SLOWER
        for i in range(40)
    )
    assert found >= 24


def test_a_change_is_said_in_both_directions_with_its_size() -> None:
    slower = compare(run(1), run(2, speed=0.9))
    assert slower.word is Word.SLOWER
    assert slower.slower_by() == pytest.approx(0.1, abs=0.01)
    assert {row.word for row in slower.rows} == {Word.SLOWER}
    faster = compare(run(2, speed=0.9), run(1))
    assert faster.word is Word.FASTER
    assert faster.slower_by() is None
    tpot = next(row for row in faster.rows if row.metric is Metric.TPOT)
    assert tpot.word is Word.FASTER
    assert tpot.change == pytest.approx(-0.1, abs=0.01)


def test_the_same_run_twice_is_the_same_within_2_percent() -> None:
    comparison = compare(run(1), run(1))
    assert comparison.word is Word.NO_DIFFERENCE
    assert comparison.overall.remark.startswith("the same within 2%; ")
    assert comparison.overall.remark.endswith(
        f"; {comparison.overall.more} more blocks each would find 1%"
    )
    quiet = compare(*[run(1, spread=0.003)] * 2)
    assert (quiet.overall.remark, quiet.overall.more) == ("the same within 1%", 0)
    assert comparison.overall.estimate is not None
    assert comparison.overall.estimate.ratio == 1


def test_what_is_called_the_same_has_an_interval_that_says_so() -> None:
    rows = [row for i in range(8) for row in compare(run(2 * i), run(2 * i + 1)).rows]
    said = [row for row in rows if row.remark.startswith("the same within")]
    assert len(said) > 20
    for row in said:
        change = 0.02 if "2%" in row.remark else 0.01
        assert row.estimate is not None
        assert 1 / (1 + change) < row.estimate.low < row.estimate.high < 1 + change


def test_a_difference_too_small_to_matter_has_no_word() -> None:
    quiet = {"spread": 0.0003, "blocks": 20}
    a, b = run(1, **quiet), run(2, speed=0.998, **quiet)  # type: ignore[arg-type]
    comparison = compare(a, b)
    assert comparison.overall.adjusted_p is not None
    assert comparison.overall.adjusted_p < 0.001
    assert comparison.word is Word.NO_DIFFERENCE
    assert comparison.overall.remark == "a difference below 1%"
    assert compare(a, b, smallest_change=0.002).word is Word.SLOWER
    assert compare(a, run(2, speed=0.98, **quiet)).word is Word.SLOWER  # type: ignore[arg-type]


@pytest.mark.usefixtures("words_only")
def test_equal_runs_of_the_history_tell_what_a_single_repetition_cannot() -> None:
    """Starts of this server differ by 1 %, its blocks by a tenth of that."""
    how = {"between": 0.01, "spread": 0.001}

    def one(number: int) -> RunResult:
        return run(number, **how)  # type: ignore[arg-type]

    alone = sum(wolf(compare(one(2 * i), one(2 * i + 1))) for i in range(40))
    assert alone > 10
    taught = [
        compare(one(2 * i), one(2 * i + 1), equals=[one(1000 + 8 * i + k) for k in range(8)])
        for i in range(40)
    ]
    assert sum(map(wolf, taught)) <= 3
    assert any("8 equal runs" in r or "9 equal runs" in r for r in taught[0].remarks)
    assert not any("one repetition" in r for r in taught[0].remarks)
    slower = run(2001, speed=0.9, **how)  # type: ignore[arg-type]
    assert compare(one(2000), slower, equals=[one(3000 + k) for k in range(8)]).word is Word.SLOWER
    undecided = next(c.overall for c in taught if c.overall.more)
    assert undecided.more_unit == "repetitions"  # More blocks of one run tell nothing of starts.


def test_three_equal_runs_teach_nothing() -> None:
    assert compare(run(1), run(2), equals=[run(3), run(4)]) == compare(run(1), run(2))


def test_equal_conditions() -> None:
    assert equal_conditions(run(1), run(2))
    assert not equal_conditions(run(1), run(2, plan="other"))
    assert not equal_conditions(run(1), changed(2, status=RunStatus.STOPPED))
    assert not equal_conditions(run(1), run(2, environment=Environment(driver="596.01")))


def test_a_comparison_is_reproducible() -> None:
    assert compare(run(1), run(2)) == compare(run(1), run(2))


def test_steps_are_paired_by_their_load() -> None:
    comparison = compare(run(1, streams=(1, 64)), run(2, streams=(64, 256)))
    assert {row.step for row in comparison.rows} == {"64 streams"}
    assert "steps only in A: 1 streams" in comparison.remarks
    assert "steps only in B: 256 streams" in comparison.remarks


def test_one_repetition_is_remarked() -> None:
    assert any("one repetition" in r for r in compare(run(1), run(2)).remarks)
    three = compare(run(1, repetitions=3), run(2, repetitions=3))
    assert not any("one repetition" in r for r in three.remarks)


def test_runs_without_blocks_are_judged_by_their_repetitions() -> None:
    def bare(number: int, speed: float = 1.0) -> RunResult:
        whole = run(number, repetitions=5, speed=speed, spread=0.003)
        return replace(whole, steps=tuple(replace(step, blocks=()) for step in whole.steps))

    assert compare(bare(1), bare(2, 0.95)).word is Word.SLOWER
    alone = [replace(r, steps=r.steps[:2]) for r in (bare(1), bare(2, 0.95))]
    comparison = compare(*alone)
    assert comparison.word is Word.NO_DIFFERENCE
    assert "too few" in comparison.overall.remark


def test_an_absent_metric_is_no_zero() -> None:
    def without_tpot(one: RunResult) -> RunResult:
        steps = tuple(
            replace(step, tpot_s=None, blocks=tuple(replace(b, tpot_s=None) for b in step.blocks))
            for step in one.steps
        )
        return replace(one, steps=steps)

    comparison = compare(without_tpot(run(1)), without_tpot(run(2)))
    row = next(row for row in comparison.rows if row.metric is Metric.TPOT)
    assert (row.a, row.b, row.estimate) == (None, None, None)


def test_an_open_loop_is_judged_by_its_latency() -> None:
    def opened(one: RunResult) -> RunResult:
        steps = tuple(
            replace(step, label="12/s poisson", concurrency=None, rate_per_s=12.0)
            for step in one.steps[:1]
        )
        return replace(one, steps=steps)

    comparison = compare(opened(run(1)), opened(run(2, speed=0.9)))
    assert comparison.overall.metric is Metric.E2E
    assert comparison.word is Word.SLOWER
    assert comparison.slower_by() == pytest.approx(0.1, abs=0.01)


def changed(number: int, **fields: object) -> RunResult:
    return replace(run(number), **fields)


@pytest.mark.parametrize(
    ("b", "key"),
    [
        (changed(2, plan=replace(run(2).plan, workload_digest="other")), "prompts and lengths"),
        (changed(2, harness="guidellm"), "tool that measured"),
        (changed(2, client=replace(run(2).client, where="tunnel")), "place of the client"),
        (changed(2, target=replace(run(2).target, route="/v1/chat/completions")), "route"),
        (changed(2, target=replace(run(2).target, streaming=False)), "streaming"),
        (changed(2, status=RunStatus.BROKEN), "how it ended"),
        (run(2, streams=(256,)), "steps"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_comparable_says_which_condition_differs(b: RunResult, key: str) -> None:
    comparison = compare(run(1), b)
    assert comparison.word is Word.NOT_COMPARABLE
    assert [difference.key for difference in comparison.obstacles] == [key]
    assert all(row.word is Word.NOT_COMPARABLE for row in comparison.rows)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"token_source": TokenSource.EVENTS}, "source of token counts"),
        ({"client": ClientHealth(valid=False, reasons=("CPU 97 %",))}, "client kept up"),
        ({"ledger": TokenLedger(foreign_output_share=0.2)}, "somebody else's load"),
        ({"output_length": summary(87.0)}, "tokens an answer"),
        ({"failed": 100}, "failed requests"),
    ],
)
def test_a_step_that_is_not_comparable_leaves_the_others(
    fields: dict[str, object], key: str
) -> None:
    b = run(2)
    b = replace(b, steps=(replace(b.steps[0], **fields), *b.steps[1:]))
    comparison = compare(run(1), b)
    assert comparison.word is Word.NO_DIFFERENCE
    spoiled = [row for row in comparison.rows if row.word is Word.NOT_COMPARABLE]
    assert {row.step for row in spoiled} == {"1 streams"}
    assert all(key in row.remark for row in spoiled)
    everywhere = replace(b, steps=tuple(replace(step, **fields) for step in b.steps))
    assert compare(run(1), everywhere).word is Word.NOT_COMPARABLE


def test_what_changed_stands_beside_the_verdict_and_not_in_its_way() -> None:
    b = run(2, environment=Environment(driver="596.01", effective_config={"tp": "8", "ep": "8"}))
    a = run(1, environment=Environment(driver="595.45", effective_config={"tp": "8", "ep": "1"}))
    comparison = compare(a, b)
    assert comparison.word is Word.NO_DIFFERENCE
    assert [str(difference) for difference in comparison.changes] == [
        "driver: 595.45 / 596.01",
        "configuration ep: 1 / 8",
    ]


def test_other_tools_are_compared_only_when_asked_for_and_only_in_what_they_share() -> None:
    b = changed(2, harness="vllm bench serve")
    comparison = compare(run(1), b, across_tools=True)
    assert comparison.word is Word.NO_DIFFERENCE
    assert {row.metric for row in comparison.rows} == {Metric.OUTPUT}


def test_any_number_of_runs() -> None:
    words = [c.word for c in compare_many(run(1), [run(2), run(3, speed=0.9), run(4, speed=1.1)])]
    assert words == [Word.NO_DIFFERENCE, Word.SLOWER, Word.FASTER]
