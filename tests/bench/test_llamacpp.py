"""A real llama.cpp server, end to end: its own figures against ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from backends.bench.endpoint import direct, parse_url
from backends.bench.plan import Plan
from backends.bench.process import LocalGenerator
from backends.bench.request_record import RequestRecord
from backends.bench.results import PromptSource, RunResult, RunStatus, TokenSource
from backends.bench.runner import Run, prepare_run
from backends.bench.samples import read_records
from tests.bench.conftest import closed, plan_of, run_plan

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")
pytestmark = pytest.mark.real

from tests.servers_real import LlamaServer, llama_server, tiny_gguf  # noqa: E402


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    model = tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with llama_server(model, slots=4) as server:
        yield server


def auto(streams: int, requests: int, tokens: int = 24) -> Plan:
    plan = plan_of(
        f"parts = [{{ input = 96, output = {tokens} }}]\n"
        f"[[steps]]\nload = 'closed'\nconcurrency = {streams}\nrequests = {requests}\n"
    )
    return msgspec.structs.replace(plan, warm_up=None)


async def measured(
    llama: LlamaServer, plan: Plan, folder: Path
) -> tuple[RunResult, list[RequestRecord]]:
    result = await run_plan(plan, parse_url(llama.url), folder=folder)
    return result, list(read_records(result.run_id, folder))


async def test_its_own_route_by_token_ids(llama: LlamaServer, tmp_path: Path) -> None:
    result, records = await measured(llama, auto(4, 16), tmp_path)
    assert result.status is RunStatus.COMPLETE
    assert result.target.engine == "llamacpp"
    assert result.target.route == "llamacpp"
    assert result.plan.prompt_source is PromptSource.IDS
    assert result.environment.effective_config["total_slots"] == "4"
    (step,) = result.steps
    assert (step.succeeded, step.failures) == (16, {})
    assert step.token_source is TokenSource.USAGE
    # Exact lengths with no tokenizer at hand, by the server's own count.
    assert {record.input_tokens for record in records} == {96}
    assert {record.output_tokens for record in records} == {24}
    ledger = step.ledger
    assert ledger.usage_input == ledger.asked_input == 16 * 96
    assert ledger.usage_output == ledger.server_output == 16 * 24
    # Random tokens leave characters unfinished, and those at the end have no event.
    assert ledger.seen_output is not None
    assert 0.9 * 16 * 24 <= ledger.seen_output <= 16 * 24
    assert ledger.server_input == 16 * 96
    assert ledger.foreign_output_share == 0.0
    assert {record.cached_tokens for record in records} == {0}
    # Where such characters leave the tokens of an event unknown there is no such figure, nor where
    # a busy machine read every answer in one piece.
    apart = [record for record in records if record.gaps_us]
    known = all(record.tokens_known for record in apart)
    assert (step.itl_s is not None) is (known and bool(apart))


async def test_its_timings_and_ours(llama: LlamaServer, tmp_path: Path) -> None:
    """One stream: what the server says of itself lies inside what a client saw."""
    _, records = await measured(llama, auto(1, 6, tokens=200), tmp_path)
    for record in records:
        assert record.server_ttft_s is not None
        assert record.server_tpot_s is not None
        assert record.sent_s is not None
        assert record.first_token_s is not None
        assert record.last_token_s is not None
        ours_s = record.last_token_s - record.sent_s
        theirs_s = record.server_ttft_s + 200 * record.server_tpot_s
        # Its clocks start after it has read the request and stop before it has sent the answer.
        assert ours_s >= theirs_s * 0.9 - 0.002
        assert record.first_token_s - record.sent_s >= record.server_ttft_s * 0.9 - 0.002


async def test_chat_through_its_tokenizer(llama: LlamaServer, tmp_path: Path) -> None:
    plan = msgspec.structs.replace(closed(2, 6, "prompts = 'text'"), parts=auto(1, 1).parts)
    result, records = await measured(llama, plan, tmp_path)
    assert result.plan.prompt_source is PromptSource.SERVER_TOKENIZER
    (step,) = result.steps
    assert (step.succeeded, step.failures) == (6, {})
    assert {record.output_tokens for record in records} == {24}
    # This tokenizer splits most words, so lengths are met in the mean.
    assert step.input_length is not None
    assert step.input_length.mean == pytest.approx(96, rel=0.25)


async def test_not_streamed(llama: LlamaServer, tmp_path: Path) -> None:
    plan = msgspec.structs.replace(auto(2, 6), streaming=False)
    result, records = await measured(llama, plan, tmp_path)
    (step,) = result.steps
    assert (step.succeeded, step.failures) == (6, {})
    assert step.ttft_s is None
    assert step.tpot_s is None
    assert step.e2e_s is not None
    assert {record.output_tokens for record in records} == {24}
    assert step.ledger.server_output == 6 * 24


async def test_open_loop(llama: LlamaServer) -> None:
    plan = plan_of(
        "parts = [{ input = 32, output = 8 }]\n"
        "[[steps]]\nload = 'open'\narrivals = 'constant'\nrate_per_s = 40\nrequests = 40\n"
    )
    plan = msgspec.structs.replace(plan, warm_up=None)
    result = await run_plan(plan, parse_url(llama.url))
    (step,) = result.steps
    assert (step.succeeded, step.failures) == (40, {})
    assert step.queue_s is not None
    assert step.e2e_due_s is not None
    assert step.e2e_s is not None
    assert step.e2e_due_s.mean >= step.e2e_s.mean


async def test_a_warm_up_that_comes_to_rest(llama: LlamaServer) -> None:
    plan = msgspec.structs.replace(
        auto(2, 10), warm_up=plan_of("warm_up = { steady = true, max_s = 15.0 }").warm_up
    )
    result = await run_plan(plan, parse_url(llama.url))
    (step,) = result.steps
    assert step.warm_up_s > 0
    assert step.warm_up_steady is not None
    # Warm-up requests are in no figure.
    assert step.succeeded == 10
    assert step.e2e_s is not None
    assert step.e2e_s.n == 10


async def test_what_is_too_long_is_refused_before_the_run(llama: LlamaServer) -> None:
    plan = msgspec.structs.replace(
        auto(1, 1), parts=plan_of("parts = [{ input = 4000, output = 4000 }]").parts
    )
    endpoint = parse_url(llama.url)
    prepared = await prepare_run(plan, endpoint, direct(endpoint))
    assert "context" in {finding.key for finding in prepared.findings}
    # And if it is run all the same, the server's refusal is what is counted.
    result = await Run(prepared, LocalGenerator(), direct(endpoint)).execute()
    assert result.steps[0].failures == {"wrong_length": 1}
