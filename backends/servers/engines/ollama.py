"""Ollama: a daemon that listens at once and starts one runner per model, when it is asked for.

A runner that fails is an answer to a request, not the end of the daemon.
"""

from __future__ import annotations

import re

from backends.servers.engines.base import (
    COMMON_FATAL,
    COMMON_STOP,
    Endpoint,
    Engine,
    EngineId,
    Phase,
    Stop,
    advice,
    hints,
    marks,
    option,
    rx,
)

ENGINE = Engine(
    id=EngineId.OLLAMA,
    title="Ollama",
    default_port=11434,
    hints=hints(
        (6, r"OLLAMA_[A-Z]|\bollama(?:\.service|-runner| serve| version| runner)?\b"),
        (
            5,
            r"^time=\S+ level=\w+ source=\w+\.go:\d+|msg=\"?(?:Listening on|starting)",
        ),
        (
            5,
            r"^msg=\"(?:server config|total blobs|inference compute|looking for comp|offload)",
        ),
        (3, r"^\[GIN\]|^Error: listen tcp .*:11434"),
    ),
    version=rx(
        r"Listening on .*\(version v?(\d+\.\d+[\w.+-]*)\)", r"\bollama version(?: is)? (\S+)"
    ),
    banner=rx(r"msg=\"server config\"", r"Listening on .*\(version"),
    marks=marks(
        (Phase.LAUNCHING, r"msg=\"server config\"|discovering available GPUs|inference compute"),
        (Phase.LOADING, r"starting (?:llama[- ]server|llama server|runner)|waiting for llama"),
    ),
    outlives_workers=True,
    ready=rx(r"Listening on \S+ \(version"),
    fatal=rx(
        r"^Error: (?:listen|could not)",
        r"(?:llama )?runner process (?:has terminated|no longer running)",
        r"error loading llama server|llama-server .*exited",
    )
    + COMMON_FATAL,
    served=rx(
        r"^\[GIN\].*\| 2\d\d \|.*POST +\"/(?:api|v1)/(?:generate|chat|embed|completions)",
        r"llama(?: runner|-server)? started in",
    ),
    routine=re.compile(r"^\[GIN\] \S+ - \S+ \| 2\d\d \|"),
    advice=advice(
        (
            "cpu-fallback",
            r"no compatible GPUs were discovered|library=cpu\b|no nvidia devices detected",
            "no GPU in use: models run on the CPU",
        ),
        (
            "partly-offloaded",
            r"offloaded (?!(\d+)/\1 )\d+/\d+ layers to GPU",
            "some layers stay on the CPU: every token waits for it",
        ),
        (
            "device-skipped",
            r"skipping (?:CUDA|ROCm) device",
            "a GPU is left out",
        ),
        (
            "prompt-truncated",
            r"truncating input prompt",
            "prompts are cut to the context length",
        ),
    ),
    endpoints=(
        Endpoint("/api/version", loading=(None,), proves_ready=False),
        Endpoint("/api/tags", loading=(None,), proves_ready=False),
        Endpoint("/api/ps", loading=(None,), proves_ready=False, note="models that are loaded"),
    ),
    config_paths=("/api/ps",),
    options=(option("host"),),
    processes=rx(r"\bollama (?:runner|serve)\b", r"\bllama-server\b"),
    stop=Stop(marks=COMMON_STOP, grace_s=15.0),
)
