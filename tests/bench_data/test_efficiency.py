"""Steps of a run beside what was possible."""

from __future__ import annotations

import msgspec
import pytest

from backends.bench.cards import card_table
from backends.bench.efficiency import conditions_of, efficiency
from backends.bench.kv_cache import KvType
from backends.bench.models import load_model
from backends.bench.results import Environment, RunResult
from backends.bench.roofline import FigureKind
from backends.bench.step_time import Layout
from backends.errors import UsageError
from tests.bench_data.runs import run


def with_config(gpus: int, **config: str) -> RunResult:
    environment = Environment(
        gpus=({"name": "NVIDIA H200", "uuid": "GPU-1"},) * gpus, effective_config=config
    )
    return msgspec.structs.replace(run(1), environment=environment)


@pytest.mark.parametrize(
    ("config", "layout"),
    [
        ({}, Layout(tp=8)),
        ({"tp_size": "8"}, Layout(tp=8)),
        ({"tensor_parallel_size": "4", "pipeline_parallel_size": "2"}, Layout(tp=4, pp=2)),
        ({"tp_size": "8", "dp_size": "8", "enable_dp_attention": "True", "ep_size": "8"},
         Layout(tp=1, dp=8, ep=8)),
        ({"tensor_parallel_size": "2", "data_parallel_size": "4",
          "enable_expert_parallel": "true"}, Layout(tp=2, dp=4, ep=8)),
        ({"tp_size": "many"}, Layout(tp=8)),
    ],
)  # fmt: skip
def test_layouts_in_the_words_of_engines(config: dict[str, str], layout: Layout) -> None:
    conditions = conditions_of(with_config(8, **config))
    assert conditions.layout == layout
    assert conditions.card.name == "H200"


def test_a_layout_that_contradicts_the_cards_is_said() -> None:
    with pytest.raises(UsageError):
        conditions_of(with_config(8, tp_size="4"))


def test_without_recorded_gpus_they_must_be_given() -> None:
    with pytest.raises(UsageError):
        conditions_of(with_config(0))
    given = conditions_of(with_config(0), card_table().find("B200"), 2)
    assert given.layout == Layout(tp=2)


def test_the_cache_type_is_read() -> None:
    assert conditions_of(with_config(8, kv_cache_dtype="fp8_e4m3")).kv_type is KvType.FP8
    assert conditions_of(with_config(8, kv_cache_dtype="auto")).kv_type is KvType.BF16


def test_each_step_stands_beside_its_own_ceilings() -> None:
    measured = run(1, streams=(1, 64), repetitions=2)
    weights = load_model("GLM-5-NVFP4")[1]
    one, many = efficiency(measured, weights, conditions_of(measured))
    # Prompts and answers of 100 tokens, 50 tokens a second each.
    assert one.roofline.conditions.context == 150
    assert one.stream_tokens_per_s == pytest.approx(50, rel=0.02)
    paper = one.roofline.figure(FigureKind.PAPER).stream_tokens_per_s
    assert paper is not None
    assert one.stream_share(FigureKind.PAPER) == pytest.approx(50 / paper, rel=0.02)
    assert one.roofline.efficiency(FigureKind.PAPER) == one.stream_share(FigureKind.PAPER)
    assert many.roofline.conditions.batch == 64
    assert many.output_tokens_per_s == pytest.approx(3200, rel=0.02)
    share = many.stream_share(FigureKind.REALISTIC)
    assert share is not None
    assert share > (one.stream_share(FigureKind.REALISTIC) or 1)


def test_what_was_not_measured_is_absent() -> None:
    bare = run(1)
    steps = tuple(
        msgspec.structs.replace(step, tpot_s=None, steady=None, whole=None) for step in bare.steps
    )
    bare = msgspec.structs.replace(bare, steps=steps)
    weights = load_model("GLM-5-NVFP4")[1]
    first = efficiency(bare, weights, conditions_of(bare))[0]
    assert first.stream_tokens_per_s is None
    assert first.stream_share(FigureKind.PAPER) is None
    assert first.output_share(FigureKind.PAPER) is None
