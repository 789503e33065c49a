"""A run as text: one line a step, what was found, and how it is going."""

from __future__ import annotations

from collections.abc import Iterable

from backends.bench.results import Finding, RunResult, Severity, StepResult, Summary
from backends.bench.runner import Progress

HEADER = (
    f"{'load':<24} {'output':>9} {'in+out':>9} {'req/s':>7}  {'TTFT p50':>9} {'p99':>9}  "
    f"{'TPOT p50':>9} {'gap p99':>9}  {'E2E p50':>9}  {'ok':>6} {'failed':>6}"
)
UNITS = f"{'':<24} {'tok/s':>9} {'tok/s':>9} {'':>7}  {'':>9} {'':>9}  {'':>9} {'':>9}  {'':>9}"
_MARKS = {Severity.INFO: "note", Severity.WARNING: "warning", Severity.ERROR: "INVALID"}


def step_line(step: StepResult) -> str:
    """A step in one line; the rates are those of the steady window, else of the whole step."""
    rates = step.steady or step.whole
    output = f"{rates.output_tokens_per_s:,.1f}" if rates else "-"
    total = f"{rates.total_tokens_per_s:,.1f}" if rates else "-"
    requests = f"{rates.requests_per_s:.2f}" if rates else "-"
    mark = "" if step.client.valid else "  client-limited"
    if rates and step.steady is None:
        mark += "  whole step: no steady window"
    return (
        f"{step.label[:24]:<24} {output:>9} {total:>9} {requests:>7}  "
        f"{duration(step.ttft_s, 'p50'):>9} {duration(step.ttft_s, 'p99'):>9}  "
        f"{duration(step.tpot_s, 'p50'):>9} {duration(step.gap_s, 'p99'):>9}  "
        f"{duration(step.e2e_s, 'p50'):>9}  {step.succeeded:>6} {step.failed:>6}{mark}"
    )


def duration(summary: Summary | None, which: str) -> str:
    """One figure of a summary of seconds, with its unit; a dash where there is none."""
    value: float | None = getattr(summary, which) if summary is not None else None
    return "-" if value is None else seconds(value)


def seconds(value: float) -> str:
    """A duration with three significant digits and its unit."""
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
