"""Which layers of a model look back how far, and which are mixtures: by list or by family."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from backends.bench.json_fields import MAX_LAYERS, Fields
from backends.bench.model_shape import Attention, Indexer, Latent, Layer, Linear, Mixture


def attention_kinds(
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


def layers_of(
    fields: Fields,
    model_type: str,
    count: int,
    hidden: int,
    mixture: Mixture | None,
    indexer: Indexer | None,
    attention: Iterable[Attention],
) -> tuple[Layer, ...]:
    """Every layer, with its attention and its feed-forward part. Raises ModelError."""
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
