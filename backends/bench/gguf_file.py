"""Shape and exact sizes of a GGUF model, from its header alone.

Format: version 2 and 3 of the GGUF specification (ggml project): magic, counts, typed key-values,
tensor infos. Everything is bounded: the file comes from a stranger.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from backends.bench.json_fields import ModelError
from backends.bench.weight_files import regular_file_size

MAGIC: Final = b"GGUF"
MAX_KEYS: Final = 65_536
MAX_TENSORS: Final = 1_000_000
MAX_STRING: Final = 64 * 1024 * 1024
MAX_ARRAY: Final = 20_000_000
MAX_KEPT: Final = 4096
"""Longest array that is kept; longer ones (vocabularies) are read past."""
MAX_PARTS: Final = 1024

_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
# Of each tensor type: name, weights a block, bytes a block (ggml's type traits).
TENSOR_TYPES: Final = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4),
    27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip

Value = int | float | str | bool | list[int | float | str | bool]


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor of the file."""

    name: str
    type_name: str
    parameters: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata and tensors of one file."""

    metadata: dict[str, Value]
    tensors: tuple[GgufTensor, ...]


class CutOff(ModelError):
    """The bytes end before the header does."""


def _said(where: str, problem: str) -> tuple[str, str, str]:
    return (
        "The GGUF file's header cannot be believed",
        f"{where}: {problem}",
        "Is the download complete? Compare its checksum.",
    )


class _Reader:
    """Bounded reads of a file of known size."""

    def __init__(self, file: BinaryIO, path: str, size: int) -> None:
        self.file = file
        self.path = path
        self.size = size

    def fail(self, problem: str) -> ModelError:
        return ModelError(*_said(self.path, problem))

    def take(self, count: int) -> bytes:
        data = self.file.read(count)
        if len(data) < count:
            raise CutOff(*_said(self.path, "cut off in the middle of its header"))
        return data

    def number(self, form: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def whole(self, form: str, limit: int, what: str) -> int:
        value = int(self.number(form))
        if value > limit:
            raise self.fail(f"claims {value} {what}; at most {limit}")
        return value

    def string(self) -> str:
        length = self.whole("<Q", min(MAX_STRING, self.size), "characters in a string")
        return self.take(length).decode("utf-8", "replace")

    def skip_string(self) -> None:
        length = self.whole("<Q", min(MAX_STRING, self.size), "characters in a string")
        self.file.seek(length, 1)

    def value(self, kind: int) -> Value | None:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array()
        raise self.fail(f"has a value of unknown type {kind}")

    def array(self) -> Value | None:
        kind = self.whole("<I", 12, "as an array's type")
        count = self.whole("<Q", min(MAX_ARRAY, self.size), "members in an array")
        if kind in _SCALARS:
            form = _SCALARS[kind]
            if count > MAX_KEPT:
                self.file.seek(count * struct.calcsize(form), 1)
                return None
            return [self.number(form) for _ in range(count)]
        if kind == _STRING:
            if count > MAX_KEPT:
                for _ in range(count):
                    self.skip_string()
                return None
            return [self.string() for _ in range(count)]
        raise self.fail(f"has an array of unknown type {kind}")


def read_gguf(path: Path) -> GgufHeader:
    """Read the header of one GGUF file.

    Raises:
        ModelError: Unreadable, not GGUF, or a header that contradicts itself.
    """
    size = regular_file_size(path)
    try:
        with path.open("rb") as file:
            return _read(_Reader(file, str(path), size))
    except OSError as error:
        raise ModelError("The GGUF file cannot be read", f"{path}: {error.strerror}") from error


def parse_gguf(beginning: bytes, size: int, where: str) -> GgufHeader:
    """Read the header from the first bytes of a file of `size` bytes.

    Raises:
        CutOff: More bytes are needed.
        ModelError: Not GGUF, or a header that contradicts itself.
    """
    return _read(_Reader(BytesIO(beginning), where, size))


def _read(reader: _Reader) -> GgufHeader:
    if reader.take(4) != MAGIC:
        raise reader.fail("does not begin with GGUF")
    version = reader.whole("<I", 1 << 16, "as its version")
    if version not in (2, 3):
        raise reader.fail(f"version {version} is not known here")
    tensor_count = reader.whole("<Q", MAX_TENSORS, "tensors")
    key_count = reader.whole("<Q", MAX_KEYS, "keys")
    metadata: dict[str, Value] = {}
    for _ in range(key_count):
        key = reader.string()[:256]
        value = reader.value(reader.whole("<I", 12, "as a value's type"))
        if value is not None:
            metadata[key] = value
    tensors = tuple(_tensor(reader) for _ in range(tensor_count))
    return GgufHeader(metadata, tensors)


def _tensor(reader: _Reader) -> GgufTensor:
    name = reader.string()[:256]
    dimensions = reader.whole("<I", 8, "dimensions")
    shape = [reader.whole("<Q", 1 << 48, "as a dimension") for _ in range(dimensions)]
    kind = int(reader.number("<I"))
    reader.number("<Q")
    if kind not in TENSOR_TYPES:
        raise reader.fail(f"tensor type {kind} is not known here")
    type_name, block, block_bytes = TENSOR_TYPES[kind]
    parameters = math.prod(shape)
    stored = -(-parameters // block) * block_bytes
    if stored > reader.size and len(shape) > 0:
        raise reader.fail(f"a tensor of {stored} bytes in a file of {reader.size}")
    return GgufTensor(name, type_name, parameters, stored)


_PART: Final = re.compile(r"^(.*)-(\d{5})-of-(\d{5})\.gguf$")


def read_gguf_model(path: Path) -> GgufHeader:
    """Read a model of one file or of all its parts (`...-00001-of-00003.gguf`)."""
    return joined([read_gguf(Path(part)) for part in part_paths(str(path))])


def part_paths(path: str) -> list[str]:
    """Paths of all parts of the model that the file at `path` belongs to."""
    folder, slash, name = path.rpartition("/")
    match = _PART.match(name)
    if match is None:
        return [path]
    parts = min(int(match.group(3)), MAX_PARTS)
    return [
        f"{folder}{slash}{match.group(1)}-{part:05}-of-{match.group(3)}.gguf"
        for part in range(1, parts + 1)
    ]


def joined(headers: Sequence[GgufHeader]) -> GgufHeader:
    """One header of all parts: metadata of the first, tensors of all."""
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    return GgufHeader(headers[0].metadata if headers else {}, tensors)


_FIELDS: Final = (
    ("block_count", "num_hidden_layers"),
    ("embedding_length", "hidden_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.sliding_window", "sliding_window"),
    ("attention.q_lora_rank", "q_lora_rank"),
    ("attention.kv_lora_rank", "kv_lora_rank"),
    ("feed_forward_length", "intermediate_size"),
    ("expert_count", "num_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_shared_count", "n_shared_experts"),
    ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ("leading_dense_block_count", "first_k_dense_replace"),
    ("nextn_predict_layers", "num_nextn_predict_layers"),
    ("context_length", "max_position_embeddings"),
    ("vocab_size", "vocab_size"),
    ("full_attention_interval", "full_attention_interval"),
)
_ARCHITECTURES: Final = {
    "deepseek2": "deepseek_v3", "qwen3moe": "qwen3_moe", "qwen2moe": "qwen2_moe",
    "qwen3next": "qwen3_next", "gpt-oss": "gpt_oss", "glm4moe": "glm4_moe", "llama4": "llama4",
    "minimax-m2": "minimax_m2", "phi3": "phi3", "gemma3": "gemma3_text",
}  # fmt: skip


def config_of(header: GgufHeader) -> dict[str, object]:
    """The metadata in the words of a `config.json`, for `model_config.parse_shape`."""
    architecture = header.metadata.get("general.architecture")
    architecture = architecture if isinstance(architecture, str) else ""
    config: dict[str, object] = {
        "model_type": _ARCHITECTURES.get(architecture, architecture.replace("-", "_"))
    }

    def get(key: str) -> Value | None:
        return header.metadata.get(f"{architecture}.{key}")

    for key, name in _FIELDS:
        value = get(key)
        if isinstance(value, list):
            # One figure a layer (hybrids): the largest is that of the layers that attend.
            numbers = [int(item) for item in value if isinstance(item, int | float)]
            value = max(numbers, default=0)
        if value is not None:
            config[name] = value
    if get("attention.kv_lora_rank") is not None:
        rope = get("rope.dimension_count") or 64
        key_length = get("attention.key_length_mla") or 192
        if isinstance(rope, int) and isinstance(key_length, int):
            config["qk_rope_head_dim"] = rope
            config["qk_nope_head_dim"] = max(1, key_length - rope)
        config["v_head_dim"] = get("attention.value_length_mla") or 128
        config["num_key_value_heads"] = config.get("num_attention_heads")
    config.update(_recurrent(architecture, get))
    names = {tensor.name: tensor for tensor in header.tensors}
    if "vocab_size" not in config and "token_embd.weight" in names:
        hidden = config.get("hidden_size")
        if isinstance(hidden, int) and hidden > 0:
            config["vocab_size"] = names["token_embd.weight"].parameters // hidden
    config["tie_word_embeddings"] = "output.weight" not in names
    return config


def _recurrent(architecture: str, get: Callable[[str], Value | None]) -> dict[str, object]:
    """Layers with a state instead of a cache: gated delta nets in their words, others by name."""
    keys = ("state_size", "inner_size", "time_step_rank")
    state, inner, heads = (get(f"ssm.{key}") for key in keys)
    if state is None:
        return {}
    if not architecture.startswith("qwen3") or not isinstance(inner, int):
        return {"mamba_d_state": state}
    if not isinstance(heads, int) or heads < 1:
        return {"mamba_d_state": state}
    return {
        "linear_num_value_heads": heads,
        "linear_num_key_heads": get("ssm.group_count"),
        "linear_key_head_dim": state,
        "linear_value_head_dim": inner // heads,
        "linear_conv_kernel_dim": get("ssm.conv_kernel"),
    }
