"""Results of AIPerf: `profile_export_aiperf.json`.

Its words: ITL is a mean per request, so it becomes `tpot_s`; output tokens come from the client's
tokenizer unless it was told to use the server's.
"""

from __future__ import annotations

from backends.bench.importers.common import (
    Object,
    entry,
    load_of,
    moment,
    number,
    run_of,
    summary_from,
    throughput,
    whole,
    word,
)
from backends.bench.importers.failures import by_kind, of_status, of_words
from backends.bench.results import RunResult, StepResult, Summary, Target

HARNESS = "aiperf"
_SCALES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}


def recognises(value: Object) -> bool:
    """Whether a JSON object is such a result."""
    return number(value, "request_latency", "avg") is not None and (
        "input_config" in value or number(value, "request_throughput", "avg") is not None
    )


def read(values: list[Object], raw: bytes, name: str) -> RunResult:
    """Read one export."""
    value = values[0]
    good = whole(value, "request_count", "avg")
    bad = whole(value, "error_request_count", "avg")
    duration = _seconds(value, "benchmark_duration", "avg") or 0.0
    config = entry(value, "input_config")
    config = config if isinstance(config, dict) else {}
    label, concurrency, rate = load_of(
        number(config, "loadgen", "concurrency"), number(config, "loadgen", "request_rate")
    )
    step = StepResult(
        index=0,
        repetition=0,
        label=label,
        load={"tool": HARNESS, "concurrency": concurrency, "rate_per_s": rate},
        concurrency=concurrency,
        rate_per_s=rate,
        start_s=0.0,
        end_s=duration,
        sent=good + bad,
        succeeded=good,
        failed=bad,
        failures=by_kind(bad, counts=_errors(value)),
        whole=throughput(
            duration, good, whole(value, "total_isl", "avg") or _total(value, "input", good),
            whole(value, "total_osl", "avg") or _total(value, "output", good),
        ),
        ttft_s=summary(value, "time_to_first_token", good),
        ttfa_s=summary(value, "time_to_first_output_token", None),
        tpot_s=summary(value, "inter_token_latency", None),
        gap_s=summary(value, "inter_chunk_latency", None),
        e2e_s=summary(value, "request_latency", good),
        output_length=summary(value, "output_sequence_length", good),
        input_length=summary(value, "input_sequence_length", good),
    )  # fmt: skip
    workload = {
        "input": config.get("input"),
        "requests": number(config, "loadgen", "request_count"),
        "length": number(value, "input_sequence_length", "avg"),
    }
    names = entry(config, "endpoint", "model_names")
    target = Target(
        url=word(config, "endpoint", "url") or "unknown",
        model=word({"name": names[0]}, "name") if isinstance(names, list) and names else None,
        route=word(config, "endpoint", "type") or "",
        streaming=entry(config, "endpoint", "streaming") is not False,
    )
    stopped = value.get("was_cancelled") is True
    started = moment(word(value, "start_time"))
    return run_of(HARNESS, [step], workload, target, started, raw, name, stopped)


def _total(value: Object, side: str, count: int) -> int:
    return round((number(value, f"{side}_sequence_length", "avg") or 0.0) * count)


def _scale(value: Object, metric: str) -> float:
    return _SCALES.get(word(value, metric, "unit") or "", 1.0)


def _seconds(value: Object, metric: str, figure: str) -> float | None:
    found = number(value, metric, figure)
    return None if found is None else found * _scale(value, metric)


def _errors(value: Object) -> dict[str, int]:
    """Failures by kind: each error that came up, with how often."""
    listed = entry(value, "error_summary")
    found: dict[str, int] = {}
    for error in listed if isinstance(listed, list) else ():
        if not isinstance(error, dict):
            continue
        status = whole(error, "error_details", "code")
        said = (word(error, "error_details", name) for name in ("type", "message"))
        kind = of_status(status) if status else of_words(" ".join(filter(None, said)))
        found[kind.value] = found.get(kind.value, 0) + max(0, whole(error, "count"))
    return found


def summary(value: Object, metric: str, count: int | None) -> Summary | None:
    """The distribution of a metric, in seconds where its unit is one of time."""
    figures = {
        "mean": number(value, metric, "avg"),
        "stdev": number(value, metric, "std"),
        **{p: number(value, metric, p) for p in ("min", "p50", "p90", "p95", "p99", "max")},
    }
    return summary_from(count, _scale(value, metric), figures)
