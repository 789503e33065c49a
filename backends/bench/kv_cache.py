"""What a sequence keeps for each token, and what a decode step reads of it.

Record sizes as engines store them: for latent attention of 512 + 64 dimensions 1152 bytes in BF16,
656 in FP8 (scales and rotary part in wider types), 432 in NVFP4.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final

from backends.bench.model_shape import Attention, Latent, Layer, ModelShape

INDEX_KEY_SCALE_BYTES: Final = 4


class KvType(StrEnum):
    """How keys and values are stored."""

    BF16 = "bf16"
    FP8 = "fp8"
    NVFP4 = "nvfp4"


def kv_type_of(word: str) -> KvType:
    """The type that a checkpoint or an engine means by a word such as `fp8_e4m3` or `NVFP4`."""
    lower = word.lower()
    if "fp8" in lower:
        return KvType.FP8
    return KvType.NVFP4 if "fp4" in lower else KvType.BF16


_ELEMENT_BYTES: Final = {KvType.BF16: 2.0, KvType.FP8: 1.0, KvType.NVFP4: 0.5 + 1 / 16}


def latent_record_bytes(latent: Latent, kind: KvType) -> float:
    """One token of one latent layer; the rotary part stays in BF16 in packed records."""
    rotary = latent.rope_dim * 2
    if kind is KvType.FP8:
        return latent.kv_rank + math.ceil(latent.kv_rank / 128) * 4 + rotary
    if kind is KvType.NVFP4:
        packed = latent.kv_rank * _ELEMENT_BYTES[kind]
        return math.ceil((packed + rotary) / 16) * 16 + 16
    return latent.kv_rank * 2 + rotary


def index_key_bytes(shape: ModelShape, *, bf16: bool = False) -> float:
    """The indexer's key of one token and layer: FP8 with a float32 scale, or BF16."""
    if shape.indexer is None:
        return 0.0
    if bf16:
        return shape.indexer.head_dim * 2
    return shape.indexer.head_dim + INDEX_KEY_SCALE_BYTES


def _head_bytes(shape: ModelShape, kind: KvType, ranks: int) -> float:
    """One token of one layer on one of `ranks` cards: at least one head each."""
    heads = max(1, math.ceil(shape.kv_heads / ranks))
    return 2 * heads * shape.head_dim * _ELEMENT_BYTES[kind]


def read_bytes(
    shape: ModelShape, context: int, kind: KvType, ranks: int, *, sparse: bool = True
) -> float:
    """Bytes that one card reads for the next token of one sequence of `context` tokens.

    Args:
        shape: The model.
        context: Tokens already in the sequence.
        kind: How the cache is stored.
        ranks: Cards of the tensor-parallel group; latent attention is the same on each of them.
        sparse: Whether the engine uses the model's sparse attention, where it has one.
    """
    return sum(_layer_read(shape, layer, context, kind, ranks, sparse) for layer in shape.layers)


def _layer_read(
    shape: ModelShape, layer: Layer, context: int, kind: KvType, ranks: int, sparse: bool
) -> float:
    if layer.attention is Attention.LINEAR and shape.linear is not None:
        # Constant state: read and written.
        return 2 * shape.linear.state_bytes / ranks
    if layer.attention is Attention.LATENT and shape.latent is not None:
        record = latent_record_bytes(shape.latent, kind)
        if sparse and shape.indexer is not None:
            keys = index_key_bytes(shape) * context if layer.indexer else 0.0
            return record * min(context, shape.indexer.top_k) + keys
        return record * context
    seen = min(context, shape.window) if layer.attention is Attention.SLIDING else context
    return _head_bytes(shape, kind, ranks) * seen


def held_bytes(shape: ModelShape, context: int, kind: KvType, ranks: int) -> float:
    """Bytes that one sequence of `context` tokens occupies on one card."""
    total = 0.0
    for layer in shape.layers:
        if layer.attention is Attention.LINEAR and shape.linear is not None:
            total += shape.linear.state_bytes / ranks
        elif layer.attention is Attention.LATENT and shape.latent is not None:
            keys = index_key_bytes(shape) if layer.indexer else 0.0
            total += (latent_record_bytes(shape.latent, kind) + keys) * context
        else:
            seen = min(context, shape.window) if layer.attention is Attention.SLIDING else context
            total += _head_bytes(shape, kind, ranks) * seen
    return total


def decode_operations(shape: ModelShape, context: int, *, sparse: bool = True) -> float:
    """Multiplications and additions of attention for one token of one sequence, all heads."""
    total = 0.0
    for layer in shape.layers:
        if layer.attention is Attention.LINEAR and shape.linear is not None:
            linear = shape.linear
            total += 6 * linear.value_heads * linear.key_dim * linear.value_dim
        elif layer.attention is Attention.LATENT and shape.latent is not None:
            latent, seen = shape.latent, context
            if sparse and shape.indexer is not None:
                seen = min(context, shape.indexer.top_k)
                if layer.indexer:
                    total += 2 * shape.indexer.heads * shape.indexer.head_dim * context
            # Absorbed form: each head meets the latent record itself, twice.
            total += 2 * shape.heads * (2 * latent.kv_rank + latent.rope_dim) * seen
        else:
            seen = min(context, shape.window) if layer.attention is Attention.SLIDING else context
            total += 4 * shape.heads * shape.head_dim * seen
    return total


def prefill_operations(shape: ModelShape, prompt: int, *, sparse: bool = True) -> float:
    """Operations of causal attention over a prompt of `prompt` tokens, all layers and heads."""
    total = 0.0
    for layer in shape.layers:
        if layer.attention is Attention.LINEAR and shape.linear is not None:
            linear = shape.linear
            total += 6 * linear.value_heads * linear.key_dim * linear.value_dim * prompt
            continue
        limit = prompt
        width = 2 * shape.head_dim
        if layer.attention is Attention.SLIDING:
            limit = shape.window
        if layer.attention is Attention.LATENT and shape.latent is not None:
            width = shape.latent.nope_dim + shape.latent.rope_dim + shape.latent.value_dim
            if sparse and shape.indexer is not None:
                limit = shape.indexer.top_k
                if layer.indexer:
                    pairs = _causal_pairs(prompt, prompt)
                    total += 2 * shape.indexer.heads * shape.indexer.head_dim * pairs
        total += 2 * shape.heads * width * _causal_pairs(prompt, limit)
    return total


def _causal_pairs(prompt: int, limit: int) -> float:
    """(query, key) pairs that a causal mask leaves when a query sees at most `limit` keys."""
    seen = min(prompt, limit)
    return seen * (seen + 1) / 2 + max(0, prompt - seen) * seen
