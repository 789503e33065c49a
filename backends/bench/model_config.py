"""What a model's `config.json` says of its shape: layers, attention, experts.

The file comes from a stranger, so every figure is bounded and every error names the field. Nothing
here reads weights; `weight_files` does, and is more exact where it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.bench.json_fields import MAX_LAYERS, Fields, ModelError

MAX_EXPERTS: Final = 1 << 16
MAX_VOCABULARY: Final = 1 << 26


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


def parse_shape(config: Mapping[str, object], where: str = "config.json") -> ModelShape:
    """Read the shape of a decoder from its configuration.

    Args:
        config: The decoded `config.json`; of a multimodal model the text part is used.
        where: Name of the file, for errors.

    Raises:
        ModelError: A field that is needed is missing or out of bounds.
    """
    fields = Fields(config, where)
    notes: list[str] = []
    for name in ("text_config", "llm_config", "language_config"):
        nested = fields.object(name)
        if nested is not None:
            fields = nested
            notes.append("multimodal model: only its text part is counted")
            break
    model_type = fields.word("model_type") or Fields(config, where).word("model_type")
    fields = Fields({**FAMILY_DEFAULTS.get(model_type, {}), **fields.values}, where)
    _refuse_unknown_layers(fields, model_type)
    count = fields.integer("num_hidden_layers", "n_layer", "num_layers", high=MAX_LAYERS)
    hidden = fields.integer("hidden_size", "n_embd", "d_model")
    heads = fields.integer("num_attention_heads", "n_head", "num_heads", high=65536)
    latent = _latent(fields)
    kv_heads = fields.integer(
        "num_key_value_heads",
        "num_kv_heads",
        default=1 if fields.flag("multi_query") else heads,
        high=65536,
    )
    if kv_heads > heads and latent is None:
        raise fields.fail("num_key_value_heads", f"is {kv_heads}, more than {heads} heads")
    mixture = _mixture(fields, model_type, hidden, notes)
    indexer = _indexer(fields) if latent else None
    window = fields.integer(
        "sliding_window", "sliding_window_size", "attention_chunk_size", default=0, low=0
    )
    linear = _linear(fields)
    attention = _attention_kinds(fields, model_type, count, window, latent, linear)
    layers = _layers(fields, model_type, count, hidden, mixture, indexer, attention)
    if model_type not in KNOWN_TYPES:
        kind = model_type or "not named"
        notes.append(f"model type {kind} is not known here: read as a plain transformer")
    return ModelShape(
        model_type=model_type,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=fields.integer("head_dim", default=max(1, hidden // heads), high=65536),
        vocabulary=fields.integer("vocab_size", high=MAX_VOCABULARY),
        tied=fields.flag("tie_word_embeddings", model_type in TIED_BY_DEFAULT),
        gated=model_type not in TWO_MATRICES,
        bias=fields.flag("attention_bias", model_type.startswith("qwen2")),
        qk_norm=fields.flag("use_qk_norm", model_type.startswith(("qwen3", "gemma3"))),
        output_gate=fields.flag("attn_output_gate", model_type.startswith("qwen3_next")),
        window=window,
        latent=latent,
        indexer=indexer,
        mixture=mixture,
        linear=linear,
        prediction_layers=fields.integer(
            "num_nextn_predict_layers",
            "mtp_num_hidden_layers",
            "num_mtp_modules",
            default=0,
            low=0,
            high=64,
        ),
        weight_bytes=4.0 if _dtype(fields, config) == "float32" else 2.0,
        norms_per_layer=4 if model_type.startswith(("gemma2", "gemma3")) else 2,
        context_limit=fields.integer(
            "max_position_embeddings", "n_positions", default=0, low=0, high=1 << 40
        ),
        notes=tuple(notes),
    )


def _dtype(fields: Fields, config: Mapping[str, object]) -> str:
    outer = Fields(config, fields.where)
    for name in ("torch_dtype", "dtype"):
        word = fields.word(name) or outer.word(name)
        if word:
            return word
    return ""


KNOWN_TYPES: Final = frozenset({
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5", "ernie4_5_moe", "gemma",
    "gemma2", "gemma3", "gemma3_text", "glm4", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa",
    "gpt2", "gpt_neox", "gpt_oss", "granite", "granitemoe", "hunyuan_v1_moe", "kimi_k2", "llama",
    "llama4", "llama4_text", "minimax_m2", "ministral", "mistral", "mixtral", "olmo", "olmo2",
    "olmoe", "opt", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_5_moe_text", "qwen3_5_text",
    "qwen3_moe", "qwen3_next", "qwen3_vl_moe_text", "qwen3_vl_text", "seed_oss", "starcoder2",
})  # fmt: skip
TWO_MATRICES: Final = frozenset({
    "bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "opt", "starcoder2",
})  # fmt: skip
TIED_BY_DEFAULT: Final = frozenset({
    "falcon", "gemma", "gemma2", "gemma3", "gemma3_text", "gpt2", "opt",
})  # fmt: skip


FAMILY_DEFAULTS: Final[dict[str, dict[str, object]]] = {
    "gemma3_text": {
        "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "num_hidden_layers": 26, "sliding_window": 4096,
    },
    "gemma2": {"vocab_size": 256_000, "head_dim": 256, "sliding_window": 4096},
    "gemma": {"vocab_size": 256_000, "head_dim": 256},
}  # fmt: skip
"""What a family's configurations leave out, since it is the library's default."""

UNKNOWN_LAYERS: Final = {
    "hybrid_override_pattern": "state-space layers",
    "layers_block_type": "state-space layers",
    "mamba_d_state": "state-space layers",
    "ssm_cfg": "state-space layers",
    "attn_layer_period": "state-space layers",
    "compress_ratios": "compressed attention",
    "linear_attn_config": "linear attention of another kind",
    "block_configs": "layers that differ one by one",
}
"""Fields of layers whose cost is not known here: a figure would be wrong by an unknown amount."""


def _refuse_unknown_layers(fields: Fields, model_type: str) -> None:
    for name, what in UNKNOWN_LAYERS.items():
        if fields.values.get(name):
            raise ModelError(
                f"The model has {what}, which are not known here",
                f"{fields.where}: `{name}`, model type {model_type or 'not named'}",
                "No ceiling is computed rather than a wrong one.",
            )
    kinds = fields.integers("attn_type_list")
    if kinds and 0 in kinds:
        raise ModelError(
            "The model has linear attention of another kind, which is not known here",
            f"{fields.where}: `attn_type_list`",
            "No ceiling is computed rather than a wrong one.",
        )


def _latent(fields: Fields) -> Latent | None:
    if not fields.has("kv_lora_rank"):
        return None
    return Latent(
        q_rank=fields.integer("q_lora_rank") if fields.has("q_lora_rank") else None,
        kv_rank=fields.integer("kv_lora_rank"),
        nope_dim=fields.integer("qk_nope_head_dim"),
        rope_dim=fields.integer("qk_rope_head_dim", low=0),
        value_dim=fields.integer("v_head_dim"),
    )


def _indexer(fields: Fields) -> Indexer | None:
    if not fields.has("index_topk"):
        return None
    return Indexer(
        heads=fields.integer("index_n_heads"),
        head_dim=fields.integer("index_head_dim"),
        top_k=fields.integer("index_topk", high=1 << 40),
    )


def _linear(fields: Fields) -> Linear | None:
    if not fields.has("linear_num_value_heads"):
        return None
    return Linear(
        key_heads=fields.integer("linear_num_key_heads"),
        value_heads=fields.integer("linear_num_value_heads"),
        key_dim=fields.integer("linear_key_head_dim"),
        value_dim=fields.integer("linear_value_head_dim"),
        kernel=fields.integer("linear_conv_kernel_dim", default=4),
    )


def _mixture(fields: Fields, model_type: str, hidden: int, notes: list[str]) -> Mixture | None:
    experts = fields.integer(
        "n_routed_experts",
        "num_experts",
        "num_local_experts",
        "moe_num_experts",
        default=0,
        low=0,
        high=MAX_EXPERTS,
    )
    if experts <= 1:
        return None
    per_token = fields.integer(
        "num_experts_per_tok", "experts_per_token", "moe_k", "moe_topk", high=experts
    )
    size = fields.integer("moe_intermediate_size", "expert_size", "intermediate_size")
    if fields.has("shared_expert_intermediate_size"):
        shared = fields.integer("shared_expert_intermediate_size", low=0)
    elif model_type.startswith("llama4"):
        shared = size
    else:
        count = fields.integer(
            "n_shared_experts", "moe_num_shared_experts", "num_shared_expert", default=0, low=0
        )
        shared = size * count
    return Mixture(experts, per_token, size, shared)


def _attention_kinds(
    fields: Fields,
    model_type: str,
    count: int,
    window: int,
    latent: Latent | None,
    linear: Linear | None,
) -> list[Attention]:
    """The kind of each layer: from the list in the configuration, else from the family's rule."""
    if latent is not None:
        return [Attention.LATENT] * count
    words = {
        "linear_attention": Attention.LINEAR,
        "sliding_attention": Attention.SLIDING,
        "chunked_attention": Attention.SLIDING,
    }
    listed = fields.words("layer_types", MAX_LAYERS)
    if listed:
        if len(listed) < count:
            raise fields.fail("layer_types", f"names {len(listed)} of {count} layers")
        kinds = [words.get(word, Attention.FULL) for word in listed[:count]]
        if Attention.LINEAR in kinds and linear is None:
            raise fields.fail("linear_num_value_heads", "is missing, though layers are linear")
        if Attention.SLIDING in kinds and not window:
            raise fields.fail("sliding_window", "is missing, though layers have a window")
        return kinds
    rule = _family_rule(fields, model_type, window, linear)
    return [rule(index) for index in range(count)]


