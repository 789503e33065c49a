"""The theoretical maximum: what this model could do on these cards, and what that assumes.

For one sequence at context L over R tensor-parallel cards:

    step = max over cards[(weights + KV cache read) / bandwidth, operations / arithmetic]
           + number of all-reduces x time of one + host gaps
    tokens a second = (1 + accepted draft tokens per step) / step

Always four figures: on paper (data sheet), at the card's live memory clock, realistic (projections
that engines keep whole on each card, all-reduces), and measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from backends.bench import kv_cache
from backends.bench.cards import card_table
from backends.bench.model_tensors import REPLICATED, Module
from backends.bench.quantization import Arithmetic
from backends.bench.step_time import (
    Conditions,
    Terms,
    all_reduce_count,
    compute_ms,
    compute_takes_over,
    decode_terms,
    ring_ms,
)
from backends.bench.weights import Weights
from backends.errors import UsageError


class FigureKind(StrEnum):
    """The four figures, from the most to the least hopeful."""

    PAPER = "paper"
    LIVE = "live clock"
    REALISTIC = "realistic"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class DecodeFigure:
    """One of the four figures of decoding; without terms it is absent, and `absent` says why."""

    kind: FigureKind
    assumptions: tuple[str, ...]
    terms: Terms | None = None
    bandwidth_gbps: float | None = None
    read_gb: float | None = None
    """10^9 bytes that all cards of a replica together read for a step."""
    step_ms: float | None = None
    stream_tokens_per_s: float | None = None
    """Of one stream."""
    output_tokens_per_s: float | None = None
    """Of all streams together."""
    absent: str = ""


@dataclass(frozen=True, slots=True)
class PrefillFigure:
    """The floor of time to first token for one prompt, on an idle server."""

    kind: FigureKind
    assumptions: tuple[str, ...]
    prompt: int
    compute_ms: float | None = None
    memory_ms: float | None = None
    all_reduce_ms: float = 0.0
    total_ms: float | None = None
    prompt_tokens_per_s: float | None = None
    absent: str = ""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether the model fits, and what is left for the cache."""

    weights_gb_per_card: float
    memory_gb_per_card: float
    kv_bytes_per_token: float
    """On one card, for a long sequence."""
    kv_room_tokens: int
    """Tokens of all sequences together that fit beside the weights, one replica; 0 if none."""

    @property
    def fits(self) -> bool:
        """Whether the weights alone fit."""
        return self.weights_gb_per_card < self.memory_gb_per_card

    @property
    def misfit(self) -> str | None:
        """Why this cannot run as laid out; None where the weights fit."""
        if self.fits:
            return None
        return (
            f"the weights do not fit: {self.weights_gb_per_card:,.1f} GB a card, and a card has "
            f"{self.memory_gb_per_card:g} GB; this cannot run as laid out"
        )


@dataclass(frozen=True, slots=True)
class Roofline:
    """Everything that is known about what could be."""

    weights: Weights
    conditions: Conditions
    decode: tuple[DecodeFigure, ...]
    prefill: tuple[PrefillFigure, ...]
    compute_from_batch: int | None
    """Sequences at once from which arithmetic and not memory is the limit."""
    compute_absent: str
    """Why that is not known, or never comes."""
    fit: Fit
    notes: tuple[str, ...]

    def figure(self, kind: FigureKind) -> DecodeFigure:
        """The decode figure of that kind."""
        return next(figure for figure in self.decode if figure.kind is kind)

    def efficiency(self, kind: FigureKind) -> float | None:
        """Measured as a share of the figure of `kind`; None where either is absent."""
        measured = self.figure(FigureKind.MEASURED).stream_tokens_per_s
        possible = self.figure(kind).stream_tokens_per_s
        if measured is None or not possible:
            return None
        return measured / possible


def roofline(weights: Weights, conditions: Conditions) -> Roofline:
    """Compute all figures.

    Raises:
        UsageError: The layout contradicts itself.
    """
    conditions.layout.check(conditions.layout.cards)
    if conditions.batch < 1 or conditions.context < 0 or conditions.prompt < 1:
        raise UsageError("Batch and prompt count from 1, context from 0")
    takeover, reason = compute_takes_over(weights, conditions)
    return Roofline(
        weights=weights,
        conditions=conditions,
        decode=(
            _paper(weights, conditions),
            _live(weights, conditions),
            _realistic(weights, conditions),
            _measured(conditions),
        ),
        prefill=_prefill(weights, conditions),
        compute_from_batch=takeover,
        compute_absent=reason,
        fit=fit(weights, conditions),
        notes=_notes(weights, conditions),
    )


def _figure(
    kind: FigureKind,
    weights: Weights,
    conditions: Conditions,
    bandwidth_gbps: float,
    assumptions: tuple[str, ...],
) -> DecodeFigure:
    realistic = kind is FigureKind.REALISTIC
    terms = decode_terms(weights, conditions, bandwidth_gbps, realistic=realistic)
    tokens_a_step = 1 + conditions.accepted
    per_stream = tokens_a_step / terms.total_ms * 1e3 if terms.total_ms else math.inf
    return DecodeFigure(
        kind=kind,
        assumptions=assumptions,
        terms=terms,
        bandwidth_gbps=bandwidth_gbps,
        read_gb=terms.memory_ms * bandwidth_gbps * 1e6 * conditions.layout.tp / 1e9,
        step_ms=terms.total_ms,
        stream_tokens_per_s=per_stream,
        output_tokens_per_s=per_stream * conditions.batch,
    )


