"""The tensors that a model has: from its shape, with names as checkpoints give them.

Names matter: a quantisation's list of exceptions speaks of names, and so do real headers. One entry
stands for all experts of a layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.bench.model_shape import Attention, Layer, ModelShape
from backends.bench.quantization import BF16, FP32, Quantization, Scheme


class Module(StrEnum):
    """What a tensor belongs to, which decides when it is read and how it is spread over cards."""

    ATTENTION = "attention"
    LATENT_DOWN = "latent down-projections"
    INDEXER = "indexer"
    LINEAR = "linear attention"
    ROUTED = "routed experts"
    SHARED = "shared expert"
    DENSE = "dense feed-forward"
    ROUTER = "router"
    NORM = "norms"
    EMBEDDING = "embedding"
    HEAD = "output head"
    PREDICTION = "multi-token prediction"
    VISION = "vision and audio"
    OTHER = "other"


NOT_READ: Final = frozenset({Module.EMBEDDING, Module.PREDICTION, Module.VISION})
"""Not read in full for a token: of the embedding one row is, the others not at all."""

REPLICATED: Final = frozenset({Module.LATENT_DOWN, Module.INDEXER, Module.ROUTER, Module.NORM})
"""What engines commonly keep whole on each card instead of splitting it."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight matrix, or the same one of all experts of a layer."""

    name: str
    module: Module
    parameters: int
    scheme: Scheme

    @property
    def stored_bytes(self) -> float:
        """Bytes in the checkpoint, scales included."""
        return self.parameters * self.scheme.bytes_per_parameter