def _family_rule(
    fields: Fields, model_type: str, window: int, linear: Linear | None
) -> Callable[[int], Attention]:
    """Where no list says it: which layers look back how far, by family."""

    def every(period: int, others: Attention) -> Callable[[int], Attention]:
        return lambda index: Attention.FULL if (index + 1) % period == 0 else others

    if linear is not None:
        return every(
            fields.integer("full_attention_interval", default=4, high=MAX_LAYERS), Attention.LINEAR
        )
    if not window or not fields.flag("use_sliding_window", True):
        return lambda _: Attention.FULL
    if model_type.startswith("gemma3"):
        period = fields.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
        return every(period, Attention.SLIDING)
    if model_type.startswith("llama4"):
        return every(
            fields.integer("no_rope_layer_interval", default=4, high=MAX_LAYERS), Attention.SLIDING
        )
    if model_type in ("gemma2", "gpt_oss"):
        return every(2, Attention.SLIDING)
    if model_type.startswith("qwen"):
        first = fields.integer("max_window_layers", default=0, low=0)
        return lambda index: Attention.SLIDING if index >= first else Attention.FULL
    return lambda _: Attention.SLIDING


def _layers(
    fields: Fields,
    model_type: str,
    count: int,
    hidden: int,
    mixture: Mixture | None,
    indexer: Indexer | None,
    attention: Iterable[Attention],
) -> tuple[Layer, ...]:
    dense_size = fields.integer(
        "intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim", default=4 * hidden
    )
    is_mixture = _mixture_rule(fields, count) if mixture else lambda _: False
    shared_indexers = fields.words("indexer_types", MAX_LAYERS)
    return tuple(
        Layer(
            attention=kind,
            mixture=is_mixture(index),
            ffn_size=0 if is_mixture(index) else dense_size,
            indexer=indexer is not None
            and not (index < len(shared_indexers) and shared_indexers[index] == "shared"),
        )
        for index, kind in enumerate(attention)
    )


def _mixture_rule(fields: Fields, count: int) -> Callable[[int], bool]:
    """Which layers are mixtures: by list, by dense prefix, by step."""
    listed = fields.words("mlp_layer_types", MAX_LAYERS)
    if len(listed) >= count:
        return lambda index: listed[index] in ("sparse", "moe")
    layers = fields.integers("moe_layers")
    if layers:
        chosen = frozenset(layers)
        return lambda index: index in chosen
    frequency = fields.values.get("moe_layer_freq")
    if isinstance(frequency, list):
        flags = fields.integers("moe_layer_freq") or []
        return lambda index: index < len(flags) and bool(flags[index])
    dense_prefix = fields.integer(
        "first_k_dense_replace", "moe_layer_start_index", default=0, low=0, high=MAX_LAYERS
    )
    every = fields.integer("moe_layer_freq", "interleave_moe_layer_step", default=1)
    step = fields.integer("decoder_sparse_step", default=1)
    dense = frozenset(fields.integers("mlp_only_layers") or ())
    interleaved = fields.has("interleave_moe_layer_step")
    return lambda index: (
        index >= dense_prefix
        and index not in dense
        and (index + 1) % step == 0
        and ((index + 1) % every == 0 if interleaved else index % every == 0)
    )
