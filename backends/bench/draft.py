"""A run that never came to its end: its document as far as it was, and its records, made one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from backends.bench import planfile
from backends.bench.metrics import StepMetrics
from backends.bench.request_record import RequestRecord
from backends.bench.results import RunResult, RunStatus, StepResult, from_json, to_json
from backends.bench.sink import draft_file
from backends.bench.steps import StepSpec, unroll
from backends.errors import RoomError
from backends.storage.atomic import write_bytes

UNFINISHED: Final = "made from what it had written: the run never came to its end"
_RECORD: Final = msgspec.json.Decoder(RequestRecord)


def write_draft(records: Path, so_far: RunResult) -> None:
    """Put the document beside its records; a full disk is told by those, and not here."""
    if records.suffix != ".jsonl":  # a device
        return
    draft = msgspec.structs.replace(so_far, status=RunStatus.BROKEN, error=UNFINISHED)
    with contextlib.suppress(OSError, RoomError):
        write_bytes(draft_file(records), to_json(draft))


def read_draft(records: Path) -> RunResult | None:
    """The document beside some records; None where there is none that can be read."""
    try:
        found = from_json(draft_file(records).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.run_id == records.stem else None


def completed(draft: RunResult, raw: bytes) -> RunResult:
    """The document with the step that was cut off, as far as its requests have ended.

    Args:
        draft: What `write_draft` has written; another document is given back as it is.
        raw: The records, a JSON line each; what is none is left out.
    """
    if draft.error != UNFINISHED:
        return draft
    done = len(draft.steps)
    records: dict[int, list[RequestRecord]] = {}
    for line in raw.splitlines():
        with contextlib.suppress(msgspec.MsgspecError):
            record = _RECORD.decode(line)
            if record.step >= done:
                records.setdefault(record.step, []).append(record)
    try:
        plan = planfile.parse(draft.plan.toml)
        specs = unroll(plan)
    except RoomError:  # its trace is gone
        return draft
    goodput = plan.goodput.limits() if plan.goodput is not None else None
    steps = [
        _step(specs[number], found, goodput, plan.warm_up is not None)
        for number, found in sorted(records.items())
        if number < len(specs) and any(record.phase == "measure" for record in found)
    ]
    return msgspec.structs.replace(draft, steps=(*draft.steps, *steps))


def _step(
    spec: StepSpec, records: Iterable[RequestRecord], goodput: dict[str, float] | None, warmed: bool
) -> StepResult:
    metrics = StepMetrics(closed=spec.concurrency is not None, goodput_limits_s=goodput)
    first_s = measure_s = end_s = None
    for record in records:
        metrics.add(record)
        first_s = record.due_s if first_s is None else min(first_s, record.due_s)
        end_s = record.end_s if end_s is None else max(end_s, record.end_s)
        if record.phase == "measure":
            measure_s = record.due_s if measure_s is None else min(measure_s, record.due_s)
    first_s, end_s = first_s or 0.0, end_s or 0.0
    measure_s = first_s if measure_s is None else measure_s
    step = StepResult(
        index=spec.index,
        repetition=spec.repetition,
        label=spec.label,
        load={k: v for k, v in spec.load.items() if isinstance(v, str | int | float)},
        concurrency=spec.concurrency,
        rate_per_s=spec.rate_per_s,
        start_s=first_s,
        end_s=end_s,
        warm_up_s=max(0.0, measure_s - first_s),
    )
    return metrics.result(step, measure_s, warmed)
