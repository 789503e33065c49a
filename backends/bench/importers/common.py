"""What all importers share: careful reading of other tools' JSON, summaries, blocks of time."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from backends.bench.results import (
    ClientPlace,
    PlanEcho,
    PromptSource,
    RunResult,
    RunStatus,
    StepResult,
    Summary,
    Target,
    Throughput,
    TimeBlock,
)
from backends.errors import RoomError
from backends.text import clean

MAX_REQUESTS: Final = 5_000_000
MAX_BLOCKS: Final = 20
MIN_BLOCK_S: Final = 1.0

Object = Mapping[str, object]


class ImportFailed(RoomError):
    """A file is no result that can be read here."""

    exit_code = 2


def entry(value: Object, *path: str) -> object:
    """What lies at a path of nested objects; None where it does not exist."""
    found: object = value
    for name in path:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def number(value: Object, *path: str) -> float | None:
    """A finite number at a path."""
    found = entry(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        return float(found) if math.isfinite(found) else None
    except OverflowError:
        return None


def whole(value: Object, *path: str) -> int:
    """A whole number at a path; 0 where there is none."""
    found = number(value, *path)
    return int(found) if found is not None and abs(found) < 1e15 else 0


def word(value: Object, *path: str) -> str | None:
    """A short string at a path, cleaned."""
    found = entry(value, *path)
    return clean(found, 400) if isinstance(found, str) and found else None


def numbers(value: Object, *path: str) -> list[float]:
    """A list of finite numbers at a path; empty where any member is none."""
    found = entry(value, *path)
    if not isinstance(found, list) or len(found) > MAX_REQUESTS:
        return []
    out: list[float] = []
    for item in found:
        if isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item):
            return []
        out.append(float(item))
    return out


def texts(value: Object, *path: str) -> list[str]:
    """The texts of a list at a path."""
    found = entry(value, *path)
    if not isinstance(found, list) or len(found) > MAX_REQUESTS:
        return []
    return [item for item in found if isinstance(item, str)]


def moment(text: str | None) -> datetime | None:
    """An ISO 8601 time, in UTC where it names no zone."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Linear between neighbours, as NumPy's default."""
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary_of(values: Iterable[float]) -> Summary | None:
    """An exact summary of raw values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Summary(
        n=len(ordered),
        mean=statistics.fmean(ordered),
        stdev=statistics.stdev(ordered) if len(ordered) > 1 else 0.0,
        min=ordered[0],
        p50=percentile(ordered, 0.5),
        p90=percentile(ordered, 0.9),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        max=ordered[-1],
    )


def summary_from(
    count: int | None, scale: float, figures: Mapping[str, float | None]
) -> Summary | None:
    """A summary of what a tool has printed: what it leaves out is absent.

    Args:
        count: How many values it is of; None where it does not say.
        scale: To seconds, such as 0.001.
        figures: `mean`, `stdev`, `min`, `p50`, `p90`, `p95`, `p99`, `max`, as far as known.
    """
    known = {name: value * scale for name, value in figures.items() if value is not None}
    if "mean" not in known and "p50" not in known:
        return None
    return Summary(n=count, **known)


@dataclass(frozen=True, slots=True)
class Request:
    """One successful request of a tool that tells of each."""

    start_s: float
    ttft_s: float
    e2e_s: float
    input_tokens: int
    output_tokens: int

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first."""
        if self.output_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


