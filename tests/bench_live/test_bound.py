"""What held a step back, and the words that show it."""

from __future__ import annotations

import msgspec
import pytest

from backends.bench.bound import Bound, by_bandwidth, what_bound
from backends.bench.efficiency import conditions_of, possible_of
from backends.bench.models import shipped_model
from backends.bench.results import GpuWindow, ServerWindow
from backends.bench.weigh_run import weighed
from backends.errors import LinkError
from tests.bench_data.runs import run


def gpu(**changes: object) -> GpuWindow:
    fields: dict[str, object] = {
        "uuid": "GPU-1",
        "power_mean_w": 300.0,
        "power_limit_w": 600.0,
        "utilization_mean": 0.99,
        "memory_utilization_mean": 0.2,
    }
    return GpuWindow(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (ServerWindow(samples=1, waiting_mean=0.0, kv_cache_used_max=0.99), None),
        (ServerWindow(samples=1, waiting_mean=5.0, kv_cache_used_max=0.5), "queue"),
        (ServerWindow(samples=1, waiting_mean=5.0, kv_cache_used_max=0.98), "memory"),
        (ServerWindow(samples=1, waiting_mean=0.0, preemptions=3), "memory"),
        (ServerWindow(samples=1), None),
    ],
)
def test_what_the_server_says(seen: ServerWindow, word: str | None) -> None:
    assert what_bound(seen, (), 10.0).word == word


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"memory_utilization_mean": 0.8}, "memory"),
        ({"power_mean_w": 520.0}, "compute"),
        ({}, None),
        ({"utilization_mean": 0.5, "memory_utilization_mean": 0.8}, None),
        ({"utilization_mean": None, "power_mean_w": 520.0}, None),
        ({"power_mean_w": None, "memory_utilization_mean": None}, None),
        ({"throttle_s": {"sw_power_cap": 3.0}}, "cap"),
        ({"throttle_s": {"sw_power_cap": 1.0}}, None),
        ({"throttle_s": {"sw_thermal": 3.0}}, "cap"),
        ({"power_mean_w": 590.0}, "cap"),
        ({"power_mean_w": 150.0, "memory_utilization_mean": 0.05}, "latency"),
        ({"power_mean_w": 150.0, "memory_utilization_mean": 0.4}, None),
        ({"power_mean_w": 150.0, "power_limit_w": None}, None),
    ],
)
def test_what_the_gpus_say(changes: dict[str, object], word: str | None) -> None:
    found = what_bound(None, [gpu(**changes)], 10.0)
    assert found.word == word
    assert found.evidence


def test_the_cap_comes_before_the_queue_and_names_its_figures() -> None:
    queue = ServerWindow(samples=5, waiting_mean=9.0)
    found = what_bound(queue, [gpu(), gpu(throttle_s={"sw_power_cap": 5.0})], 10.0)
    assert found.word == "cap"
    assert found.evidence == "the power cap of 600 W held the clocks for 50% of it"


def test_one_idle_gpu_of_several_is_no_busy_set() -> None:
    found = what_bound(None, [gpu(power_mean_w=550.0), gpu(utilization_mean=0.1)], 10.0)
    assert found.word is None
    assert "waited" in found.evidence


def test_nothing_in_sight_is_said() -> None:
    assert what_bound(None, (), 1.0).evidence == (
        "neither the GPUs nor the server's metrics were in sight"
    )


def slack(**changes: object) -> GpuWindow:
    return gpu(power_mean_w=150.0, memory_utilization_mean=0.05, **changes)


def test_a_step_that_was_over_before_a_reading_does_not_say_that_there_are_none() -> None:
    found = what_bound(None, (), 0.3, has_metrics=True)
    assert found == Bound(
        None, "over before the engine's metrics were read; the GPUs were not in sight"
    )


def test_gpus_with_room_and_no_engine_metrics_are_host_or_latency_bound() -> None:
    found = what_bound(None, [slack()], 10.0)
    assert found.word == "latency"
    for words in ("power 25% of the limit", "memory in use 5%", "host- or latency-bound"):
        assert words in found.evidence


def test_idle_gpus_beside_one_that_works_do_not_hide_its_work() -> None:
    assert what_bound(None, [gpu(power_mean_w=560.0), slack(), slack()], 10.0).word is None


def test_gpus_with_room_at_an_offered_rate_wait_for_the_load() -> None:
    found = what_bound(None, [slack()], 10.0, open_loop=True)
    assert found.word is None
    assert "rate" in found.evidence


def test_without_engine_metrics_the_reason_says_so() -> None:
    words = what_bound(None, [gpu()], 10.0).evidence
    assert words.startswith("no engine metrics; the GPU readings do not tell")


@pytest.mark.parametrize(
    ("before", "share", "word"),
    [
        ("latency", 0.7, "memory"),
        (None, 0.7, "memory"),
        (None, 0.1, None),
        ("latency", None, "latency"),
        ("cap", 0.9, "cap"),
        ("queue", 0.9, "queue"),
    ],
)
def test_a_share_of_the_bandwidth_is_memory(
    before: str | None, share: float | None, word: str | None
) -> None:
    assert by_bandwidth(Bound(before, "seen"), share).word == word  # type: ignore[arg-type]


async def test_what_is_weighed_at_the_end_of_a_run_turns_a_bound() -> None:
    """`weighed` puts the share of the bandwidth beside what the GPUs said."""
    measured = run(1, streams=(1,))
    known = shipped_model("GLM-5-NVFP4")
    assert known is not None
    name, weights = known
    possible = possible_of(measured, name, weights, conditions_of(measured))
    paper = possible.steps[0].figure("paper").stream_tokens_per_s
    assert paper is not None

    async def bound_at(share: float, **changes: object) -> tuple[str | None, str | None]:
        (step,) = measured.steps
        assert step.tpot_s is not None
        tpot = msgspec.structs.replace(step.tpot_s, mean=1 / (share * paper))
        fields: dict[str, object] = {"tpot_s": tpot, "bound": "latency", "bound_evidence": "seen"}
        step = msgspec.structs.replace(step, **(fields | changes))
        environment = msgspec.structs.replace(
            measured.environment, effective_config={"model_path": f"/nowhere/{name}"}
        )
        document = msgspec.structs.replace(measured, steps=(step,), environment=environment)
        (found,) = (await weighed(NoHost(), document, None)).steps
        return found.bound, found.bound_evidence

    word, evidence = await bound_at(0.7)
    assert word == "memory"
    assert "70% of what the memory's bandwidth allows" in (evidence or "")
    assert await bound_at(0.4) == ("latency", "seen")
    assert (await bound_at(0.7, bound="cap"))[0] == "cap"
    # From where arithmetic is the limit, a share of the bandwidth says nothing.
    crowd = (possible.compute_from_batch or 0) + 1
    assert possible.compute_from_batch is not None
    assert (await bound_at(0.7, concurrency=crowd))[0] == "latency"


class NoHost:
    """A host that answers nothing: the model is weighed by its name."""

    async def request(self, method: str, *arguments: object, **named: object) -> object:
        raise LinkError("no answer", method)
