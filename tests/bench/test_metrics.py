"""The definitions of the figures, on records made by hand."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.bench.metrics import StepMetrics
from backends.bench.request_figures import arrival_tokens, tpot
from backends.bench.request_record import RequestRecord
from backends.bench.results import Failure, StepResult, TokenSource
from backends.bench.summaries import counted_summary, percentile, summary

STEP = StepResult(index=0, repetition=0, label="x", load={}, start_s=0.0, end_s=10.0)


def record(**fields: Any) -> RequestRecord:
    """A success: sent at 1.0, first token at 1.5, four more every 100 ms."""
    values: dict[str, Any] = {
        "step": 0,
        "id": 0,
        "slot": 0,
        "due_s": 0.9,
        "sent_s": 1.0,
        "first_byte_s": 1.4,
        "first_token_s": 1.5,
        "last_token_s": 1.9,
        "end_s": 1.91,
        "status": 200,
        "ok": True,
        "finish": "length",
        "asked_input": 10,
        "asked_output": 5,
        "input_tokens": 10,
        "output_tokens": 5,
        "source": TokenSource.USAGE,
        "events": 5,
        "gaps_us": (100_000,) * 4,
        "tokens_known": True,
    }
    values.update(fields)
    return RequestRecord(**values)


def result(
    *records: RequestRecord, closed: bool = True, warmed: bool = True, **more: Any
) -> StepResult:
    metrics = StepMetrics(closed=closed, **more)
    for one in records:
        metrics.add(one)
    return metrics.result(STEP, 0.0, warmed)


def test_latencies_of_one_request() -> None:
    step = result(record(connect_s=0.002, first_answer_s=1.7))
    values = {
        name: getattr(step, name).mean
        for name in ("ttft_s", "ttfb_s", "ttfa_s", "tpot_s", "gap_s", "itl_s", "e2e_s", "connect_s")
    }
    assert values == pytest.approx(
        {
            "ttft_s": 0.5,
            "ttfb_s": 0.4,
            "ttfa_s": 0.7,
            "tpot_s": 0.1,
            "gap_s": 0.1,
            "itl_s": 0.1,
            "e2e_s": 0.9,  # To the last token, not to the stream's end.
            "connect_s": 0.002,
        }
    )
    assert step.queue_s is None  # A closed loop has no queue.


def test_an_open_loop_counts_from_when_it_was_due() -> None:
    step = result(record(slot=None), closed=False)
    assert step.queue_s is not None
    assert step.e2e_due_s is not None
    assert step.queue_s.mean == pytest.approx(0.1)
    assert step.e2e_due_s.mean == pytest.approx(1.0)


def test_the_first_events_tokens_are_not_in_tpot() -> None:
    # Two events of four tokens, 400 ms apart: 100 ms a token.
    one = record(output_tokens=8, events=2, gaps_us=(400_000,), arrival_tokens=(4, 4))
    assert tpot(one) == pytest.approx(0.1)
    # The same without knowing: the first has its share.
    assert tpot(record(output_tokens=8, events=2, gaps_us=(400_000,), tokens_known=False)) == (
        pytest.approx(0.1)
    )
    assert tpot(record(output_tokens=1, events=1, gaps_us=(), last_token_s=1.5)) is None


def test_inter_token_latency_is_weighted_by_tokens_and_only_where_known() -> None:
    known = record(output_tokens=5, events=3, gaps_us=(300_000, 100_000), arrival_tokens=(1, 3, 1))
    step = result(known)
    assert step.itl_s is not None
    assert step.itl_s.n == 4
    assert step.itl_s.mean == pytest.approx(0.1)
    assert step.gap_s is not None
    assert step.gap_s.max == pytest.approx(0.3)
    assert result(known, record(tokens_known=False)).itl_s is None


def test_an_event_without_a_token_is_on_the_way_to_the_next() -> None:
    step = result(
        record(
            output_tokens=3,
            events=4,
            gaps_us=(50_000, 50_000, 100_000),
            arrival_tokens=(1, 0, 1, 1),
        )
    )
    assert step.itl_s is not None
    assert (step.itl_s.n, step.itl_s.max) == (2, pytest.approx(0.1))


def test_failures_are_in_no_latency_and_in_every_denominator() -> None:
    bad = record(id=1, ok=False, failure=Failure.CUT, first_token_s=1.001)
    step = result(
        record(), bad, record(id=2, cancelled=True, ok=False), goodput_limits_s={"ttft": 1}
    )
    assert (step.sent, step.succeeded, step.failed, step.cancelled) == (3, 1, 1, 1)
    assert step.failures == {"cut": 1}
    assert step.ttft_s is not None
    assert step.ttft_s.n == 1
    assert step.goodput is not None
    assert (step.goodput.good, step.goodput.of) == (1, 2)
    # What a failed request received is no throughput.
    assert step.whole is not None
    assert step.whole.output_tokens == 5


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        ({"ttft": 0.5}, 1),
        ({"ttft": 0.4}, 0),
        ({"ttft": 0.5, "tpot": 0.09}, 0),
        ({"e2e": 0.9, "gap_max": 0.1}, 1),
        ({"gap_max": 0.09}, 0),
    ],
)
def test_goodput_wants_every_limit_met(limits: dict[str, float], good: int) -> None:
    step = result(record(), goodput_limits_s={k: v + 1e-9 for k, v in limits.items()})
    assert step.goodput is not None
    assert step.goodput.good == good


def test_an_answer_of_one_token_cannot_fail_what_it_has_not() -> None:
    one = record(output_tokens=1, events=1, gaps_us=(), last_token_s=1.5)
    step = result(one, goodput_limits_s={"tpot": 0.001, "gap_max": 0.001})
    assert step.goodput is not None
    assert step.goodput.good == 1


def test_warm_up_requests_are_in_no_latency_but_their_tokens_are_in_the_window() -> None:
    # A stream that began in the warm-up goes on while measuring begins at 1.6.
    warm = record(phase="warmup")
    metrics = StepMetrics(closed=True)
    metrics.add(warm)
    metrics.add(record(id=1, slot=0, sent_s=1.92, first_token_s=2.0, last_token_s=2.4, end_s=2.4))
    step = metrics.result(STEP, 1.6, True)
    assert step.sent == 1
    assert step.ttft_s is not None
    assert step.ttft_s.n == 1
    assert step.steady is not None
    # 1.6, 1.7, 1.8, 1.9 of the first; 2.0 to 2.3 of the second (2.4 is the end, outside).
    assert step.steady.output_tokens == 8


def test_the_steady_window_is_when_all_slots_are_busy() -> None:
    metrics = StepMetrics(closed=True)
    metrics.add(record(slot=0, first_token_s=1.5, last_token_s=1.9, end_s=1.9))
    metrics.add(record(slot=0, first_token_s=2.5, last_token_s=2.9, end_s=2.9))
    metrics.add(record(slot=1, first_token_s=1.7, last_token_s=2.1, end_s=2.1))
    metrics.add(record(slot=1, first_token_s=3.5, last_token_s=3.9, end_s=3.9))
    # No warm-up: from the slowest slot's first token to the first slot's end.
    assert metrics.steady_window(0.0, warmed=False) == pytest.approx((1.7, 2.9))
    assert metrics.steady_window(1.0, warmed=True) == pytest.approx((1.0, 2.9))
    rates = metrics.throughput(1.7, 2.9)
    assert rates.output_tokens == 3 + 4 + 5
    assert rates.total_tokens_per_s == pytest.approx(
        rates.output_tokens_per_s + rates.input_tokens / 1.2
    )


def test_steady_and_whole_rates_differ_by_ramp_and_drain() -> None:
    records = [
        record(
            id=i,
            slot=i % 4,
            sent_s=float(i // 4),
            first_token_s=i // 4 + 0.5,
            last_token_s=i // 4 + 0.9,
            end_s=i // 4 + 1.0,
        )
        for i in range(40)
    ]
    step = result(*records, warmed=False)
    assert step.steady is not None
    assert step.whole is not None
    assert step.whole.output_tokens == 200
    assert step.whole.output_tokens_per_s == pytest.approx(200 / 9.9)
    assert (step.steady.start_s, step.steady.end_s) == pytest.approx((0.5, 10.0))
    assert step.steady.output_tokens == 200
    assert step.whole.requests == step.steady.requests == 40


def test_blocks_part_the_steady_window_without_loss() -> None:
    rng = random.Random(3)
    metrics = StepMetrics(closed=False)
    for i in range(400):
        sent = i * 0.05
        first = sent + rng.uniform(0.05, 0.4)
        gaps = tuple(rng.randrange(5_000, 60_000) for _ in range(9))
        last = first + sum(gaps) / 1e6
        metrics.add(
            record(
                id=i, slot=None, due_s=sent, sent_s=sent, first_token_s=first, last_token_s=last,
                end_s=last, output_tokens=10, gaps_us=gaps, events=10,
            )
        )  # fmt: skip
    window = metrics.steady_window(0.0, warmed=True)
    assert window is not None
    blocks = metrics.blocks(*window)
    whole = metrics.throughput(*window)
    assert len(blocks) == 19
    assert sum(block.output_tokens for block in blocks) == pytest.approx(
        whole.output_tokens, abs=10
    )
    assert sum(block.input_tokens for block in blocks) == whole.input_tokens
    assert sum(block.requests for block in blocks) == whole.requests
    assert all(block.ttft_s and 0.05 <= block.ttft_s <= 0.4 for block in blocks)


def test_drained_streams_keep_counts_and_are_in_no_gap() -> None:
    slow = record(
        gaps_us=(250_000, 250_000), arrival_tokens=(1, 2, 2), last_token_s=2.0, drained=True
    )
    step = result(slow)
    assert step.gap_s is None
    assert step.itl_s is None
    assert step.whole is not None
    assert step.whole.output_tokens == 5
    assert step.ttft_s is not None


def test_the_worst_count_is_said() -> None:
    step = result(record(), record(source=TokenSource.EVENTS, input_tokens=None))
    assert step.token_source is TokenSource.EVENTS
    assert step.ledger.usage_output is None
    assert step.ledger.seen_output == 10


def test_prompts_of_another_length_than_asked_are_remarked() -> None:
    step = result(record(input_tokens=12))
    assert step.ledger.remarks == ("12 input tokens by usage, 10 asked for",)


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=60))
def test_percentiles_are_those_of_the_standard_library(values: list[float]) -> None:
    found = summary(values)
    assert found is not None
    assert found.n == len(values)
    assert found.p50 == pytest.approx(statistics.median(values))
    if len(values) > 1:
        cuts = statistics.quantiles(values, n=100, method="inclusive")
        assert found.p90 == pytest.approx(cuts[89])
        assert found.p99 == pytest.approx(cuts[98])


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200))
def test_counted_percentiles_are_values_beside_the_exact_ones(values: list[int]) -> None:
    found = counted_summary(Counter(values), 1.0)
    assert found is not None
    ordered = sorted(map(float, values))
    assert found.mean == pytest.approx(statistics.fmean(values))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        exact = percentile(ordered, share)
        below = max(v for v in ordered if v <= exact)
        above = min(v for v in ordered if v >= exact)
        assert below <= getattr(found, name) <= above


def test_nothing_gives_nothing() -> None:
    assert summary([]) is None
    assert counted_summary({}, 1.0) is None
    step = StepMetrics(closed=True).result(STEP, 0.0, True)
    assert step.steady is None
    assert step.whole is None
    assert step.ttft_s is None
    assert step.ledger.usage_output is None


@given(st.integers(1, 30), st.data())
def test_shared_out_tokens_add_up(tokens: int, data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=8))
    one = record(
        output_tokens=tokens,
        gaps_us=(10,) * (len(counts) - 1),
        arrival_tokens=tuple(counts),
        tokens_known=False,
    )
    assert sum(arrival_tokens(one)) == pytest.approx(tokens)
