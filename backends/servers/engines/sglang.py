"""SGLang: `python -m sglang.launch_server`, `sglang serve`.

A parent answers HTTP, one scheduler a GPU works, a detokenizer ends the chain. The HTTP server
comes up only when the schedulers have loaded; then a warm-up thread sends one request, and only
what it prints last says ready. A child that fails sends SIGQUIT to the parent, which kills its own
tree: the shell's "Killed" after that is no out-of-memory killer.
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
    id=EngineId.SGLANG,
    title="SGLang",
    default_port=30000,
    hints=hints(
        (8, r"\bserver_args=(?:ServerArgs\(|\{)"),
        (6, r"sglang[./](?:launch_server|srt|serve)|\bsglang serve\b|sgl-workspace"),
        (0, r"\bsglang-"),
        (3, r"\blaunch_server\.py: error: |\bsglang: (?:command )?not found"),
        (5, r"The server is fired up and ready to roll"),
        (4, r"\bsgl_kernel\b|\bsgl-kernel\b|sglang is using nccl"),
        (3, r"^(?:Prefill|Decode) batch[.,] #"),
        (3, r"^Scheduler hit an exception|Received sigquit from a child proc"),
        (2, r"^Init torch distributed (?:begin|ends)|^Load weight (?:begin|end)\."),
        (2, r"^max_total_num_tokens=\d|^Memory pool end\.|mem-fraction-static"),
        (0, r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: (?:[A-Z]{2}\d+ ?)+)?\] "),
        (2, r"^Capture (?:cuda|piecewise|target|draft)[\w ]* begin|Watchdog [Tt]imeout \(self"),
    ),
    version=rx(
        r"\bsglang(?: version|_version)?[ =:'\"]+v?(\d+\.\d+\.\d+[\w.+]*)",
        r"(?i)\bsglang[ /-]v?(\d+\.\d+\.\d+[\w.+]*)",
        r"'version': '(\d+\.\d+\.\d+[\w.+]*)'",
    ),
    banner=rx(r"^server_args=", r"^(?:\S*\$ )?python3? -m sglang\.launch_server"),
    marks=marks(
        (Phase.LAUNCHING, r"^server_args="),
        (Phase.DISTRIBUTED, r"^Init torch distributed begin"),
        (Phase.LOADING, r"^Load weight begin"),
        (Phase.MEMORY, r"^KV Cache is allocated|^Memory pool end|KV Cache VA upper bound"),
        (Phase.MEMORY, r"^Use sliding window memory pool|available memory for KV cache is"),
        (Phase.COMPILING, r"Entering DeepGEMM JIT|^Compiling num tokens|DeepGEMM warmup"),
        (Phase.COMPILING, r"^Compiling? (?:a )?graph|torch\.compile"),
        (Phase.AUTOTUNING, r"Running FlashInfer autotune|Autotuning process starts"),
        (Phase.CAPTURING, r"^Capture [\w -]*(?:graph|extend) begin"),
        (Phase.HTTP, r"^Started server process \[\d+\]"),
        (Phase.WARMING, UVICORN_STARTUP),
        (Phase.WARMING, r"^Uvicorn running on"),
    )
    + ends(
        (Phase.LOADING, r"^Load weight end"),
        (Phase.CAPTURING, r"^Capture [\w -]*(?:graph|extend) end"),
        (Phase.DISTRIBUTED, r"^Init torch distributed ends"),
    ),
    bars=bars(
        (r"(?i)^(?:multi-thread )?load(?:ing)?\b.*(?:shards|weights|safetensors)", Phase.LOADING),
        (r"^Capturing (?:batches|num tokens)", Phase.CAPTURING),
        (r"^Compiling num tokens|DeepGEMM", Phase.COMPILING),
    )
    + DOWNLOAD_BARS,
    ready=rx(r"The server is fired up and ready to roll!"),
    not_ready=rx(BIND_FAILED),
    fatal=rx(
        r"^(?:Scheduler|DetokenizerManager|TokenizerManager|DataParallelController|Detokenizer)"
        r" hit an exception",
        r"^Received sigquit from a child proc|^SIGQUIT received\.",
        r"^(?:Rank \d+ )?scheduler (?:is dead|died)|^Rank \d+ scheduler (?:is dead|died)",
        r"^Initialization failed\b|^(?:router |detokenizer )?init[_ ]state: Traceback",
        r"^Child process unexpectedly failed",
        r"^Subprocess \S+ \(pid=\d+\) crashed with exit code (?!-15\b)",
        r"[Ww]atchdog timeout \(self(?!.*soft=True)",
        r"^Pyspy dump for PID|^\[router\] .*failed to become healthy",
    )
    + COMMON_FATAL,
    served=rx(REQUEST_DONE, r"^Decode batch[.,] #"),
    routine=re.compile(
        r"^(?:Prefill|Decode) batch[.,] #|"
        r'^[\d.:a-f\[\]]{3,45}:\d+ - "(?:GET|POST) [^"]{1,200}" [23]\d\d'
    ),
    advice=advice(
        (
            "moe-kernel-default",
            r"Using default (?:\w+ )?(?:MoE )?kernel config\. Performance might be sub-?optimal",
            "no tuned mixture-of-experts kernel configuration for this GPU: several times slower",
        ),
        (
            "moe-kernel-fallback",
            r"Config file not found at .*(?:Fallback|Performance)|Down MoE config file not found",
            "a kernel configuration file is missing: an older or default one is used",
        ),
        (
            "expert-parallel-implied",
            r"expert parallel size is adjusted|ep_size is (?:adjusted|set)",
            "expert parallelism was switched on that the arguments did not ask for",
        ),
        (
            "requests-limited",
            r"[Mm]ax running requests is (?:reset|adjusted)|max_running_requests is (?:reset|set)",
            "fewer requests run at once than the memory would allow",
        ),
        (
            "graphs-disabled",
            r"(?:[Cc]uda|CUDA) graph is disabled|^Disable (?:piecewise )?(?:cuda|CUDA) graph",
            "CUDA graphs are off: decoding at small batches is slower",
        ),
        (
            "overlap-disabled",
            r"Overlap scheduler is (?:disabled|turned off)",
            "the overlap scheduler is off: CPU work is no longer hidden",
        ),
        (
            "overridden",
            r"\bis overridden (?:to|by)\b|\bis automatically set to\b|^Overriding\b",
            "an argument was changed by the engine",
        ),
        (
            "attention-default",
            r"Attention backend not (?:specified|set)\. Use \w+ backend by default",
            "attention backend chosen by the engine",
        ),
        (
            "memory-unbalanced",
            r"memory capacity is unbalanced",
            "GPUs differ in free memory: something else holds memory on some of them",
        ),
        (
            "prefill-not-chunked",
            r"Chunked prefill is (?:disabled|turned off)",
            "chunked prefill is off: long prompts block decoding",
        ),
        (
            "quantization-slow",
            r"quantization is not fully optimized yet",
            "this quantisation can be slower than none",
        ),
        (
            "custom-allreduce-off",
            r"[Cc]ustom all-?reduce is (?:disabled|not supported)|Setup Custom allreduce failed",
            "custom all-reduce is off: tensor parallelism costs more",
        ),
        (
            "radix-cache-off",
            r"[Rr]adix (?:attention|cache) is disabled",
            "prefix caching is off",
        ),
        (
            "context-shortened",
            r"context[_ ]len(?:gth)?.* (?:larger|greater) than .*derived",
            "context length differs from what the model declares",
        ),
        (
            "sub-optimal",
            r"[Pp]erformance (?:might|may|will|could) be (?:sub-?optimal|degraded|poor|slow)",
            "the engine itself says that performance is not what it could be",
        ),
        (
            "scale-missing",
            r"Using FP8 KV cache but no scaling factors provided",
            "FP8 KV cache without scaling factors: accuracy may suffer",
        ),
    )
    + serving_advice(
        (
            "kv-pool-full",
            r"KV cache pool is full\. Retract requests|retract(?:ed)? (?:requests|due)",
            "the KV cache is full: requests are thrown back and computed again",
        ),
        (
            "health-slow",
            r"Health check failed\. Server couldn't get a response",
            "the health probe got no answer in time: long prefill, kernel compilation or a hang",
        ),
    ),
    endpoints=(
        Endpoint(
            "/health",
            loading=(None, 503),
            broken=(503,),
            note="200 at once before 0.5; later 503 until warm-up is over, and while a step takes "
            "longer than SGLANG_HEALTH_CHECK_TIMEOUT (20 s)",
        ),
        Endpoint("/health_generate", loading=(None, 503), broken=(503,), note="makes one token"),
        Endpoint("/v1/models", loading=(None,), proves_ready=False),
        Endpoint("/model_info", loading=(None,), proves_ready=False),
    ),
    config_paths=("/server_info", "/get_server_info"),
    options=(
        option("model_path", "--model"),
        option("tokenizer_path"),
        option("served_model_name"),
        option("host", default="127.0.0.1"),
        option("port", default="30000"),
        option("tp_size", "--tp", "--tensor-parallel-size", default="1"),
        option("pp_size", "--pp", "--pipeline-parallel-size", default="1"),
        option("dp_size", "--dp", "--data-parallel-size", default="1"),
        option("ep_size", "--ep", "--expert-parallel-size", "--enable-ep-moe", default="1"),
        option("context_length"),
        option("mem_fraction_static"),
        option("max_running_requests"),
        option("max_total_tokens"),
        option("chunked_prefill_size"),
        option("quantization"),
        option("kv_cache_dtype", default="auto"),
        option("dtype", default="auto"),
        option("attention_backend"),
        option("sampling_backend"),
        option("moe_runner_backend", default="auto"),
        option("moe_a2a_backend", default="none"),
        option("disable_cuda_graph", default="False"),
        option("cuda_graph_max_bs"),
        option("disable_radix_cache", default="False"),
        option("disable_overlap_schedule", default="False"),
        option("disable_custom_all_reduce", default="False"),
        option("enable_torch_compile", default="False"),
        option("enable_dp_attention", default="False"),
        option("speculative_algorithm"),
        option("trust_remote_code", default="False"),
        option("nnodes", default="1"),
        option("node_rank", default="0"),
        option("dist_init_addr", "--nccl-init-addr"),
        option("schedule_policy", default="fcfs"),
        option("api_key"),
    ),
    processes=rx(r"^sglang::scheduler", r"^sglang::detokenizer", r"^sglang::data_parallel"),
    stop=Stop(
        marks=rx(r"SIGTERM received\.", r"Gracefully exiting\.\.\.") + COMMON_STOP,
        note="drains on SIGTERM; afterwards it may report its detokenizer as crashed with -15",
        grace_s=60.0,
    ),
    metrics=MappingProxyType(
        {
            "running": "sglang:num_running_reqs",
            "waiting": "sglang:num_queue_reqs",
            "kv_cache_usage": "sglang:token_usage",
            "generation_tokens_per_s": "sglang:gen_throughput",
            "prompt_tokens": "sglang:prompt_tokens_total",
            "generation_tokens": "sglang:generation_tokens_total",
            "cache_hit_rate": "sglang:cache_hit_rate",
        }
    ),
    notes=("Children rename themselves: their command line and environment cannot be read.",),
)
