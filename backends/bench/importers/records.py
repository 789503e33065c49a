"""The records of a run of gpuroom's own that never came to its end: a JSON line a request.

Where the document beside them is gone, what was measured is still all there (`backends.bench.draft`
reads both).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from backends.bench.importers.common import (
    ImportFailed,
    Object,
    Request,
    blocks_of,
    peak_of,
    summary_of,
    throughput,
)
from backends.bench.request_record import RequestRecord
from backends.bench.results import (
    ClientPlace,
    PlanEcho,
    PromptSource,
    RunResult,
    RunStatus,
    StepResult,
    Target,
    TokenSource,
)


def recognises(value: Object) -> bool:
    """Whether a JSON object is such a record."""
    return {"step", "id", "due_s", "end_s"} <= value.keys()


def read(values: list[Object], raw: bytes, name: str) -> RunResult:
    """Fold the records of one file; `name` is the run's id, as the file is called."""
    try:
        records = [msgspec.convert(value, RequestRecord) for value in values]
    except msgspec.ValidationError as error:
        raise ImportFailed("A record cannot be read", str(error)) from error
    measured = [record for record in records if record.phase == "measure"]
    numbers = sorted({record.step for record in measured})
    if not numbers:
        raise ImportFailed("No request was measured before the run ended", name)
    steps = [
        _step(index, number, [record for record in measured if record.step == number])
        for index, number in enumerate(numbers)
    ]
    digest = hashlib.sha256(raw).hexdigest()
    return RunResult(
        run_id=name if name.replace("-", "").isalnum() else f"records-{digest[:12]}",
        started_utc=_started(name),
        status=RunStatus.BROKEN,
        plan=PlanEcho(
            name="unfinished", toml="", digest=digest, seed=0,
            prompt_source=PromptSource.DATASET, workload_digest=digest,
        ),
        target=Target(url="unknown"),
        client=ClientPlace(where="unknown"),
        steps=tuple(steps),
        error="made from its records: the run never came to its end",
    )  # fmt: skip


def _started(name: str) -> datetime:
    """Ids begin with the time of the start."""
    try:
        return datetime.strptime(name[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return datetime(1970, 1, 1, tzinfo=UTC)


def _step(index: int, number: int, records: list[RequestRecord]) -> StepResult:
    good = list(_requests(records))
    begin = min(record.due_s for record in records)
    end = max(record.end_s for record in records)
    failures: dict[str, int] = {}
    for record in records:
        if record.failure is not None:
            failures[record.failure.value] = failures.get(record.failure.value, 0) + 1
    order = (TokenSource.USAGE, TokenSource.IDS, TokenSource.EVENTS)
    sources = [record.source for record in records if record.source is not None]
    return StepResult(
        index=index,
        repetition=0,
        label=f"step {number + 1}, up to {peak_of(good)} at once",
        load={"kind": "unknown"},
        start_s=begin,
        end_s=end,
        sent=len(records),
        succeeded=len(good),
        failed=sum(not record.ok and not record.cancelled for record in records),
        cancelled=sum(record.cancelled for record in records),
        failures=failures,
        max_in_flight=peak_of(good),
        whole=throughput(
            end - begin, len(good), sum(r.input_tokens for r in good),
            sum(r.output_tokens for r in good),
        ),
        ttft_s=summary_of(r.ttft_s for r in good),
        tpot_s=summary_of(value for r in good if (value := r.tpot_s) is not None),
        e2e_s=summary_of(r.e2e_s for r in good),
        input_length=summary_of(float(r.input_tokens) for r in good),
        output_length=summary_of(float(r.output_tokens) for r in good),
        token_source=max(sources, key=order.index) if sources else None,
        blocks=blocks_of(good),
    )  # fmt: skip


def _requests(records: Iterable[RequestRecord]) -> Iterable[Request]:
    for record in records:
        if not record.ok or record.sent_s is None or record.first_token_s is None:
            continue
        last = record.last_token_s if record.last_token_s is not None else record.end_s
        yield Request(
            start_s=record.sent_s,
            ttft_s=record.first_token_s - record.sent_s,
            e2e_s=last - record.sent_s,
            input_tokens=record.input_tokens or 0,
            output_tokens=record.output_tokens or 0,
        )
