"""vLLM: `vllm serve`, `python -m vllm.entrypoints.openai.api_server`, and its offline class.

The API server binds the port first and listens last, so clients are refused during the whole load
while other programs find the port taken. The engine is another process, with workers under it; the
API server's last line of a failed start never is the cause.
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
    serving_advice,
)

ENGINE = Engine(
    id=EngineId.VLLM,
    title="vLLM",
    default_port=8000,
    hints=hints(
        (8, r"vLLM API server version|Initializing an? (?:V1 )?LLM engine \("),
        (
            6,
            r"\bvllm serve\b|vllm\.entrypoints|\bvllm[/.](?:v1|engine|worker|entrypoints|executor)",
        ),
        (5, r"[/.]vllm/__init__|\bvllm\._(?:core_)?C\b|\bVLLM_[A-Z]"),
        (4, r"^non-default args: |Starting vLLM (?:API )?server"),
        (4, r"EngineCore|\bAsyncLLM\b|\bAsyncLLMEngine\b|MQLLMEngine|VllmWorker|EngineDeadError"),
        (3, r"^vLLM is using nccl"),
        # Folders, units and pods are called so, whatever runs in them.
        (0, r"\bvllm[-_]"),
        (3, r"GPU KV cache size: [\d,]+ tokens|# GPU blocks: \d+"),
        (2, r"\bAvg prompt throughput: [\d.]+ tokens/s"),
        (2, r"^Received request (?:cmpl|chatcmpl)-|No available memory for the cache blocks"),
        (1, r"Automatically detected platform|ProcessGroupNCCL\.cpp|Watchdog caught collective"),
        (4, r"^\(APIServer pid=\d+\)"),
        (3, r"\bapi_server\.py: error: |\bvllm: (?:command )?not found|No module named '?vllm\b"),
        # Its own form of a line; SGLang of 2024 printed some of those too.
        (0, r"(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./-]+\.py:\d+\]"),
    ),
    version=rx(
        r"vLLM API server version v?(\d+\.\d+[\w.+]*)",
        r"^\S*\s.*\bversion (\d+\.\d+\.\d+[\w.+]*)$",
        r"Initializing an? (?:V1 )?LLM engine \(v?(\d+\.\d+[\w.+]*)\)",
        r"\bvllm[ =-]v?(\d+\.\d+\.\d+[\w.+]*)",
    ),
    banner=rx(r"vLLM API server version", r"[█▀▄].*\bversion \d+\.\d+"),
    marks=marks(
        (Phase.LAUNCHING, r"vLLM API server version|^non-default args:|[█▀▄].*\bversion \d"),
        (Phase.DISTRIBUTED, r"^Initializing an? (?:V1 )?LLM engine|distributed_init_method="),
        (Phase.DISTRIBUTED, r"^vLLM is using nccl|generating GPU P2P access cache"),
        (Phase.LOADING, r"^Starting to load model|^Loading (?:drafter )?model|Loading weights on"),
        (Phase.COMPILING, r"torch\.compile|Dynamo bytecode|^Compiling a graph|compiled? graph"),
        (Phase.MEMORY, r"GPU KV cache size|^Available KV cache memory|# GPU blocks:"),
        (Phase.AUTOTUNING, r"[Aa]utotuning process starts|\[AutoTuner\]|JIT kernel warmup start"),
        (Phase.AUTOTUNING, r"FlashInfer autotune|DeepGEMM warmup"),
        (Phase.CAPTURING, r"^Capturing (?:CUDA|cuda) ?graphs|Capturing the model for CUDA graphs"),
        (Phase.CAPTURING, r"Profiling CUDA graph memory"),
        (Phase.HTTP, r"^Starting vLLM (?:API )?server|^Available routes are|^Started server proc"),
        (Phase.WARMING, r"[Mm]ulti-modal warmup|^Warming up\b"),
    )
    + ends(
        (Phase.LOADING, r"^Loading weights took|^Model loading took|Loading model weights took"),
        (Phase.CAPTURING, r"^Graph capturing finished"),
        (Phase.COMPILING, r"torch\.compile (?:takes|took) .* in total"),
    ),
    bars=bars(
        (r"(?i)loading .*(?:shards|weights|tensors)", Phase.LOADING),
        (r"(?i)capturing .*graphs?", Phase.CAPTURING),
        (r"AutoTuner|DeepGEMM|warmup", Phase.AUTOTUNING),
        (r"Parse safetensors", Phase.LAUNCHING),
    )
    + DOWNLOAD_BARS,
    ready=rx(UVICORN_STARTUP),
    not_ready=rx(BIND_FAILED),
    fatal=rx(
        r"^EngineCore (?:failed to start|hit an exception|encountered a fatal error)",
        r"^WorkerProc failed to start|^(?:Worker|Engine core) proc \S+ died unexpectedly",
        r"Engine core initialization failed|Engine process failed to start",
        r"Got fatal signal from worker processes",
        r"EngineDeadError|MQEngineDeadError|MQLLMEngine is already dead",
        r"AsyncEngineDeadError|Background loop (?:has|is) (?:errored|stopped)|Engine loop is not",
        r"Engine background task failed|RuntimeError: Engine process .* died",
        r"Exception in worker \S+ while processing|WorkerProc hit an exception",
        r"Watchdog caught collective operation timeout",
        r"Terminating(?:,| the server) .*engine|Failed core proc\(s\)",
        r"Timed out waiting for engine",
    )
    + COMMON_FATAL,
    waiting=rx(r"No available (?:shared memory broadcast )?block found in \d+ second"),
    served=rx(
        REQUEST_DONE,
        r"Avg generation throughput: (?:[1-9]\d*|0\.\d*[1-9])",
        r"Avg prompt throughput: (?:[1-9]\d*|0\.\d*[1-9])",
    ),
    routine=re.compile(
        r'^[\d.:a-f\[\]]{3,45}:\d+ - "(?:GET|POST) [^"]{1,200}" [23]\d\d|^Engine \d+: Avg prompt|'
        r"^Avg prompt throughput|^(?:Received|Added|Finished) request \S+"
    ),
    advice=advice(
        (
            "moe-kernel-default",
            r"Using default (?:[\w ]{0,40} )?config\. Performance might be",
            "no tuned mixture-of-experts kernel configuration for this GPU: several times slower",
        ),
        (
            "scheduled-tokens-limited",
            r"max_num_scheduled_tokens is set to .* suboptimal",
            "speculative decoding limits how many tokens a step may take",
        ),
        (
            "eager",
            r"[Ee]nforce eager set, disabling|Cudagraph is disabled under eager",
            "eager mode: no compilation and no CUDA graphs, decoding is slower",
        ),
        (
            "graph-mode-changed",
            r"(?i)cuda_?graph_?mode .*(?:overriding|setting|not supported|downgrad)",
            "the CUDA graph mode was changed by the engine",
        ),
        (
            "sampler-fallback",
            r"FlashInfer is not available\. Falling back|Falling back to the PyTorch-native",
            "sampling runs on the slower PyTorch path",
        ),
        (
            "custom-allreduce-off",
            r"Custom allreduce is disabled",
            "custom all-reduce is off: tensor parallelism costs more",
        ),
        (
            "sampling-overridden",
            r"[Dd]efault (?:vLLM )?sampling parameters have been overridden",
            "the model's own sampling defaults replace the engine's",
        ),
        (
            "context-shortened",
            r"Auto-fit max_model_len: reduced|max_model_len .*(?:reduced|capped)",
            "the context is shorter than the model allows",
        ),
        (
            "dtype-changed",
            r"doesn't support torch\.bfloat16\. Falling back|^Casting torch\.\w+ to torch\.",
            "the number format was changed by the engine",
        ),
        (
            "async-scheduling-off",
            r"Async(?:hronous)? scheduling will be disabled|Async scheduling .*not supported",
            "asynchronous scheduling is off: CPU work is no longer hidden",
        ),
        (
            "torch-threads",
            r"Reducing Torch parallelism from",
            "PyTorch was limited to fewer CPU threads",
        ),
        (
            "quantization-slow",
            r"quantization is not fully optimized yet",
            "this quantisation can be slower than none",
        ),
        (
            "quantization-forced",
            r"can (?:be converted to|run with) \w+.* however you specified",
            "the quantisation that was asked for keeps a faster kernel out",
        ),
        (
            "no-prefix-cache",
            r"[Pp]refix caching is (?:disabled|not supported)",
            "prefix caching is off",
        ),
        (
            "prefetch-off",
            r"Auto-prefetch is disabled",
            "weights are not read ahead",
        ),
        (
            "attention-unsupported",
            r"Cannot use FA version|Cannot use FlashAttention|Fallback to .*attention",
            "the preferred attention kernel cannot run here: another one is used",
        ),
        (
            "sub-optimal",
            r"[Pp]erformance (?:might|may|will|could) be (?:sub-?optimal|degraded|poor|slow)"
            r"|lead to suboptimal performance",
            "the engine itself says that performance is not what it could be",
        ),
        (
            "autotune-fallback",
            r"No FlashInfer autotune cache entries|Falling back to default tactics",
            "kernels run with untuned defaults",
        ),
        (
            "utilization-equivalent",
            r"The current --gpu-memory-utilization=\S+ is equivalent to",
            "CUDA graph memory is now counted: the same utilisation leaves less for the KV cache",
        ),
    )
    + serving_advice(
        (
            "preempted",
            r"is preempted by|preempt(?:ed|ion).*KV cache",
            "the KV cache is full: requests are thrown back and computed again",
        ),
        (
            "jit-while-serving",
            r"JIT compilation during inference",
            "a kernel was compiled while a request waited",
        ),
        (
            "shm-wait",
            r"No available (?:shared memory broadcast )?block found in \d+ second",
            "workers wait for each other: normal while one of them compiles, else a hang",
        ),
    ),
    endpoints=(
        Endpoint(
            "/health",
            loading=(None,),
            broken=(503,),
            note="503 only when the engine is known to be dead; a hung engine still answers 200",
        ),
        Endpoint("/v1/models", loading=(None,), note="lists the name under which it serves"),
        Endpoint("/version", loading=(None,), proves_ready=False),
    ),
    config_paths=("/server_info",),
    options=(
        option("model", "--model-tag"),
        option("served_model_name"),
        option("host"),
        option("port", default="8000"),
        option("tensor_parallel_size", "-tp", default="1"),
        option("pipeline_parallel_size", "-pp", default="1"),
        option("data_parallel_size", "-dp", default="1"),
        option("enable_expert_parallel", "-ep", default="False"),
        option("max_model_len", "--max-seq-len"),
        option("max_seq_len"),
        option("gpu_memory_utilization", default="0.9"),
        option("max_num_seqs"),
        option("max_num_batched_tokens"),
        option("quantization", "-q"),
        option("kv_cache_dtype", default="auto"),
        option("dtype", default="auto"),
        option("enforce_eager", default="False"),
        option("enable_prefix_caching"),
        option("enable_chunked_prefill"),
        option("disable_custom_all_reduce", default="False"),
        option("speculative_config", "-sc"),
        option("compilation_config", "-O", "-cc"),
        option("load_format", default="auto"),
        option("trust_remote_code", default="False"),
        option("seed", default="0"),
        option("swap_space"),
        option("api_key"),
        option("block_size"),
        option("cpu_offload_gb", default="0"),
    ),
    processes=rx(r"^VLLM::(?:EngineCore|Worker|DPCoordinator|APIServer)", r"^VLLM::"),
    stop=Stop(
        marks=rx(
            r"\[shutdown\] API server: shutdown triggered",
            r"trigger received signal=SIG(?:TERM|INT)",
            r"^Gracefully stopping http server|Received SIG(?:TERM|INT)",
            r"^Shutting down FastAPI HTTP server",
            r"^KeyboardInterrupt: terminated",
        )
        + COMMON_STOP,
        note="an open request may end in EngineDeadError although the stop is orderly; a stop "
        "during warm-up can leave workers behind",
        grace_s=30.0,
    ),
    metrics=MappingProxyType(
        {
            "running": "vllm:num_requests_running",
            "waiting": "vllm:num_requests_waiting",
            "kv_cache_usage": "vllm:kv_cache_usage_perc",
            "prompt_tokens": "vllm:prompt_tokens_total",
            "generation_tokens": "vllm:generation_tokens_total",
            "preemptions": "vllm:num_preemptions_total",
        }
    ),
    notes=(
        "No 'Uvicorn running' line: the socket is bound beforehand.",
        "/server_info answers only with VLLM_SERVER_DEV_MODE=1: the log tells the configuration.",
    ),
)
