"""The weights of a model that lies on a host: its configuration and headers, read by the agent.

Some megabytes at most travel, however large the model: `config.json`, the index, and of each weight
file the header.
"""

from __future__ import annotations

import asyncio
import base64
import re
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final, Protocol

from backends.bench import gguf_file
from backends.bench.json_fields import MAX_CONFIG_BYTES, ModelError, parse_json
from backends.bench.model_config import parse_shape
from backends.bench.models import weigh_checkpoint, weigh_gguf
from backends.bench.weight_files import (
    MAX_INDEX_BYTES,
    MAX_TENSORS,
    StoredTensor,
    StoredWeights,
    header_length,
    parse_header,
    parse_index,
)
from backends.bench.weights import Weights
from backends.errors import AgentError
from backends.text import clean

PIECE_BYTES: Final = 4 * 1024 * 1024
FIRST_GGUF_BYTES: Final = 4 * 1024 * 1024
MAX_GGUF_BYTES: Final = 64 * 1024 * 1024
AT_ONCE: Final = 8
READ_S: Final = 30.0
HUB_CACHE: Final = "~/.cache/huggingface/hub"
_REPOSITORY: Final = re.compile(r"[\w.-]+/[\w.-]+")


class Agent(Protocol):
    """What can be asked on a host."""

    async def request(
        self, method: str, params: Mapping[str, object] | None = None, timeout_s: float = 10.0
    ) -> object:
        """Ask; raises AgentError."""
        ...


async def weigh_remote(agent: Agent, model: str, hub_cache: str = HUB_CACHE) -> tuple[str, Weights]:
    """Weigh a model on a host.

    Args:
        agent: Of the host.
        model: As the server was told: a folder, a GGUF file, or `owner/name`, whose newest
            download in `hub_cache` is taken.
        hub_cache: Where Hugging Face's library keeps downloads on that host.

    Returns:
        The model's name for people, and its weights.

    Raises:
        ModelError: It is not there, or its files cannot be believed.
        AgentError: The agent could not read them.
    """
    files = _Files(agent)
    if model.endswith(".gguf"):
        return PurePosixPath(model).name, await _gguf(files, model)
    folder = model.rstrip("/")
    config = await files.json(f"{folder}/config.json", MAX_CONFIG_BYTES)
    if config is None and _REPOSITORY.fullmatch(model):
        folder = await _downloaded(files, model, hub_cache)
        config = await files.json(f"{folder}/config.json", MAX_CONFIG_BYTES)
    if config is None:
        raise ModelError(
            "The model has no config.json on the host",
            clean(folder, 400),
            "Is it the folder that the server loads, or owner/name of a download there?",
        )
    where = f"{folder}/config.json"
    shape = parse_shape(config, where)
    extra = await files.json(f"{folder}/hf_quant_config.json", MAX_CONFIG_BYTES)
    stored = await _stored(files, folder, len(shape.layers))
    weights = weigh_checkpoint(shape, config, extra, where, stored)
    return PurePosixPath(model).name or model, weights


async def _downloaded(files: _Files, model: str, cache: str) -> str:
    base = f"{cache}/models--{model.replace('/', '--')}"
    raw = await files.whole(f"{base}/refs/main", 200)
    revision = (raw or b"").decode("ascii", "replace").strip()
    if not re.fullmatch(r"[0-9a-f]{7,64}", revision):
        raise ModelError(
            f"No download of {clean(model, 120)} on the host",
            f"{base}/refs/main",
            "Give its folder.",
        )
    return f"{base}/snapshots/{revision}"


