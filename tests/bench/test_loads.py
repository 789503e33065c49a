"""Loads as they are really offered: open loops, ramps, cool-downs, and a client that is held up."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from backends.bench.plan import Limits, Plan
from backends.bench.request_record import RequestRecord
from backends.bench.results import Failure, RunResult, StepResult
from backends.bench.samples import read_records
from tests.bench.conftest import HELD_S, Scheduled, closed, held_up, plan_of, run_plan


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
    took, result = await held_up(scheduled, 60.0)
    assert took < HELD_S + 2.0
    assert result.steps[0].client.reasons
    assert result.steps[0].client.limited_s > 0
    assert "client_limited" in {finding.key for finding in result.findings}
