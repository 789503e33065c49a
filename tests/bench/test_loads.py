"""Loads as they are really offered: open loops, ramps, cool-downs, and a client that is held up."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import psutil
import pytest

from backends.bench.endpoint import direct, parse_url
from backends.bench.plan import Limits, Plan
from backends.bench.process import LocalGenerator
from backends.bench.request_record import RequestRecord
from backends.bench.results import Failure, RunResult, RunStatus, StepResult
from backends.bench.runner import Event, Progress, Run, prepare_run
from backends.bench.samples import read_records
from tests.bench.conftest import Scheduled, closed, plan_of, run_plan

ROOT = Path(__file__).resolve().parents[2]


def open_loop(load: str, **changes: object) -> Plan:
    plan = plan_of(
        "route = 'chat'\nparts = [{ input = 32, output = 5 }]\n"
        f"[[steps]]\nload = 'open'\n{load}\n"
    )
    return msgspec.structs.replace(plan, warm_up=None, **changes)


async def measured(
    plan: Plan, scheduled: Scheduled, folder: Path, mode: str = "plain"
) -> tuple[RunResult, StepResult, list[RequestRecord]]:
    result = await run_plan(plan, scheduled.endpoint(mode), folder=folder)
    (step,) = result.steps
    return result, step, sorted(read_records(result.run_id, folder), key=lambda r: r.due_s)


async def test_requests_are_due_on_schedule(scheduled: Scheduled, tmp_path: Path) -> None:
    plan = open_loop("arrivals = 'constant'\nrate_per_s = 50\nrequests = 25")
    _, step, records = await measured(plan, scheduled, tmp_path)
    assert step.succeeded == 25
    due = [record.due_s - records[0].due_s for record in records]
    assert due == pytest.approx([i * 0.02 for i in range(25)], abs=2e-6)
    assert all(record.sent_s and record.sent_s >= record.due_s for record in records)
    assert step.queue_s is not None
    assert step.queue_s.min >= 0


async def test_what_is_due_is_sent_though_everything_hangs(
    scheduled: Scheduled, tmp_path: Path
) -> None:
    plan = open_loop(
        "arrivals = 'constant'\nrate_per_s = 40\nrequests = 20",
        limits=Limits(connect_s=5, silence_s=1.5, request_s=20),
    )
    _, step, records = await measured(plan, scheduled, tmp_path, "mute")
    assert step.failures == {Failure.SILENCE: 20}
    # The last was due 475 ms after the first, long before any had been given up.
    sent = [record.sent_s for record in records if record.sent_s is not None]
    assert len(sent) == 20
    assert max(sent) < min(record.end_s for record in records)


async def test_several_workers_offer_one_schedule(scheduled: Scheduled, tmp_path: Path) -> None:
    plan = open_loop("rate_per_s = 60\nrequests = 30", workers=3)
    _, step, shared = await measured(plan, scheduled, tmp_path / "3")
    _, _, alone = await measured(
        msgspec.structs.replace(plan, workers=1), scheduled, tmp_path / "1"
    )
    assert step.succeeded == 30
    assert step.client.workers == 3

    def offsets(records: list[RequestRecord]) -> list[float]:
        return [record.due_s - records[0].due_s for record in records]

    assert offsets(shared) == pytest.approx(offsets(alone), abs=3e-6)


async def test_a_ramp_spreads_the_starts(scheduled: Scheduled, tmp_path: Path) -> None:
    plan = plan_of(
        "route = 'chat'\nparts = [{ input = 32, output = 40 }]\n"
        "[[steps]]\nload = 'closed'\nconcurrency = 5\nramp_s = 0.5\nrequests = 5\n"
    )
    plan = msgspec.structs.replace(plan, warm_up=None)
    _, step, records = await measured(plan, scheduled, tmp_path)
    assert step.succeeded == 5
    due = [record.due_s - records[0].due_s for record in records]
    assert due == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4], abs=1e-5)


async def test_holding_keeps_the_load_up_to_the_last(scheduled: Scheduled, tmp_path: Path) -> None:
    plan = msgspec.structs.replace(closed(4, 10), cool_down="hold")
    _, step, records = await measured(plan, scheduled, tmp_path)
    assert (step.sent, step.succeeded) == (10, 10)
    held = [record for record in records if record.phase == "cooldown"]
    assert held
    last = max(r.end_s for r in records if r.phase == "measure")
    assert max(r.end_s for r in held) >= last
    assert step.e2e_s is not None
    assert step.e2e_s.n == 10


async def test_a_duration_ends_a_step_and_lets_it_drain(
    scheduled: Scheduled, tmp_path: Path
) -> None:
    plan = plan_of(
        "route = 'chat'\nparts = [{ input = 32, output = 10 }]\n"
        "[[steps]]\nload = 'closed'\nconcurrency = 3\nduration_s = 1.0\n"
    )
    plan = msgspec.structs.replace(plan, warm_up=None)
    _, step, records = await measured(plan, scheduled, tmp_path)
    assert step.failed == step.cancelled == 0
    assert step.succeeded == len(records) >= 6
    assert step.end_s - step.start_s >= 0.99
    assert step.steady is not None
    assert step.blocks == ()  # Too short for blocks of a second.


async def test_repetitions_are_steps_of_their_own(scheduled: Scheduled) -> None:
    plan = msgspec.structs.replace(closed(2, 4), repetitions=2)
    result = await run_plan(plan, scheduled.endpoint())
    assert [(s.index, s.repetition, s.succeeded) for s in result.steps] == [(0, 0, 4), (0, 1, 4)]


async def test_a_trace_is_replayed(scheduled: Scheduled, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        "".join(
            f'{{"timestamp": {100 * i}, "input_length": {20 + i}, "output_length": {3 + i}}}\n'
            for i in range(5)
        )
    )
    plan = plan_of(f"route = 'chat'\n[[steps]]\nload = 'trace'\nfile = '{trace}'\nspeed = 4\n")
    plan = msgspec.structs.replace(plan, warm_up=None)
    _, step, records = await measured(plan, scheduled, tmp_path)
    assert step.succeeded == 5
    assert [record.asked_output for record in records] == [3, 4, 5, 6, 7]
    assert [record.input_tokens for record in records] == [20, 21, 22, 23, 24]
    due = [record.due_s - records[0].due_s for record in records]
    assert due == pytest.approx([0.0, 0.025, 0.05, 0.075, 0.1], abs=2e-6)


async def test_a_client_that_is_held_up_says_so_within_2_s(scheduled: Scheduled) -> None:
    """The worker is stopped for a while: it was away from its sockets, and that is told."""
    endpoint = scheduled.endpoint()
    fetch = direct(endpoint)
    prepared = await prepare_run(closed(8, 100_000, tokens=50), endpoint, fetch)
    generator = LocalGenerator()
    running, told = asyncio.Event(), asyncio.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Progress) and event.in_flight == 8:
            running.set()
            if stopped and event.limited:
                told.set()

    stopped = False
    run = Run(prepared, generator, fetch, listener=listen)
    task = asyncio.create_task(run.execute())
    async with asyncio.timeout(60):
        await running.wait()
    assert generator.pid is not None
    (worker,) = psutil.Process(generator.pid).children()
    worker.send_signal(signal.SIGSTOP)
    await asyncio.sleep(0.6)
    stopped = True
    worker.send_signal(signal.SIGCONT)
    async with asyncio.timeout(2.0):
        await told.wait()
    run.stop()
    async with asyncio.timeout(20):
        result = await task
    assert result.steps[0].client.reasons
    assert result.steps[0].client.limited_s > 0
    assert "client_limited" in {finding.key for finding in result.findings}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The reference server of the benchmarks: 1,024 streams are too many for one in Python."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    program = tmp_path_factory.mktemp("reference") / "reference_server"
    source = ROOT / "benchmarks" / "reference_server.c"
    subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
    process = subprocess.Popen(
        [str(program), "200", "50"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(timeout=10)
        process.stdout.close()


def sent(port: int) -> list[list[int]]:
    """What it sent: a request's number, when it was read, when each token left (ns)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/sent")
        lines = connection.getresponse().read().decode().splitlines()
    return [[int(part) for part in line.split()] for line in lines]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a core for each side")
async def test_1024_streams_are_all_there_and_counted(reference: int) -> None:
    plan = closed(1024, 1024, "workers = 1", tokens=20)
    result = await run_plan(plan, parse_url(f"http://127.0.0.1:{reference}"))
    assert result.status is RunStatus.COMPLETE
    (step,) = result.steps
    assert (step.succeeded, step.failures) == (1024, {})
    assert step.max_in_flight == 1024
    assert step.ledger.usage_output == step.ledger.seen_output == 1024 * 20
    assert step.ttft_s is not None
    assert step.ttft_s.min >= 0.19
    # The gaps are those that the server really left, whatever this machine made of its schedule.
    gaps = sorted(
        (later - earlier) / 1e9 for line in sent(reference) for earlier, later in pairwise(line[2:])
    )
    assert step.gap_s is not None
    assert step.gap_s.p50 == pytest.approx(gaps[len(gaps) // 2], rel=0.2)
