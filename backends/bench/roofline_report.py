"""The document of `gpuroom roofline --json`. `docs/roofline.md` names its fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypedDict

from backends.bench.roofline import (
    DecodeFigure,
    FigureKind,
    PrefillFigure,
    Roofline,
    roofline,
)

SCHEMA: Final = 1
CONTEXTS: Final = (0, 4096, 16384, 65536, 131072)
"""Contexts of the table of decode floors by length."""


class Decode(TypedDict):
    """One decode figure."""

    figure: str
    absent: str | None
    step_ms: float | None
    weights_ms: float | None
    kv_cache_ms: float | None
    compute_ms: float | None
    all_reduce_ms: float | None
    fixed_ms: float | None
    read_gb: float | None
    bandwidth_gbps: float | None
    stream_tokens_per_s: float | None
    output_tokens_per_s: float | None
    measured_share: float | None
    assumptions: list[str]


class Prefill(TypedDict):
    """One prefill figure."""

    figure: str
    absent: str | None
    prompt_tokens: int
    total_ms: float | None
    compute_ms: float | None
    memory_ms: float | None
    all_reduce_ms: float | None
    prompt_tokens_per_s: float | None
    assumptions: list[str]


class ModuleRow(TypedDict):
    """One kind of module."""

    module: str
    parameters: int
    active_parameters: float
    stored_bytes: float
    read_bytes: float
    formats: list[str]


class ContextRow(TypedDict):
    """Tokens a second of one stream at a context length."""

    context_tokens: int
    paper: float | None
    live_clock: float | None
    realistic: float | None


class Document(TypedDict):
    """The whole document."""

    schema: int
    model: str
    card: str
    cards: int
    layout: dict[str, int]
    context_tokens: int
    batch: int
    parameters: int
    active_parameters: float
    weights_from: str
    modules: list[ModuleRow]
    decode: list[Decode]
    prefill: list[Prefill]
    compute_from_batch: int | None
    compute_absent: str | None
    weights_gb_per_card: float
    memory_gb_per_card: float
    fits: bool
    misfit: str | None
    kv_bytes_per_token: float
    kv_room_tokens: int
    by_context: list[ContextRow]
    notes: list[str]


def document(model: str, result: Roofline) -> Document:
    """Everything about a roofline as plain data."""
    conditions, weights = result.conditions, result.weights
    layout = conditions.layout
    return {
        "schema": SCHEMA,
        "model": model,
        "card": conditions.card.name,
        "cards": layout.cards,
        "layout": {"tp": layout.tp, "dp": layout.dp, "pp": layout.pp, "ep": layout.ep},
        "context_tokens": conditions.context,
        "batch": conditions.batch,
        "parameters": weights.total_parameters,
        "active_parameters": weights.active_parameters,
        "weights_from": weights.source,
        "modules": [
            {
                "module": module.module.value,
                "parameters": module.parameters,
                "active_parameters": module.active_parameters,
                "stored_bytes": module.stored_bytes,
                "read_bytes": weights.read_bytes(module, conditions.tokens_per_replica),
                "formats": list(module.schemes),
            }
            for module in weights.modules
        ],
        "decode": [_decode(result, figure) for figure in result.decode],
        "prefill": [_prefill(figure) for figure in result.prefill],
        "compute_from_batch": result.compute_from_batch,
        "compute_absent": result.compute_absent or None,
        "weights_gb_per_card": result.fit.weights_gb_per_card,
        "memory_gb_per_card": result.fit.memory_gb_per_card,
        "fits": result.fit.fits,
        "misfit": result.fit.misfit,
        "kv_bytes_per_token": result.fit.kv_bytes_per_token,
        "kv_room_tokens": result.fit.kv_room_tokens,
        "by_context": by_context(result),
        "notes": list(result.notes),
    }


def by_context(result: Roofline) -> list[ContextRow]:
    """Decode ceilings at several context lengths, up to the model's own limit."""
    limit = result.weights.shape.context_limit or CONTEXTS[-1]
    rows: list[ContextRow] = []
    for context in CONTEXTS:
        if context > limit:
            break
        at = roofline(result.weights, replace(result.conditions, context=context))
        rows.append(
            {
                "context_tokens": context,
                "paper": at.figure(FigureKind.PAPER).stream_tokens_per_s,
                "live_clock": at.figure(FigureKind.LIVE).stream_tokens_per_s,
                "realistic": at.figure(FigureKind.REALISTIC).stream_tokens_per_s,
            }
        )
    return rows


def _decode(result: Roofline, figure: DecodeFigure) -> Decode:
    terms = figure.terms
    return {
        "figure": figure.kind.value,
        "absent": figure.absent or None,
        "step_ms": figure.step_ms,
        "weights_ms": terms.weights_ms if terms else None,
        "kv_cache_ms": terms.kv_cache_ms if terms else None,
        "compute_ms": terms.compute_ms if terms else None,
        "all_reduce_ms": terms.all_reduce_ms if terms else None,
        "fixed_ms": terms.fixed_ms if terms else None,
        "read_gb": figure.read_gb,
        "bandwidth_gbps": figure.bandwidth_gbps,
        "stream_tokens_per_s": figure.stream_tokens_per_s,
        "output_tokens_per_s": figure.output_tokens_per_s,
        "measured_share": result.efficiency(figure.kind),
        "assumptions": list(figure.assumptions),
    }


def _prefill(figure: PrefillFigure) -> Prefill:
    return {
        "figure": figure.kind.value,
        "absent": figure.absent or None,
        "prompt_tokens": figure.prompt,
        "total_ms": figure.total_ms,
        "compute_ms": figure.compute_ms,
        "memory_ms": figure.memory_ms,
        "all_reduce_ms": figure.all_reduce_ms,
        "prompt_tokens_per_s": figure.prompt_tokens_per_s,
        "assumptions": list(figure.assumptions),
    }
