"""nvbandwidth, nccl-tests and torch: their output read, and they run on a host."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.tuning.engine import evaluate
from backends.tuning.facts import Value, Vantage
from backends.tuning.measurements.parts import chosen
from backends.tuning.measurements.run import measure, tool_facts
from backends.tuning.readers import read_texts
from tests.measure import samples
from tests.measure.conftest import GPUS, FakeGpus, Reach

A, B = GPUS


def read(tool: str, *outputs: str) -> dict[str, Value | None]:
    return {f.key: f.value for f in tool_facts(tool, outputs, Vantage.HOST)}


def test_nvbandwidth_says_which_way_a_copy_goes() -> None:
    facts = read("nvbandwidth", samples.NVBANDWIDTH)
    assert facts == {
        f"bench/h2d/{A}/gb_s": 55.31,
        f"bench/h2d/{B}/gb_s": 54.92,
        f"bench/d2h/{A}/gb_s": 56.11,
        f"bench/d2h/{B}/gb_s": 23.40,
        f"bench/p2p/{B}/{A}/gb_s": 391.40,
        f"bench/p2p/{A}/{B}/gb_s": 388.20,
    }


def test_nvbandwidth_as_json_and_by_index() -> None:
    assert read("nvbandwidth", samples.NVBANDWIDTH_JSON) == {
        f"bench/h2d/{A}/gb_s": 55.31,
        f"bench/h2d/{B}/gb_s": 54.92,
    }
    old = samples.NVBANDWIDTH.replace(" (00000000:01:00)", "").replace(" (00000000:02:00)", "")
    assert read("nvbandwidth", old)["bench/h2d/index-1/gb_s"] == 54.92


def test_all_reduces_by_size_in_place() -> None:
    facts = read("all_reduce_perf", samples.ALL_REDUCE)
    assert facts["bench/allreduce/8KiB_us/value"] == 12.80
    assert facts["bench/allreduce/32KiB_us/value"] == 13.90
    assert facts["bench/allreduce/128MiB_busbw_gb_s/value"] == 220.72
    assert facts["bench/allreduce/8KiB_us/gpus"] == 2
    assert facts["bench/allreduce/8KiB_us/runs"] == 1


def test_an_older_version_prints_one_half_and_other_columns() -> None:
    text = """\
#       size         count    type   redop     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)
        8192          2048   float     sum    19.10    0.43    0.64  1e-07
