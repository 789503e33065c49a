"""Prometheus text, and one name for what every engine calls differently."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.bench.endpoint import Reply
from backends.bench.servermetrics import (
    Reading,
    Sampler,
    difference,
    parse,
    reading,
    window,
)

PAGE = r"""
# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b\"c\\d\n"} 3.0
vllm:num_requests_running{engine="1",model_name="x"} 4.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.3
vllm:generation_tokens_total{engine="0"} 1.5e+03 1700000000000
vllm:prompt_tokens_total 10
vllm:nan_metric NaN
not a metric line at all {
vllm:broken{a="b" 3
"""


def test_the_text_format() -> None:
    samples = {sample.name: sample for sample in parse(PAGE)}
    assert samples["vllm:generation_tokens_total"].value == 1500.0
    first = parse(PAGE)[0]
    assert first.labels[0] == ("engine", "0")
    # Cleaned: a label's line feed never reaches a terminal.
    assert "\n" not in first.labels[1][1]
    assert first.labels[1][1].startswith('a b"c\\d')


def test_engines_of_one_server_add_up_and_shares_are_means() -> None:
    values = reading(parse(PAGE), 1.0).values
    assert values["running"] == 7.0
    assert values["kv_cache_used"] == pytest.approx(0.4)
    assert values["output_tokens"] == 1500.0
    assert values["input_tokens"] == 10.0


def test_ranks_that_report_the_same_are_counted_once() -> None:
    page = "\n".join(
        f'sglang:num_running_reqs{{tp_rank="{rank}",pp_rank="0"}} 5' for rank in range(8)
    )
    assert reading(parse(page), 0.0).values == {"running": 5.0}


@pytest.mark.parametrize(
    ("page", "name", "value"),
    [
        ("sglang:num_queue_reqs 2", "waiting", 2.0),
        ("sglang:token_usage 0.25", "kv_cache_used", 0.25),
        ("sglang:generation_tokens_total 9", "output_tokens", 9.0),
        ("llamacpp:requests_processing 3", "running", 3.0),
        ("llamacpp:requests_deferred 1", "waiting", 1.0),
        ("llamacpp:tokens_predicted_total 40", "output_tokens", 40.0),
        ("tgi_queue_size 4", "waiting", 4.0),
        ("vllm:gpu_cache_usage_perc 0.9", "kv_cache_used", 0.9),
    ],
)
def test_every_engines_names(page: str, name: str, value: float) -> None:
    assert reading(parse(page), 0.0).values == {name: value}


@given(st.text(max_size=400))
def test_any_text_is_survived(text: str) -> None:
    for sample in parse(text):
        assert sample.name
    reading(parse(text), 0.0)


def readings(*rows: dict[str, float]) -> list[Reading]:
    return [Reading(float(at), row) for at, row in enumerate(rows)]


def test_a_window_has_means_and_differences() -> None:
    found = window(
        readings(
            {
                "running": 2,
                "waiting": 0,
                "output_tokens": 100,
                "cached_tokens": 5,
                "input_tokens": 50,
            },
            {
                "running": 4,
                "waiting": 2,
                "output_tokens": 400,
                "cached_tokens": 30,
                "input_tokens": 150,
            },
        )
    )
    assert found is not None
    assert (found.samples, found.running_mean, found.running_max) == (2, 3.0, 4.0)
    assert (found.output_tokens, found.input_tokens) == (300, 100)
    assert found.prefix_cache_hit_share == 0.25
    assert found.kv_cache_used_mean is None
    assert found.preemptions is None


def test_a_counter_that_was_reset_gives_nothing() -> None:
    assert difference(readings({"a": 5}, {"a": 2}, {"a": 9}), "a") is None
    assert difference(readings({"a": 5}), "a") is None
    assert window([]) is None


def test_accepted_tokens_of_speculation() -> None:
    found = window(
        readings({"spec_drafts": 10, "spec_accepted": 5}, {"spec_drafts": 30, "spec_accepted": 45})
    )
    assert found is not None
    assert found.spec_accepted_per_step == 3.0


async def test_the_sampler_samples_until_it_is_stopped() -> None:
    asked = 0
    enough = asyncio.Event()

    async def fetch(
        method: str, path: str, body: object = None, *, timeout_s: float = 10.0
    ) -> Reply:
        nonlocal asked
        asked += 1
        if asked > 3:
            enough.set()
        return Reply(200, f"vllm:num_requests_running {asked}".encode(), {})

    sampler = Sampler(fetch, asyncio.get_running_loop().time, interval_s=0.01)
    sampler.start()
    async with asyncio.timeout(20):
        await enough.wait()
    await sampler.stop()
    count = asked
    await asyncio.sleep(0.25)
    assert asked == count
    assert [r.get("running") for r in sampler.readings[:3]] == [1.0, 2.0, 3.0]
    first = sampler.readings[0].at_s
    assert sampler.between(first, first) == sampler.readings[:1]
    assert sampler.between(first - 2, first - 1) == []


async def test_a_page_of_something_else_is_said() -> None:
    async def fetch(
        method: str, path: str, body: object = None, *, timeout_s: float = 10.0
    ) -> Reply:
        return Reply(200, b"process_cpu_seconds_total 3", {})

    sampler = Sampler(fetch, lambda: 0.0)
    assert await sampler.once() is None
    assert "none of the metrics" in (sampler.error or "")
