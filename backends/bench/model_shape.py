"""The layers and dimensions of a model: what decides how many bytes a token costs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Attention(StrEnum):
    """How a layer looks back, which decides what it keeps for each token."""

    FULL = "full"
    SLIDING = "sliding window"
    LATENT = "latent (MLA)"
    LINEAR = "linear"


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer."""

    attention: Attention
    mixture: bool
    """Whether the feed-forward part is a mixture of experts."""
    ffn_size: int
    """Width of the dense feed-forward part; 0 in a mixture layer."""
    indexer: bool = False
    """Whether the layer has a sparse-attention indexer of its own."""


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: dimensions of its projections."""

    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Indexer:
    """Sparse attention's indexer: its heads, and how many tokens it lets through."""

    heads: int
    head_dim: int
    top_k: int


@dataclass(frozen=True, slots=True)
class Mixture:
    """Mixture of experts: how many, how many of them a token uses, how wide."""

    experts: int
    experts_per_token: int
    expert_size: int
    shared_size: int
    """Width of what every token passes besides; 0 for none."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Linear attention (gated delta net): heads and dimensions of keys and values."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def state_bytes(self) -> int:
        """State of one layer and sequence: float32 matrix a head, and the convolution's tail."""
        matrix = self.value_heads * self.key_dim * self.value_dim * 4
        channels = 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
        return matrix + channels * (self.kernel - 1) * 2


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Everything about a model that decides how many bytes and operations a token costs."""

    model_type: str
    hidden: int
    layers: tuple[Layer, ...]
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    """Whether the output head is the embedding table."""
    gated: bool
    """Whether the feed-forward part has three matrices (gate, up, down) or two."""
    bias: bool
    qk_norm: bool
    output_gate: bool
    """Whether the query projection carries a gate of its own width besides."""
    window: int
    latent: Latent | None = None
    indexer: Indexer | None = None
    mixture: Mixture | None = None
    linear: Linear | None = None
    prediction_layers: int = 0
    """Multi-token-prediction layers: stored, but read only when drafting with them."""
    weight_bytes: float = 2.0
    """Bytes of one unquantised parameter."""
    norms_per_layer: int = 2
    context_limit: int = 0
    notes: tuple[str, ...] = ()
    """What had to be assumed while reading."""

    @property
    def mixture_layers(self) -> int:
        """How many layers are mixtures of experts."""
        return sum(layer.mixture for layer in self.layers)
