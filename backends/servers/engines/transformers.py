"""`transformers serve`: answers at once; a model loads with the first request that names it.

Ready and loaded are different things here: a request, not the log, shows that a model can serve.
"""

from __future__ import annotations

import re

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
    hints,
    marks,
    option,
    rx,
)

ENGINE = Engine(
    id=EngineId.TRANSFORMERS,
    title="transformers serve",
    default_port=8000,
    hints=hints(
        (8, r"\btransformers(?:-cli)? serve\b|transformers[./](?:commands|cli)[./]serv"),
        (3, r"ContinuousBatchingManager|continuous[_ ]batching|transformers\.generation\.contin"),
        (4, r"was removed from memory after \d+ seconds of inactivity|\bTimedModel\b"),
        (3, r'"POST /load_model HTTP'),
        (1, r"^Loading [\w-]{1,60}/[\w.-]{1,90}(?:@\S{1,60})?(?:\.{3})?$"),
    ),
    version=rx(r"\btransformers[ =-]+(?:version:? )?v?(\d+\.\d+\.\d+[\w.]*)"),
    banner=rx(r"\btransformers serve\b"),
    marks=marks(
        (Phase.HTTP, r"^Started server process"),
        (Phase.HTTP, UVICORN_STARTUP),
        (Phase.LOADING, r"^Loading (?:model |\S+/\S+)|^Loading checkpoint shards"),
    ),
    bars=bars((r"(?i)loading (?:checkpoint shards|weights)", Phase.LOADING)) + DOWNLOAD_BARS,
    ready=rx(UVICORN_RUNNING),
    not_ready=rx(BIND_FAILED),
    fatal=rx(r"Error in (?:generation|continuous batching) (?:loop|thread)") + COMMON_FATAL,
    served=rx(REQUEST_DONE),
    routine=re.compile(r'^[\d.:a-f\[\]]{3,45}:\d+ - "(?:GET|POST) [^"]{1,200}" [23]\d\d'),
    advice=advice(
        (
            "attention-fallback",
            r"(?i)flash attention.*not (?:installed|available)|falling back to (?:sdpa|eager)",
            "a slower attention is used",
        ),
        (
            "on-cpu",
            r"(?i)no accelerator|running on cpu|device_map.*cpu|parameters are on the meta device",
            "part of the model is not on the GPU",
        ),
    ),
    endpoints=(
        Endpoint(
            "/health",
            loading=(None,),
            broken=(503,),
            proves_ready=False,
            note="200 before any model is loaded; 503 when the batching worker has died",
        ),
        Endpoint("/v1/models", loading=(None,), proves_ready=False),
    ),
    options=(
        option("host", default="localhost"),
        option("port", default="8000"),
        option("device", default="auto"),
        option("dtype", "--torch_dtype", default="auto"),
        option("attn_implementation", "--attn_implementation"),
        option("quantization"),
        option("continuous_batching", "--continuous_batching", default="False"),
        option("trust_remote_code", "--trust_remote_code", default="False"),
        option("model_timeout", "--model_timeout", default="300"),
    ),
    stop=Stop(marks=COMMON_STOP, grace_s=15.0),
)
