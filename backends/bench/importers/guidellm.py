"""Results of GuideLLM: one JSON object with a list of benchmarks, one a load.

Its words: ITL is a mean per request, so it becomes `tpot_s`; its TPOT includes the first token, so
it is left out; request latency is in seconds; its rates exclude ramp and drain where it is told to.
"""

from __future__ import annotations

from datetime import UTC, datetime

from backends.bench.importers.common import (
    MAX_REQUESTS,
    ImportFailed,
    Object,
    entry,
    load_of,
    number,
    run_of,
    summary_from,
    throughput,
    whole,
    word,
)
from backends.bench.importers.failures import by_kind
from backends.bench.results import RunResult, StepResult, Summary, Target

HARNESS = "guidellm"


def recognises(value: Object) -> bool:
    """Whether a JSON object is such a result."""
    benchmarks = value.get("benchmarks")
    return (
        isinstance(benchmarks, list)
        and bool(benchmarks)
        and isinstance(benchmarks[0], dict)
        and isinstance(benchmarks[0].get("metrics"), dict)
    )


def read(values: list[Object], raw: bytes, name: str) -> RunResult:
    """Read one report."""
    report = values[0]
    benchmarks = entry(report, "benchmarks")
    if not isinstance(benchmarks, list):
        raise ImportFailed("The GuideLLM report has no benchmarks")
    found = [item for item in benchmarks if isinstance(item, dict)]
    steps = [_step(item, index) for index, item in enumerate(found)]
    first: Object = found[0] if found else {}
    begun = number(first, "start_time")
    workload = {
        "data": str(entry(report, "args", "data") or entry(first, "request_loader", "data"))[:2000],
        "input": _mean(first, "prompt_token_count"),
        "output": _mean(first, "output_token_count"),
    }
    target = Target(
        url=word(report, "args", "target") or word(first, "worker", "backend_target") or "unknown",
        model=word(report, "args", "model") or word(first, "worker", "backend_model"),
    )
    started = datetime.fromtimestamp(begun, UTC) if begun and 0 < begun < 1e11 else None
    return run_of(HARNESS, steps, workload, target, started, raw, name)


def _mean(value: Object, metric: str) -> float | None:
    return number(value, "metrics", metric, "successful", "mean")


def _errors(value: Object) -> list[str]:
    """A message of each failed request that the report has kept."""
    requests = entry(value, "requests", "errored")
    if not isinstance(requests, list):
        return []
    paths = (("info", "error"), ("scheduler_info", "error"), ("error",))
    return [
        found
        for request in requests[:MAX_REQUESTS]
        for path in paths
        if isinstance(found := entry(request, *path), str)
    ]


def _step(value: Object, index: int) -> StepResult:
    begun, ended = number(value, "start_time"), number(value, "end_time")
    duration = number(value, "duration")
    if duration is None:
        duration = ended - begun if begun is not None and ended is not None else 0.0
    totals = next(
        (
            found
            for path in (
                ("metrics", "request_totals"),
                ("request_totals",),
                ("run_stats", "requests_made"),
            )
            if isinstance(found := entry(value, *path), dict)
        ),
        {},
    )
    good = whole(totals, "successful")
    if not good:
        good = whole(value, "metrics", "request_latency", "successful", "count")
    bad, cut = whole(totals, "errored"), whole(totals, "incomplete")
    strategy = next(
        (
            found
            for path in (("config", "strategy"), ("args", "strategy"), ("scheduler", "strategy"))
            if isinstance(found := entry(value, *path), dict)
        ),
        {},
    )
    streams = number(strategy, "streams") or number(strategy, "max_concurrency")
    if word(strategy, "type_") == "synchronous":
        streams = 1
    label, concurrency, rate = load_of(streams, number(strategy, "rate"))
    inputs = (_mean(value, "prompt_token_count") or 0) * good
    outputs = (_mean(value, "output_token_count") or 0) * good
    return StepResult(
        index=index,
        repetition=0,
        label=label,
        load={"tool": HARNESS, "concurrency": concurrency, "rate_per_s": rate},
        concurrency=concurrency,
        rate_per_s=rate,
        start_s=0.0,
        end_s=duration,
        sent=good + bad + cut,
        succeeded=good,
        failed=bad,
        cancelled=cut,
        failures=by_kind(bad, _errors(value)),
        whole=throughput(duration, good, round(inputs), round(outputs)),
        ttft_s=_summary(value, "time_to_first_token_ms", 0.001),
        tpot_s=_summary(value, "inter_token_latency_ms", 0.001),
        e2e_s=_summary(value, "request_latency", 1.0),
        output_length=_summary(value, "output_token_count", 1.0),
        input_length=_summary(value, "prompt_token_count", 1.0),
    )


def _summary(value: Object, metric: str, scale: float) -> Summary | None:
    found = entry(value, "metrics", metric, "successful")
    if not isinstance(found, dict):
        return None
    figures = {
        "mean": number(found, "mean"),
        "stdev": number(found, "std_dev"),
        "min": number(found, "min"),
        "max": number(found, "max"),
        "p50": number(found, "median"),
    }
    for p in ("p50", "p90", "p95", "p99"):
        figure = number(found, "percentiles", p)
        figures[p] = figure if figure is not None else number(found, p) or figures.get(p)
    return summary_from(whole(found, "count") or None, scale, figures)