class TensorPlan:
    """Lists the tensors of a shape under a quantisation."""

    def __init__(self, shape: ModelShape, quantization: Quantization) -> None:
        self.shape = shape
        self.quantization = quantization
        self.plain = FP32 if shape.weight_bytes == 4.0 else BF16

    def all(self) -> Iterator[Tensor]:
        """Every tensor of the model, multi-token-prediction layers last."""
        shape = self.shape
        table = shape.vocabulary * shape.hidden
        yield self.kept("model.embed_tokens", Module.EMBEDDING, table)
        for index, layer in enumerate(shape.layers):
            yield from self.layer(f"model.layers.{index}", layer)
        yield self.kept("model.norm", Module.NORM, shape.hidden)
        # A tied head is the embedding table read in full, stored once: see `head_is_embedding`.
        if not shape.tied:
            yield self.kept("lm_head", Module.HEAD, table)
        for index in range(shape.prediction_layers):
            yield from self.prediction(len(shape.layers) + index)

    def kept(self, name: str, module: Module, parameters: int) -> Tensor:
        """A tensor that no method quantises: tables, norms, routers."""
        return Tensor(name, module, parameters, self.plain)

    def linear(self, name: str, module: Module, parameters: int) -> Tensor:
        """A matrix that the quantisation may have taken."""
        scheme = self.quantization.scheme_of(name, self.plain)
        if self.quantization.method == "mxfp4" and module is not Module.ROUTED:
            # The method's checkpoints (gpt-oss) pack the experts alone.
            scheme = self.plain
        return Tensor(name, module, parameters, scheme)

    def layer(self, prefix: str, layer: Layer) -> Iterator[Tensor]:
        """One decoder layer."""
        shape = self.shape
        if layer.attention is Attention.LINEAR:
            yield from self.linear_attention(f"{prefix}.linear_attn")
        elif layer.attention is Attention.LATENT:
            yield from self.latent_attention(f"{prefix}.self_attn")
        else:
            yield from self.grouped_attention(f"{prefix}.self_attn")
        if layer.indexer:
            yield from self.indexer(f"{prefix}.self_attn.indexer")
        yield self.kept(
            f"{prefix}.input_layernorm", Module.NORM, shape.norms_per_layer * shape.hidden
        )
        if layer.mixture:
            yield from self.mixture(f"{prefix}.mlp")
        else:
            yield from self.feed_forward(f"{prefix}.mlp", Module.DENSE, layer.ffn_size)

    def grouped_attention(self, prefix: str) -> Iterator[Tensor]:
        """Multi-head, grouped-query or multi-query attention."""
        shape = self.shape
        queries = shape.heads * shape.head_dim
        keys = shape.kv_heads * shape.head_dim
        widths = (
            ("q_proj", queries * (2 if shape.output_gate else 1)),
            ("k_proj", keys),
            ("v_proj", keys),
        )
        for name, width in widths:
            yield self.linear(f"{prefix}.{name}", Module.ATTENTION, shape.hidden * width)
            if shape.bias:
                yield self.kept(f"{prefix}.{name}.bias", Module.ATTENTION, width)
        yield self.linear(f"{prefix}.o_proj", Module.ATTENTION, queries * shape.hidden)
        if shape.qk_norm:
            yield self.kept(f"{prefix}.q_norm", Module.NORM, 2 * shape.head_dim)

    def latent_attention(self, prefix: str) -> Iterator[Tensor]:
        """Multi-head latent attention."""
        shape, latent = self.shape, self.shape.latent
        assert latent is not None
        query_width = shape.heads * (latent.nope_dim + latent.rope_dim)
        if latent.q_rank is None:
            yield self.linear(f"{prefix}.q_proj", Module.ATTENTION, shape.hidden * query_width)
        else:
            down = shape.hidden * latent.q_rank
            yield self.linear(f"{prefix}.q_a_proj", Module.LATENT_DOWN, down)
            yield self.kept(f"{prefix}.q_a_layernorm", Module.NORM, latent.q_rank)
            up = latent.q_rank * query_width
            yield self.linear(f"{prefix}.q_b_proj", Module.ATTENTION, up)
        down = shape.hidden * (latent.kv_rank + latent.rope_dim)
        yield self.linear(f"{prefix}.kv_a_proj_with_mqa", Module.LATENT_DOWN, down)
        yield self.kept(f"{prefix}.kv_a_layernorm", Module.NORM, latent.kv_rank)
        up = latent.kv_rank * shape.heads * (latent.nope_dim + latent.value_dim)
        yield self.linear(f"{prefix}.kv_b_proj", Module.ATTENTION, up)
        out = shape.heads * latent.value_dim * shape.hidden
        yield self.linear(f"{prefix}.o_proj", Module.ATTENTION, out)

    def indexer(self, prefix: str) -> Iterator[Tensor]:
        """The indexer of sparse attention."""
        shape, indexer, latent = self.shape, self.shape.indexer, self.shape.latent
        assert indexer is not None
        assert latent is not None
        source = latent.q_rank or shape.hidden
        width = indexer.heads * indexer.head_dim
        yield self.linear(f"{prefix}.wq_b", Module.INDEXER, source * width)
        yield self.linear(f"{prefix}.wk", Module.INDEXER, shape.hidden * indexer.head_dim)
        yield self.linear(f"{prefix}.weights_proj", Module.INDEXER, shape.hidden * indexer.heads)

    def linear_attention(self, prefix: str) -> Iterator[Tensor]:
        """A gated delta net: queries, keys, values and gate in one projection."""
        shape, linear = self.shape, self.shape.linear
        assert linear is not None
        keys = linear.key_heads * linear.key_dim
        values = linear.value_heads * linear.value_dim
        into = shape.hidden * (2 * keys + 2 * values)
        yield self.linear(f"{prefix}.in_proj_qkvz", Module.LINEAR, into)
        yield self.linear(
            f"{prefix}.in_proj_ba", Module.LINEAR, shape.hidden * 2 * linear.value_heads
        )
        convolution = (2 * keys + values) * linear.kernel
        yield self.kept(f"{prefix}.conv1d", Module.LINEAR, convolution)
        yield self.linear(f"{prefix}.out_proj", Module.LINEAR, values * shape.hidden)

    def mixture(self, prefix: str) -> Iterator[Tensor]:
        """Router, routed experts (one entry a matrix for all), and what every token passes."""
        shape, mixture = self.shape, self.shape.mixture
        assert mixture is not None
        yield self.kept(f"{prefix}.gate", Module.ROUTER, shape.hidden * mixture.experts)
        yield from self.feed_forward(
            f"{prefix}.experts.0", Module.ROUTED, mixture.expert_size, mixture.experts
        )
        if mixture.shared_size:
            yield from self.feed_forward(
                f"{prefix}.shared_experts", Module.SHARED, mixture.shared_size
            )
            if shape.model_type.startswith(("qwen2_moe", "qwen3_next", "qwen3_5")):
                yield self.kept(f"{prefix}.shared_expert_gate", Module.ROUTER, shape.hidden)

    def feed_forward(
        self, prefix: str, module: Module, width: int, copies: int = 1
    ) -> Iterator[Tensor]:
        """Gate, up and down; or up and down."""
        shape = self.shape
        matrix = shape.hidden * width * copies
        for name in ("gate_proj", "up_proj", "down_proj") if shape.gated else ("fc1", "fc2"):
            yield self.linear(f"{prefix}.{name}", module, matrix)
        if shape.model_type == "gpt_oss":
            yield self.kept(f"{prefix}.bias", module, (2 * width + shape.hidden) * copies)

    def prediction(self, index: int) -> Iterator[Tensor]:
        """A multi-token-prediction layer: a decoder layer and the projection that joins two states.

        Its embedding and head are the model's own.
        """
        shape = self.shape
        prefix = f"model.layers.{index}"
        tensors = list(self.layer(prefix, shape.layers[-1]))
        tensors.append(self.kept(f"{prefix}.eh_proj", Module.PREDICTION, 2 * shape.hidden**2))
        for tensor in tensors:
            yield Tensor(tensor.name, Module.PREDICTION, tensor.parameters, tensor.scheme)


