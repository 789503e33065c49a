"""A run as text: one line a step, what was found, and how it is going."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from backends.bench.results import (
    Finding,
    RunResult,
    Severity,
    StepResult,
    Summary,
    Throughput,
)
from backends.bench.runner import Progress

_MARKS = {Severity.INFO: "note", Severity.WARNING: "warning", Severity.ERROR: "INVALID"}


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a step.

    Attributes:
        title: Above it.
        unit: Below the title; empty where the cells have their own.
        width: With the gap before it.
        cell: Its text.
    """

    title: str
    unit: str
    width: int
    cell: Callable[[StepResult], str]


def _rates(step: StepResult) -> Throughput | None:
    return step.steady or step.whole


def _rate(digits: int, which: Callable[[Throughput], float]) -> Callable[[StepResult], str]:
    def cell(step: StepResult) -> str:
        rates = _rates(step)
        return "-" if rates is None else f"{which(rates):,.{digits}f}"

    return cell


COLUMNS: Final = (
    Column("output", "tok/s", 10, _rate(1, lambda rates: rates.output_tokens_per_s)),
    Column("in+out", "tok/s", 10, _rate(1, lambda rates: rates.total_tokens_per_s)),
    Column("req/s", "", 8, _rate(2, lambda rates: rates.requests_per_s)),
    Column("TTFT p50", "", 11, lambda step: duration(step.ttft_s, "p50")),
    Column("TTFT p99", "", 10, lambda step: duration(step.ttft_s, "p99")),
    Column("TPOT p50", "", 11, lambda step: duration(step.tpot_s, "p50")),
    Column("gap p99", "", 10, lambda step: duration(step.gap_s, "p99")),
    Column("E2E p50", "", 11, lambda step: duration(step.e2e_s, "p50")),
    Column("ok", "", 8, lambda step: str(step.succeeded)),
    Column("failed", "", 7, lambda step: str(step.failed)),
)
LEFT_OUT: Final = ("gap p99", "TTFT p99", "req/s", "ok", "E2E p50", "in+out")
"""In this order, where a terminal has no room."""
LABEL: Final = 24
SHORT_LABEL: Final = 14


class StepTable:
    """Lines of steps, as wide as a terminal has room for.

    The rates are those of the steady window, else of the whole step.

    Args:
        width: What a line may take; None for all columns.
    """

    def __init__(self, width: int | None = None) -> None:
        self._width = width
        self._columns = list(COLUMNS)
        self._label = LABEL
        if width is None:
            return
        for title in LEFT_OUT:
            if SHORT_LABEL + sum(column.width for column in self._columns) <= width:
                break
            self._columns = [column for column in self._columns if column.title != title]
        taken = sum(column.width for column in self._columns)
        self._label = max(SHORT_LABEL, min(LABEL, width - taken))

    def header(self) -> list[str]:
        """The lines above the steps."""
        cells = [(column.title, column.unit) for column in self._columns]
        return [
            self._line("load", [title for title, _ in cells]),
            self._line("", [unit for _, unit in cells]).rstrip(),
        ]

    def lines(self, step: StepResult) -> list[str]:
        """A step: one line, and what there is to remark in another where there is no room."""
        line = self._line(step.label, [column.cell(step) for column in self._columns])
        remarks = []
        if not step.client.valid:
            remarks.append("client-limited")
        if _rates(step) is not None and step.steady is None:
            remarks.append("whole step: no steady window")
        remark = "".join(f"  {text}" for text in remarks)
        if self._width is not None and len(line + remark) > self._width:
            return [line, remark]
        return [line + remark]

    def _line(self, label: str, cells: Sequence[str]) -> str:
        label = label if len(label) <= self._label else f"{label[: self._label - 3]}..."
        widths = (column.width for column in self._columns)
        figures = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        return label.ljust(self._label) + "".join(figures)


def duration(summary: Summary | None, which: str) -> str:
    """One figure of a summary of seconds, with its unit; a dash where there is none."""
    value: float | None = getattr(summary, which) if summary is not None else None
    return "-" if value is None else seconds(value)


def seconds(value: float) -> str:
    """A duration with three significant digits and its unit."""
    if value < 1e-3:
        return f"{value * 1e6:.3g} us"
    if value < 1.0:
        return f"{value * 1e3:.3g} ms" if value < 0.1 else f"{value * 1e3:.0f} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"


def finding_line(finding: Finding, labels: dict[int, str] | None = None) -> str:
    """A finding in one line."""
    where = ""
    if finding.step is not None and labels and finding.step in labels:
        where = f"{labels[finding.step]}: "
    return f"{_MARKS[finding.severity]}: {where}{finding.text}"


def progress_line(progress: Progress) -> str:
    """How it is going, in one line."""
    parts = [
        f"[{progress.step + 1}/{progress.of}] {progress.label}",
        progress.phase,
        f"{progress.in_flight} in flight",
        f"{progress.output_tokens_per_s:,.0f} out tok/s",
        f"{progress.total_tokens_per_s:,.0f} in+out tok/s",
        f"{progress.succeeded} ok",
    ]
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    if progress.ttft_s is not None:
        parts.append(f"TTFT {seconds(progress.ttft_s)}")
    if progress.limited:
        parts.append("CLIENT-LIMITED")
    return ", ".join(parts)


def footer(result: RunResult) -> Iterable[str]:
    """What was measured, and how: below the table."""
    target = result.target
    version = f" {target.engine_version}" if target.engine_version else ""
    yield (
        f"{target.engine}{version}, {target.model or 'model unknown'}, route {target.route}; "
        f"prompts by {result.plan.prompt_source}; plan {result.plan.name} "
        f"{result.plan.digest[:12]}, seed {result.plan.seed}"
    )
    ours = result.harness == "gpuroom"
    clocks = sorted({str(step.client.clock) for step in result.steps if step.client.clock})
    sources = sorted({str(step.token_source) for step in result.steps if step.token_source})
    counted_by = ", ".join(sources) or ("-" if ours else result.harness)
    yield (
        f"client {result.client.where} on {result.client.hostname}, "
        + (f"receive clock {', '.join(clocks) or '-'}" if ours else result.client.generator)
        + f"; output tokens counted by {counted_by}"
    )


def step_notes(step: StepResult) -> Iterable[str]:
    """What there is to say of a step beside its line: its bound, failures and goodput."""
    if step.bound_evidence:
        yield f"bound at {step.label}: {step.bound or 'not known'}: {step.bound_evidence}"
    if step.failures:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(step.failures.items()))
        yield f"failures of {step.label}: {kinds}"
    if step.goodput is not None:
        limits = ", ".join(f"{k} {seconds(v)}" for k, v in step.goodput.limits_s.items())
        yield (
            f"goodput of {step.label}: {step.goodput.good} of {step.goodput.of} "
            f"({step.goodput.requests_per_s:.2f}/s) within {limits}"
        )
