"""Results of GenAI-Perf: `profile_export_genai_perf.json`.

The forerunner of AIPerf writes the same metrics under other arguments, without totals. Its ITL is
a mean per request, so it becomes `tpot_s`; tokens come from the client's own tokenizer.
"""

from __future__ import annotations

from backends.bench.importers import aiperf
from backends.bench.importers.common import (
    Object,
    entry,
    load_of,
    number,
    run_of,
    whole,
    word,
)
from backends.bench.results import RunResult, StepResult, Target, Throughput

HARNESS = "genai-perf"


def recognises(value: Object) -> bool:
    """Whether a JSON object is such a result."""
    if number(value, "request_latency", "avg") is None or "input_config" not in value:
        return False
    config = entry(value, "input_config")
    # AIPerf's has sections (`endpoint`, `loadgen`); the forerunner's is flat.
    return isinstance(config, dict) and (
        "perf_analyzer" in config
        or "service_kind" in config
        or ("concurrency" in config and "loadgen" not in config)
    )


def read(values: list[Object], raw: bytes, name: str) -> RunResult:
    """Read one export."""
    value = values[0]
    config = entry(value, "input_config")
    config = config if isinstance(config, dict) else {}
    stimulus = entry(config, "perf_analyzer", "stimulus")
    stimulus = stimulus if isinstance(stimulus, dict) else {}
    label, concurrency, rate = load_of(
        number(config, "concurrency") or number(stimulus, "concurrency"),
        number(config, "request_rate") or number(stimulus, "request_rate"),
    )
    good = whole(value, "request_count", "avg")
    per_s = number(value, "request_throughput", "avg")
    seconds = good / per_s if per_s else 0.0
    inputs = number(value, "input_sequence_length", "avg") or 0.0
    outputs = number(value, "output_sequence_length", "avg") or 0.0
    output_per_s = number(value, "output_token_throughput", "avg")
    rates = None
    if per_s is not None and output_per_s is not None:
        rates = Throughput(
            start_s=0.0, end_s=seconds, requests=good,
            input_tokens=_count(inputs * good), output_tokens=_count(outputs * good),
            requests_per_s=per_s, output_tokens_per_s=output_per_s,
            total_tokens_per_s=output_per_s + inputs * per_s,
        )  # fmt: skip
    step = StepResult(
        index=0,
        repetition=0,
        label=label,
        load={"tool": HARNESS, "concurrency": concurrency, "rate_per_s": rate},
        concurrency=concurrency,
        rate_per_s=rate,
        start_s=0.0,
        end_s=seconds,
        sent=good,
        succeeded=good,
        whole=rates,
        ttft_s=aiperf.summary(value, "time_to_first_token", good),
        tpot_s=aiperf.summary(value, "inter_token_latency", None),
        e2e_s=aiperf.summary(value, "request_latency", good),
        output_length=aiperf.summary(value, "output_sequence_length", good),
        input_length=aiperf.summary(value, "input_sequence_length", good),
    )
    workload = {
        "input": config.get("input") or config.get("synthetic_input_tokens_mean"),
        "length": number(value, "input_sequence_length", "avg"),
    }
    target = Target(
        url=word(config, "url") or word(config, "endpoint", "url") or "unknown",
        model=_model(config),
        route=word(config, "endpoint_type") or word(config, "endpoint", "type") or "",
        streaming=bool(config.get("streaming") or entry(config, "endpoint", "streaming")),
    )
    return run_of(HARNESS, [step], workload, target, None, raw, name, False)


def _count(value: float) -> int:
    return round(value) if 0 <= value < 1e15 else 0


def _model(config: Object) -> str | None:
    for path in (("model",), ("model_names",), ("models",)):
        found = entry(config, *path)
        if isinstance(found, list) and found:
            found = found[0]
        if isinstance(found, str):
            return word({"name": found}, "name")
    return None
