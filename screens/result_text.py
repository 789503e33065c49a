"""What is said of runs beside their table: heads, and the load under the cursor. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from backends.bench.against import Opened
from backends.bench.compare import Comparison
from backends.bench.overview import Load
from backends.bench.possible import StepPossible
from backends.bench.results import Finding, RunResult, Severity, TokenLedger
from screens.bench_rows import rate
from screens.result_table import MARKS, TOKENS, WORD_TOKENS, LoadLine, share_text
from tui import format as fmt
from tui.rows import Line, Span

KINDS: Final = ("paper", "live clock", "realistic")
MAX_HEADS: Final = 6
SEVERITY_TOKENS: Final = {
    Severity.INFO: "dim",
    Severity.WARNING: "warning",
    Severity.ERROR: "critical",
}
FOREIGN_SHARE: Final = 0.01


def local_time(run: RunResult) -> str:
    """When it was begun."""
    return f"{run.started_utc.astimezone():%Y-%m-%d %H:%M}"


def gpus_text(run: RunResult) -> str:
    """`8 x NVIDIA H200`."""
    names: dict[str, int] = {}
    for gpu in run.environment.gpus:
        name = str(gpu.get("name") or "?")
        names[name] = names.get(name, 0) + 1
    return ", ".join(f"{count} x {name}" for name, count in names.items())


def verdict_spans(comparison: Comparison) -> list[Span]:
    """The word of a whole run, its size, and why where it is not comparable."""
    spans = [(comparison.word.value.upper(), WORD_TOKENS[comparison.word])]
    row = comparison.overall
    if row.estimate is not None:
        change, low, high = (
            (x - 1) * 100 for x in (row.estimate.ratio, row.estimate.low, row.estimate.high)
        )
        spans.append((f"  {row.metric.value} {change:+.1f} % ({low:+.1f} to {high:+.1f})", "text"))
    if comparison.obstacles:
        spans.append((f"  because {'; '.join(map(str, comparison.obstacles[:2]))}", "text"))
    elif row.remark:
        spans.append((f"  {row.remark}", "dim"))
    return spans


def single_head(opened: Opened) -> list[Line]:
    """Of one run: what it was, how it compares, the thing to know about it."""
    (run,) = opened.runs
    target = run.target
    first = Line().add(" ").add(run.plan.name, "strong").add(f"  {run.status.value}", _status(run))
    if run.harness != "gpuroom":
        first.add(f"  by {run.harness}", "warning")
    first.add(f"  {local_time(run)}  ", "dim")
    first.add(" ".join(part for part in (target.engine, target.engine_version) if part), "text")
    for part in (target.model, run.environment.host, gpus_text(run)):
        if part:
            first.add(f"  {part}", "dim")
    lines = [first]
    second = Line().add(" ")
    if opened.reference is None:
        if run.run_id in opened.pinned:
            second.add("the baseline", "strong")
            owner = target.profile or "servers without a profile"
            second.add(f" for {run.plan.name} of {owner}", "dim")
        else:
            second.add("no baseline is pinned for ", "dim").add(run.plan.name)
            second.add(" of ", "dim").add(target.profile or "servers without a profile")
            second.add("  B pins this run", "dim")
    else:
        found = opened.comparison_of(run.run_id)
        second.add("A ", TOKENS[0])
        if found is not None:
            second.extend(verdict_spans(found))
    lines.append(second)
    third = Line().add(" ")
    if opened.reference is not None:
        third.add("B ", TOKENS[1])
        third.add(f"the baseline of {local_time(opened.reference)}  ", "dim")
    worst = worst_finding(run)
    if run.error:
        third.add(run.error, "critical")
    elif worst is not None:
        third.add(f"{worst.severity.value}: {worst.text}", SEVERITY_TOKENS[worst.severity])
    for tag in opened.tags[0]:
        third.add(f"  #{tag}", "info")
    if opened.notes[0]:
        third.add(f"  note: {opened.notes[0][-1].text}", "dim")
    lines.append(third)
    return lines


def several_head(opened: Opened) -> list[Line]:
    """Of several runs: a line each, with its letter and its word."""
    lines = []
    for place, run in enumerate(opened.runs[:MAX_HEADS]):
        line = Line().add(" ").add(f"{MARKS[place % 26]} ", TOKENS[place % len(TOKENS)])
        line.add(local_time(run), "text").add(f" {run.plan.name}", "strong")
        if run.harness != "gpuroom":
            line.add(f" by {run.harness}", "warning")
        for tag in opened.tags[place]:
            line.add(f" #{tag}", "info")
        line.add("  ")
        found = opened.comparison_of(run.run_id)
        if found is not None:
            line.extend(verdict_spans(found))
            if found.changes:
                line.add(f"  changed: {', '.join(d.key for d in found.changes[:3])}", "dim")
        else:
            line.add("the reference", "dim")
        lines.append(line)
    left = len(opened.runs) - MAX_HEADS
    if left > 0:
        lines.append(Line().add(f" and {left} more", "dim"))
    return lines


def _status(run: RunResult) -> str:
    return "good" if run.status.value == "complete" else "warning"


def worst_finding(run: RunResult) -> Finding | None:
    """The most severe, newest of them; None where there is nothing beyond information."""
    for severity in (Severity.ERROR, Severity.WARNING):
        for finding in reversed(run.findings):
            if finding.severity is severity:
                return finding
    return None


def detail_lines(shown: LoadLine, comparison: Comparison | None, run: RunResult) -> list[Line]:
    """The load under the cursor: word, maximum, tokens, what bound it."""
    lines = []
    if shown.word is not None:
        token = WORD_TOKENS[shown.word.word]
        line = Line().add(shown.word.word.value, token)
        lines.append(line.add(shown.word.text.removeprefix(shown.word.word.value), "text"))
    lines.append(_maximum_line(shown.possible, run))
    lines.append(ledger_line(shown.load))
    load = shown.load
    last = load.steps[-1]
    line = Line().add("bound  ", "dim").add(last.bound or "not known", "strong")
    if last.bound_evidence:
        line.add(f": {last.bound_evidence}", "dim")
    lines.append(line)
    if not load.valid:
        reasons = "; ".join(last.client.reasons) or "it held the load back"
        lines.insert(0, Line().add(f"client-limited, no verdict: {reasons}", "critical"))
    if load.failures:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(load.failures.items()))
        lines.append(Line().add("failed  ", "dim").add(kinds, "critical"))
    if comparison is not None:
        for row in comparison.rows:
            if row.step == load.label and row.estimate is not None:
                estimate = row.estimate
                line = Line().cell(row.metric.value, 25, "dim")
                line.add(row.word.value, WORD_TOKENS[row.word])
                line.add(
                    f"  {(estimate.ratio - 1) * 100:+.1f} % ({(estimate.low - 1) * 100:+.1f} to "
                    f"{(estimate.high - 1) * 100:+.1f}), effect {estimate.effect:+.1f} sd of a "
                    f"block, {row.blocks[0]} and {row.blocks[1]} blocks"
                )
                lines.append(line.add(f"  {row.remark}" if row.remark else "", "dim"))
    return lines


def _maximum_line(possible: StepPossible | None, run: RunResult) -> Line:
    line = Line().add("maximum  ", "dim")
    if possible is None:
        return line.add(f"not known: {run.possible_absent or 'the model was not weighed'}", "dim")
    if run.possible is not None and run.possible.misfit:
        line.add("WEIGHTS DO NOT FIT  ", "critical")
    measured = possible.figure("measured").stream_tokens_per_s
    line.add(rate(measured), "strong").add(" tok/s a stream", "dim")
    for kind in KINDS:
        figure = possible.figure(kind)
        if figure.stream_tokens_per_s is None:
            line.add(f", {kind} {fmt.ABSENT}", "dim")
        else:
            line.add(f", {share_text(possible.stream_share(kind))}", "strong")
            line.add(f" of {kind} {rate(figure.stream_tokens_per_s)}", "dim")
    return line.add("  m: assumptions", "faint")


def ledger_line(load: Load) -> Line:
    """Asked, `usage`, seen, the server's own count of output tokens; what is foreign."""
    line = Line().add("tokens out  ", "dim")
    totals = [
        ("asked", _sum(load.ledgers, "asked_output")),
        ("usage", _sum(load.ledgers, "usage_output")),
        ("seen", _sum(load.ledgers, "seen_output")),
        ("server", _sum(load.ledgers, "server_output")),
    ]
    counted = {count for _, count in totals if count is not None}
    for name, count in totals:
        off = len(counted) > 1 and name == "server" and load.foreign_share
        line.add(f"{name} ", "dim")
        line.add(fmt.ABSENT if count is None else f"{count:,}", "warning" if off else "strong")
        line.add("  ")
    if totals[-1][1] is not None and any(step.warm_up_s > 0 for step in load.steps):
        line.add("with the warm-up  ", "dim")
    if load.foreign_share is not None and load.foreign_share > FOREIGN_SHARE:
        line.add(f"{load.foreign_share:.1%} of the server's are somebody else's", "critical")
    remarks = list(dict.fromkeys(remark for one in load.ledgers for remark in one.remarks))
    if remarks:
        line.add("; ".join(remarks), "warning")
    return line


def _sum(ledgers: Sequence[TokenLedger], name: str) -> int | None:
    counts = [getattr(ledger, name) for ledger in ledgers]
    known: list[int] = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
