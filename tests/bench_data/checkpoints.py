"""Small checkpoints, written by hand."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from backends.bench.model_config import parse_shape
from backends.bench.model_tensors import Module, TensorPlan
from backends.bench.quantization import UNQUANTIZED

SMALL: dict[str, object] = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 512,
}  # fmt: skip
MIXED: dict[str, object] = {
    **SMALL, "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "head_dim": 16,
}  # fmt: skip


def write_safetensors(path: Path, tensors: dict[str, tuple[str, list[int], int]]) -> int:
    """Write a file of zeros with a true header; gives the bytes of all tensors."""
    header, offset = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + offset)
    return offset


def write_checkpoint(folder: Path, *, fp4: bool) -> int:
    """A tiny mixture's checkpoint as exporters write it; gives its bytes."""
    (folder / "config.json").write_text(json.dumps(MIXED))
    tensors: dict[str, tuple[str, list[int], int]] = {}
    for tensor in TensorPlan(parse_shape(MIXED), UNQUANTIZED).all():
        copies = 4 if tensor.module is Module.ROUTED else 1
        for expert in range(copies):
            name = tensor.name.replace("experts.0", f"experts.{expert}")
            count = tensor.parameters // copies
            if fp4 and tensor.module is Module.ROUTED:
                tensors[f"{name}.weight"] = ("U8", [count // 2], count // 2)
                tensors[f"{name}.weight_scale"] = ("F8_E4M3", [count // 16], count // 16)
                tensors[f"{name}.weight_scale_2"] = ("F32", [1], 4)
            else:
                tensors[f"{name}.weight"] = ("BF16", [count], count * 2)
    return write_safetensors(folder / "model.safetensors", tensors)


def write_gguf(path: Path) -> None:
    """A small GGUF header with a long vocabulary."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    def key(name: str, value: int | str) -> bytes:
        if isinstance(value, str):
            return text(name) + struct.pack("<I", 8) + text(value)
        return text(name) + struct.pack("<II", 4, value)

    keys = [
        key("general.architecture", "llama"), key("llama.block_count", 1),
        key("llama.embedding_length", 64), key("llama.attention.head_count", 4),
        key("llama.attention.head_count_kv", 2), key("llama.feed_forward_length", 128),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 5000) + text("ab") * 5000,
    ]  # fmt: skip
    tensors = [
        ("token_embd.weight", [64, 512], 8), ("blk.0.attn_q.weight", [64, 64], 12),
        ("blk.0.ffn_up.weight", [64, 128], 14), ("output_norm.weight", [64], 0),
    ]  # fmt: skip
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys)
    for name, shape, kind in tensors:
        out += text(name) + struct.pack("<I", len(shape))
        out += b"".join(struct.pack("<Q", size) for size in shape) + struct.pack("<IQ", kind, 0)
    path.write_bytes(out + bytes(100_000))
