"""Which server answers: engine, version, model, and what it can do that a benchmark needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from backends.bench.endpoint import Fetch, Reply
from backends.errors import RoomError
from backends.text import clean

Engine = Literal["vllm", "sglang", "llamacpp", "tensorrt_llm", "tgi", "unknown"]

READY_PATHS: Final = {"vllm": "/health", "sglang": "/health", "llamacpp": "/health"}
IGNORES_EOS: Final = frozenset({"vllm", "sglang", "llamacpp", "tensorrt_llm"})
CONTINUOUS_USAGE: Final = frozenset({"vllm", "sglang", "tensorrt_llm"})
NATIVE: Final = {"sglang": "sglang", "llamacpp": "llamacpp", "tgi": "tgi"}
"""Engine to its own route. vLLM and TensorRT-LLM take token ids on the completions route."""
TAKES_IDS: Final = {
    "vllm": "completions",
    "sglang": "sglang",
    "llamacpp": "llamacpp",
    "tensorrt_llm": "completions",
}
"""Engine to the route that takes token ids."""
FLUSH: Final = {"vllm": ("POST", "/reset_prefix_cache"), "sglang": ("POST", "/flush_cache")}


@dataclass(frozen=True, slots=True)
class Server:
    """What is known of a server. None where it doesn't say.

    Attributes:
        engine: Which engine; `unknown` speaks the OpenAI routes at best.
        version: In the engine's own words.
        model: The name that requests must give.
        vocabulary: Number of token ids.
        context: Most tokens of prompt and answer together.
        slots: How many requests run at once at most.
        config: Effective configuration as far as the server tells it, cleaned.
    """

    engine: Engine = "unknown"
    version: str | None = None
    model: str | None = None
    vocabulary: int | None = None
    context: int | None = None
    slots: int | None = None
    config: dict[str, str] | None = None


async def identify(fetch: Fetch) -> Server:
    """Ask the server what it is. Raises Unreachable when it answers nothing at all."""
    models = await fetch("GET", "/v1/models")
    server = _from_models(models)
    for path, reader in (
        ("/props", _from_props),
        ("/server_info", _from_sglang),
        ("/get_server_info", _from_sglang),
        ("/model_info", _from_model_info),
        ("/info", _from_tgi),
        ("/version", _from_version),
    ):
        if server.engine in ("vllm", "tensorrt_llm") and path != "/version":
            continue
        if server.engine == "llamacpp" and path != "/props":
            continue
        if server.engine == "sglang" and path not in ("/server_info", "/get_server_info"):
            continue
        if server.engine == "sglang" and server.version is not None:
            continue
        try:
            reply = await fetch("GET", path, timeout_s=5.0)
        except RoomError:
            continue
        if reply.ok:
            server = reader(server, reply)
    return server


def _from_models(reply: Reply) -> Server:
    data = reply.fields().get("data")
    first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
    owner = str(first.get("owned_by", "")).lower()
    engines: dict[str, Engine] = {
        "vllm": "vllm",
        "sglang": "sglang",
        "llamacpp": "llamacpp",
        "tensorrt_llm": "tensorrt_llm",
    }
    meta = first.get("meta")
    return Server(
        engine=engines.get(owner, "unknown"),
        model=clean(str(first["id"]), 300) if first.get("id") else None,
        context=_number(first.get("max_model_len")),
        vocabulary=_number(meta.get("n_vocab")) if isinstance(meta, dict) else None,
    )


def _from_props(server: Server, reply: Reply) -> Server:
    fields = reply.fields()
    settings = fields.get("default_generation_settings")
    if not isinstance(settings, dict):
        return server
    config: dict[str, str] = {
        name: clean(str(fields[name]), 300)
        for name in ("model_path", "total_slots", "build_info", "model_alias")
        if name in fields
    }
    return replace(
        server,
        engine="llamacpp",
        version=clean(str(fields["build_info"]), 100) if fields.get("build_info") else None,
        context=_number(settings.get("n_ctx")) or server.context,
        slots=_number(fields.get("total_slots")),
        config=config,
    )


def _from_sglang(server: Server, reply: Reply) -> Server:
    fields = reply.fields()
    if "internal_states" not in fields and "tp_size" not in fields:
        return server
    config = {
        clean(str(name), 100): clean(str(value), 300)
        for name, value in fields.items()
        if isinstance(value, str | int | float | bool) and "key" not in str(name).lower()
    }
    model = fields.get("served_model_name") or fields.get("model_path")
    return replace(
        server,
        engine="sglang",
        version=clean(str(fields["version"]), 100) if fields.get("version") else None,
        model=server.model or (clean(str(model), 300) if model else None),
        context=_number(fields.get("context_length")) or server.context,
        slots=_number(fields.get("max_running_requests")),
        config=config,
    )


def _from_model_info(server: Server, reply: Reply) -> Server:
    fields = reply.fields()
    if "is_generation" not in fields or server.engine != "unknown":
        return server
    model = fields.get("model_path")
    return replace(
        server, engine="sglang", model=server.model or (clean(str(model), 300) if model else None)
    )


def _from_tgi(server: Server, reply: Reply) -> Server:
    fields = reply.fields()
    if "max_total_tokens" not in fields or "model_id" not in fields:
        return server
    return replace(
        server,
        engine="tgi",
        version=clean(str(fields.get("version")), 100),
        model=clean(str(fields["model_id"]), 300),
        context=_number(fields["max_total_tokens"]),
        slots=_number(fields.get("max_concurrent_requests")),
    )


def _from_version(server: Server, reply: Reply) -> Server:
    version = reply.fields().get("version")
    if not version:
        return server
    return replace(server, version=server.version or clean(str(version), 100))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
