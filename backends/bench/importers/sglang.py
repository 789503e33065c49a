"""Results of `python -m sglang.bench_serving`: JSON lines, one a run.

Its words: a request ends with the last line of any kind; ITL are gaps between events, so they
become `gap_s`; its output tokens are the requested lengths where the server sent no usage, which
the file does not tell, so the source of the counts stays unknown.
"""

from __future__ import annotations

from backends.bench.importers.common import (
    Object,
    entry,
    load_of,
    number,
    numbers,
    run_of,
    summary_from,
    summary_of,
    texts,
    throughput,
    whole,
    word,
)
from backends.bench.importers.failures import by_kind
from backends.bench.results import RunResult, StepResult, Summary, Target

HARNESS = "sglang.bench_serving"


def recognises(value: Object) -> bool:
    """Whether a JSON object is such a result."""
    return {"mean_e2e_latency_ms", "output_throughput", "completed"} <= value.keys()


def read(values: list[Object], raw: bytes, name: str) -> RunResult:
    """Read the lines of one file, one step each; equal loads become repetitions."""
    first = values[0]
    seen: dict[str, int] = {}
    steps: list[StepResult] = []
    for value in values:
        step = _step(value)
        repetition = seen.get(step.label, 0)
        seen[step.label] = repetition + 1
        steps.append(_placed(step, list(seen).index(step.label), repetition))
    workload = {
        key: first.get(key)
        for key in (
            "dataset_name", "random_input_len", "random_output_len", "random_range_ratio",
            "sharegpt_output_len", "seed",
        )
    } | {"requests": whole(first, "completed")}  # fmt: skip
    target = Target(
        url=word(first, "base_url") or "unknown",
        engine=word(first, "backend") or "unknown",
        engine_version=word(first, "server_info", "version"),
        model=word(first, "model") or word(first, "server_info", "model_path"),
    )
    return run_of(HARNESS, steps, workload, target, None, raw, name)


def _placed(step: StepResult, index: int, repetition: int) -> StepResult:
    import msgspec

    return msgspec.structs.replace(step, index=index, repetition=repetition)


def _step(value: Object) -> StepResult:
    duration = number(value, "duration") or 0.0
    completed = whole(value, "completed")
    failed = _failed(value)
    label, concurrency, rate = load_of(
        number(value, "max_concurrency"), number(value, "request_rate")
    )
    return StepResult(
        index=0,
        repetition=0,
        label=label,
        load={"tool": HARNESS, "concurrency": concurrency, "rate_per_s": rate},
        concurrency=concurrency,
        rate_per_s=rate,
        start_s=0.0,
        end_s=duration,
        sent=completed + failed,
        succeeded=completed,
        failed=failed,
        failures=by_kind(failed, texts(value, "errors")),
        max_in_flight=whole(value, "max_concurrent_requests"),
        whole=throughput(
            duration, completed, whole(value, "total_input_tokens"),
            whole(value, "total_output_tokens"),
        ),
        ttft_s=_summary(value, "ttft", completed),
        tpot_s=_summary(value, "tpot", None),
        gap_s=_summary(value, "itl", None),
        e2e_s=_summary(value, "e2e_latency", completed),
        output_length=summary_of(numbers(value, "output_lens")),
        input_length=summary_of(numbers(value, "input_lens")),
    )  # fmt: skip


def _failed(value: Object) -> int:
    """Told only with `--output-details` (a word a request that failed), or by several processes."""
    errors = entry(value, "errors")
    if isinstance(errors, list):
        return sum(1 for error in errors if error)
    return whole(value, "failed")


def _summary(value: Object, name: str, count: int | None) -> Summary | None:
    figures = {
        "mean": number(value, f"mean_{name}_ms"),
        "stdev": number(value, f"std_{name}_ms"),
        "p50": number(value, f"median_{name}_ms"),
        "max": number(value, f"max_{name}_ms"),
        **{p: number(value, f"{p}_{name}_ms") for p in ("p90", "p95", "p99")},
    }
    return summary_from(count, 0.001, figures)
