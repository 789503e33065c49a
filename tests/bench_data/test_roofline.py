"""The theoretical maximum: the worked example, its terms, layouts, and what it says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backends.bench.cards import Card, bandwidth_of_clock, card_table, parse_gpus
from backends.bench.kv_cache import KvType, held_bytes, read_bytes
from backends.bench.models import chosen_quantization, load_model
from backends.bench.quantization import Arithmetic
from backends.bench.roofline import FigureKind, Roofline, roofline
from backends.bench.step_time import Conditions, Layout, first_true, uneven_experts
from backends.bench.weights import Weights
from backends.errors import UsageError

WITHIN = 0.005


def pro_6000() -> Card:
    return card_table().find("RTX PRO 6000")


def glm5(weights: str | None = None, *keep: str) -> Weights:
    override = chosen_quantization(weights, keep) if weights else None
    return load_model("GLM-5", override)[1]


def on_eight(**changes: object) -> Conditions:
    return replace(Conditions(pro_6000(), Layout(tp=8)), **changes)  # type: ignore[arg-type]


def speed(result: Roofline, kind: FigureKind) -> float:
    rate = result.figure(kind).stream_tokens_per_s
    assert rate is not None
    return rate


def test_parameters_of_the_worked_example() -> None:
    weights = glm5()
    assert weights.total_parameters / 1e9 == pytest.approx(743.9, rel=WITHIN)
    assert weights.active_parameters / 1e9 == pytest.approx(40.83, rel=WITHIN)
    by_module = {m.module.value: m.active_parameters / 1e9 for m in weights.modules}
    latent = by_module["attention"] + by_module["latent down-projections"]
    assert latent == pytest.approx(12.872, rel=WITHIN)
    for name, billions in {
        "indexer": 0.731, "routed experts": 22.649, "shared expert": 2.831,
        "dense feed-forward": 0.679, "router": 0.118, "output head": 0.952,
    }.items():  # fmt: skip
        assert by_module[name] == pytest.approx(billions, rel=WITHIN), name


@pytest.mark.parametrize(
    ("weights", "keep", "gigabytes", "paper", "live"),
    [
        ("nvfp4", (), 24.51, 584, 558),
        ("nvfp4", ("attention",), 44.06, 325, 311),
        ("nvfp4", ("attention", "dense"), 45.04, 318, 304),
        ("nvfp4", ("attention", "dense", "shared"), 49.11, 292, 279),
    ],
)
def test_ceilings_of_the_worked_example(
    weights: str, keep: tuple[str, ...], gigabytes: float, paper: float, live: float
) -> None:
    result = roofline(glm5(weights, *keep), on_eight())
    assert result.figure(FigureKind.PAPER).read_gb == pytest.approx(gigabytes, rel=WITHIN)
    assert speed(result, FigureKind.PAPER) == pytest.approx(paper, rel=WITHIN)
    assert speed(result, FigureKind.LIVE) == pytest.approx(live, rel=WITHIN)


def test_the_shipped_nvfp4_model_is_the_community_style() -> None:
    result = roofline(load_model("glm-5-nvfp4")[1], on_eight())
    assert speed(result, FigureKind.PAPER) == pytest.approx(325, rel=WITHIN)


@pytest.mark.parametrize(
    ("all_reduce_us", "expected"), [(0.0, 195), (7.5, 159), (9.2, 152), (25.0, 111)]
)
def test_realistic_ceiling_of_the_worked_example(all_reduce_us: float, expected: float) -> None:
    conditions = on_eight(live_bandwidth_gbps=1790.0, all_reduce_us=all_reduce_us)
    result = roofline(glm5("nvfp4", "attention"), conditions)
    figure = result.figure(FigureKind.REALISTIC)
    assert figure.read_gb == pytest.approx(73.5, rel=WITHIN)
    assert speed(result, FigureKind.REALISTIC) == pytest.approx(expected, rel=WITHIN)


def test_the_figure_of_309_is_the_nvfp4_model_with_some_context() -> None:
    weights = glm5("nvfp4", "attention")
    dense = roofline(weights, on_eight(context=3177, sparse=False))
    assert speed(dense, FigureKind.PAPER) == pytest.approx(309, rel=WITHIN)
    sparse = roofline(weights, on_eight(context=9857))
    assert speed(sparse, FigureKind.PAPER) == pytest.approx(309, rel=WITHIN)
    assert sparse.figure(FigureKind.PAPER).read_gb == pytest.approx(46.34, rel=WITHIN)


def test_measured_is_compared_with_each_figure() -> None:
    result = roofline(glm5("nvfp4", "attention"), on_eight(measured_tokens_per_s=10.36))
    assert result.efficiency(FigureKind.PAPER) == pytest.approx(10.36 / 325.4, rel=WITHIN)
    assert result.efficiency(FigureKind.MEASURED) == 1
    assert result.figure(FigureKind.MEASURED).step_ms == pytest.approx(96.5, rel=WITHIN)


def test_nothing_measured_is_absent_and_not_zero() -> None:
    result = roofline(glm5(), on_eight())
    figure = result.figure(FigureKind.MEASURED)
    assert figure.stream_tokens_per_s is None
    assert figure.absent
    assert result.efficiency(FigureKind.PAPER) is None


def test_a_card_whose_live_clock_is_unknown_says_so() -> None:
    result = roofline(glm5(), replace(on_eight(), card=card_table().find("H200")))
    live = result.figure(FigureKind.LIVE)
    assert live.stream_tokens_per_s is None
    assert "--memory-clock" in live.absent


def test_every_figure_with_a_number_says_its_assumptions() -> None:
    result = roofline(glm5(), on_eight(measured_tokens_per_s=50.0))
    assert all(figure.assumptions for figure in result.decode)
    assert all(figure.assumptions for figure in result.prefill)
    realistic = " ".join(result.figure(FigureKind.REALISTIC).assumptions)
    assert "156 all-reduces" in realistic
    assert "indexer" in realistic


def test_latent_cache_records_are_those_of_engines() -> None:
    shape = glm5().shape
    per_layer = {kind: held_bytes(shape, 1, kind, 8) / 78 - 132 for kind in KvType}
    assert per_layer == {KvType.BF16: 1152, KvType.FP8: 656, KvType.NVFP4: 432}


def test_grouped_heads_are_replicated_beyond_their_number() -> None:
    shape = load_model("Qwen3-30B-A3B")[1].shape
    whole = read_bytes(shape, 1000, KvType.BF16, 1)
    assert whole == 48 * 2 * 4 * 128 * 2 * 1000
    assert read_bytes(shape, 1000, KvType.BF16, 4) == whole / 4
    assert read_bytes(shape, 1000, KvType.BF16, 8) == whole / 4
    result = roofline(
        load_model("Qwen3-30B-A3B")[1], Conditions(pro_6000(), Layout(tp=8), context=1000)
    )
    assert any("4 KV heads on 8 cards" in a for a in result.decode[0].assumptions)


def test_a_sliding_window_caps_what_is_read() -> None:
    shape = load_model("gpt-oss-20b")[1].shape
    near, far = (read_bytes(shape, length, KvType.BF16, 1) for length in (128, 10_128))
    assert far - near == 12 * 2 * 8 * 64 * 2 * 10_000


def test_linear_attention_costs_the_same_at_any_length() -> None:
    shape = load_model("Qwen3-Next-80B-A3B")[1].shape
    step = read_bytes(shape, 2000, KvType.BF16, 1) - read_bytes(shape, 1000, KvType.BF16, 1)
    assert step == 12 * 2 * 2 * 256 * 2 * 1000


def test_more_sequences_read_more_experts() -> None:
    weights = glm5()
    assert weights.distinct_experts(1) == pytest.approx(8)
    assert 8 < weights.distinct_experts(16) < 128
    assert weights.distinct_experts(10_000) == pytest.approx(256)


def test_compute_takes_over_where_operations_a_byte_say() -> None:
    """A dense model without context: operations a byte of the card x bytes a parameter / 2."""
    weights = load_model("Llama-3.1-405B", chosen_quantization("nvfp4"))[1]
    rough = 2015e12 * 0.5625 / (2 * 1.792e12)
    assert rough == pytest.approx(316, rel=WITHIN)
    result = roofline(weights, Conditions(pro_6000(), Layout(tp=8)))
    assert result.compute_from_batch == pytest.approx(rough, rel=0.05)


def test_compute_never_takes_over_at_long_context() -> None:
    result = roofline(load_model("Llama-3.1-8B")[1], Conditions(pro_6000(), context=131_072))
    assert result.compute_from_batch is None
    assert "never" in result.compute_absent


def test_first_true_is_exact() -> None:
    for edge in (1, 2, 3, 7, 8, 100, 1000):
        assert first_true(edge.__le__, 4096) == edge
    assert first_true(lambda _: False, 4096) is None


def test_a_card_without_arithmetic_gives_no_prefill() -> None:
    card = card_table().find("RTX PRO 6000 Max-Q")
    result = roofline(load_model("Qwen3-8B")[1], Conditions(card))
    assert all(figure.total_ms is None and figure.absent for figure in result.prefill)
    assert result.compute_from_batch is None
    assert result.figure(FigureKind.PAPER).stream_tokens_per_s is not None


def test_a_card_without_fp4_multiplies_wider() -> None:
    figure, used = card_table().find("A100").arithmetic(Arithmetic.FP4)
    assert used is Arithmetic.BF16
    assert figure is not None
    assert figure.value == 312


def test_prefill_of_a_dense_model_is_two_operations_a_parameter() -> None:
    weights = load_model("Llama-3.3-70B")[1]
    result = roofline(weights, Conditions(card_table().find("H200"), Layout(tp=8), prompt=512))
    paper = result.prefill[0]
    head = 8192 * 128256
    products = 2 * (weights.active_parameters - head) * 512 / (8 * 989e9)
    assert paper.compute_ms == pytest.approx(products, rel=0.02)


def test_pipeline_stages_do_not_speed_up_one_stream() -> None:
    weights = load_model("Llama-3.3-70B")[1]
    card = card_table().find("H200")
    alone = speed(roofline(weights, Conditions(card, Layout(tp=2))), FigureKind.PAPER)
    staged = roofline(weights, Conditions(card, Layout(tp=2, pp=4)))
    assert speed(staged, FigureKind.PAPER) == pytest.approx(alone)
    assert staged.fit.weights_gb_per_card == pytest.approx(141.1 / 8, rel=0.01)


def test_replicas_do_not_speed_up_one_stream_but_many() -> None:
    weights = load_model("Llama-3.1-8B")[1]
    card = card_table().find("H200")
    one = roofline(weights, Conditions(card, Layout(tp=1), batch=8)).decode[0]
    four = roofline(weights, Conditions(card, Layout(tp=1, dp=4), batch=32)).decode[0]
    assert one.output_tokens_per_s is not None
    assert four.output_tokens_per_s == pytest.approx(4 * one.output_tokens_per_s)


def test_expert_parallel_waits_for_the_busiest_card() -> None:
    weights = glm5("nvfp4", "attention")
    split = roofline(weights, on_eight(all_reduce_us=0.0))
    whole = roofline(weights, on_eight(layout=Layout(tp=8, ep=8), all_reduce_us=0.0))
    assert speed(whole, FigureKind.PAPER) == pytest.approx(speed(split, FigureKind.PAPER))
    assert speed(whole, FigureKind.REALISTIC) < speed(split, FigureKind.REALISTIC)


def test_uneven_experts_counts_exactly() -> None:
    # Two of four experts in two groups of two: the same group in 2 of 6 pairs, so 4/3 on average.
    assert uneven_experts(4, 2, 2) == pytest.approx(4 / 3)
    assert uneven_experts(8, 1, 4) == pytest.approx(4)
    assert uneven_experts(256, 256, 8) == 1
    assert 1 < uneven_experts(60_000, 512, 64) < 64


@pytest.mark.parametrize(
    "layout", [Layout(tp=4), Layout(tp=8, dp=2), Layout(tp=0), Layout(tp=8, ep=3)]
)
def test_a_layout_that_does_not_fit_is_refused(layout: Layout) -> None:
    with pytest.raises(UsageError):
        layout.check(8)


def test_what_does_not_fit_is_said() -> None:
    result = roofline(load_model("Llama-3.1-405B")[1], Conditions(pro_6000(), Layout(tp=2)))
    assert not result.fit.fits
    assert result.fit.kv_room_tokens == 0
    assert result.fit.misfit is not None
    assert "405.9 GB a card, and a card has 96 GB" in result.fit.misfit


def test_a_cache_that_does_not_fit_beside_the_weights_is_said() -> None:
    weights = load_model("Llama-3.1-70B")[1]
    at = Conditions(pro_6000(), Layout(tp=2), context=100_000, batch=8)
    assert any(
        "the KV cache does not fit: 800,000 tokens" in n for n in roofline(weights, at).notes
    )
    few = replace(at, batch=1)
    result = roofline(weights, few)
    assert result.fit.misfit is None
    assert not any("cache does not fit" in note for note in result.notes)


def test_drafting_divides_the_step() -> None:
    weights = glm5()
    plain = speed(roofline(weights, on_eight()), FigureKind.PAPER)
    drafted = speed(roofline(weights, on_eight(accepted=1.5)), FigureKind.PAPER)
    assert drafted == pytest.approx(2.5 * plain)


def test_bandwidth_of_a_live_clock() -> None:
    assert bandwidth_of_clock(13365, 512) == pytest.approx(1711, rel=WITHIN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('8x"RTX PRO 6000"', (8, "RTX PRO 6000")),
        ("8 x H200", (8, "H200")),
        ("H200", (1, "H200")),
        ("4*MI300X", (4, "MI300X")),
    ],
)
def test_cards_as_people_write_them(text: str, expected: tuple[int, str]) -> None:
    assert parse_gpus(text) == expected


@pytest.mark.parametrize("text", ["", "0xH200", '8x""', "99999xH200"])
def test_no_cards(text: str) -> None:
    with pytest.raises(UsageError):
        parse_gpus(text)


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Server Edition"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB HBM3"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
        ("NVIDIA GeForce RTX 5090", "GeForce RTX 5090"),
        ("AMD Instinct MI300X OAM", "AMD Instinct MI300X"),
    ],
)
def test_names_as_drivers_report_them(reported: str, name: str) -> None:
    assert card_table().find(reported).name == name


@pytest.mark.parametrize(
    "other", ["NVIDIA GeForce RTX 5090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "RTX PRO 7000"]
)
def test_another_card_is_not_taken_for_a_known_one(other: str) -> None:
    with pytest.raises(UsageError) as caught:
        card_table().find(other)
    assert "--list-cards" in caught.value.hint


def test_every_figure_of_a_card_has_a_source() -> None:
    table = card_table()
    for card in table.cards:
        assert card.link in table.links
        for name in ("power_w", "memory_gb", "bandwidth_gbps", "bf16", "fp8", "fp4"):
            figure = getattr(card, name)
            assert figure is None or figure.source in table.sources
        assert table.find(card.name) == card
        assert all(table.find(alias) == card for alias in card.aliases)
