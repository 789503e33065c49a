"""From a plan to the steps that are run, with the files a plan names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from backends.bench.plan import Closed, Count, Length, Open, Plan, Trace
from backends.errors import ConfigError

DEFAULT_DURATION_S: Final = 30.0
T = TypeVar("T")


class TraceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a trace, in the forms that are in use."""

    timestamp: float | None = None
    """Milliseconds since the trace began, as in the Mooncake traces."""
    time_s: float | None = None
    input_length: Count
    output_length: Count
    hash_ids: tuple[int, ...] = ()


class DatasetItem(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a data set: a prompt, or the messages of a conversation."""

    prompt: str | None = None
    messages: tuple[dict[str, str], ...] | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None


class StepSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one repetition, as the generator is told."""

    index: int
    repetition: int
    label: str
    load: dict[str, object]
    total_requests: int | None = None
    duration_s: float | None = None
    concurrency: int | None = None
    rate_per_s: float | None = None


def unroll(plan: Plan) -> list[StepSpec]:
    """Every step of every repetition, in the order in which they run.

    Repetitions are interleaved, and every other one runs backwards, so that a drift of the
    server over time does not favour the steps of one end.
    """
    once: list[StepSpec] = []
    for step in plan.steps:
        if isinstance(step, Closed):
            once.extend(_closed(step, streams) for streams in many(step.concurrency))
        elif isinstance(step, Open):
            once.extend(_open(step, rate) for rate in many(step.rate_per_s))
        else:
            once.append(_trace(step))
    once = [
        msgspec.structs.replace(spec, index=index)
        if spec.total_requests or spec.duration_s
        else msgspec.structs.replace(spec, index=index, duration_s=DEFAULT_DURATION_S)
        for index, spec in enumerate(once)
    ]
    return [
        msgspec.structs.replace(spec, repetition=repetition)
        for repetition in range(plan.repetitions)
        for spec in (once if repetition % 2 == 0 else reversed(once))
    ]


def read_trace(step: Trace) -> list[list[object]]:
    """Time (s), input and output tokens, and block names of each line. Raises ConfigError."""
    entries: list[list[object]] = []
    path = Path(step.file).expanduser()
    for line, entry in _jsonl(path, TraceEntry):
        if entry.time_s is None and entry.timestamp is None:
            raise ConfigError("a line of the trace has no timestamp", path=path, line=line)
        at_s = entry.time_s if entry.time_s is not None else (entry.timestamp or 0.0) / 1000
        row: list[object] = [at_s / step.speed, entry.input_length, entry.output_length]
        if entry.hash_ids:
            row.append(list(entry.hash_ids))
        entries.append(row)
    entries.sort(key=lambda row: float(str(row[0])))
    first = float(str(entries[0][0]))
    for row in entries:
        row[0] = float(str(row[0])) - first
    return entries[: step.requests]


def read_dataset(path: str) -> list[dict[str, object]]:
    """The items of a data set. Raises ConfigError."""
    where = Path(path).expanduser()
    items = []
    for line, item in _jsonl(where, DatasetItem):
        if (item.prompt is None) == (item.messages is None):
            raise ConfigError(
                "a line of the data set needs either prompt or messages", path=where, line=line
            )
        plain = msgspec.json.decode(msgspec.json.encode(item))
        items.append({key: value for key, value in plain.items() if value is not None})
    return items


def _jsonl(path: Path, kind: type[T]) -> Iterator[tuple[int, T]]:
    decoder = msgspec.json.Decoder(kind)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"{path.name} cannot be read: {error.strerror}", path=path) from error
    found = False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = True
            yield number, decoder.decode(line)
        except msgspec.DecodeError as error:
            raise ConfigError(str(error), path=path, line=number) from error
    if not found:
        raise ConfigError("the file is empty", path=path)


def _closed(step: Closed, streams: int) -> StepSpec:
    load: dict[str, object] = {"kind": "closed", "concurrency": streams}
    label = f"{streams} stream{'s' if streams > 1 else ''}"
    if step.ramp_s:
        load["ramp_s"] = step.ramp_s
        label += f", ramp {step.ramp_s:g} s"
    total = step.requests
    if step.requests_per_stream is not None:
        total = step.requests_per_stream * streams
    return StepSpec(
        index=0,
        repetition=0,
        label=label,
        load=load,
        total_requests=total,
        duration_s=step.duration_s,
        concurrency=streams,
    )


def _open(step: Open, rate: float) -> StepSpec:
    load: dict[str, object] = {"kind": step.arrivals, "rate_per_s": rate}
    label = f"{rate:g}/s {step.arrivals}"
    if step.arrivals == "gamma":
        load["burstiness"] = step.burstiness
        label += f" {step.burstiness:g}"
    if step.rate_end_per_s is not None:
        load["rate_end_per_s"] = step.rate_end_per_s
        load["ramp_s"] = step.ramp_s
        label += f" to {step.rate_end_per_s:g}/s in {step.ramp_s:g} s"
    return StepSpec(
        index=0,
        repetition=0,
        label=label,
        load=load,
        total_requests=step.requests,
        duration_s=step.duration_s,
        rate_per_s=rate,
    )


def _trace(step: Trace) -> StepSpec:
    entries = read_trace(step)
    total = len(entries) if step.duration_s is None else None
    label = f"trace {Path(step.file).stem}" + (f" x{step.speed:g}" if step.speed != 1 else "")
    return StepSpec(
        index=0,
        repetition=0,
        label=label,
        load={"kind": "trace", "entries": entries},
        total_requests=total,
        duration_s=step.duration_s,
    )


def many(value: T | tuple[T, ...]) -> tuple[T, ...]:
    """One or several values as several."""
    return value if isinstance(value, tuple) else (value,)


def length_for_generator(length: Length) -> dict[str, object]:
    """A length's distribution as the generator takes it."""
    if isinstance(length, int):
        return {"kind": "fixed", "value": length}
    plain: dict[str, object] = json.loads(msgspec.json.encode(length))
    return plain