def _paper(weights: Weights, conditions: Conditions) -> DecodeFigure:
    figure = conditions.card.bandwidth_gbps
    source = card_table().sources.get(figure.source, figure.source)
    assumptions = (
        f"memory bandwidth {figure.value:g} GB/s a card ({source})",
        *_common(weights, conditions),
        "every weight lies on one card only, and is read once a step; all cards read at once",
        "no time for communication, launches, sampling or the host",
    )
    return _figure(FigureKind.PAPER, weights, conditions, figure.value, assumptions)


def _live(weights: Weights, conditions: Conditions) -> DecodeFigure:
    live = conditions.live
    if live is None:
        return DecodeFigure(
            FigureKind.LIVE,
            (),
            absent="no live memory clock: give --memory-clock and --bus-width, or read the host",
        )
    bandwidth, source = live
    assumptions = (
        f"memory bandwidth {bandwidth:g} GB/s a card by its memory clock ({source})",
        "else as on paper",
    )
    return _figure(FigureKind.LIVE, weights, conditions, bandwidth, assumptions)


def _realistic(weights: Weights, conditions: Conditions) -> DecodeFigure:
    live = conditions.live
    bandwidth = live[0] if live else conditions.card.bandwidth_gbps.value
    layout, link = conditions.layout, conditions.the_link
    assumptions = [
        f"memory bandwidth {bandwidth * conditions.reachable:g} GB/s a card: "
        + ("live clock" if live else "data sheet, no live clock known")
        + (
            f" x {conditions.reachable:g} that kernels reach"
            if conditions.reachable < 1
            else ", all of it reached"
        )
    ]
    kept = [m.module.value for m in weights.modules if m.module in REPLICATED]
    if layout.tp > 1:
        assumptions.append(f"kept whole on each card: {', '.join(kept)}")
        count = all_reduce_count(weights, layout)
        given = conditions.all_reduce_us
        latency = link.all_reduce_us.value if given is None else given
        source = (
            card_table().sources.get(link.all_reduce_us.source, link.all_reduce_us.source)
            if given is None
            else "given"
        )
        assumptions.append(f"{count} all-reduces a step of {latency:g} us each ({source})")
    if layout.ep > 1:
        assumptions.append("experts fall unevenly: the busiest card is waited for")
    if layout.pp > 1:
        assumptions.append("hand-over between pipeline stages is not counted")
    assumptions.append(
        f"{conditions.fixed_ms:g} ms of launches, sampling and host gaps a step"
        if conditions.fixed_ms
        else "no host gaps counted (0.3 to 1 ms a step are usual with CUDA graphs: --fixed-ms)"
    )
    return _figure(
        FigureKind.REALISTIC,
        weights,
        conditions,
        bandwidth * conditions.reachable,
        tuple(assumptions),
    )


def _measured(conditions: Conditions) -> DecodeFigure:
    rate = conditions.measured_tokens_per_s
    if rate is None:
        return DecodeFigure(FigureKind.MEASURED, (), absent="nothing was measured")
    return DecodeFigure(
        FigureKind.MEASURED,
        ("tokens a second of one stream, as given",),
        step_ms=(1 + conditions.accepted) / rate * 1e3 if rate else None,
        stream_tokens_per_s=rate,
        output_tokens_per_s=rate * conditions.batch,
    )


def _common(weights: Weights, conditions: Conditions) -> tuple[str, ...]:
    """Assumptions about model and load, which all figures share."""
    layout = conditions.layout
    stored = "; ".join(
        f"{m.module.value} {'/'.join(m.schemes)}"
        for m in weights.modules
        if m.full_bytes and m.schemes and m.module is not Module.NORM
    )
    lines = [
        f"weights by {weights.source}: {stored}",
        f"{conditions.batch} sequence{'s' if conditions.batch != 1 else ''} of "
        f"{conditions.context} tokens, KV cache in {conditions.kv_type.value.upper()}",
        f"tp {layout.tp}, dp {layout.dp}, pp {layout.pp}, ep {layout.ep}",
    ]
    if weights.shape.indexer is not None:
        lines.append(
            "sparse attention: at most "
            f"{weights.shape.indexer.top_k} tokens and all indexer keys (FP8) are read"
            if conditions.sparse
            else "sparse attention is not used: the whole cache is read"
        )
    if weights.shape.latent is not None and layout.tp > 1:
        lines.append("latent KV cache is the same on every card: each reads all of it")
    elif layout.tp > weights.shape.kv_heads:
        lines.append(f"{weights.shape.kv_heads} KV heads on {layout.tp} cards: replicated")
    if conditions.accepted:
        lines.append(
            f"{conditions.accepted:g} draft tokens accepted a step; drafting costs nothing"
        )
    if weights.shape.mixture is not None:
        lines.append(
            f"{weights.distinct_experts(conditions.tokens_per_replica):.1f} of "
            f"{weights.shape.mixture.experts} experts of a layer read a step (tokens choose at "
            "random)"
        )
    return tuple(lines)


