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
    presumptions,
    rx,
)

ENGINE = Engine(
    id=EngineId.CUSTOM,
    title="custom server",
    default_port=None,
    marks=marks(
        (Phase.LAUNCHING, r"^Starting gunicorn \d"),
        (
            Phase.LOADING,
            r"(?i)^(?:[\w.]{1,40}(?: -|:) )?(?:now |start(?:ed|ing) )?loading (?:the |a )?"
            r"(?:pretrained )?(?:model|weights|checkpoint|pipeline)",
        ),
        (Phase.HTTP, r"^Listening at: \S+ \(\d+\)$"),
        (Phase.HTTP, r"^Started server process"),
        (Phase.HTTP, UVICORN_STARTUP),
    ),
    bars=bars((r"(?i)load", Phase.LOADING), (r"(?i)captur", Phase.CAPTURING)) + DOWNLOAD_BARS,
    # gunicorn listens before its workers have imported anything; what is ready, no line says.
    ready=rx(
        UVICORN_RUNNING,
        r"(?i)^(?:\* )?(?:running|listening|serving) (?:on|at):? https?://(?!\S+ \(\d+\)$)",
    ),
    presumptions=presumptions(
        (r"^Using worker: (?!uvicorn)\w", r"^Booting worker with pid"),
        (r"^Using worker: ", UVICORN_STARTUP),
        (
            r"^Using worker: ",
            r"(?i)^(?:[\w.]{1,40}(?: -|:) )?(?:the )?(?:model|weights|pipeline) "
            r"(?:is |was |has been |successfully )*(?:loaded|ready)\b",
        ),
    ),
    not_ready=rx(BIND_FAILED, r"^Exception in worker process"),
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
    stop=Stop(marks=rx(r"^Handling signal: (?:term|int|quit)") + COMMON_STOP),
)