_HUB_NAMES: Final = tuple(
    (re.compile(pattern), module)
    for pattern, module in (
        (
            r"(^|\.)(visual|vision|vision_tower|vision_model|vision_encoder|multi_modal_projector"
            r"|mm_projector|audio_tower|audio|image_newline|patch_embed)\.",
            Module.VISION,
        ),
        (r"(^|\.)(mtp|nextn|mtp_layers)\.", Module.PREDICTION),
        (r"shared_expert_gate", Module.ROUTER),
        (r"shared_expert|shared_mlp", Module.SHARED),
        (r"\.experts\.", Module.ROUTED),
        (r"\.indexer\.", Module.INDEXER),
        (r"\.(linear_attn|mamba|mixer|ssm)\.", Module.LINEAR),
        (r"(norm|ln_\d|ln_f)[^.]*\.(weight|bias)$", Module.NORM),
        (r"\.(q_a_proj|kv_a_proj_with_mqa|fused_qkv_a_proj\w*)\.", Module.LATENT_DOWN),
        (r"\.(self_attn|self_attention|attention|attn)\.", Module.ATTENTION),
        (r"\.(gate|router|block_sparse_moe\.gate)\.", Module.ROUTER),
        (r"\.(mlp|feed_forward|ffn|block_sparse_moe)\.", Module.DENSE),
        (r"(^|\.)(embed_tokens|wte|tok_embeddings|embed_in|wpe)\.", Module.EMBEDDING),
        (r"(^|\.)(lm_head|embed_out|output)\.", Module.HEAD),
    )
)
_GGUF_NAMES: Final = tuple(
    (re.compile(pattern), module)
    for pattern, module in (
        (r"^(v|mm|a)\.", Module.VISION),
        (r"\.nextn\.", Module.PREDICTION),
        (r"\.ffn_(gate_up|gate|up|down)_exps", Module.ROUTED),
        (r"\.ffn_gate_inp|\.exp_probs_b", Module.ROUTER),
        (r"\.ffn_(gate|up|down)_shexp", Module.SHARED),
        (r"\.indexer", Module.INDEXER),
        (r"\.ssm_|\.attn_gate|\.attn_qkv_ssm", Module.LINEAR),
        (r"_norm", Module.NORM),
        (r"\.attn_(q_a|kv_a_mqa)\.", Module.LATENT_DOWN),
        (r"\.attn_", Module.ATTENTION),
        (r"\.ffn_", Module.DENSE),
        (r"^(token_embd|per_layer_token_embd)", Module.EMBEDDING),
        (r"^output\.", Module.HEAD),
    )
)
_LAYER_INDEX: Final = re.compile(r"(?:^|\.)(?:layers|h|blk|blocks)\.(\d{1,6})\.")


def classify(name: str, layers: int, *, gguf: bool = False) -> Module:
    """The module that a checkpoint's tensor belongs to, by its name.

    Args:
        name: As in the file, with `.weight`, `.weight_scale` and the like.
        layers: How many decoder layers the model has; tensors of later ones predict further tokens.
        gguf: Whether the name is one of a GGUF file.
    """
    table = _GGUF_NAMES if gguf else _HUB_NAMES
    first = next((module for pattern, module in table if pattern.search(name)), Module.OTHER)
    if first is Module.VISION:
        return first
    index = _LAYER_INDEX.search(name)
    if index and int(index.group(1)) >= layers:
        return Module.PREDICTION
    return first
