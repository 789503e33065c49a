"""What a model's `config.json` says of its shape: layers, attention, experts.

The file comes from a stranger, so every figure is bounded and every error names the field. Nothing
here reads weights; `weight_files` does, and is more exact where it can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backends.bench.json_fields import MAX_LAYERS, Fields, ModelError
from backends.bench.model_layers import attention_kinds, layers_of
from backends.bench.model_shape import Indexer, Latent, Linear, Mixture, ModelShape

MAX_EXPERTS: Final = 1 << 16
MAX_VOCABULARY: Final = 1 << 26
FEED_FORWARD_NAMES: Final = ("intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim")
KNOWN_DTYPES: Final = ("", "bfloat16", "float16", "float32", "half", "auto")


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
    attention = attention_kinds(fields, model_type, count, window, latent, linear)
    layers = layers_of(fields, model_type, count, hidden, mixture, indexer, attention)
    if model_type not in KNOWN_TYPES:
        kind = model_type or "not named"
        notes.append(f"model type {kind} is not known here: read as a plain transformer")
    dense = any(not layer.mixture for layer in layers)
    if dense and not any(fields.has(name) for name in FEED_FORWARD_NAMES):
        notes.append(f"no width of the feed-forward part is given: {4 * hidden} is taken")
    dtype = _dtype(fields, config)
    if dtype not in KNOWN_DTYPES:
        notes.append(f"data type {dtype} is not known here: 2 bytes a parameter are taken")
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
        weight_bytes=4.0 if dtype == "float32" else 2.0,
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
