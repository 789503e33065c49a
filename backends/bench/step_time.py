"""How long a step takes: reading, computing, communicating. Pure arithmetic on figures.

`docs/roofline.md` has the formula; `roofline` turns its terms into figures with their assumptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from backends.bench import kv_cache
from backends.bench.cards import Card, Link, card_table
from backends.bench.kv_cache import KvType
from backends.bench.model_tensors import REPLICATED, Module
from backends.bench.quantization import Arithmetic
from backends.bench.weights import ModuleWeights, Weights
from backends.errors import UsageError

MAX_BATCH: Final = 1 << 20
MAX_EXACT_EXPERTS: Final = 1024


@dataclass(frozen=True, slots=True)
class Layout:
    """How the model is spread: `dp` replicas of `tp` cards in each of `pp` stages.

    Attributes:
        tp: Tensor parallel: cards that share each matrix.
        dp: Data parallel: replicas of the attention part, each with its own sequences.
        pp: Pipeline parallel: stages that a token passes one after the other.
        ep: Expert parallel: groups that hold whole experts; 1 splits each expert like a matrix.
    """

    tp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1

    @property
    def cards(self) -> int:
        """How many cards that takes."""
        return self.tp * self.dp * self.pp

    @property
    def expert_ways(self) -> int:
        """Over how many cards of a stage the routed experts of one replica are spread."""
        return max(self.tp, self.ep)

    def check(self, cards: int) -> None:
        """Raise UsageError unless this layout fits `cards` cards."""
        if min(self.tp, self.dp, self.pp, self.ep) < 1:
            raise UsageError("A parallel layout counts from 1")
        if self.cards != cards:
            raise UsageError(
                f"The layout uses {self.cards} cards, {cards} are given",
                f"tp {self.tp} x dp {self.dp} x pp {self.pp} = {self.cards}",
                "Change --gpus, or --tp, --dp and --pp.",
            )
        group = self.tp * self.dp
        if group % self.ep or (self.ep % self.tp and self.tp % self.ep):
            raise UsageError(
                f"ep {self.ep} does not fit tp {self.tp} x dp {self.dp}",
                hint="Expert parallelism divides tp x dp, and one of ep and tp divides the other.",
            )


@dataclass(frozen=True, slots=True)
class Conditions:
    """On what, and how, the model runs.

    Attributes:
        card: Figures of one card.
        layout: How the model is spread.
        context: Tokens of each sequence already in the cache.
        batch: Sequences at once, over all replicas.
        prompt: Length of the prompt of the prefill floor.
        kv_type: How the cache is stored.
        sparse: Whether the engine uses the model's sparse attention, where it has one.
        live_bandwidth_gbps: By the live memory clock; None takes the table's, if it has one.
        live_source: Where that is from, in words.
        reachable: Share of the bandwidth that a real kernel reaches, for the realistic figure.
        all_reduce_us: Time of one small all-reduce; None takes the link's.
        link: How the cards reach each other; None takes the card's own.
        fixed_ms: Host gaps of a step, for the realistic figure.
        accepted: Draft tokens accepted per step, on average.
        measured_tokens_per_s: Of one stream.
    """

    card: Card
    layout: Layout = Layout()
    context: int = 0
    batch: int = 1
    prompt: int = 1024
    kv_type: KvType = KvType.BF16
    sparse: bool = True
    live_bandwidth_gbps: float | None = None
    live_source: str = "given"
    reachable: float = 1.0
    all_reduce_us: float | None = None
    link: Link | None = None
    fixed_ms: float = 0.0
    accepted: float = 0.0
    measured_tokens_per_s: float | None = None

    @property
    def the_link(self) -> Link:
        """The link in use."""
        return self.link or card_table().links[self.card.link]

    @property
    def tokens_per_replica(self) -> int:
        """Sequences that one replica handles in one pass."""
        return math.ceil(self.batch / (self.layout.dp * self.layout.pp))

    @property
    def live(self) -> tuple[float, str] | None:
        """Bandwidth at the live clock in 10^9 bytes a second and its source."""
        if self.live_bandwidth_gbps is not None:
            return self.live_bandwidth_gbps, self.live_source
        figure = self.card.live_bandwidth_gbps
        if figure is None:
            return None
        return figure.value, card_table().sources.get(figure.source, figure.source)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a step takes, in milliseconds. Reading and computing overlap: the longer one counts."""

    weights_ms: float
    kv_cache_ms: float
    compute_ms: float | None
    """None where the card's arithmetic is not known."""
    all_reduce_ms: float = 0.0
    fixed_ms: float = 0.0

    @property
    def memory_ms(self) -> float:
        """Reading weights and cache."""
        return self.weights_ms + self.kv_cache_ms

    @property
    def total_ms(self) -> float:
        """The whole step."""
        return max(self.memory_ms, self.compute_ms or 0.0) + self.all_reduce_ms + self.fixed_ms


