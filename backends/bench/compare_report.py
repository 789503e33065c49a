"""The document of `gpuroom bench compare --json`. `docs/results.md` names its fields."""

from __future__ import annotations

from typing import Final, TypedDict

from backends.bench.compare import Comparison, Row
from backends.bench.compare_steps import step_words

SCHEMA: Final = 1


class RowDocument(TypedDict):
    """One metric of one step, or of all."""

    step: str
    metric: str
    unit: str
    word: str
    a: float | None
    b: float | None
    change: float | None
    change_low: float | None
    change_high: float | None
    p_adjusted: float | None
    effect_sd: float | None
    blocks: list[int]
    repetitions: list[int]
    more: int
    more_unit: str
    remark: str


class DifferenceDocument(TypedDict):
    """Something that is not the same in both runs."""

    key: str
    a: str
    b: str


class StepDocument(TypedDict):
    """One word a step."""

    step: str
    word: str
    metric: str | None
    change: float | None
    change_low: float | None
    change_high: float | None
    why: str


class ComparisonDocument(TypedDict):
    """The whole comparison."""

    schema: int
    a: str
    b: str
    word: str
    smallest_change: float
    overall: RowDocument
    steps: list[StepDocument]
    rows: list[RowDocument]
    obstacles: list[DifferenceDocument]
    changes: list[DifferenceDocument]
    remarks: list[str]


def document(comparison: Comparison) -> ComparisonDocument:
    """Everything about a comparison as plain data."""
    return {
        "schema": SCHEMA,
        "a": comparison.a.run_id,
        "b": comparison.b.run_id,
        "word": comparison.word.value,
        "smallest_change": comparison.smallest_change,
        "overall": _row(comparison.overall),
        "steps": [
            {
                "step": one.step,
                "word": one.word.value,
                "metric": one.metric.value if one.metric else None,
                "change": one.change,
                "change_low": one.low,
                "change_high": one.high,
                "why": one.why,
            }
            for one in step_words(comparison).values()
        ],
        "rows": [_row(row) for row in comparison.rows],
        "obstacles": [{"key": d.key, "a": d.a, "b": d.b} for d in comparison.obstacles],
        "changes": [{"key": d.key, "a": d.a, "b": d.b} for d in comparison.changes],
        "remarks": list(comparison.remarks),
    }


def _row(row: Row) -> RowDocument:
    estimate = row.estimate
    return {
        "step": row.step,
        "metric": row.metric.value,
        "unit": row.metric.unit,
        "word": row.word.value,
        "a": row.a,
        "b": row.b,
        "change": row.change,
        "change_low": estimate.low - 1 if estimate else None,
        "change_high": estimate.high - 1 if estimate else None,
        "p_adjusted": row.adjusted_p,
        "effect_sd": estimate.effect if estimate else None,
        "blocks": list(row.blocks),
        "repetitions": list(row.repetitions),
        "more": row.more,
        "more_unit": row.more_unit,
        "remark": row.remark,
    }
