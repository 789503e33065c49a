"""Servers that misbehave: every kind is counted as what it is, and none as a success."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.bench.endpoint import Endpoint, Unreachable, direct, parse_url
from backends.bench.plan import Limits, Plan, WarmUp
from backends.bench.process import LocalGenerator
from backends.bench.request_record import RequestRecord
from backends.bench.results import Failure, RunResult, RunStatus, Severity, StepResult, TokenSource
from backends.bench.runner import Event, Progress, Run, prepare_run
from backends.bench.samples import read_records
from backends.errors import RoomError
from tests.bench.conftest import TTFT_S, Scheduled, closed, plan_of, run_plan
from tests.bench.scheduled_server import PAUSE_S


async def one_step(
    scheduled: Scheduled, mode: str, streams: int = 2, requests: int = 6
) -> StepResult:
    plan = closed(streams, requests)
    # A busy machine may be silent for a while.
    limits = Limits(connect_s=15, silence_s=15, request_s=60)
    plan = msgspec.structs.replace(plan, limits=limits)
    result = await run_plan(plan, scheduled.endpoint(mode))
    (step,) = result.steps
    return step


@pytest.mark.parametrize(
    ("mode", "failure"),
    [
        ("429", Failure.RATE_LIMITED),
        ("503", Failure.OVERLOADED),
        ("500", Failure.HTTP),
        ("cut", Failure.CUT),
        ("not-sse", Failure.PROTOCOL),
        ("not-json", Failure.PROTOCOL),
        ("bad-chunk", Failure.PROTOCOL),
        ("endless", Failure.OVERRUN),
        ("error-event", Failure.ERROR_EVENT),
        ("no-finish", Failure.NO_FINISH),
    ],
)
async def test_failures_by_kind(scheduled: Scheduled, mode: str, failure: Failure) -> None:
    step = await one_step(scheduled, mode)
    assert step.succeeded == 0
    assert step.failures == {failure: 6}
    assert step.ttft_s is None
    assert step.whole is None


@pytest.mark.parametrize("mode", ["split", "crlf", "until-close", "role", "idle-close"])
async def test_oddities_that_are_allowed(scheduled: Scheduled, mode: str) -> None:
    step = await one_step(scheduled, mode)
    assert (step.succeeded, step.failures) == (6, {})
    assert step.events == 60
    assert step.ledger.usage_output == 60
    assert step.tokens_per_event == 1.0
    assert step.ttft_s is not None
    # The role chunk, which comes at once, is no token.
    assert step.ttft_s.min >= 0.8 * TTFT_S


async def test_10_seconds_of_silence(scheduled: Scheduled, tmp_path: Path) -> None:
    """A failure where that is the limit; a gap where it is longer and the stream goes on.

    All at once, since it takes that long.
    """

    async def run(mode: str, silence_s: float) -> tuple[StepResult, list[RequestRecord]]:
        limits = Limits(connect_s=15, silence_s=silence_s, request_s=90)
        plan = msgspec.structs.replace(closed(4, 4), limits=limits)
        result = await run_plan(plan, scheduled.endpoint(mode), folder=tmp_path)
        return result.steps[0], list(read_records(result.run_id, tmp_path))

    went_on, *fell_silent = await asyncio.gather(
        run("pause", PAUSE_S + 30), run("silent", 10), run("mute", 10)
    )
    step, records = went_on
    assert (step.succeeded, step.failures) == (4, {})
    assert step.ledger.usage_output == step.ledger.seen_output == 40
    for record in records:
        assert max(record.gaps_us) >= 10e6
        assert record.last_token_s is not None
        assert record.first_token_s is not None
        assert record.last_token_s - record.first_token_s >= 10
    for (step, records), events in zip(fell_silent, (1, 0), strict=True):
        assert (step.succeeded, step.failures) == (0, {Failure.SILENCE: 4})
        for record in records:
            assert record.events == events  # What came before it is in the record.
            begun_s = record.last_token_s or record.sent_s
            assert begun_s is not None
            assert record.end_s - begun_s >= 10


async def test_without_usage_events_are_counted_and_said(scheduled: Scheduled) -> None:
    step = await one_step(scheduled, "no-usage")
    assert step.succeeded == 6
    assert step.token_source is TokenSource.EVENTS
    assert step.ledger.usage_output is None
    assert step.ledger.seen_output == 60
    assert step.whole is not None
    assert step.whole.output_tokens == 60


async def test_several_tokens_an_event(scheduled: Scheduled) -> None:
    plan = closed(2, 6, tokens=40)
    step = (await run_plan(plan, scheduled.endpoint("bundled"))).steps[0]
    assert step.events == 60
    assert step.tokens_per_event == 4.0
    assert step.ledger.usage_output == 240
    assert step.itl_s is None  # What is inside an event nobody knows.
    assert step.tpot_s is not None
    assert step.gap_s is not None
    # At least four tokens a gap, and more where a busy machine merged events.
    assert step.gap_s.mean / step.tpot_s.mean > 3.5

    plan = msgspec.structs.replace(plan, continuous_usage="on")
    step = (await run_plan(plan, scheduled.endpoint("bundled"))).steps[0]
    assert step.itl_s is not None
    assert step.tpot_s is not None
    assert step.itl_s.mean == pytest.approx(step.tpot_s.mean, rel=0.3)
    # The tokens behind the first arrival, in which a busy machine may merge several events.
    assert 6 * 20 <= step.itl_s.n <= 6 * 36


async def test_reasoning_is_a_token_and_the_answer_is_timed_apart(scheduled: Scheduled) -> None:
    step = await one_step(scheduled, "reasoning")
    assert step.ttft_s is not None
    assert step.ttfa_s is not None
    assert step.ttfa_s.mean > step.ttft_s.mean
    assert step.events == 60


async def test_an_early_end_fails_only_where_eos_is_ignored(scheduled: Scheduled) -> None:
    step = await one_step(scheduled, "early-stop")
    # This server is of no known engine, so nothing was asked of it about EOS.
    assert step.succeeded == 6
    assert step.ledger.usage_output == 24
    assert step.ledger.asked_output == 60


async def test_an_early_end_is_a_wrong_length_where_eos_is_ignored(scheduled: Scheduled) -> None:
    step = await as_if_asked(scheduled, closed(2, 6), scheduled.endpoint("early-stop"), "vllm")
    assert (step.succeeded, step.failures) == (0, {Failure.WRONG_LENGTH: 6})


async def as_if_asked(
    scheduled: Scheduled, plan: Plan, endpoint: Endpoint, mode: str = "plain"
) -> StepResult:
    """A step against a server that was found to be another before it."""
    fetch = direct(scheduled.endpoint(mode))
    prepared = await prepare_run(plan, endpoint, fetch)
    return (await Run(prepared, LocalGenerator(), fetch).execute()).steps[0]


async def test_a_request_without_end_is_given_up(scheduled: Scheduled) -> None:
    """It goes on, so that it is no silence, and stays below what was asked for."""
    limits = Limits(connect_s=15, silence_s=15, request_s=1)
    plan = msgspec.structs.replace(closed(2, 2, tokens=1_000_000), limits=limits)
    (step,) = (await run_plan(plan, scheduled.endpoint("endless"))).steps
    assert (step.succeeded, step.failures) == (0, {Failure.TIMEOUT: 2})


async def test_a_server_that_goes_after_the_first_look(scheduled: Scheduled) -> None:
    async def leave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.close()
        writer.close()

    server = await asyncio.start_server(leave, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        step = await as_if_asked(scheduled, closed(2, 6), parse_url(url))
    assert (step.succeeded, step.failed) == (0, 6)
    # Of each stream the first may have come before it had gone.
    assert step.failures[Failure.CONNECT] >= 4


async def test_some_refusals_among_successes(scheduled: Scheduled) -> None:
    plan = closed(3, 12)
    plan = msgspec.structs.replace(plan, goodput=plan_of("goodput = { ttft_s = 30.0 }").goodput)
    (step,) = (await run_plan(plan, scheduled.endpoint("sometimes-429"))).steps
    assert step.succeeded + step.failed == 12
    assert step.failures == {Failure.RATE_LIMITED: step.failed}
    assert 0 < step.failed < 12
    assert step.goodput is not None
    assert (step.goodput.good, step.goodput.of) == (step.succeeded, 12)


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match="no answer"):
        await run_plan(closed(1, 1), parse_url(f"http://127.0.0.1:{port}"))


async def test_a_hopeless_step_is_broken_off(scheduled: Scheduled) -> None:
    result = await run_plan(closed(4, 5000), scheduled.endpoint("503"))
    (step,) = result.steps
    assert step.succeeded == 0
    assert 20 <= step.failed < 5000
    assert "aborted" in {finding.key for finding in result.findings}


async def test_a_server_that_starts_is_said(scheduled: Scheduled) -> None:
    endpoint = scheduled.endpoint("vllm")
    prepared = await prepare_run(closed(1, 1), endpoint, direct(endpoint))
    assert [f.key for f in prepared.findings if f.severity is Severity.ERROR] == []


async def test_foreign_load_is_found_before_and_during(scheduled: Scheduled) -> None:
    endpoint = scheduled.endpoint("busy")
    prepared = await prepare_run(closed(1, 1), endpoint, direct(endpoint))
    found = {finding.key: finding for finding in prepared.findings}
    assert found["foreign_load"].severity is Severity.ERROR
    assert "3 requests running" in found["foreign_load"].text
    assert "output tokens/s" in found["foreign_load"].text

    result = await run_plan(closed(1, 4), scheduled.endpoint("foreign"))
    share = result.steps[0].ledger.foreign_output_share
    assert share is not None
    assert share > 0.5


async def test_no_foreign_load_where_there_is_none(scheduled: Scheduled) -> None:
    result = await run_plan(closed(2, 8), scheduled.endpoint("vllm"))
    ledger = result.steps[0].ledger
    assert ledger.server_output == ledger.usage_output == 80
    assert ledger.foreign_output_share == 0.0
    assert "foreign_load" not in {finding.key for finding in result.findings}


async def test_what_we_cut_short_ourselves_is_nobody_elses(scheduled: Scheduled) -> None:
    """Holding the load up ends requests that the server goes on with for a moment."""
    plan = msgspec.structs.replace(closed(4, 8), cool_down="hold")
    result = await run_plan(plan, scheduled.endpoint("vllm"))
    assert "foreign_load" not in {finding.key for finding in result.findings}


# --- ends -------------------------------------------------------------------------------


async def started(
    scheduled: Scheduled, mode: str = "plain", streams: int = 32, folder: Path | None = None
) -> tuple[Run, asyncio.Task[RunResult], LocalGenerator]:
    """A run that has requests in flight."""
    endpoint = scheduled.endpoint(mode)
    fetch = direct(endpoint)
    running = asyncio.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Progress) and event.in_flight >= streams:
            running.set()

    generator = LocalGenerator()
    plan = closed(streams, 1_000_000, tokens=2000)
    prepared = await prepare_run(plan, endpoint, fetch)
    run = Run(prepared, generator, fetch, listener=listen, folder=folder)
    task = asyncio.create_task(run.execute())
    async with asyncio.timeout(60):
        await running.wait()
    return run, task, generator


async def ended(scheduled: Scheduled, before: int, streams: int) -> None:
    """The server has seen so many of its streams end before their time."""
    deadline = time.monotonic() + 20
    while scheduled.aborted() - before < streams:
        assert time.monotonic() < deadline, f"{scheduled.aborted() - before} of {streams} ended"
        await asyncio.sleep(0.1)


async def test_stop_ends_every_request_and_keeps_what_there_is(scheduled: Scheduled) -> None:
    before = scheduled.aborted()
    run, task, generator = await started(scheduled)
    run.stop()
    async with asyncio.timeout(20):
        result = await task
    assert result.status is RunStatus.STOPPED
    (step,) = result.steps
    assert step.cancelled == 32
    assert step.failed == 0
    await ended(scheduled, before, 32)
    assert generator.pid is not None
    assert gone(generator.pid)


async def test_cancelling_the_owner_ends_everything(scheduled: Scheduled) -> None:
    before = scheduled.aborted()
    _, task, generator = await started(scheduled)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(20):
            await task
    await ended(scheduled, before, 32)
    assert generator.pid is not None
    assert gone(generator.pid)


@pytest.mark.timeout(300)
@settings(max_examples=10, deadline=None, derandomize=True)
@given(after_s=st.floats(0.0, 1.2), warms_up=st.booleans(), kindly=st.booleans())
async def test_cancel_at_any_moment(
    scheduled: Scheduled, after_s: float, warms_up: bool, kindly: bool
) -> None:
    """While it starts, connects, warms up or measures: everything ends, and all is counted."""
    endpoint = scheduled.endpoint()
    fetch = direct(endpoint)
    plan = closed(4, 100_000)
    if warms_up:
        plan = msgspec.structs.replace(plan, warm_up=WarmUp(duration_s=30.0))
    prepared = await prepare_run(plan, endpoint, fetch)
    generator = LocalGenerator()
    run = Run(prepared, generator, fetch)
    task = asyncio.create_task(run.execute())
    await asyncio.sleep(after_s)
    if kindly:
        run.stop()
        async with asyncio.timeout(20):
            result = await task
        assert result.status is RunStatus.STOPPED
        for step in result.steps:
            assert step.sent == step.succeeded + step.failed + step.cancelled
            assert step.failed == 0
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(20):
                await task
    assert generator.pid is None or gone(generator.pid)
    deadline = time.monotonic() + 20
    while scheduled.open():
        assert time.monotonic() < deadline, "streams are still open"
        await asyncio.sleep(0.05)


async def test_a_killed_generator_is_told_and_loses_nothing(
    scheduled: Scheduled, tmp_path: Path
) -> None:
    endpoint = scheduled.endpoint()
    fetch = direct(endpoint)
    generator = LocalGenerator()
    enough = asyncio.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Progress) and event.succeeded >= 8:
            enough.set()

    prepared = await prepare_run(closed(4, 1_000_000), endpoint, fetch)
    run = Run(prepared, generator, fetch, folder=tmp_path, listener=listen)
    task = asyncio.create_task(run.execute())
    async with asyncio.timeout(60):
        await enough.wait()
    assert generator.pid is not None
    os.killpg(generator.pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        result = await task
    assert result.status is RunStatus.BROKEN
    assert "died" in (result.error or "")
    (step,) = result.steps
    assert step.succeeded >= 8
    assert not step.client.valid
    assert len(list(read_records(result.run_id, tmp_path))) == step.sent


async def test_workers_end_when_the_coordinator_is_killed(scheduled: Scheduled) -> None:
    before = scheduled.aborted()
    _, task, generator = await started(scheduled)
    assert generator.pid is not None
    os.kill(generator.pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        result = await task
    assert result.status is RunStatus.BROKEN
    await ended(scheduled, before, 32)


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
async def test_a_full_disk_is_said_and_the_run_goes_on(
    scheduled: Scheduled, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("backends.bench.runner.record_file", lambda *_: FULL)
    result = await run_plan(closed(2, 6), scheduled.endpoint(), folder=tmp_path)
    assert result.status is RunStatus.COMPLETE
    assert result.steps[0].succeeded == 6
    (finding,) = [f for f in result.findings if f.key == "samples_lost"]
    assert finding.severity is Severity.ERROR
    assert "No space left" in finding.text


@contextlib.contextmanager
def at_most(size_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond a size, as if the disk were full by then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_what_was_written_before_a_disk_is_full_stays_readable(
    scheduled: Scheduled, tmp_path: Path
) -> None:
    with at_most(8000):
        result = await run_plan(closed(4, 60), scheduled.endpoint(), folder=tmp_path)
    assert result.status is RunStatus.COMPLETE
    assert result.steps[0].succeeded == 60
    (finding,) = [f for f in result.findings if f.key == "samples_lost"]
    assert "File too large" in finding.text
    kept = list(read_records(result.run_id, tmp_path))
    assert 0 < len(kept) < 60
    assert all(record.first_token_s is not None for record in kept)


async def test_a_generator_that_cannot_start(scheduled: Scheduled) -> None:
    endpoint = scheduled.endpoint()
    fetch = direct(endpoint)
    prepared = await prepare_run(closed(1, 1), endpoint, fetch)
    with pytest.raises(RoomError, match="cannot be started"):
        await Run(prepared, LocalGenerator("/nowhere/python3"), fetch).execute()


def gone(pid: int) -> bool:
    """Whether a process, and its group, are no more."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