def blocks_of(requests: Sequence[Request]) -> tuple[TimeBlock, ...]:
    """Slices of a run, without its ramp and drain: from the last first start to the first last end.

    Tokens of a request are spread evenly from its first to its last one, since nothing more is
    known of them.
    """
    if len(requests) < 2:
        return ()
    begin = min(r.start_s for r in requests)
    end = max(r.start_s + r.e2e_s for r in requests)
    most = _in_flight(requests)
    peak = max(count for _, count in most)
    full = [time_s for time_s, count in most if count >= 0.9 * peak]
    low, high = (full[0], full[-1]) if full else (begin, end)
    count = int(min(MAX_BLOCKS, (high - low) / MIN_BLOCK_S))
    if count < 2:
        return ()
    width = (high - low) / count
    tokens, inputs = [0.0] * count, [0] * count
    ended: list[list[Request]] = [[] for _ in range(count)]
    for request in requests:
        first, last = request.start_s + request.ttft_s, request.start_s + request.e2e_s
        _spread(tokens, (first - low) / width, (last - low) / width, request.output_tokens)
        place = int((last - low) // width)
        if 0 <= place < count:
            ended[place].append(request)
        place = int((first - low) // width)
        if 0 <= place < count:
            inputs[place] += request.input_tokens
    return tuple(
        _block(low + i * width, width, round(tokens[i]), inputs[i], ended[i]) for i in range(count)
    )


def peak_of(requests: Sequence[Request]) -> int:
    """How many requests were under way at once, at most."""
    return max((count for _, count in _in_flight(requests)), default=0)


def _in_flight(requests: Sequence[Request]) -> list[tuple[float, int]]:
    """How many requests were under way after each start and end."""
    changes = sorted(
        [(r.start_s, 1) for r in requests] + [(r.start_s + r.e2e_s, -1) for r in requests]
    )
    out: list[tuple[float, int]] = []
    count = 0
    for time_s, change in changes:
        count += change
        out.append((time_s, count))
    return out


def _spread(tokens: list[float], first: float, last: float, amount: int) -> None:
    if last <= first:
        place = int(first)
        if first >= 0 and place < len(tokens):
            tokens[place] += amount
        return
    for place in range(max(0, int(first)), min(len(tokens), int(last) + 1)):
        share = (min(last, place + 1) - max(first, place)) / (last - first)
        tokens[place] += amount * max(0.0, share)


def _block(
    start_s: float, width_s: float, tokens: int, inputs: int, ended: list[Request]
) -> TimeBlock:
    ttft = sorted(r.ttft_s for r in ended)
    tpot = [value for r in ended if (value := r.tpot_s) is not None]
    return TimeBlock(
        start_s=start_s,
        end_s=start_s + width_s,
        requests=len(ended),
        input_tokens=inputs,
        output_tokens=tokens,
        ttft_s=statistics.fmean(ttft) if ttft else None,
        ttft_p99_s=percentile(ttft, 0.99) if ttft else None,
        tpot_s=statistics.fmean(tpot) if tpot else None,
        e2e_s=statistics.fmean(r.e2e_s for r in ended) if ended else None,
    )


def throughput(
    duration_s: float, requests: int, input_tokens: int, output_tokens: int
) -> Throughput | None:
    """Rates over a whole run."""
    if duration_s <= 0:
        return None
    return Throughput(
        start_s=0.0,
        end_s=duration_s,
        requests=requests,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        requests_per_s=requests / duration_s,
        output_tokens_per_s=output_tokens / duration_s,
        total_tokens_per_s=(input_tokens + output_tokens) / duration_s,
    )


def load_of(concurrency: float | None, rate: float | None) -> tuple[str, int | None, float | None]:
    """Label, concurrency and rate of a step, as gpuroom's own runs word them."""
    if rate is not None:
        return f"{rate:g}/s", None, rate
    if concurrency is not None and concurrency >= 1:
        count = int(concurrency)
        return f"{count} stream{'s' if count != 1 else ''}", count, None
    return "all at once", None, None


def run_of(
    harness: str,
    steps: Sequence[StepResult],
    workload: Object,
    target: Target,
    started: datetime | None,
    raw: bytes,
    name: str,
    stopped: bool = False,
) -> RunResult:
    """A result document around imported steps.

    Args:
        harness: The tool.
        steps: What it measured.
        workload: What decides its prompts and lengths: equal ones are comparable.
        target: What it measured.
        started: When; the beginning of all time where the file does not say.
        raw: The file, whose digest makes the run's id: importing it twice gives one run.
        name: Of the plan.
        stopped: Whether it says that it was cancelled.
    """
    if not steps:
        raise ImportFailed(f"The {harness} result holds no step with a figure")
    when = started or datetime(1970, 1, 1, tzinfo=UTC)
    digest = hashlib.sha256(
        json.dumps([harness, dict(workload)], sort_keys=True, default=str).encode()
    ).hexdigest()
    short = "".join(c for c in harness if c.isalnum())
    return RunResult(
        run_id=f"{when.astimezone(UTC):%Y%m%dT%H%M%S}-{short}-{hashlib.sha256(raw).hexdigest()[:8]}",
        started_utc=when,
        status=RunStatus.STOPPED if stopped else RunStatus.COMPLETE,
        harness=harness,
        plan=PlanEcho(
            name=clean(name, 80),
            toml="",
            digest=hashlib.sha256(
                (digest + ",".join(step.label for step in steps)).encode()
            ).hexdigest(),
            seed=whole(workload, "seed"),
            prompt_source=PromptSource.DATASET,
            workload_digest=digest,
        ),
        target=target,
        client=ClientPlace(where="unknown"),
        steps=tuple(steps),
    )
