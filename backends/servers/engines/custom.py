"""Any other server: what web servers and PyTorch programs print in common."""

from __future__ import annotations

import re

from backends.servers.engines.base import (
    BIND_FAILED,
    COMMON_FATAL,
    COMMON_STOP,
    DOWNLOAD_BARS,
    REQUEST_DONE,
    UVICORN_RUNNING,
    UVICORN_SHUTDOWN,
    UVICORN_STARTUP,
    Endpoint,
    Engine,
    EngineId,
    Phase,
    Stop,
    advice,
    bars,
    marks,
    option,
    rx,
)

ENGINE = Engine(
    id=EngineId.CUSTOM,
    title="custom server",
    default_port=None,
    marks=marks(
        (Phase.LOADING, r"(?i)^loading (?:the )?(?:model|weights|checkpoint)"),
        (Phase.HTTP, r"^Started server process"),
        (Phase.HTTP, UVICORN_STARTUP),
    ),
    bars=bars((r"(?i)load", Phase.LOADING), (r"(?i)captur", Phase.CAPTURING)) + DOWNLOAD_BARS,
    ready=rx(UVICORN_RUNNING, r"(?i)^(?:\* )?(?:running|listening|serving) (?:on|at):? https?://"),
    not_ready=rx(BIND_FAILED),
    # gunicorn listens before its workers have imported anything.
    fatal=rx(r"^Reason: Worker failed to boot", r"^Worker failed to boot") + COMMON_FATAL,
    served=rx(REQUEST_DONE),
    routine=re.compile(r'^[\d.:a-f\[\]]{3,45}:\d+ - "(?:GET|POST) [^"]{1,200}" [23]\d\d'),
    advice=advice(
        (
            "sub-optimal",
            r"(?i)performance (?:might|may|will|could) be (?:sub-?optimal|degraded|poor|slow)",
            "the server itself says that performance is not what it could be",
        ),
    ),
    endpoints=(Endpoint("/health", loading=(None, 503)),),
    options=(option("host"), option("port")),
    stop=Stop(marks=rx(UVICORN_SHUTDOWN, r"^Handling signal: (?:term|int|quit)") + COMMON_STOP),
)
