"""The server's own metrics: Prometheus text, read, named alike for every engine, and sampled."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from backends.bench.endpoint import Fetch
from backends.bench.results import ServerWindow
from backends.errors import RoomError
from backends.text import clean

MAX_SAMPLES: Final = 50_000
_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{.*\})?\s+(\S+)(?:\s+\S+)?\s*$")
_LABEL: Final = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPES: Final = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}

_RANKS: Final = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid"})
"""Labels of processes that report the same requests: the largest counts, not the sum."""

# Our name, and what the engines call it; the first that is there counts.
_GAUGES: Final = {
    "running": (
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "llamacpp:requests_processing",
        "tgi_batch_current_size",
    ),
    "waiting": (
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
        "llamacpp:requests_deferred",
        "tgi_queue_size",
    ),
    "kv_cache_used": (
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "sglang:token_usage",
        "llamacpp:kv_cache_usage_ratio",
    ),
    "spec_accepted_per_step": ("sglang:spec_accept_length",),
}
_COUNTERS: Final = {
    "input_tokens": (
        "vllm:prompt_tokens_total",
        "sglang:prompt_tokens_total",
        "llamacpp:prompt_tokens_total",
        "tgi_request_input_length_sum",
    ),
    "output_tokens": (
        "vllm:generation_tokens_total",
        "sglang:generation_tokens_total",
        "llamacpp:tokens_predicted_total",
        "tgi_request_generated_tokens_sum",
    ),
    "cached_tokens": (
        "vllm:prefix_cache_hits_total",
        "sglang:cached_tokens_total",
        "llamacpp:prompt_tokens_cached_total",
    ),
    "cache_queries": ("vllm:prefix_cache_queries_total",),
    "preemptions": ("vllm:num_preemptions_total",),
    "spec_drafts": (
        "vllm:spec_decode_num_drafts_total",
        "llamacpp:spec_decode_num_drafts_total",
    ),
    "spec_accepted": (
        "vllm:spec_decode_num_accepted_tokens_total",
        "llamacpp:spec_decode_num_accepted_tokens_total",
    ),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a metrics page."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What the server said at one time. What it doesn't say is None.

    Attributes:
        at_s: When, in seconds of the caller's monotonic clock.
        values: Our names to gauges and counters; `kv_cache_used` is of 1.
    """

    at_s: float
    values: dict[str, float]

    def get(self, name: str) -> float | None:
        """A value, or None."""
        return self.values.get(name)


def parse(text: str) -> list[Sample]:
    """Samples of a page in the Prometheus text format; lines that are none are skipped."""
    samples = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        labels = tuple(
            (found[1], clean(re.sub(r"\\.", lambda m: _ESCAPES.get(m[0], m[0]), found[2]), 200))
            for found in _LABEL.finditer((match[2] or "")[1:-1])
        )
        samples.append(Sample(match[1], labels, value))
        if len(samples) >= MAX_SAMPLES:
            break
    return samples


def reading(samples: Iterable[Sample], at_s: float) -> Reading:
    """The values that matter, under one name for every engine.

    Series that differ in ranks alone report the same thing, so the largest is taken; what is
    left (engines of a data-parallel server, models, sources) is added up.
    """
    series: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for sample in samples:
        if not math.isfinite(sample.value):
            continue
        key = tuple(label for label in sample.labels if label[0] not in _RANKS)
        known = series.setdefault(sample.name, {})
        known[key] = max(known.get(key, -math.inf), sample.value)
    values = {}
    for names, shares in ((_GAUGES, True), (_COUNTERS, False)):
        for ours, theirs in names.items():
            for name in theirs:
                if name in series:
                    found = list(series[name].values())
                    mean = shares and ours in ("kv_cache_used", "spec_accepted_per_step")
                    values[ours] = sum(found) / len(found) if mean else sum(found)
                    break
    return Reading(at_s, values)


def window(readings: Sequence[Reading]) -> ServerWindow | None:
    """A step's readings as means, maxima and differences; None without any."""
    if not readings:
        return None

    def mean(name: str) -> float | None:
        values = [v for r in readings if (v := r.get(name)) is not None]
        return sum(values) / len(values) if values else None

    def most(name: str) -> float | None:
        return max((v for r in readings if (v := r.get(name)) is not None), default=None)

    cached, queries = difference(readings, "cached_tokens"), difference(readings, "cache_queries")
    inputs = difference(readings, "input_tokens")
    asked = queries if queries is not None else inputs
    drafts, accepted = difference(readings, "spec_drafts"), difference(readings, "spec_accepted")
    per_step = mean("spec_accepted_per_step")
    if per_step is None and drafts and accepted is not None:
        per_step = 1.0 + accepted / drafts
    outputs, preemptions = (
        difference(readings, "output_tokens"),
        difference(readings, "preemptions"),
    )
    return ServerWindow(
        samples=len(readings),
        running_mean=mean("running"),
        running_max=most("running"),
        waiting_mean=mean("waiting"),
        waiting_max=most("waiting"),
        kv_cache_used_mean=mean("kv_cache_used"),
        kv_cache_used_max=most("kv_cache_used"),
        prefix_cache_hit_share=cached / asked if asked and cached is not None else None,
        input_tokens=None if inputs is None else round(inputs),
        output_tokens=None if outputs is None else round(outputs),
        preemptions=None if preemptions is None else round(preemptions),
        spec_accepted_per_step=per_step,
    )


def difference(readings: Sequence[Reading], name: str) -> float | None:
    """How much a counter rose from the first to the last reading; None if it was reset."""
    values = [v for r in readings if (v := r.get(name)) is not None]
    if len(values) < 2 or any(later < earlier for earlier, later in pairwise(values)):
        return None
    return values[-1] - values[0]


class Sampler:
    """Reads the metrics page at an interval, from `start` to `stop`.

    Attributes:
        readings: All readings so far, oldest first.
        error: Why there are none, or no more.
    """

    def __init__(
        self,
        fetch: Fetch,
        clock: Callable[[], float],
        *,
        interval_s: float = 1.0,
        path: str = "/metrics",
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._interval_s = interval_s
        self._path = path
        self._task: asyncio.Task[None] | None = None
        self.readings: list[Reading] = []
        self.error: str | None = None

    async def once(self) -> Reading | None:
        """One reading, kept; None with `error` set if there is no such page."""
        try:
            reply = await self._fetch("GET", self._path, timeout_s=5.0)
        except RoomError as error:
            self.error = str(error)
            return None
        if not reply.ok:
            self.error = f"{self._path} answers with {reply.status}"
            return None
        found = reading(parse(reply.body.decode("utf-8", "replace")), self._clock())
        if not found.values:
            self.error = f"{self._path} has none of the metrics of an engine that is known"
            return None
        self.error = None
        self.readings.append(found)
        return found

    def start(self) -> None:
        """Begin to sample in a task that `stop` ends."""
        self._task = asyncio.create_task(self._run(), name="server metrics")

    async def stop(self) -> None:
        """End the task."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            begun = self._clock()
            await self.once()
            await asyncio.sleep(max(0.1, self._interval_s - (self._clock() - begun)))

    def between(self, start_s: float, end_s: float) -> list[Reading]:
        """Readings in a span of time."""
        inside = [i for i, r in enumerate(self.readings) if start_s <= r.at_s <= end_s]
        if not inside:
            return []
        return self.readings[inside[0] : inside[-1] + 1]