async def _stored(files: _Files, folder: str, layers: int) -> StoredWeights | None:
    stored = StoredWeights()
    where = f"{folder}/model.safetensors.index.json"
    index = await files.json(where, MAX_INDEX_BYTES)
    names = ["model.safetensors"]
    if index is not None:
        names, stored.index_bytes = parse_index(index, where)
    limit = asyncio.Semaphore(AT_ONCE)

    async def header(name: str) -> list[StoredTensor] | None:
        async with limit:
            return await files.header(f"{folder}/{name}")

    failed: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(header(name)) for name in names]
    except* (ModelError, AgentError) as failures:
        # One of them says enough; the others were cancelled with it.
        failed = failures
        while isinstance(failed, BaseExceptionGroup):
            failed = failed.exceptions[0]
    if failed is not None:
        raise failed
    missing: list[str] = []
    for name, task in zip(names, tasks, strict=True):
        tensors = task.result()
        if tensors is None:
            missing.append(name)
            continue
        stored.files += 1
        for tensor in tensors:
            stored.add(tensor.name, tensor.stored_bytes, layers)
        if stored.tensors > MAX_TENSORS:
            raise ModelError("The model's files name too many tensors", clean(folder, 400))
    if index is not None:
        stored.missing = tuple(missing)
    return stored if stored.files else None


async def _gguf(files: _Files, path: str) -> Weights:
    """All parts of a GGUF model."""
    headers = [await _gguf_header(files, part) for part in gguf_file.part_paths(path)]
    return weigh_gguf(gguf_file.joined(headers), path)


async def _gguf_header(files: _Files, path: str) -> gguf_file.GgufHeader:
    size = await files.size(path)
    if size is None:
        raise ModelError("No such GGUF file on the host", clean(path, 400))
    wanted = FIRST_GGUF_BYTES
    beginning = b""
    while True:
        beginning += await files.read(path, len(beginning), wanted - len(beginning))
        try:
            return await asyncio.to_thread(gguf_file.parse_gguf, beginning, size, path)
        except gguf_file.CutOff:
            if len(beginning) < wanted or wanted >= MAX_GGUF_BYTES:
                raise
            wanted *= 2


class _Files:
    """Bounded reading through the agent."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def size(self, path: str) -> int | None:
        """Size of a regular file; None where there is none."""
        answer = await self.agent.request("files.stat", {"path": path}, READ_S)
        if not isinstance(answer, dict):
            raise AgentError("the agent's answer about a file cannot be read", clean(path, 400))
        size = answer.get("size")
        return size if isinstance(size, int) else None

    async def read(self, path: str, offset: int, count: int) -> bytes:
        """Bytes of a file; fewer where it ends."""
        out = b""
        while len(out) < count:
            asked = min(PIECE_BYTES, count - len(out))
            answer = await self.agent.request(
                "files.read", {"path": path, "offset": offset + len(out), "size": asked}, READ_S
            )
            piece = _unpacked(answer, asked)
            out += piece
            if len(piece) < asked:
                break
        return out

    async def whole(self, path: str, limit: int) -> bytes | None:
        """A small file; None where there is none.

        Raises:
            ModelError: It is larger than `limit`.
        """
        size = await self.size(path)
        if size is None:
            return None
        if size > limit:
            raise ModelError("The model's file is too large", f"{clean(path, 400)}: {size} bytes")
        return await self.read(path, 0, size)

    async def json(self, path: str, limit: int) -> dict[str, object] | None:
        """A small JSON object; None where there is no such file."""
        raw = await self.whole(path, limit)
        return None if raw is None else parse_json(raw, clean(path, 400))

    async def header(self, path: str) -> list[StoredTensor] | None:
        """The tensors of a safetensors file; None where there is none."""
        size = await self.size(path)
        if size is None:
            return None
        shown = clean(path, 400)
        length = header_length(await self.read(path, 0, 8), size, shown)
        raw = await self.read(path, 8, length)
        # Tens of thousands of tensors: not on the event loop.
        return await asyncio.to_thread(parse_header, raw, length, size, shown)


def _unpacked(answer: object, limit: int) -> bytes:
    packed = answer.get("z") if isinstance(answer, dict) else None
    try:
        if not isinstance(packed, str):
            raise ValueError("no data")
        unpacker = zlib.decompressobj()
        return unpacker.decompress(base64.b64decode(packed, validate=True), limit)
    except (ValueError, zlib.error) as error:
        raise AgentError("the agent's piece of a file cannot be read", str(error)) from error