def decode_terms(
    weights: Weights, conditions: Conditions, bandwidth_gbps: float, *, realistic: bool
) -> Terms:
    """Time of one decode step on the slowest card.

    Args:
        weights: The model's.
        conditions: Layout, context, batch.
        bandwidth_gbps: Of one card, 10^9 bytes a second.
        realistic: Count projections that engines keep whole on each card, experts that fall
            unevenly, all-reduces and host gaps.
    """
    layout = conditions.layout
    read = sum(
        card_read_bytes(weights, module, conditions, realistic=realistic)
        for module in weights.modules
    )
    cache = _kv_read(weights, conditions) * conditions.tokens_per_replica
    per_ms = bandwidth_gbps * 1e6
    all_reduces = all_reduce_count(weights, layout) if realistic else 0
    return Terms(
        weights_ms=read / per_ms,
        kv_cache_ms=cache / per_ms,
        compute_ms=decode_compute_ms(weights, conditions),
        all_reduce_ms=all_reduces * _all_reduce_ms(weights, conditions),
        fixed_ms=conditions.fixed_ms if realistic else 0.0,
    )


def card_read_bytes(
    weights: Weights, module: ModuleWeights, conditions: Conditions, *, realistic: bool
) -> float:
    """Bytes of `module` that one card reads for a step, all stages added up."""
    layout = conditions.layout
    tokens = conditions.tokens_per_replica
    if module.module is not Module.ROUTED:
        ways = 1 if realistic and module.module in REPLICATED else layout.tp
        return weights.read_bytes(module, tokens) / ways
    # Experts spread over several replicas meet the tokens of all of them.
    replicas = max(1, layout.ep // layout.tp)
    seen = weights.read_bytes(module, tokens * replicas)
    even = seen / layout.expert_ways
    mixture = weights.shape.mixture
    if not realistic or layout.ep == 1 or mixture is None:
        return even
    distinct = weights.distinct_experts(tokens * replicas)
    return even * uneven_experts(mixture.experts, round(distinct), layout.ep)


def uneven_experts(experts: int, chosen: int, groups: int) -> float:
    """How much more than its share the busiest of `groups` gets, on average.

    `chosen` of `experts` fall at random, each group holds experts / groups of them. The chance
    that no group has more than m is the coefficient of x^chosen in (sum_j<=m C(size, j) x^j)^groups
    over C(experts, chosen).
    """
    size = experts // groups
    if groups <= 1 or chosen <= 0 or size < 1 or chosen >= experts:
        return 1.0
    if experts > MAX_EXACT_EXPERTS:
        # Exact counting would take long: the usual bound on the largest of `groups` counts.
        mean = chosen / groups
        return min(float(groups), 1 + math.sqrt(2 * math.log(groups) / mean))
    total = math.comb(size * groups, min(chosen, size * groups))
    expected = 0.0
    for most in range(min(size, chosen)):
        ways = _coefficient([math.comb(size, j) for j in range(most + 1)], groups, chosen)
        expected += 1 - ways / total
    return expected / (chosen / groups)


def _coefficient(factor: list[int], power: int, degree: int) -> int:
    """The coefficient of x^degree in the polynomial `factor` to the power `power`."""
    if (len(factor) - 1) * power < degree:
        return 0
    # Recurrence for powers of a polynomial with a constant term (J. C. P. Miller).
    out: list[int] = [int(factor[0] ** power)]
    for n in range(1, degree + 1):
        top = sum(
            (power * k - n + k) * factor[k] * out[n - k]
            for k in range(1, min(n, len(factor) - 1) + 1)
        )
        out.append(top // (n * factor[0]))
    return out[degree]


def _kv_read(weights: Weights, conditions: Conditions) -> float:
    return kv_cache.read_bytes(
        weights.shape,
        conditions.context,
        conditions.kv_type,
        conditions.layout.tp,
        sparse=conditions.sparse,
    )


def all_reduce_count(weights: Weights, layout: Layout) -> int:
    """After attention and after the feed-forward part; two all-to-alls instead with ep."""
    layers = len(weights.shape.layers)
    mixtures = weights.shape.mixture_layers if layout.ep > 1 else 0
    shared = 2 * layers - mixtures if layout.tp > 1 else 0
    return shared + 2 * mixtures


def _all_reduce_ms(weights: Weights, conditions: Conditions) -> float:
    """One all-reduce of a step: its latency, and the bytes of a ring over the link."""
    link = conditions.the_link
    latency = conditions.all_reduce_us
    latency = link.all_reduce_us.value if latency is None else latency
    return latency / 1e3 + ring_ms(weights, conditions, conditions.tokens_per_replica - 1)


def ring_ms(weights: Weights, conditions: Conditions, tokens: int) -> float:
    """Bytes of a ring all-reduce of `tokens` tokens: 2 (R-1)/R x hidden x 2 bytes."""
    ranks = conditions.layout.tp
    message = weights.shape.hidden * 2 * tokens
    return 2 * (ranks - 1) / ranks * message / (conditions.the_link.gbps.value * 1e6)


def compute_ms(
    weights: Weights, conditions: Conditions, tokens: float, *, head: bool
) -> float | None:
    """Time of the matrix products of `tokens` tokens on one card at the card's dense peak."""
    layout = conditions.layout
    total = 0.0
    for module in weights.modules:
        if module.module is Module.HEAD and not head:
            continue
        ways = layout.tp
        if module.module is Module.ROUTED:
            # With ep over several replicas a card also works for their tokens: the same share.
            ways = layout.expert_ways // max(1, layout.ep // layout.tp)
        for kind, parameters in module.by_arithmetic:
            rate, _ = conditions.card.arithmetic(kind)
            if rate is None:
                return None
            total += 2 * parameters * tokens / ways / (rate.value * 1e9)
    return total


def decode_compute_ms(weights: Weights, conditions: Conditions) -> float | None:
    """Arithmetic of one decode step on one card; None where the card's rate is not known."""
    tokens = conditions.tokens_per_replica
    products = compute_ms(weights, conditions, tokens, head=True)
    rate, _ = conditions.card.arithmetic(Arithmetic.BF16)
    if products is None or rate is None:
        return None
    attention = kv_cache.decode_operations(
        weights.shape, conditions.context, sparse=conditions.sparse
    )
    return products + attention * tokens / conditions.layout.tp / (rate.value * 1e9)


def compute_takes_over(weights: Weights, conditions: Conditions) -> tuple[int | None, str]:
    """From how many sequences at once arithmetic is the limit: the number, or why there is none."""
    bandwidth = conditions.card.bandwidth_gbps.value
    if decode_compute_ms(weights, conditions) is None:
        return None, f"arithmetic of {conditions.card.name} is not known"

    def limited(batch: int) -> bool:
        terms = decode_terms(weights, replace(conditions, batch=batch), bandwidth, realistic=False)
        return (terms.compute_ms or 0.0) >= terms.memory_ms

    found = first_true(limited, MAX_BATCH)
    if found is None:
        return None, "never at this context: reading the KV cache grows as fast"
    return found, ""


def first_true(test: Callable[[int], bool], limit: int) -> int | None:
    """The smallest whole number from 1 to `limit` for which a rising test holds."""
    high = 1
    while not test(high):
        high *= 2
        if high > limit:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if test(middle):
            high = middle
        else:
            low = middle
    return high
