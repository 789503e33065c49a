"""Requests and arrivals: as long, as often and as unique as the plan says."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from typing import Any

import pytest

from backends.bench.generator.arrivals import schedule
from backends.bench.generator.supply import Supply
from backends.bench.generator.workload import Workload, draw

STEP: dict[str, object] = {"index": 0, "repetition": 0, "load": {"kind": "closed"}}
FIXED = {"input": {"kind": "fixed", "value": 40}, "output": {"kind": "fixed", "value": 7}}


def workload(route: str = "completions", **fields: Any) -> Workload:
    job: dict[str, object] = {
        "route": route,
        "model": "m",
        "stream": True,
        "seed": 1,
        "nonce": "n",
        "ignore_eos": True,
        "prompt": {"kind": "ids", "low": 1000, "high": 9000},
        "parts": [FIXED],
    }
    job.update(fields)
    return Workload(job)


def body(work: Workload, number: int = 0, step: dict[str, object] = STEP) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(work.request(step, number, None).body)
    return decoded


def test_ids_have_the_length_and_lie_in_the_band() -> None:
    prompt = body(workload())["prompt"]
    assert len(prompt) == 40
    assert all(1000 <= token < 9000 for token in prompt)


def test_no_two_prompts_begin_alike() -> None:
    work = workload()
    firsts = {tuple(body(work, i)["prompt"][:4]) for i in range(300)}
    again = {tuple(body(work, i, {**STEP, "repetition": 1})["prompt"][:4]) for i in range(300)}
    other = {tuple(body(workload(nonce="another"), i)["prompt"][:4]) for i in range(300)}
    assert len(firsts | again | other) == 900


def test_the_same_job_makes_the_same_requests() -> None:
    assert body(workload(), 5) == body(workload(), 5)


def test_a_repetition_has_the_same_lengths_and_other_prompts() -> None:
    part = {
        "input": {"kind": "uniform", "low": 10, "high": 90},
        "output": {"kind": "uniform", "low": 1, "high": 50},
    }
    work = workload(parts=[part])
    first = [body(work, i) for i in range(20)]
    second = [body(work, i, {**STEP, "repetition": 1}) for i in range(20)]
    assert [len(b["prompt"]) for b in first] == [len(b["prompt"]) for b in second]
    assert [b["max_tokens"] for b in first] == [b["max_tokens"] for b in second]
    assert all(a["prompt"] != b["prompt"] for a, b in zip(first, second, strict=True))


def test_prefixes_are_shared_by_group_and_the_rest_is_not() -> None:
    work = workload(parts=[{**FIXED, "prefix": {"tokens": 24, "groups": 3}}])
    prompts = [body(work, i)["prompt"] for i in range(60)]
    assert {len(prompt) for prompt in prompts} == {40}
    assert len({tuple(prompt[:24]) for prompt in prompts}) == 3
    assert len({tuple(prompt[24:28]) for prompt in prompts}) == 60


def test_a_mix_keeps_its_weights() -> None:
    parts = [{**FIXED, "name": "a", "weight": 3.0}, {**FIXED, "name": "b", "weight": 1.0}]
    work = workload(parts=parts)
    kinds = [work.request(STEP, i, None).kind for i in range(2000)]
    assert kinds.count("a") == pytest.approx(1500, abs=120)
    assert set(kinds) == {"a", "b"}


def test_words_leave_room_for_the_template() -> None:
    prompt = {"kind": "words", "words": ["one", "two", 'quo"te'], "overhead": 8, "per_item": 2.0}
    work = workload("chat", prompt=prompt)
    (message,) = body(work)["messages"]
    assert len(message["content"].split()) == 16
    assert message["role"] == "user"


def test_long_prompts_wrap_round_the_pool() -> None:
    part = {**FIXED, "input": {"kind": "fixed", "value": 100_000}}
    assert len(body(workload(parts=[part]))["prompt"]) == 100_000


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        ("completions", {"max_tokens": 7, "ignore_eos": True, "stream": True, "model": "m"}),
        ("llamacpp", {"n_predict": 7, "ignore_eos": True, "stream": True, "return_tokens": True}),
        (
            "sglang",
            {"sampling_params": {"max_new_tokens": 7, "ignore_eos": True}, "stream": True},
        ),
    ],
)
def test_the_body_of_each_route(route: str, expected: dict[str, object]) -> None:
    got = body(workload(route))
    assert expected.items() <= got.items()
    assert len(got.get("input_ids", got.get("prompt"))) == 40


def test_usage_is_asked_for_only_where_it_is_known() -> None:
    assert body(workload("chat", prompt={"kind": "words", "words": ["a"]}))["stream_options"] == {
        "include_usage": True
    }
    assert "stream_options" not in body(workload(stream=False))
    options = body(workload(continuous_usage=True))["stream_options"]
    assert options["continuous_usage_stats"] is True


def test_further_fields_are_passed_on() -> None:
    got = body(workload(extra={"temperature": 0.5, "top_p": 0.9}))
    assert (got["temperature"], got["top_p"]) == (0.5, 0.9)


def test_a_trace_names_its_lengths_and_its_shared_blocks() -> None:
    work = workload()
    step: dict[str, object] = {"index": 0, "repetition": 0}
    one = json.loads(work.request(step, 0, [0.0, 100, 9, ["a", "b"]]).body)
    two = json.loads(work.request(step, 1, [1.0, 100, 9, ["a", "c"]]).body)
    assert len(one["prompt"]) == len(two["prompt"]) == 100
    assert one["prompt"][:50] == two["prompt"][:50]
    assert one["prompt"][50:] != two["prompt"][50:]
    assert one["max_tokens"] == 9


def test_a_data_set_is_sent_as_it_is() -> None:
    items = [{"prompt": "a \u017e"}, {"messages": [{"role": "system", "content": "b"}]}]
    work = workload("chat", prompt={"kind": "dataset", "items": items})
    assert body(work, 0)["messages"] == [{"role": "user", "content": "a \u017e"}]
    assert body(work, 1)["messages"] == [{"role": "system", "content": "b"}]
    assert body(work, 2)["messages"] == body(work, 0)["messages"]


@pytest.mark.parametrize(
    ("length", "mean", "low", "high"),
    [
        ({"kind": "fixed", "value": 9}, 9, 9, 9),
        ({"kind": "uniform", "low": 10, "high": 20}, 15, 10, 20),
        ({"kind": "normal", "mean": 100, "stdev": 10}, 100, 1, 200),
        ({"kind": "normal", "mean": 100, "stdev": 300, "low": 50, "high": 150}, 100, 50, 150),
        ({"kind": "lognormal", "mean": 200, "stdev": 100}, 200, 1, 10_000),
        ({"kind": "choice", "values": [1, 3], "weights": [1.0, 3.0]}, 2.5, 1, 3),
    ],
)
def test_lengths_follow_their_distribution(
    length: dict[str, object], mean: float, low: int, high: int
) -> None:
    rng = random.Random(5)
    values = [draw(length, rng) for _ in range(8000)]
    assert statistics.fmean(values) == pytest.approx(mean, rel=0.04)
    assert low <= min(values)
    assert max(values) <= high


# --- arrivals ---------------------------------------------------------------------------


def gaps(load: dict[str, object], count: int) -> list[float]:
    times = list(itertools.islice(schedule(load, "seed"), count + 1))
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_constant_arrivals() -> None:
    assert gaps({"kind": "constant", "rate_per_s": 4.0}, 3) == pytest.approx([0.25] * 3)


@pytest.mark.parametrize(
    ("load", "variation"),
    [
        ({"kind": "poisson"}, 1.0),
        ({"kind": "gamma", "burstiness": 0.25}, 2.0),
        ({"kind": "gamma", "burstiness": 4.0}, 0.5),
    ],
)
def test_random_arrivals_keep_the_rate_and_the_burstiness(
    load: dict[str, object], variation: float
) -> None:
    found = gaps({**load, "rate_per_s": 10.0}, 20_000)
    assert statistics.fmean(found) == pytest.approx(0.1, rel=0.05)
    assert statistics.stdev(found) / statistics.fmean(found) == pytest.approx(variation, rel=0.05)


def test_a_ramp_reaches_its_end_and_stays() -> None:
    load = {"kind": "constant", "rate_per_s": 1.0, "rate_end_per_s": 9.0, "ramp_s": 10.0}
    times = list(itertools.islice(schedule(load, "s"), 200))
    assert sum(t < 10.0 for t in times) == 50  # The mean rate is 5.
    late = [b - a for a, b in itertools.pairwise(times) if a > 10.0]
    assert late == pytest.approx([1 / 9] * len(late))


def test_workers_share_one_schedule() -> None:
    step: dict[str, object] = {
        "index": 0,
        "repetition": 0,
        "load": {"kind": "poisson", "rate_per_s": 5.0},
    }
    alone = _dues(step, 0, 1, 30)
    shared = sorted(due for worker in range(3) for due in _dues(step, worker, 3, 10))
    assert shared == alone


def _dues(step: dict[str, object], worker: int, workers: int, count: int) -> list[int]:
    supply = Supply(workload(), step, 1, worker, workers, 0)
    supply.start(0)
    found = []
    for _ in range(count):
        assert supply.due_ns is not None
        found.append(supply.due_ns)
        supply.next_due()
    return found


def test_a_trace_ends() -> None:
    step: dict[str, object] = {
        "index": 0,
        "repetition": 0,
        "load": {"kind": "trace", "entries": [[0.0, 5, 1], [0.5, 6, 2]]},
    }
    supply = Supply(workload(), step, 1, 0, 1, 0)
    supply.start(0)
    assert supply.due_ns == 0
    supply.next_due()
    assert supply.due_ns == 500_000_000
    supply.next_due()
    assert supply.over
    taken = [supply.take(), supply.take(), supply.take()]
    assert [t and t[1].asked_input for t in taken] == [5, 6, None]
