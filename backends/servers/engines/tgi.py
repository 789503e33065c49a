"""Text Generation Inference: launcher, one shard a GPU, router.

While a shard loads, the launcher prints a heartbeat that carries no information; a shard's own
error is withheld until it has died. Ready is a single word: Connected.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from backends.servers.engines.base import (
    BIND_FAILED,
    COMMON_FATAL,
    COMMON_STOP,
    DOWNLOAD_BARS,
    Endpoint,
    Engine,
    EngineId,
    Phase,
    Stop,
    advice,
    ends,
    hints,
    marks,
    option,
    rx,
)

ENGINE = Engine(
    id=EngineId.TGI,
    title="Text Generation Inference",
    default_port=3000,
    hints=hints(
        (
            6,
            r"text_generation_(?:launcher|router|server|client)|text-generation-(?:launcher|inference)",
        ),
        (5, r"Error: (?:ShardCannotStart|ShardFailed|DownloadError|WebserverFailed)"),
        (3, r"^Waiting for shard|^Shard ready in|^Shard \d+ "),
    ),
    version=rx(
        r"text-generation-(?:launcher|inference)[ :/-]v?(\d+\.\d+[\w.]*)",
        r"^Starting text-generation-\w+ v?(\d+\.\d+[\w.]*)",
    ),
    banner=rx(r"^Args \{"),
    marks=marks(
        (Phase.LAUNCHING, r"^Args \{"),
        (Phase.DOWNLOADING, r"^Starting (?:check and )?download"),
        (Phase.DISTRIBUTED, r"^Starting shard|^Sharding model on"),
        (Phase.LOADING, r"^Waiting for shard(?: \d+)? to be ready"),
        (Phase.HTTP, r"^Starting Webserver|^Shard(?: \d+)? ready in"),
        (Phase.WARMING, r"^Warming up model"),
        (Phase.CAPTURING, r"^Cuda Graphs are enabled|cuda graphs? for sizes"),
        (Phase.MEMORY, r"^Setting max batch total tokens"),
    )
    + ends((Phase.DOWNLOADING, r"^Successfully downloaded weights|already present")),
    bars=DOWNLOAD_BARS,
    ready=rx(r"^Connected$"),
    not_ready=rx(BIND_FAILED),
    fatal=rx(
        r"^Error: (?:ShardCannotStart|ShardFailed|DownloadError|WebserverFailed|WebServerError)",
        r"^Error: (?:ArgumentValidation|NotEnoughCUDADevices|CUDAError|WebserverCannotStart)",
        r"^Error: \w",
        r"^Shard(?: \d+)? (?:failed to start|crashed|complete standard error output)",
        r"^Shard(?: \d+)? timed out",
        r"^(?:Shard|Download) process was signaled|^Download encountered an error",
        r"^Webserver (?:Crashed|exited)|^Unable to (?:connect|warmup)",
        r"thread '[^']*' panicked at",
    )
    + COMMON_FATAL,
    served=rx(r"\bgenerate(?:_stream)?\{.*total_time=|^Success$"),
    routine=re.compile(r"^Success$|generate(?:_stream)?\{"),
    advice=advice(
        (
            "flash-attention-missing",
            r"Could not import Flash Attention|Flash Attention V2 is not installed",
            "flash attention is missing: a slower model implementation is used",
        ),
        (
            "no-custom-kernels",
            r"Disabling custom CUDA kernels|disable_custom_kernels: true",
            "custom kernels are off",
        ),
        (
            "legacy-tokenization",
            r"falling back on legacy tokenization|Could not find a fast tokenizer",
            "slow tokenizer",
        ),
        (
            "batch-limit",
            r"does not support automatic max batch total tokens",
            "the batch size is a guess: set --max-batch-total-tokens",
        ),
        (
            "graph-off",
            r"(?i)cuda graphs? .*(?:disabled|not supported)|doesn't work with cuda graphs",
            "CUDA graphs are off: decoding is slower",
        ),
    ),
    endpoints=(
        Endpoint("/health", loading=(None,), broken=(503,)),
        Endpoint("/info", loading=(None,), proves_ready=False),
    ),
    config_paths=("/info",),
    options=(
        option("model_id"),
        option("hostname"),
        option("port", "-p", default="3000"),
        option("num_shard"),
        option("sharded"),
        option("quantize"),
        option("dtype"),
        option("kv_cache_dtype"),
        option("speculate"),
        option("max_concurrent_requests", default="128"),
        option("max_input_tokens", "--max-input-length"),
        option("max_total_tokens"),
        option("max_batch_prefill_tokens"),
        option("max_batch_total_tokens"),
        option("cuda_graphs"),
        option("cuda_memory_fraction", default="1.0"),
        option("trust_remote_code", default="false"),
    ),
    processes=rx(r"^text-generation-(?:launcher|router|server)"),
    stop=Stop(
        marks=rx(r"signal received, starting graceful shutdown", r"^Terminating gracefully")
        + COMMON_STOP,
        note="each shard is its own process group",
        grace_s=90.0,
    ),
    metrics=MappingProxyType(
        {
            "waiting": "tgi_queue_size",
            "running": "tgi_batch_current_size",
            "generation_tokens": "tgi_request_generated_tokens_sum",
        }
    ),
    notes=("The container listens on port 80.",),
)
