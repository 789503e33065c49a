"""Results of other tools become result documents, with their own definitions kept apart."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.bench.compare import Word, compare
from backends.bench.export import to_csv, to_markdown
from backends.bench.importers import ImportFailed, read_result, read_result_file
from backends.bench.importers.failures import of_words
from backends.bench.results import Failure, RunResult, to_json
from tests.bench_data import other_tools
from tests.bench_data.runs import run

WRITTEN = Path(__file__).with_name("written")


def read(value: object, name: str = "x") -> RunResult:
    return read_result(json.dumps(value).encode(), name)


def test_our_own_documents_come_back_as_they_were() -> None:
    assert read_result(to_json(run(1)), "x") == run(1)


def test_vllm() -> None:
    result = read(other_tools.vllm())
    (step,) = result.steps
    assert (result.harness, result.target.model) == ("vllm bench serve", "GLM-5")
    assert (step.label, step.sent, step.succeeded, step.failed) == ("4 streams", 8, 7, 1)
    assert step.whole is not None
    assert step.whole.output_tokens_per_s == pytest.approx(63)
    assert step.whole.total_tokens_per_s == pytest.approx(133)
    assert step.steady is None
    assert step.ttft_s is not None
    assert (step.ttft_s.mean, step.ttft_s.p50, step.ttft_s.p99) == pytest.approx((0.12, 0.1, 0.18))
    # Its ITL is the gap between events.
    assert step.itl_s is None
    assert step.gap_s is not None
    assert step.e2e_s is None
    assert step.blocks == ()
    assert result.started_utc.year == 2026


def test_vllm_with_each_request_has_blocks_without_ramp_and_drain() -> None:
    (step,) = read(other_tools.vllm_detailed()).steps
    assert 2 <= len(step.blocks) <= 20
    rates = [b.output_tokens / (b.end_s - b.start_s) for b in step.blocks]
    assert rates == pytest.approx([40.0] * len(rates), rel=0.1)
    assert step.blocks[0].ttft_s == pytest.approx(0.1)
    assert step.blocks[0].tpot_s == pytest.approx(0.1)
    assert step.e2e_s is not None
    assert step.e2e_s.mean == pytest.approx(1.0)


def test_sglang_lines_are_steps_and_repetitions() -> None:
    lines = [other_tools.sglang(), other_tools.sglang(max_concurrency=64), other_tools.sglang()]
    raw = "\n".join(map(json.dumps, lines)).encode()
    result = read_result(raw, "online")
    assert [(s.label, s.index, s.repetition) for s in result.steps] == [
        ("16 streams", 0, 0), ("64 streams", 1, 0), ("16 streams", 0, 1),
    ]  # fmt: skip
    assert result.plan.name == "online"
    step = result.steps[0]
    assert step.e2e_s is not None
    assert step.e2e_s.mean == pytest.approx(5.0)
    assert step.token_source is None


def test_a_rate_makes_an_open_loop() -> None:
    (step,) = read(other_tools.sglang(request_rate=8.0)).steps
    assert (step.label, step.rate_per_s, step.concurrency) == ("8/s", 8.0, None)


def test_what_a_tool_does_not_tell_is_absent() -> None:
    """Never the median as the least, nor p99 as the most."""
    (step,) = read(other_tools.vllm()).steps
    told = [step.ttft_s, step.tpot_s, step.gap_s]
    for summary in told:
        assert summary is not None
        assert summary.p50 is not None
        assert (summary.min, summary.p90, summary.p95, summary.max) == (None, None, None, None)
    assert step.gap_s is not None
    assert step.gap_s.n is None
    assert step.client.clock is None
    (early,) = read(other_tools.sglang_early()).steps
    assert early.ttft_s is not None
    assert (early.ttft_s.mean, early.ttft_s.stdev) == (None, None)
    # All that prints and compares takes it.
    run = read(other_tools.sglang_early())
    assert "280.0" in to_markdown(run)
    assert to_csv([run]).count("\n") == 2
    assert compare(run, run).word is Word.NO_DIFFERENCE


def test_a_file_that_vllm_wrote() -> None:
    """`vllm bench serve` 0.34.0 with `--save-detailed`, of a llama.cpp server."""
    result = read_result_file(WRITTEN / "vllm-0.34.0.json")
    (step,) = result.steps
    value = json.loads((WRITTEN / "vllm-0.34.0.json").read_bytes())
    assert (step.label, step.succeeded, step.failed) == ("4 streams", 8, 0)
    # Summaries of its lists are the figures that it has printed.
    for summary, name in ((step.ttft_s, "ttft"), (step.gap_s, "itl"), (step.e2e_s, "e2el")):
        assert summary is not None
        figures = (summary.mean, summary.p50, summary.p90, summary.p95, summary.p99)
        printed = [value[f"{p}_{name}_ms"] / 1e3 for p in ("mean", "p50", "p90", "p95", "p99")]
        assert figures == pytest.approx(printed, abs=2e-6)
    assert step.gap_s is not None
    assert step.gap_s.n == sum(map(len, value["itls"]))
    assert step.e2e_s is not None
    assert (step.e2e_s.n, step.e2e_s.min, step.e2e_s.max) == (
        8, min(value["latencies"]), max(value["latencies"]),
    )  # fmt: skip
    assert step.tpot_s is not None
    assert (step.tpot_s.n, step.tpot_s.min) == (None, None)


def test_vllm_lists_failed_requests_too() -> None:
    value = other_tools.vllm_detailed(8)
    value |= {"errors": ["", "Bad Gateway", *[""] * 6], "latencies": [1.0, 0.5, *[1.0] * 6]}
    (step,) = read({**value, "completed": 7, "failed": 1}).steps
    assert step.e2e_s is not None
    assert step.ttft_s is not None
    assert (step.e2e_s.n, step.e2e_s.min, step.ttft_s.n) == (7, 1.0, 7)


def test_a_line_that_sglang_wrote() -> None:
    """`sglang.bench_serving` 0.5.23, of a llama.cpp server."""
    (step,) = read_result_file(WRITTEN / "sglang-0.5.23.jsonl").steps
    assert (step.label, step.succeeded, step.rate_per_s) == ("4 streams", 8, None)
    assert step.whole is not None
    assert (step.whole.output_tokens, step.whole.input_tokens) == (128, 512)
    assert step.gap_s is not None
    assert step.gap_s.p99 == pytest.approx(0.004385690)
    assert (step.gap_s.n, step.gap_s.min, step.gap_s.max) == (None, None, None)


def test_guidellm() -> None:
    result = read(other_tools.guidellm())
    assert [step.label for step in result.steps] == ["1 stream", "64 streams"]
    step = result.steps[1]
    assert (step.sent, step.succeeded, step.failed, step.cancelled) == (53, 50, 2, 1)
    # Its ITL is our TPOT; its TPOT has the first token in it and is left out.
    assert step.tpot_s is not None
    assert step.tpot_s.mean == pytest.approx(0.020)
    assert step.e2e_s is not None
    assert (step.e2e_s.mean, step.e2e_s.p99) == pytest.approx((2.5, 3.75))
    assert step.whole is not None
    assert step.whole.output_tokens_per_s == pytest.approx(128 * 50 / 30)


def test_aiperf() -> None:
    result = read(other_tools.aiperf())
    (step,) = result.steps
    assert (step.label, step.sent, step.failed) == ("100 streams", 203, 3)
    assert step.tpot_s is not None
    assert step.tpot_s.mean == pytest.approx(0.052)
    assert step.ttft_s is not None
    assert step.ttft_s.p99 == pytest.approx(2.25)
    assert step.whole is not None
    assert step.whole.output_tokens_per_s == pytest.approx(19400 / 15)
    assert result.target.url == "localhost:9000"


def test_genai_perf() -> None:
    result = read(other_tools.genai_perf())
    (step,) = result.steps
    assert result.harness == "genai-perf"
    assert (step.label, step.sent, step.failed) == ("10 streams", 100, 0)
    assert step.tpot_s is not None
    assert step.tpot_s.mean == pytest.approx(0.03)
    assert step.e2e_s is not None
    assert step.e2e_s.p99 == pytest.approx(5.2)
    assert step.whole is not None
    assert step.whole.output_tokens_per_s == 320
    assert step.whole.total_tokens_per_s == pytest.approx(320 + 512 * 2.5)
    assert (result.target.model, result.target.route) == ("GLM-5", "chat")


def test_vllm_of_other_versions() -> None:
    (early,) = read(other_tools.vllm_early()).steps
    assert (early.label, early.rate_per_s, early.concurrency) == ("2/s", 2.0, None)
    assert (early.sent, early.succeeded, early.failed) == (8, 7, 1)
    assert early.whole is not None
    assert early.whole.total_tokens_per_s == pytest.approx(133)
    (recent,) = read(other_tools.vllm_recent()).steps
    assert (recent.label, recent.max_in_flight, recent.failed) == ("4 streams", 5, 1)
    assert recent.e2e_s is not None
    assert (recent.e2e_s.mean, recent.e2e_s.p90) == pytest.approx((0.95, 1.08))
    assert recent.gap_s is not None
    assert recent.gap_s.p95 == pytest.approx(0.026)


def test_sglang_of_other_versions() -> None:
    (early,) = read(other_tools.sglang_early()).steps
    assert (early.label, early.rate_per_s, early.succeeded) == ("4/s", 4.0, 64)
    assert early.ttft_s is not None
    assert early.ttft_s.p50 == pytest.approx(0.28)
    assert early.tpot_s is None
    result = read(other_tools.sglang_detailed())
    (step,) = result.steps
    assert (step.label, step.rate_per_s, step.max_in_flight) == ("16 streams", None, 16)
    assert (step.sent, step.succeeded, step.failed) == (3, 2, 1)
    assert (result.target.model, result.target.engine_version) == ("/models/GLM-5", "0.5.5")


def test_guidellm_of_other_versions() -> None:
    early, newer = read(other_tools.guidellm_early()), read(other_tools.guidellm())
    assert [step.label for step in early.steps] == ["1 stream", "64 streams"]
    for one, other in zip(early.steps, newer.steps, strict=True):
        assert (one.sent, one.failed, one.cancelled) == (other.sent, other.failed, other.cancelled)
        assert (one.whole, one.ttft_s, one.tpot_s) == (other.whole, other.ttft_s, other.tpot_s)
    assert early.target.model == "GLM-5"


def test_importing_twice_gives_one_run() -> None:
    assert read(other_tools.vllm()).run_id == read(other_tools.vllm()).run_id
    assert read(other_tools.vllm()).run_id != read(other_tools.vllm(completed=6)).run_id


def test_equal_settings_are_comparable_and_others_are_not() -> None:
    a, b = read(other_tools.vllm_detailed()), read(other_tools.vllm_detailed())
    assert compare(a, b).word is Word.NO_DIFFERENCE
    assert compare(a, read(other_tools.guidellm())).word is Word.NOT_COMPARABLE


@pytest.mark.parametrize(
    "raw",
    [b"", b"hello", b"[]", b"[1]", b"{}", b'{"a": 1}', b"[" * 100_000, b'{"benchmarks": []}',
     b'{"run_id": "x", "schema": 1}', b'{"run_id": "x", "schema": 99}', b"\xff\xfe"],
)  # fmt: skip
def test_what_is_no_result_is_refused(raw: bytes) -> None:
    with pytest.raises(ImportFailed):
        read_result(raw, "x", "file.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed) as caught:
        read_result_file(tmp_path / "none.json")
    assert "none.json" in caught.value.detail


flat = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
nested = st.lists(flat, max_size=3) | st.dictionaries(st.text(max_size=3), flat, max_size=3)
json_values = flat | nested | st.lists(nested, max_size=2)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(
        [other_tools.vllm_detailed(8), other_tools.sglang(), other_tools.guidellm(),
         other_tools.aiperf(), other_tools.genai_perf(), other_tools.vllm_early(),
         other_tools.sglang_detailed(), other_tools.guidellm_early()]
    ),
    st.data(),
)  # fmt: skip
def test_any_values_are_read_or_refused(original: dict[str, object], data: st.DataObject) -> None:
    broken = dict(original)
    for key in data.draw(st.lists(st.sampled_from(sorted(original)), max_size=4)):
        broken[key] = data.draw(json_values)
    try:
        result = read_result(json.dumps(broken).encode(), "x")
    except ImportFailed:
        return
    assert read_result(to_json(result), "x") == result
    assert msgspec.json.encode(result)


# --- why requests failed -----------------------------------------------------------------

TRACEBACK = """Traceback (most recent call last):
  File "/x/aiohttp/connector.py", line 503, in connect
    raise error
{}"""


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Too Many Requests", Failure.RATE_LIMITED),
        ("Client error '429 Too Many Requests' for url 'http://h:8000/v1'", Failure.RATE_LIMITED),
        ("Service Unavailable", Failure.OVERLOADED),
        ("HTTP 503: overloaded", Failure.OVERLOADED),
        ("Internal Server Error: boom", Failure.HTTP),
        ("Gateway Timeout", Failure.HTTP),
        ("status code: 404", Failure.HTTP),
        (TRACEBACK.format("TimeoutError"), Failure.TIMEOUT),
        (TRACEBACK.format("aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected"),
         Failure.CUT),
        (TRACEBACK.format("aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host "
                          "h:8000 ssl:default [Connect call failed ('10.0.0.1', 8000)]"),
         Failure.CONNECT),
        (TRACEBACK.format("json.decoder.JSONDecodeError: Expecting value: line 1 column 429"),
         Failure.PROTOCOL),
        ("httpx.ReadTimeout", Failure.TIMEOUT),
        ("httpx.RemoteProtocolError: peer closed connection", Failure.CUT),
        ("ssl.SSLCertVerificationError: certificate verify failed", Failure.TLS),
        ("Never received a valid chunk to calculate TTFT.", Failure.UNKNOWN),
        ("something odd", Failure.UNKNOWN),
    ],
)  # fmt: skip
def test_words_of_other_tools_become_kinds(words: str, kind: Failure) -> None:
    assert of_words(words) is kind


def test_failures_of_which_a_tool_says_nothing_are_unknown() -> None:
    for tool in (other_tools.vllm, other_tools.guidellm, other_tools.aiperf):
        for step in read(tool()).steps:
            assert step.failed
            assert step.failures == {"unknown": step.failed}
    assert read(other_tools.vllm(failed=0)).steps[0].failures == {}
    assert read(other_tools.sglang(failed=5)).steps[0].failures == {"unknown": 5}


def test_failures_of_which_a_tool_tells_are_by_kind() -> None:
    assert read(other_tools.sglang_detailed()).steps[0].failures == {"http": 1}
    errors = ["", "Too Many Requests", "Service Unavailable", "", "Too Many Requests"]
    (step,) = read(other_tools.vllm(failed=4, errors=errors)).steps
    assert step.failures == {"rate_limited": 2, "overloaded": 1, "unknown": 1}
    (step,) = read(other_tools.vllm(failed=1, errors=errors)).steps
    assert step.failures == {"unknown": 1}  # What does not add up says nothing.

    report = other_tools.guidellm()
    failed = [{"info": {"error": "httpx.ConnectError"}}, {"info": {"error": None}}, "no object"]
    report["benchmarks"][0]["requests"] = {"errored": failed}  # type: ignore[index]
    assert read(report).steps[0].failures == {"connect": 1, "unknown": 1}

    summary = [
        {"error_details": {"code": 429, "type": "Too Many Requests"}, "count": 2},
        {"error_details": {"code": None, "type": "TimeoutError", "message": ""}, "count": 1},
        "no object",
    ]
    (step,) = read({**other_tools.aiperf(), "error_summary": summary}).steps
    assert step.failures == {"rate_limited": 2, "timeout": 1}
