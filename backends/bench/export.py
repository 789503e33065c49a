"""Runs and comparisons for other programs and for people: CSV, Markdown. JSON is the document."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Final

from backends.bench.compare import Comparison, Row
from backends.bench.compare_blocks import Metric
from backends.bench.results import RunResult, StepResult, Summary

COLUMNS: Final = (
    "run_id", "started_utc", "harness", "plan", "engine", "engine_version", "model", "profile",
    "host", "step", "repetition", "load", "concurrency", "rate_per_s", "valid", "sent",
    "succeeded", "failed", "output_tokens_per_s", "total_tokens_per_s", "requests_per_s",
    "whole_run_output_tokens_per_s", "ttft_mean_s", "ttft_p50_s", "ttft_p99_s", "tpot_mean_s",
    "tpot_p50_s", "tpot_p99_s", "gap_p50_s", "gap_p99_s", "e2e_mean_s", "e2e_p50_s", "e2e_p99_s",
    "joules_per_output_token",
)  # fmt: skip
"""Of the CSV export: one line a step and repetition; empty where a value is absent."""


def to_csv(runs: Iterable[RunResult]) -> str:
    """One table over all runs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        for step in run.steps:
            writer.writerow([_cell(value) for value in _values(run, step)])
    return out.getvalue()


def _cell(value: object) -> object:
    # A spreadsheet would take such text for a formula.
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@"):
        return f"'{value}"
    return "" if value is None else value


def _figures(summary: Summary | None) -> tuple[float | None, float | None, float | None]:
    return (summary.mean, summary.p50, summary.p99) if summary else (None, None, None)


def _values(run: RunResult, step: StepResult) -> list[object]:
    rates = step.steady or step.whole
    gap = _figures(step.gap_s)
    return [
        run.run_id, run.started_utc.isoformat(), run.harness, run.plan.name, run.target.engine,
        run.target.engine_version, run.target.model, run.target.profile, run.environment.host,
        step.index, step.repetition, step.label, step.concurrency, step.rate_per_s,
        str(step.client.valid).lower(), step.sent, step.succeeded, step.failed,
        rates.output_tokens_per_s if rates else None,
        rates.total_tokens_per_s if rates else None,
        rates.requests_per_s if rates else None,
        step.whole.output_tokens_per_s if step.whole else None,
        *_figures(step.ttft_s), *_figures(step.tpot_s), gap[1], gap[2], *_figures(step.e2e_s),
        step.joules_per_output_token,
    ]  # fmt: skip


def to_markdown(run: RunResult) -> str:
    """One run as a Markdown document."""
    lines = [
        f"# Benchmark {_text(run.run_id)}",
        "",
        f"- measured {run.started_utc:%Y-%m-%d %H:%M} UTC with {_text(run.harness)},"
        f" {run.status.value}",
        f"- plan {_text(run.plan.name)}, prompts by {run.plan.prompt_source.value},"
        f" load from {_text(run.client.where)}",
        f"- {_text(run.target.engine)} {_text(run.target.engine_version or '')},"
        f" model {_text(run.target.model or 'not known')}",
    ]
    environment = run.environment
    for label, value in (
        ("host", environment.host), ("driver", environment.driver), ("kernel", environment.kernel),
        ("profile", run.target.profile), ("changed files", ", ".join(environment.changed_files)),
    ):  # fmt: skip
        if value:
            lines.append(f"- {label}: {_text(value)}")
    lines += ["", *_table(_STEP_HEADER, [_step_cells(step) for step in run.steps])]
    if run.findings:
        lines += ["", *(f"- {f.severity.value}: {_text(f.text)}" for f in run.findings)]
    return "\n".join(lines) + "\n"


_STEP_HEADER: Final = (
    "load", "rep", "output tok/s", "total tok/s", "TTFT p50 ms", "TTFT p99 ms", "TPOT p50 ms",
    "latency p50 s", "failed",
)  # fmt: skip


def _step_cells(step: StepResult) -> list[str]:
    rates = step.steady or step.whole
    return [
        _text(step.label), str(step.repetition),
        _number(rates.output_tokens_per_s if rates else None, 1),
        _number(rates.total_tokens_per_s if rates else None, 1),
        _number(step.ttft_s.p50 if step.ttft_s else None, 1, 1e3),
        _number(step.ttft_s.p99 if step.ttft_s else None, 1, 1e3),
        _number(step.tpot_s.p50 if step.tpot_s else None, 2, 1e3),
        _number(step.e2e_s.p50 if step.e2e_s else None, 3),
        f"{step.failed} of {step.sent}",
    ]  # fmt: skip


def comparison_to_markdown(comparison: Comparison) -> str:
    """A comparison as a Markdown document."""
    a, b = comparison.a, comparison.b
    lines = [
        f"# {_text(b.run_id)} against {_text(a.run_id)}: {comparison.word.value}",
        "",
        *(f"- {line}" for line in _overall(comparison)),
    ]
    for title, found in (
        ("Not comparable, because of", comparison.obstacles),
        ("Changed between them", comparison.changes),
    ):
        if found:
            lines += ["", f"{title} (A / B):", "", *(f"- {_text(str(d))}" for d in found)]
    rows = [row_cells(row) for row in comparison.rows]
    lines += ["", *_table(ROW_HEADER, rows)]
    if comparison.remarks:
        lines += ["", *(f"- {_text(remark)}" for remark in comparison.remarks)]
    return "\n".join(lines) + "\n"


def _overall(comparison: Comparison) -> Iterator[str]:
    row = comparison.overall
    if row.estimate is not None:
        yield f"{row.metric.value}, all steps: {change_text(row)}"
    if row.remark:
        yield row.remark


ROW_HEADER: Final = ("load", "metric", "A", "B", "change (95 %)", "effect", "word", "remark")


def row_cells(row: Row) -> list[str]:
    """A comparison's row as text, one cell a column of `ROW_HEADER`."""
    scale, unit, digits = (1.0, "", 1) if row.metric is Metric.OUTPUT else (1e3, " ms", 2)
    effect = f"{row.estimate.effect:+.1f} sd" if row.estimate else "-"
    return [
        _text(row.step), row.metric.value, _number(row.a, digits, scale, unit),
        _number(row.b, digits, scale, unit), change_text(row), effect, row.word.value,
        _text(row.remark),
    ]  # fmt: skip


def change_text(row: Row) -> str:
    """Such as `-2.1 % (-3.0 to -1.2)`."""
    if row.estimate is None:
        return "-"
    change, low, high = (
        (value - 1) * 100 for value in (row.estimate.ratio, row.estimate.low, row.estimate.high)
    )
    return f"{change:+.1f} % ({low:+.1f} to {high:+.1f})"


def _number(value: float | None, digits: int, scale: float = 1.0, unit: str = "") -> str:
    return "-" if value is None else f"{value * scale:.{digits}f}{unit}"


def _text(text: str) -> str:
    """Text that Markdown shows as it is."""
    for character in "\\|`*_<>[]":
        text = text.replace(character, "\\" + character)
    return text.replace("\n", " ")


def _table(header: Iterable[str], rows: Iterable[list[str]]) -> Iterator[str]:
    names = list(header)
    yield f"| {' | '.join(names)} |"
    yield f"|{' --- |' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
