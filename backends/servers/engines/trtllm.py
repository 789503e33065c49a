"""TensorRT-LLM: `trtllm-serve`.

Binds first, loads, then listens. A small temporary KV pool is made to measure, and a real one
follows, so memory and graph capture run twice. Ready is uvicorn's last line, after it has bound.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from backends.servers.engines.base import (
    BIND_FAILED,
    COMMON_FATAL,
    COMMON_STOP,
    DOWNLOAD_BARS,
    REQUEST_DONE,
    UVICORN_RUNNING,
    UVICORN_STARTUP,
    Endpoint,
    Engine,
    EngineId,
    Phase,
    Stop,
    advice,
    bars,
    ends,
    hints,
    marks,
    option,
    rx,
)

ENGINE = Engine(
    id=EngineId.TRTLLM,
    title="TensorRT-LLM",
    default_port=8000,
    hints=hints(
        (8, r"TensorRT[- ]LLM version|\btrtllm-serve\b"),
        (4, r"\[TRT-LLM\]|\[TensorRT-LLM\]|\btensorrt_llm\b"),
        (4, r"Executor creation failed due to|could not be created: (?:KV cache|Additional)"),
        (3, r"temporary for KV cache size estimation|Failed to initialize executor"),
    ),
    version=rx(
        r"TensorRT[- ]LLM version: v?(\d+\.\d+[\w.+]*)",
        r"\btensorrt[_-]llm[ =]+v?(\d+\.\d+[\w.+]*)",
    ),
    banner=rx(r"TensorRT[- ]LLM version:"),
    marks=marks(
        (Phase.LAUNCHING, r"TensorRT[- ]LLM version:|Using LLM with"),
        (Phase.DISTRIBUTED, r"creating IPC executor|spawn MPI processes|MPI (?:local )?session"),
        (
            Phase.LOADING,
            r"^Prefetching |^Use [\d.]+ GB for model weights|^Start to load safetensor",
        ),
        (Phase.MEMORY, r"Allocated [\d.]+ GiB for max tokens in paged KV cache"),
        (Phase.AUTOTUNING, r"Running autotuner warmup|Autotuning process starts"),
        (Phase.CAPTURING, r"^Creating CUDA graph instances|CUDA graph warmup for batch size"),
        (Phase.COMPILING, r"torch\.compile|Building engine|Build TensorRT engine"),
        (Phase.HTTP, r"^Started server process|get signal from executor worker"),
        (Phase.HTTP, UVICORN_STARTUP),
    )
    + ends((Phase.LOADING, r"^Model init total"), (Phase.AUTOTUNING, r"Autotuning process ends")),
    bars=bars(
        (r"(?i)load(?:ing)? .*weights|safetensors", Phase.LOADING), (r"(?i)graph", Phase.CAPTURING)
    )
    + DOWNLOAD_BARS,
    ready=rx(UVICORN_RUNNING, r"Started HTTPService at"),
    not_ready=rx(BIND_FAILED),
    fatal=rx(
        r"Failed to initialize executor|Executor creation failed",
        r"Failed to parse the arguments for the LLM constructor",
        r"MPI_ABORT was invoked|Executor worker (?:died|returned error)|Fatal error in worker",
        r"mpirun (?:noticed|detected) that (?:process|one or more)",
        r"RequestError: .*Executor|Hang detected on rank",
        r"\[TensorRT-LLM\]\[ERROR\] Assertion failed|^\[TensorRT-LLM\]\[FATAL\]",
        r"Encountered an error in forward function",
    )
    + COMMON_FATAL,
    served=rx(REQUEST_DONE),
    routine=re.compile(
        r'^[\d.:a-f\[\]]{3,45}:\d+ - "(?:GET|POST) [^"]{1,200}" [23]\d\d|^iter = \d+'
    ),
    advice=advice(
        (
            "cpu-affinity",
            r"is affined to run on the following CPUs.*may harm performance",
            "worker bound to few CPUs",
        ),
        (
            "kv-limited",
            r"Both free_gpu_memory_fraction and max_tokens are set",
            "two limits of the KV cache: the smaller one counts",
        ),
        (
            "graph-off",
            r"(?i)cuda graph.*(?:disabled|skipped)",
            "CUDA graphs are off: decoding is slower",
        ),
        (
            "autotune-fallback",
            r"(?i)autotuner.*(?:fallback|no valid tactic|cache miss)",
            "kernels run with untuned defaults",
        ),
        (
            "sub-optimal",
            r"(?i)performance (?:might|may|will|could) be|suboptimal perf|may harm perf",
            "the engine itself says that performance is not what it could be",
        ),
    ),
    endpoints=(
        Endpoint("/health", loading=(None,), broken=(503,)),
        Endpoint("/health_generate", loading=(None,), broken=(500,), note="makes one token"),
        Endpoint("/v1/models", loading=(None,), proves_ready=False),
        Endpoint("/version", loading=(None,), proves_ready=False),
    ),
    config_paths=("/server_info",),
    options=(
        option("model"),
        option("host", default="localhost"),
        option("port", default="8000"),
        option("backend", default="pytorch"),
        option("tensor_parallel_size", "--tp_size", "--tp", default="1"),
        option("pipeline_parallel_size", "--pp_size", "--pp", default="1"),
        option("moe_expert_parallel_size", "--ep_size", "--ep"),
        option("max_batch_size", "--max_batch_size"),
        option("max_num_tokens", "--max_num_tokens"),
        option("max_seq_len", "--max_seq_len"),
        option("free_gpu_memory_fraction", "--kv_cache_free_gpu_memory_fraction"),
        option("trust_remote_code", "--trust_remote_code", default="False"),
        option("extra_llm_api_options", "--extra_llm_api_options", "--config"),
    ),
    processes=rx(r"^trtllm-serve", r"mpi4py\.futures"),
    stop=Stop(
        marks=rx(r"^Received signal (?:2|15)\b") + COMMON_STOP,
        note="the parent gives its child 10 s, then kills it",
    ),
    metrics=MappingProxyType({"requests": "trtllm:request_success_total"}),
)