def _prefill(weights: Weights, conditions: Conditions) -> tuple[PrefillFigure, ...]:
    rate, _ = conditions.card.arithmetic(Arithmetic.BF16)
    products = compute_ms(weights, conditions, conditions.prompt, head=False)
    if products is None or rate is None:
        reason = f"arithmetic of {conditions.card.name} is not known"
        return tuple(
            PrefillFigure(kind, (), conditions.prompt, absent=reason)
            for kind in (FigureKind.PAPER, FigureKind.REALISTIC)
        )
    attention = kv_cache.prefill_operations(
        weights.shape, conditions.prompt, sparse=conditions.sparse
    )
    compute = products + attention / conditions.layout.tp / (rate.value * 1e9)
    alone = replace(conditions, batch=conditions.prompt * conditions.layout.dp, context=0)
    alone = replace(alone, batch=alone.batch * conditions.layout.pp)
    figures: list[PrefillFigure] = []
    for kind in (FigureKind.PAPER, FigureKind.REALISTIC):
        realistic = kind is FigureKind.REALISTIC
        live = conditions.live
        bandwidth = conditions.card.bandwidth_gbps.value
        if realistic:
            bandwidth = (live[0] if live else bandwidth) * conditions.reachable
        memory = decode_terms(weights, alone, bandwidth, realistic=realistic).weights_ms
        shared = 0.0
        if realistic and conditions.layout.tp > 1:
            count = all_reduce_count(weights, conditions.layout)
            shared = count * ring_ms(weights, conditions, conditions.prompt)
        total = max(compute, memory) + shared
        figures.append(
            PrefillFigure(
                kind,
                _prefill_assumptions(weights, conditions, realistic=realistic),
                conditions.prompt,
                compute,
                memory,
                shared,
                total,
                conditions.prompt / total * 1e3,
            )
        )
    return tuple(figures)


def _prefill_assumptions(
    weights: Weights, conditions: Conditions, *, realistic: bool
) -> tuple[str, ...]:
    kinds: dict[str, None] = {}
    for module in weights.modules:
        for kind, _ in module.by_arithmetic:
            figure, used = conditions.card.arithmetic(kind)
            if figure is not None:
                unsure = "" if figure.sure else ", unsure"
                kinds[
                    f"{kind.value} weights at {figure.value:g} Tflop/s ({used.value}{unsure})"
                ] = None
    lines = [
        f"one prompt of {conditions.prompt} tokens, nothing cached, idle server",
        f"dense peak a card: {', '.join(kinds)}",
        "causal attention in bf16; no cost for norms, softmax, sampling",
    ]
    if realistic and conditions.layout.tp > 1:
        lines.append(f"ring all-reduces over {conditions.the_link.name}, not overlapped")
    return tuple(lines)


def fit(weights: Weights, conditions: Conditions) -> Fit:
    """Whether the weights fit, and how many tokens of cache do beside them."""
    layout = conditions.layout
    stored = 0.0
    for module in weights.modules:
        if module.module in (Module.PREDICTION, Module.VISION):
            continue
        ways = layout.expert_ways if module.module is Module.ROUTED else layout.tp
        if module.module in REPLICATED:
            ways = 1
        stored += module.stored_bytes / ways / layout.pp
    memory_gb = conditions.card.memory_gb.value
    length = max(conditions.context, 4096)
    held = kv_cache.held_bytes(weights.shape, length, conditions.kv_type, layout.tp) / layout.pp
    per_token = held / length
    room = max(0.0, memory_gb * 1e9 - stored)
    return Fit(
        weights_gb_per_card=stored / 1e9,
        memory_gb_per_card=memory_gb,
        kv_bytes_per_token=per_token,
        kv_room_tokens=int(room / per_token) if per_token else 0,
    )


def _notes(weights: Weights, conditions: Conditions) -> tuple[str, ...]:
    notes = [*weights.shape.notes, *weights.notes]
    shape, layout = weights.shape, conditions.layout
    if shape.heads % layout.tp:
        notes.append(f"{shape.heads} heads do not divide by tp {layout.tp}: most engines refuse")
    needed = conditions.context * math.ceil(conditions.batch / layout.dp)
    found = fit(weights, conditions)
    if found.fits and needed > found.kv_room_tokens:
        notes.append(
            f"the KV cache does not fit: {needed:,} tokens a replica, and there is room for "
            f"{found.kv_room_tokens:,} beside the weights"
        )
    if shape.context_limit and conditions.context > shape.context_limit:
        notes.append(f"context is beyond the model's own limit of {shape.context_limit} tokens")
    for name in ("bandwidth_gbps", "bf16", "fp8", "fp4"):
        figure = getattr(conditions.card, name)
        if figure is not None and not figure.sure:
            notes.append(f"{name} of {conditions.card.name} is not from a data sheet")
    return tuple(notes)
