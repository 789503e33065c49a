"""llama.cpp: `llama-server`.

Listens before it loads and answers 503 until the model is there; "HTTP server is listening" says
nothing about readiness. A GPU that cannot be used is only a warning: then the CPU does the work.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from backends.servers.engines.base import (
    COMMON_FATAL,
    COMMON_STOP,
    UVICORN_RUNNING,
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
    id=EngineId.LLAMACPP,
    title="llama.cpp",
    default_port=8080,
    hints=hints(
        (8, r"\bllama-server\b|llama\.cpp/|\bllamafile\b"),
        (5, r"^llama_(?:model_load|context|kv_cache|params_fit|init_from_model|new_context)"),
        (4, r"^(?:ggml_(?:cuda|metal|vulkan|backend|sycl)|load_tensors|print_info|llm_load_)"),
        (3, r"^(?:srv|slot) +\w+|^common_(?:init|params|download)|load_backend: loaded"),
        (3, r"^system_info: n_threads|^build(?:_info)?: "),
        (2, r"^main: (?:loading model|model loaded|server is listening|HTTP server)"),
        (2, r"couldn't bind HTTP server socket"),
        (4, r'^error while handling argument "'),
        (3, r"^error: (?:invalid|unknown) argument: -"),
        (2, r"libllama\.|libggml"),
    ),
    version=rx(
        r"^(?:srv +\w+: )?build(?:_info)?: b?(\d{3,6})\b",
        r"^build(?:_info)?: b?(\d{1,6}) \(",
        r"^version: (\d+) \(",
        r"\"build\":(\d+)",
        r"\bbuild=(\d+)",
    ),
    version_prefix="b",
    banner=rx(
        r"^(?:srv +\w+: )?build(?:_info)?: b?\d+[ -]",
        r"^ggml_\w+_init: found \d+ ",
        r"^load_tensors: loading model tensors",
        r"^llm_load_tensors: ggml ctx size",
        r"^(?:main|srv +init): loading model$",
        r"build info \| ",
    ),
    marks=marks(
        (Phase.LAUNCHING, r"^(?:srv +\w+: )?build(?:_info)?: |^system_info:|build info \| "),
        (Phase.DOWNLOADING, r"^common_download_file\w*: (?:downloading|trying to download)"),
        (Phase.LOADING, r"^(?:main|srv +\w+): loading model"),
        (
            Phase.LOADING,
            r"^load_tensors: loading model tensors|^llm_load_tensors:|load_model: load",
        ),
        (Phase.LOADING, r"^llama_model_load(?:er)?: loaded meta data"),
        (Phase.MEMORY, r"^llama_(?:context|new_context_with_model|kv_cache\w*): "),
        (Phase.WARMING, r"warming up the model with an empty run"),
        (Phase.HTTP, r"^(?:main|srv\s+\w+): model loaded"),
    )
    + ends((Phase.LOADING, r"^(?:llama_context: constructing|common_init_result: added)")),
    bars=bars((r"^model$", Phase.LOADING), (r".", Phase.DOWNLOADING)),
    ready=rx(
        r"^(?:main|srv\s+\w*|start): (?:server is |router server is )?listening on (?:https?|unix)",
        r"server is listening on (?:https?|unix)",
        r"^(?:srv +update_slots: |update_slots: )?all slots are idle",
        r"^llama server listening at http",
        r"^listening on http",
        UVICORN_RUNNING,  # llama-cpp-python
    ),
    not_ready=rx(r"couldn't bind HTTP server socket"),
    fatal=rx(
        r"^(?:main|srv +\w+): exiting due to (?:model loading|HTTP server) error",
        r"^(?:srv +)?(?:load_model|llama_init_from_gpt_params): (?:error: )?failed to load model",
        r"^srv +(?:load_model|init): failed to (?:load|init)",
        r"unable to load model",
        r"couldn't bind HTTP server socket",
        r"^ggml_abort|GGML_ASSERT\(|ggml_print_backtrace|ggml_cuda_error\(",
        r"\bAssertion '.{1,160}' failed\.?$",
        r"\b(?:ROCm|CUDA|HIP|SYCL) error(?:: |$| )",
        r"^dyld\[\d+\]: Library not loaded|error while loading shared libraries",
        r"^error: (?:invalid|unknown) argument|^error while handling argument",
    )
    + COMMON_FATAL,
    served=rx(
        r"request: POST \S+ \S+ 2\d\d",
        r"^slot +(?:print_timing|release): .*stop processing: n_(?:tokens|past) = [1-9]",
        r"eval time =",
    ),
    routine=re.compile(
        r"^slot +(?:update_slots|launch_slot_|get_availabl|print_timing)|^(?:prompt )?eval time"
        r"|^srv +(?:params_from_|update_slots: all|log_server_r: request: (?:GET|POST) \S+ \S+ 2)"
    ),
    advice=advice(
        (
            "cpu-fallback",
            r"no usable GPU found, --gpu-layers option will be ignored|failed to initialize CUDA",
            "no GPU in use: the model runs on the CPU, many times slower",
        ),
        (
            "partly-offloaded",
            r"offloaded (?!(\d+)/\1 )\d+/\d+ layers to GPU",
            "some layers stay on the CPU: every token waits for it",
        ),
        (
            "kv-on-cpu",
            r"^llama_kv_cache\w*:\s+CPU KV buffer size",
            "the KV cache lies in host memory",
        ),
        (
            "context-below-training",
            r"n_ctx(?:_per_seq|_seq)? \(\d+\) < n_ctx_train",
            "the context is shorter than the model was trained for",
        ),
        (
            "not-fitted",
            r"failed to fit params to free device memory",
            "the model does not fit in free GPU memory as asked",
        ),
        (
            "flash-attention-off",
            r"flash_attn +(?:= 0|is not (?:supported|comp))|Flash Attention was auto, set to dis",
            "flash attention is off",
        ),
        (
            "sub-optimal",
            r"(?i)performance (?:might|may|will) be|results might be suboptimal",
            "the engine itself says that it is not what it could be",
        ),
    )
    + serving_advice(
        (
            "context-shift",
            r"slot context shift|forcing full prompt re-processing",
            "a prompt is computed again from its start",
        ),
    ),
    endpoints=(
        Endpoint("/health", loading=(None, 503), note="as a router it is 200 at once"),
        Endpoint("/v1/models", loading=(None, 503)),
        Endpoint("/props", loading=(None, 503)),
    ),
    config_paths=("/props", "/slots"),
    options=(
        option("model", "-m"),
        option("host", default="127.0.0.1"),
        option("port", default="8080"),
        option("n_gpu_layers", "-ngl", "--gpu-layers", "--n-gpu-layers"),
        option("n_ctx", "-c", "--ctx-size"),
        option("n_batch", "-b", "--batch-size", default="2048"),
        option("n_ubatch", "-ub", "--ubatch-size", default="512"),
        option("n_slots", "-np", "--parallel"),
        option("n_threads", "-t", "--threads"),
        option("flash_attn", "-fa", "--flash-attn", default="auto"),
        option("cache_type_k", "-ctk", default="f16"),
        option("cache_type_v", "-ctv", default="f16"),
        option("tensor_split", "-ts"),
        option("split_mode", "-sm"),
        option("main_gpu", "-mg"),
        option("no_mmap", default="False"),
        option("mlock", default="False"),
        option("cont_batching", "-cb"),
        option("alias", "-a"),
        option("api_key"),
    ),
    stop=Stop(
        marks=rx(
            r"(?:operator\(\)|^srv +\S+): cleaning up before exit",
            r"^Received second interrupt, terminating immediately",
        )
        + COMMON_STOP,
        note="its SIGTERM handler is set only after the model has loaded",
        grace_s=15.0,
    ),
    metrics=MappingProxyType(
        {
            "running": "llamacpp:requests_processing",
            "waiting": "llamacpp:requests_deferred",
            "kv_cache_usage": "llamacpp:kv_cache_usage_ratio",
            "prompt_tokens": "llamacpp:prompt_tokens_total",
            "generation_tokens": "llamacpp:tokens_predicted_total",
            "generation_tokens_per_s": "llamacpp:predicted_tokens_seconds",
        }
    ),
    notes=("/metrics answers only with --metrics.", "The default port is announced to change."),
)
