"""Results as other tools write them, made up: their keys and units, our figures."""

from __future__ import annotations


def vllm(**changes: object) -> dict[str, object]:
    """`vllm bench serve --save-result`."""
    return {
        "date": "20260301-120000", "backend": "vllm", "model_id": "GLM-5", "num_prompts": 8,
        "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 4, "duration": 10.0,
        "completed": 7, "failed": 1, "total_input_tokens": 700, "total_output_tokens": 630,
        "request_throughput": 0.7, "output_throughput": 63.0, "total_token_throughput": 133.0,
        "mean_ttft_ms": 120.0, "median_ttft_ms": 100.0, "std_ttft_ms": 20.0, "p99_ttft_ms": 180.0,
        "mean_tpot_ms": 21.0, "median_tpot_ms": 20.0, "std_tpot_ms": 1.0, "p99_tpot_ms": 25.0,
        "mean_itl_ms": 21.0, "median_itl_ms": 20.0, "std_itl_ms": 3.0, "p99_itl_ms": 40.0,
        **changes,
    }  # fmt: skip


def vllm_detailed(requests: int = 200, streams: int = 4) -> dict[str, object]:
    """The same with each request: `streams` at a time, 1 s each, 100 ms to the first token."""
    starts = [1000.0 + (i // streams) * 1.0 for i in range(requests)]
    return vllm(
        start_times=starts, ttfts=[0.1] * requests, itls=[[0.1] * 9 for _ in range(requests)],
        input_lens=[100] * requests, output_lens=[10] * requests, errors=[""] * requests,
        completed=requests, failed=0, duration=requests / streams,
        total_output_tokens=10 * requests, total_input_tokens=100 * requests,
    )  # fmt: skip


def vllm_early() -> dict[str, object]:
    """`benchmark_serving.py` of vLLM 0.5: no total throughput, no failures, no concurrency."""
    result = vllm(
        tokenizer_id="GLM-5", best_of=1, use_beam_search=False, input_throughput=70.0,
        request_rate=2.0,
    )  # fmt: skip
    for key in ("total_token_throughput", "failed", "max_concurrency", "burstiness"):
        del result[key]
    return result


def vllm_recent() -> dict[str, object]:
    """`vllm bench serve` of 0.11 and newer, told all percentiles."""
    figures = {
        f"{p}_{name}_ms": value * factor
        for name, value in (("ttft", 100.0), ("tpot", 20.0), ("itl", 20.0), ("e2el", 900.0))
        for p, factor in (("p50", 1.0), ("p90", 1.2), ("p95", 1.3), ("p99", 1.8))
    }
    return vllm(
        endpoint_type="openai", label=None, tokenizer_id="GLM-5", max_concurrent_requests=5,
        max_output_tokens_per_s=90.0, request_goodput=None, rtfx=0.0, mean_e2el_ms=950.0,
        median_e2el_ms=900.0, std_e2el_ms=20.0, **figures,
    )  # fmt: skip


def sglang_early() -> dict[str, object]:
    """A line of SGLang 0.3: no concurrency, no TPOT tail, medians where newer ones have means."""
    return {
        "backend": "sglang", "dataset_name": "sharegpt", "request_rate": 4.0,
        "total_input_tokens": 65536, "total_output_tokens": 8192,
        "total_output_tokens_retokenized": 8190, "mean_e2e_latency_ms": 5000.0,
        "median_e2e_latency_ms": 4900.0, "median_ttft_ms": 280.0, "median_itl_ms": 36.0,
        "output_throughput": 409.6, "sharegpt_output_len": None, "random_input_len": None,
        "random_output_len": None, "random_range_ratio": 0.0, "duration": 20.0, "completed": 64,
    }  # fmt: skip


def sglang_detailed() -> dict[str, object]:
    """A line of SGLang 0.5 with `--output-details`; it writes an unbounded rate as Infinity."""
    return sglang(
        request_rate=float("inf"), tag=None, max_concurrent_requests=16, accept_length=None,
        server_info={"version": "0.5.5", "model_path": "/models/GLM-5"}, completed=2,
        input_lens=[1024, 1024, 1024], output_lens=[128, 128, 0], ttfts=[0.3, 0.3, 0.0],
        itls=[[0.04] * 127] * 2 + [[]], generated_texts=["a", "b", ""],
        errors=["", "", "Internal Server Error"], concurrency=15.2, max_itl_ms=120.0,
    )  # fmt: skip


def guidellm_early() -> dict[str, object]:
    """GuideLLM 0.2 and 0.3: counts beside the metrics, the strategy among arguments."""
    report = guidellm()
    early = []
    for benchmark in report["benchmarks"]:  # type: ignore[attr-defined]
        metrics = dict(benchmark["metrics"])
        counts = metrics.pop("request_totals")
        for metric in metrics.values():
            del metric["successful"]["percentiles"]["p50"]
        early.append({
            "type_": "generative_benchmark", "args": benchmark["config"],
            "run_stats": {"requests_made": counts}, "metrics": metrics,
            "start_time": benchmark["start_time"], "end_time": benchmark["end_time"],
            "worker": {"backend_target": "http://h:8000", "backend_model": "GLM-5"},
            "request_loader": {"data": "prompt_tokens=256"},
        })  # fmt: skip
    return {"benchmarks": early}


def sglang(**changes: object) -> dict[str, object]:
    """A line of `python -m sglang.bench_serving --output-file`."""
    return {
        "backend": "sglang", "dataset_name": "random", "request_rate": "inf",
        "max_concurrency": 16, "random_input_len": 1024, "random_output_len": 128,
        "random_range_ratio": 1.0, "duration": 20.0, "completed": 64,
        "total_input_tokens": 65536, "total_output_tokens": 8192,
        "total_output_tokens_retokenized": 8190, "request_throughput": 3.2,
        "input_throughput": 3276.8, "output_throughput": 409.6, "total_throughput": 3686.4,
        "mean_e2e_latency_ms": 5000.0, "median_e2e_latency_ms": 4900.0,
        "p99_e2e_latency_ms": 6000.0, "mean_ttft_ms": 300.0, "median_ttft_ms": 280.0,
        "std_ttft_ms": 50.0, "p99_ttft_ms": 500.0, "mean_tpot_ms": 37.0, "median_tpot_ms": 36.5,
        "p99_tpot_ms": 41.0, "mean_itl_ms": 37.0, "median_itl_ms": 36.0, "p99_itl_ms": 90.0,
        **changes,
    }  # fmt: skip


def _distribution(mean: float, count: int = 50) -> dict[str, object]:
    return {
        "successful": {
            "mean": mean, "median": mean, "std_dev": mean / 10, "min": mean / 2, "max": mean * 2,
            "count": count, "percentiles": {"p50": mean, "p90": mean * 1.1, "p95": mean * 1.2,
                                            "p99": mean * 1.5},
        },
        "errored": {"count": 0}, "incomplete": {"count": 0},
    }  # fmt: skip


def guidellm() -> dict[str, object]:
    """`benchmarks.json` of GuideLLM: two loads."""

    def benchmark(streams: int) -> dict[str, object]:
        return {
            "config": {"strategy": {"type_": "concurrent", "streams": streams}},
            "start_time": 1_772_366_400.0 + streams, "end_time": 1_772_366_430.0 + streams,
            "duration": 30.0,
            "metrics": {
                "request_totals": {"successful": 50, "errored": 2, "incomplete": 1, "total": 53},
                "request_latency": _distribution(2.5),
                "time_to_first_token_ms": _distribution(110.0),
                "inter_token_latency_ms": _distribution(20.0),
                "time_per_output_token_ms": _distribution(25.0),
                "prompt_token_count": _distribution(256.0),
                "output_token_count": _distribution(128.0),
            },
        }  # fmt: skip

    args = {"target": "http://localhost:8000", "model": "GLM-5", "data": "prompt_tokens=256"}
    return {"args": args, "benchmarks": [benchmark(1), benchmark(64)]}


def aiperf() -> dict[str, object]:
    """`profile_export_aiperf.json`."""

    def metric(unit: str, mean: float) -> dict[str, object]:
        return {
            "unit": unit, "avg": mean, "p50": mean, "p90": mean * 1.1, "p95": mean * 1.2,
            "p99": mean * 1.5, "min": mean / 2, "max": mean * 2, "std": mean / 10,
        }  # fmt: skip

    return {
        "request_throughput": {"unit": "requests/sec", "avg": 13.0},
        "request_latency": metric("ms", 6500.0),
        "time_to_first_token": metric("ms", 1500.0),
        "inter_token_latency": metric("ms", 52.0),
        "output_sequence_length": metric("tokens", 97.0),
        "input_sequence_length": metric("tokens", 550.0),
        "benchmark_duration": {"unit": "sec", "avg": 15.0},
        "request_count": {"unit": "requests", "avg": 200.0},
        "error_request_count": {"unit": "requests", "avg": 3.0},
        "total_isl": {"unit": "tokens", "avg": 110000.0},
        "total_osl": {"unit": "tokens", "avg": 19400.0},
        "was_cancelled": False,
        "start_time": "2026-03-01T12:00:00",
        "input_config": {
            "endpoint": {"model_names": ["GLM-5"], "type": "chat", "streaming": True,
                         "url": "localhost:9000"},
            "loadgen": {"concurrency": 100, "request_count": 200},
        },
    }  # fmt: skip


def genai_perf() -> dict[str, object]:
    """`profile_export_genai_perf.json`."""

    def metric(avg: float, unit: str) -> dict[str, object]:
        return {
            "unit": unit, "avg": avg, "p50": avg, "p90": avg * 1.1, "p95": avg * 1.2,
            "p99": avg * 1.3, "min": avg * 0.8, "max": avg * 1.5, "std": avg / 10,
        }  # fmt: skip

    return {
        "request_throughput": {"unit": "requests/sec", "avg": 2.5},
        "request_latency": metric(4000.0, "ms"),
        "request_count": {"unit": "count", "avg": 100.0},
        "time_to_first_token": metric(250.0, "ms"),
        "inter_token_latency": metric(30.0, "ms"),
        "output_token_throughput": {"unit": "tokens/sec", "avg": 320.0},
        "output_sequence_length": metric(128.0, "tokens"),
        "input_sequence_length": metric(512.0, "tokens"),
        "input_config": {
            "model": ["GLM-5"], "backend": "tensorrtllm", "service_kind": "openai",
            "endpoint_type": "chat", "concurrency": 10, "request_rate": None, "streaming": True,
            "url": "127.0.0.1:8000",
        },
    }  # fmt: skip
