"""Reading models: published figures, families, quantisations."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.bench.cards import card_table
from backends.bench.json_fields import ModelError
from backends.bench.model_config import parse_shape
from backends.bench.model_shape import Attention
from backends.bench.models import ShippedModel, load_model, shipped_models, weigh
from backends.bench.quantization import matches, parse_quantization
from backends.bench.roofline import roofline
from backends.bench.step_time import Conditions, Layout
from backends.errors import UsageError
from tests.bench_data.checkpoints import MIXED, SMALL


@pytest.mark.parametrize("model", shipped_models(), ids=lambda model: str(model.name))
def test_published_parameter_counts(model: ShippedModel) -> None:
    _, weights = load_model(model.name)
    within = 0.03 if model.rounded else 0.001
    assert weights.total_parameters / 1e9 == pytest.approx(model.published_total_b, rel=within)
    if model.published_active_b is not None:
        # Makers count the embedding in or out, and round to a whole billion.
        table = weights.shape.vocabulary * weights.shape.hidden / 1e9
        active = weights.active_parameters / 1e9
        assert active - 0.5 <= model.published_active_b * 1.1
        assert active + table + 0.5 >= model.published_active_b * 0.95


def test_attention_kinds_of_families() -> None:
    kinds = {
        name: [layer.attention for layer in load_model(name)[1].shape.layers]
        for name in ("gpt-oss-20b", "Gemma-3-27B", "Qwen3-Next-80B-A3B", "Llama-4-Scout", "GLM-5")
    }
    assert kinds["gpt-oss-20b"][:2] == [Attention.SLIDING, Attention.FULL]
    assert kinds["Gemma-3-27B"].count(Attention.FULL) == 10
    assert kinds["Qwen3-Next-80B-A3B"].count(Attention.FULL) == 12
    assert kinds["Llama-4-Scout"].count(Attention.FULL) == 12
    assert set(kinds["GLM-5"]) == {Attention.LATENT}


def test_listed_layer_types_win_over_the_family_rule() -> None:
    types = ["full_attention", "sliding_attention"]
    shape = parse_shape({**SMALL, "layer_types": types, "sliding_window": 8})
    assert [layer.attention for layer in shape.layers] == [Attention.FULL, Attention.SLIDING]


def test_a_window_that_is_switched_off() -> None:
    config = {**SMALL, "model_type": "qwen2", "sliding_window": 8, "use_sliding_window": False}
    assert {layer.attention for layer in parse_shape(config).layers} == {Attention.FULL}


def test_dense_layers_of_mixtures() -> None:
    prefix = parse_shape({**MIXED, "num_hidden_layers": 4, "first_k_dense_replace": 1})
    assert [layer.mixture for layer in prefix.layers] == [False, True, True, True]
    step = parse_shape({**MIXED, "num_hidden_layers": 4, "decoder_sparse_step": 2})
    assert [layer.mixture for layer in step.layers] == [False, True, False, True]
    only = parse_shape({**MIXED, "num_hidden_layers": 4, "mlp_only_layers": [0, 3]})
    assert [layer.mixture for layer in only.layers] == [False, True, True, False]
    listed = parse_shape({**MIXED, "mlp_layer_types": ["dense", "sparse"]})
    assert [layer.mixture for layer in listed.layers] == [False, True]


def test_shared_indexers_are_counted_once() -> None:
    latent = {
        "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
        "v_head_dim": 8, "index_topk": 4, "index_n_heads": 2, "index_head_dim": 8,
    }  # fmt: skip
    shape = parse_shape({**SMALL, **latent, "indexer_types": ["full", "shared"]})
    assert [layer.indexer for layer in shape.layers] == [True, False]


def test_multimodal_models_are_read_by_their_text_part() -> None:
    shape = parse_shape({"model_type": "some_vl", "text_config": SMALL, "vision_config": {}})
    assert shape.hidden == 64
    assert any("text part" in note for note in shape.notes)


def test_an_unknown_family_is_read_and_said() -> None:
    shape = parse_shape({**SMALL, "model_type": "brand_new"})
    assert any("brand_new" in note for note in shape.notes)


@pytest.mark.parametrize(
    "change",
    [
        {"hybrid_override_pattern": "M-M*-"},
        {"layers_block_type": ["mamba", "attention"]},
        {"compress_ratios": [4, 128]},
        {"attn_type_list": [0, 1]},
    ],
)
def test_layers_of_unknown_cost_are_refused_rather_than_guessed(change: dict[str, object]) -> None:
    with pytest.raises(ModelError) as caught:
        parse_shape({**SMALL, **change})
    assert next(iter(change)) in caught.value.detail


def test_what_a_family_leaves_out() -> None:
    """The 4-billion-parameter Gemma 3 names neither its heads nor its vocabulary."""
    text = {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
        "num_hidden_layers": 34, "sliding_window": 1024,
    }  # fmt: skip
    weights = weigh({"model_type": "gemma3", "text_config": text}, "config.json")
    assert weights.total_parameters / 1e9 == pytest.approx(3.88, rel=0.001)


def test_what_is_taken_without_being_told_is_said() -> None:
    bare = {name: value for name, value in SMALL.items() if name != "intermediate_size"}
    assert any("feed-forward part" in note for note in parse_shape(bare).notes)
    odd = parse_shape({**SMALL, "torch_dtype": "float8_e4m3fn"})
    assert any("float8_e4m3fn is not known" in note for note in odd.notes)
    assert parse_shape({**SMALL, "torch_dtype": "bfloat16"}).notes == parse_shape(SMALL).notes


def test_one_figure_a_layer_is_one_figure() -> None:
    assert parse_shape({**SMALL, "intermediate_size": [128, 128]}).layers[0].ffn_size == 128
    with pytest.raises(ModelError):
        parse_shape({**SMALL, "intermediate_size": [128, 64]})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": "many"}, "hidden_size"),
        ({"hidden_size": -1}, "hidden_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_key_value_heads": 99}, "num_key_value_heads"),
        ({"vocab_size": 10**12}, "vocab_size"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["linear_attention"] * 2}, "linear_num_value_heads"),
    ],
)
def test_bad_fields_are_named(change: dict[str, object], field: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_shape({**SMALL, **change}, "some/config.json")
    assert field in caught.value.title
    assert caught.value.detail == "some/config.json"


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [*MIXED, "layer_types", "kv_lora_rank", "sliding_window", "moe_layer_freq"]
        ),
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers()),
    )
)
def test_any_configuration_is_read_or_refused(change: dict[str, object]) -> None:
    try:
        shape = parse_shape({**MIXED, **change})
    except ModelError:
        return
    assert shape.layers


@pytest.mark.parametrize(
    ("quantization", "module", "stored_as"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "q_proj", "FP8 128x128"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "q_proj", "INT4 g128"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 64, "sym": True}, "q_proj", "INT8 g64"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, "o", "NVFP4"),
        ({"quant_method": "mxfp4"}, "experts", "MXFP4"),
        (
            {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.self_attn"]},
            "self_attn.q_proj",
            "BF16",
        ),
    ],
)
def test_quantisations(quantization: dict[str, object], module: str, stored_as: str) -> None:
    read = parse_quantization({"quantization_config": quantization})
    assert read.scheme_of(f"model.layers.0.{module}").name == stored_as


def test_awq_with_zero_points_is_within_the_known_range() -> None:
    read = parse_quantization(
        {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    )
    assert 0.516 <= read.scheme_of("x").bytes_per_parameter <= 0.56


def test_mixed_precision_by_groups() -> None:
    read = parse_quantization(
        {
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "ignore": ["lm_head", "re:.*mlp.gate$"],
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {"num_bits": 4, "type": "float", "group_size": 16},
                        "input_activations": {"num_bits": 4, "type": "float"},
                    },
                    "group_1": {
                        "targets": ["re:.*self_attn.*"],
                        "weights": {"num_bits": 8, "type": "float"},
                    },
                },
            }
        }
    )
    assert read.scheme_of("model.layers.1.mlp.experts.0.up_proj").name == "NVFP4"
    assert read.scheme_of("model.layers.1.self_attn.o_proj").name == "FP8"
    assert read.scheme_of("model.layers.1.mlp.gate").name == "BF16"


def test_modelopt_mixed_precision_names_layers() -> None:
    layers = {"model.layers.0.mlp": {"quant_algo": "NVFP4"}, "lm_head": {"quant_algo": "FP8"}}
    extra = {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers,
                              "kv_cache_quant_algo": "FP8"}}  # fmt: skip
    read = parse_quantization({}, extra)
    assert read.scheme_of("model.layers.0.mlp.up_proj").name == "NVFP4"
    assert read.scheme_of("model.layers.0.self_attn.q_proj").name == "BF16"
    assert read.kv_cache == "fp8"


def test_an_unknown_method_is_refused_with_a_way_out() -> None:
    with pytest.raises(ModelError) as caught:
        parse_quantization({"quantization_config": {"quant_method": "magic"}})
    assert "magic" in caught.value.title
    assert "--weights" in caught.value.hint


@pytest.mark.parametrize(
    ("pattern", "module", "expected"),
    [
        ("lm_head", "lm_head", True),
        ("lm_head", "model.layers.0.mlp.up_proj", False),
        ("re:.*lm_head", "lm_head", True),
        ("model.layers.0*", "model.layers.0.mlp.up_proj", True),
        ("model.layers.1", "model.layers.10.mlp.up_proj", False),
        ("gate", "model.layers.1.mlp.gate", True),
        ("gate", "model.layers.1.mlp.gate_proj", False),
        ("*.self_attn.*", "model.layers.1.self_attn.q_proj", True),
    ],
)
def test_patterns_of_ignore_lists(pattern: str, module: str, expected: bool) -> None:
    assert matches(pattern, module) is expected


@pytest.mark.parametrize("pattern", ["re:(a+)+$", "re:(x*)*y", "re:.*.*.*.*.*.*z", "re:[", "*" * 9])
def test_patterns_that_could_run_for_ever_are_refused(pattern: str) -> None:
    with pytest.raises(ModelError):
        matches(pattern, "a" * 400)


def test_a_model_with_very_many_experts_is_bounded_work() -> None:
    config = {**MIXED, "num_experts": 65_000, "num_experts_per_tok": 64_000}
    conditions = Conditions(card_table().find("H200"), Layout(tp=8, ep=8), batch=64)
    assert roofline(weigh(config, "x"), conditions).decode[2].step_ms


def test_a_model_of_no_such_name_says_near_ones() -> None:
    with pytest.raises(UsageError) as caught:
        load_model("GLM5")
    assert "GLM-5" in caught.value.hint
