"""What the generator measures against what the server really sent, event by event.

On loopback the kernel stamps a packet inside the server's own send, so each time must lie between
the server's clock before and after it, however loaded the machine is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends.bench.endpoint import Endpoint
from backends.bench.generator.coordinator import workers_for
from backends.bench.request_record import RequestRecord
from backends.bench.results import ReceiveClock, RunStatus
from tests.bench.conftest import GAP_S, TTFT_S, Scheduled, closed, reference_log, run_plan

LINUX = sys.platform == "linux"


def records(folder: Path, run_id: str) -> list[RequestRecord]:
    from backends.bench.samples import read_records

    return list(read_records(run_id, folder))


@pytest.mark.skipif(not LINUX, reason="kernel receive stamps are Linux's")
@pytest.mark.parametrize(("streams", "requests"), [(1, 4), (64, 192), (256, 512)])
async def test_times_are_those_of_the_wire(
    scheduled: Scheduled, tmp_path: Path, streams: int, requests: int
) -> None:
    scheduled.log()
    tokens = 20
    result = await run_plan(
        closed(streams, requests, "workers = 1", tokens),
        scheduled.endpoint("tagged"),
        folder=tmp_path,
    )
    assert result.status is RunStatus.COMPLETE
    (step,) = result.steps
    assert (step.succeeded, step.failed, step.cancelled) == (requests, 0, 0)
    assert step.client.clock is ReceiveClock.KERNEL
    assert step.ledger.usage_output == requests * tokens
    assert step.max_in_flight == streams

    log = [served for served in scheduled.log() if len(served["after_ns"]) == tokens]
    found = records(tmp_path, result.run_id)
    assert len(log) == len(found) == requests
    errors = sorted(compare(found, log))
    # Between before and after the send is 0; the rest is what a stamp may be deferred by.
    assert errors[len(errors) // 2] < 1e-4
    assert errors[int(0.99 * len(errors))] < 0.02


@pytest.mark.skipif(not LINUX, reason="kernel receive stamps are Linux's")
@pytest.mark.parametrize("sample", [None, 64])
async def test_times_are_those_of_the_wire_at_1024(
    reference: Endpoint, tmp_path: Path, sample: int | None
) -> None:
    reference_log(reference)
    tokens = 20
    extra = "workers = 1" if sample is None else f"workers = 1\nsample = {sample}"
    result = await run_plan(closed(1024, 1024, extra, tokens), reference, folder=tmp_path)
    assert result.status is RunStatus.COMPLETE
    (step,) = result.steps
    assert (step.succeeded, step.failures) == (1024, {})
    assert step.max_in_flight == 1024
    assert step.ledger.usage_output == step.ledger.seen_output == 1024 * tokens
    assert step.ttft_s is not None
    assert step.ttft_s.min >= 0.19  # It comes 200 ms after the request, or later.

    found = records(tmp_path, result.run_id)
    log = reference_log(reference)
    assert len(found) == len(log) == 1024
    full = [record for record in found if not record.drained]
    assert len(full) == (sample or 1024)
    errors = sorted(compare(full, log))
    assert errors[len(errors) // 2] < 1e-4
    assert errors[int(0.99 * len(errors))] < 0.02
    # First and last token are exact, however a stream was read in between.
    spans = sorted(span_errors(found, log))
    assert spans[len(spans) // 2] < 1e-4
    assert spans[int(0.99 * len(spans))] < 0.02


def span_errors(found: list[RequestRecord], log: list[dict[str, Any]]) -> list[float]:
    """How far the time from first to last token is from that of the server."""
    by_number = {served["number"]: served for served in log}
    errors = []
    for record in found:
        assert record.first_token_s is not None
        assert record.last_token_s is not None
        if record.first_tokens != 1:
            continue  # The first shared a read with the second.
        sent_ns = by_number[record.input_tokens]["before_ns"]
        true_s = (sent_ns[-1] - sent_ns[0]) / 1e9
        errors.append(abs(record.last_token_s - record.first_token_s - true_s))
    return errors


def compare(found: list[RequestRecord], log: list[dict[str, Any]]) -> list[float]:
    """How far each arrival lies outside of the send of its last event.

    The run's beginning is not in the records, so times are compared from a request's first token.
    Events that a busy machine merged share an arrival, whose time is that of the last of them.
    """
    errors = []
    by_number = {served["number"]: served for served in log}
    for record in found:
        assert record.input_tokens is not None
        served = by_number[record.input_tokens]
        counts = record.arrival_tokens or (1,) * (len(record.gaps_us) + 1)
        assert sum(counts) == len(served["before_ns"])
        last = counts[0] - 1
        first_before, first_after = served["before_ns"][last], served["after_ns"][last]
        at = 0.0
        for number, (gap, count) in enumerate(zip(record.gaps_us, counts[1:], strict=True), 1):
            at += gap / 1e6
            last += count
            earliest = (served["before_ns"][last] - first_after) / 1e9
            latest = (served["after_ns"][last] - first_before) / 1e9
            rounding = number * 1e-6
            errors.append(max(0.0, earliest - at - rounding, at - latest - rounding))
    return errors


async def test_figures_are_the_schedules(scheduled: Scheduled) -> None:
    result = await run_plan(closed(4, 16, tokens=20), scheduled.endpoint())
    (step,) = result.steps
    # Not earlier than the schedule; how much later is the machine's.
    assert step.ttft_s is not None
    assert step.ttft_s.min >= 0.8 * TTFT_S
    assert step.tpot_s is not None
    assert step.tpot_s.max >= 0.8 * GAP_S
    assert step.e2e_s is not None
    assert step.e2e_s.min >= 0.8 * (TTFT_S + 19 * GAP_S)
    assert step.itl_s is not None
    assert step.whole is not None
    assert step.whole.output_tokens == 16 * 20
    assert step.whole.input_tokens == 16 * 32
    assert step.whole.total_tokens_per_s == pytest.approx(
        step.whole.output_tokens_per_s * (32 + 20) / 20
    )


async def test_sampled_reading_keeps_counts_and_ends(scheduled: Scheduled, tmp_path: Path) -> None:
    plan = closed(16, 32, "sample = 4", tokens=60)
    result = await run_plan(plan, scheduled.endpoint(), folder=tmp_path)
    (step,) = result.steps
    assert step.succeeded == 32
    assert step.ledger.usage_output == step.ledger.seen_output == 32 * 60
    assert step.sampled_streams == 4
    found = records(tmp_path, result.run_id)
    full = [record for record in found if not record.drained]
    assert len(full) == 8
    # The gaps of drained streams say when they were read: they are in no distribution.
    assert step.gap_s is not None
    assert step.gap_s.n == sum(len(record.gaps_us) for record in full)
    assert all(record.first_token_s for record in found)


@pytest.mark.parametrize(
    ("streams", "cpus", "workers"),
    [(1, 16, 1), (512, 16, 1), (513, 16, 2), (1024, 16, 2), (20_000, 16, 16), (1024, 1, 1)],
)
def test_what_one_core_cannot_serve_gets_more(streams: int, cpus: int, workers: int) -> None:
    assert workers_for(streams, cpus) == workers


async def test_more_processes_share_the_load(scheduled: Scheduled, tmp_path: Path) -> None:
    plan = closed(7, 23, "workers = 3")
    result = await run_plan(plan, scheduled.endpoint(), folder=tmp_path)
    (step,) = result.steps
    assert step.client.workers == 3
    assert step.succeeded == 23
    assert step.max_in_flight <= 7
    ids = sorted(record.id for record in records(tmp_path, result.run_id))
    assert len(set(ids)) == 23


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="pins to processors")
async def test_records_are_complete_documents(scheduled: Scheduled, tmp_path: Path) -> None:
    result = await run_plan(closed(2, 4), scheduled.endpoint(), folder=tmp_path)
    for record in records(tmp_path, result.run_id):
        again = msgspec.json.decode(msgspec.json.encode(record), type=RequestRecord)
        assert again == record
        assert record.ok
        assert record.sent_s is not None
        assert record.first_token_s is not None
        assert record.last_token_s is not None
        total_us = round((record.last_token_s - record.first_token_s) * 1e6)
        assert abs(sum(record.gaps_us) - total_us) <= len(record.gaps_us) + 1
