"""Results of `vllm bench serve --save-result` (with `--save-detailed` also of each request).

Its words: TTFT includes connecting on a cold pool; TPOT as here; ITL are gaps between events, so
they become `gap_s`; throughput is over the whole run, ramp and drain included.
"""

from __future__ import annotations

from datetime import UTC, datetime

from backends.bench.importers.common import (
    Object,
    Request,
    blocks_of,
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

HARNESS = "vllm bench serve"


def recognises(value: Object) -> bool:
    """Whether a JSON object is such a result; before 0.6 it had no total throughput."""
    return {"output_throughput", "completed"} <= value.keys() and (
        "total_token_throughput" in value or "tokenizer_id" in value
    )


def read(values: list[Object], raw: bytes, name: str) -> RunResult:
    """Read one result or several, one step each."""
    first = values[0]
    steps = [_step(value, index) for index, value in enumerate(values)]
    workload = {
        key: first.get(key)
        for key in ("num_prompts", "dataset_name", "random_input_len", "random_output_len", "seed")
    } | {"input": whole(first, "total_input_tokens"), "requests": whole(first, "completed")}
    target = Target(
        url=word(first, "base_url") or "unknown",
        engine=word(first, "backend") or word(first, "endpoint_type") or "unknown",
        model=word(first, "model_id"),
    )
    return run_of(HARNESS, steps, workload, target, _date(word(first, "date")), raw, name)


def _date(text: str | None) -> datetime | None:
    try:
        return datetime.strptime(text or "", "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def _step(value: Object, index: int) -> StepResult:
    duration = number(value, "duration") or 0.0
    completed = whole(value, "completed")
    # Told since 0.11; before, what was asked for and has not succeeded.
    asked = whole(value, "num_prompts")
    failed = whole(value, "failed") if "failed" in value else max(0, asked - completed)
    rate = number(value, "request_rate")  # "inf", a string, where all are sent at once
    label, concurrency, rate = load_of(number(value, "max_concurrency"), rate)
    requests = _requests(value)
    lengths = [length for length in numbers(value, "output_lens") if length > 0]
    inputs = numbers(value, "input_lens")
    gaps = _gaps(value)
    return StepResult(
        index=index,
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
        ttft_s=summary_of(_good(value, "ttfts")) or _summary(value, "ttft", completed),
        tpot_s=_summary(value, "tpot", None),
        gap_s=summary_of(gaps) or _summary(value, "itl", None),
        e2e_s=summary_of(_good(value, "latencies"))
        or _summary(value, "e2el", completed)
        or summary_of(r.e2e_s for r in requests),
        output_length=summary_of(lengths),
        input_length=summary_of(inputs),
        blocks=blocks_of(requests),
    )  # fmt: skip


def _good(value: Object, name: str) -> list[float]:
    """A figure of each successful request, where `--save-detailed` has listed it."""
    figures = numbers(value, name)
    errors = texts(value, "errors")
    if len(errors) != len(figures):
        errors = [""] * len(figures)
    return [
        figure for figure, error in zip(figures, errors, strict=True) if figure > 0 and not error
    ]


def _gaps(value: Object) -> list[float]:
    """The gaps of all requests together."""
    listed = entry(value, "itls")
    if not isinstance(listed, list):
        return []
    return [gap for own in listed for gap in numbers({"gaps": own}, "gaps")]


def _summary(value: Object, name: str, count: int | None) -> Summary | None:
    figures = {
        "mean": number(value, f"mean_{name}_ms"),
        "stdev": number(value, f"std_{name}_ms"),
        "p50": number(value, f"median_{name}_ms"),
        **{p: number(value, f"{p}_{name}_ms") for p in ("p90", "p95", "p99")},
    }
    return summary_from(count, 0.001, figures)


def _requests(value: Object) -> list[Request]:
    """Each successful request, where `--save-detailed` has listed them."""
    starts, ttfts = numbers(value, "start_times"), numbers(value, "ttfts")
    inputs, outputs = numbers(value, "input_lens"), numbers(value, "output_lens")
    totals = numbers(value, "latencies") or _sums(ttfts, entry(value, "itls"))
    if not starts or len({len(x) for x in (starts, ttfts, inputs, outputs, totals)}) != 1:
        return []
    begin = min(starts)
    return [
        Request(start - begin, ttft, total, int(tokens_in), int(tokens_out))
        for start, ttft, total, tokens_in, tokens_out in zip(
            starts, ttfts, totals, inputs, outputs, strict=True
        )
        if tokens_out > 0 and 0 < ttft <= total
    ]


def _sums(ttfts: list[float], gaps: object) -> list[float]:
    """Latencies of before 0.34, which did not list them: the first token and all gaps after it."""
    if not isinstance(gaps, list) or len(gaps) != len(ttfts):
        return []
    return [
        ttft + sum(numbers({"gaps": own}, "gaps")) for ttft, own in zip(ttfts, gaps, strict=True)
    ]