"""
    assert read("all_reduce_perf", text)["bench/allreduce/8KiB_us/value"] == 19.10


def test_several_runs_give_their_median() -> None:
    outputs = [samples.ALL_REDUCE.replace("12.80", time) for time in ("12.80", "30.00", "13.00")]
    facts = read("all_reduce_perf", *outputs)
    assert facts["bench/allreduce/8KiB_us/value"] == 13.00
    assert facts["bench/allreduce/8KiB_us/runs"] == 3


def test_wrong_values_fail() -> None:
    text = samples.ALL_REDUCE.replace("0.64    0.64      0", "0.64    0.64     17")
    findings = {f.check: f for f in evaluate(read_texts([("out.txt", text)]))}
    found = findings["bench.allreduce[8KiB_us]"]
    assert found.verdict.value == "FAIL"
    assert "17 wrong" in found.evidence


def test_another_collective_is_none_of_ours() -> None:
    text = samples.ALL_REDUCE.replace("starting: all_reduce_perf", "starting: all_gather_perf")
    assert read("all_reduce_perf", text) == {}


def test_pasted_output_is_recognised_by_its_content() -> None:
    document = read_texts([("a", samples.NVBANDWIDTH), ("b", samples.ALL_REDUCE)])
    keys = {fact.key for fact in document.facts}
    assert f"bench/h2d/{A}/gb_s" in keys
    assert "bench/allreduce/8KiB_us/value" in keys


PIECES = st.sampled_from(
    [
        *samples.NVBANDWIDTH.splitlines(),
        *samples.ALL_REDUCE.splitlines(),
        "Running host_to_device_memcpy_ce.",
        " 0     1e400     54.92",
        " 0     -5     nan",
        "           0         1         2",
        "99999999999999999999 1 float sum -1 1 1 1 0 1 1 1 0",
        samples.NVBANDWIDTH_JSON,
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=80)), max_size=60))
def test_whatever_is_printed_gives_sound_figures_or_none(lines: list[str]) -> None:
    text = "\n".join(lines)
    for tool in ("nvbandwidth", "all_reduce_perf"):
        for fact in tool_facts(tool, [text], Vantage.HOST):
            assert fact.key.startswith("bench/")
            assert isinstance(fact.value, int | float)
            assert 0 < fact.value < 1e12


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.floats(0.01, 9000), min_size=4, max_size=4), min_size=4, max_size=4))
def test_every_cell_of_a_matrix_is_its_pairs(rates: list[list[float]]) -> None:
    rows = [
        f" {a}  " + "  ".join("N/A" if a == b else f"{rate:.2f}" for b, rate in enumerate(row))
        for a, row in enumerate(rates)
    ]
    text = "\n".join(
        [
            "Running device_to_device_memcpy_read_ce.",
            "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
            "           0         1         2         3",
            *rows,
        ]
    )
    facts = read("nvbandwidth", text)
    for a, row in enumerate(rates):
        for b, rate in enumerate(row):
            key = f"bench/p2p/index-{a}/index-{b}/gb_s"
            assert facts.get(key) == (None if a == b else float(f"{rate:.2f}"))


@pytest.mark.real
async def test_the_hosts_own_tools_are_used(at_host: Reach, nvml: FakeGpus) -> None:
    nvml.prints("nvbandwidth", samples.NVBANDWIDTH)
    nvml.prints("all_reduce_perf", samples.ALL_REDUCE)
    async with at_host() as session:
        done = await measure(session, chosen(["copies", "pairs", "allreduce"]), python=nvml.python)
    facts = {fact.key: fact for fact in done.facts.facts}
    assert facts[f"bench/d2h/{B}/gb_s"].value == 23.40, "the tool is believed over our own"
    assert facts[f"bench/d2h/{B}/gb_s"].source == "nvbandwidth"
    assert facts[f"bench/p2p/{A}/{B}/latency_us"].value is not None, "which it does not measure"
    assert facts["bench/allreduce/8KiB_us/runs"].value == 3
    assert facts["bench/tool/nvbandwidth"].value == str(nvml.tools / "nvbandwidth")
    assert done.failed == {}


@pytest.mark.real
async def test_a_tool_that_fails_is_said_and_torch_does_it(at_host: Reach, nvml: FakeGpus) -> None:
    nvml.prints("all_reduce_perf", "gpu01: Test NCCL failure common.cu:958 'internal error'\n", 3)
    async with at_host() as session:
        done = await measure(session, chosen(["matmul", "allreduce"]), python=nvml.python)
    facts = {fact.key: fact.value for fact in done.facts.facts}
    assert "NCCL failure" in done.failed["all_reduce_perf"]
    for gpu in GPUS:
        assert facts[f"bench/matmul/{gpu}/tflop_s"] == pytest.approx(700, rel=0.01)
    assert facts["bench/allreduce/8KiB_us/value"] == pytest.approx(12, rel=0.05)
    assert facts["bench/allreduce/8KiB_us/gpus"] == 2
    assert facts["bench/allreduce/128MiB_busbw_gb_s/value"] == pytest.approx(292, rel=0.02)
    findings = {f.check: f for f in evaluate(done.facts)}
    assert findings["bench.tools[all_reduce_perf]"].verdict.value == "WARN"
    assert findings["bench.tools[torch]"].verdict.value == "PASS"


@pytest.mark.real
async def test_a_process_of_the_all_reduce_that_dies_ends_it(
    at_host: Reach, nvml: FakeGpus
) -> None:
    nvml.set(dead_ranks=[1])
    async with at_host() as session:
        done = await measure(session, chosen(["allreduce", "matmul"]), python=nvml.python)
    assert "2 of 2 processes" in done.failed["allreduce"]
    assert any("matmul" in fact.key for fact in done.facts.facts)
