"""A benchmark run as rows: its figures, its distribution, its steps. Pure: a run in, rows out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backends.bench.desk import Live
from backends.bench.results import Finding, Severity, StepResult
from backends.model import HostSnapshot
from tui import format as fmt
from tui.glyphs import Glyphs
from tui.rows import Line, Row, text_row
from tui.widgets.big_digits import HEIGHT, TALL, big, tall
from tui.widgets.braille import curve, sparkline
from tui.widgets.host_state import wrap

STATE_TOKENS = {
    "preparing": "accent", "running": "good", "stopping": "warning", "over": "good",
    "refused": "critical", "failed": "critical",
}  # fmt: skip


def seconds(value: float | None) -> str:
    """A latency in three figures: `512 us`, `8.1 ms`, `512 ms`, `2.31 s`."""
    if value is None:
        return fmt.ABSENT
    if 0 < value < 0.9995e-3:
        return f"{value * 1e6:.0f} us"
    if value < 1:
        return f"{value * 1e3:.3g} ms" if value < 0.1 else f"{value * 1e3:.0f} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"


def rate(value: float | None) -> str:
    """Tokens a second: `1,234`, `12.3`."""
    if value is None:
        return fmt.ABSENT
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def median(values: Sequence[float]) -> float | None:
    """The middle one; None of nothing."""
    return sorted(values)[len(values) // 2] if values else None


def power_text(snapshot: HostSnapshot) -> str:
    """Power of all GPUs that tell it, and how many these are where some don't."""
    powers = [gpu.readings.power_w for gpu in snapshot.gpus]
    known = [power for power in powers if power is not None]
    if not known:
        return fmt.ABSENT
    some = f" ({len(known)} of {len(powers)})" if len(known) < len(powers) else ""
    return f"{fmt.watts(sum(known))}{some}"


def head_line(live: Live) -> Line:
    """What runs and how far it is."""
    line = Line().add(" ").add(live.state, STATE_TOKENS[live.state]).add("  plan ", "dim")
    line.add(live.plan.name, "strong").add("  ", "dim").add(live.url, "dim")
    progress = live.progress
    if progress is not None and live.going:
        line.add(f"  step {progress.step + 1} of {progress.of}: ", "dim")
        line.add(progress.label, "strong").add(f", {progress.phase}", "accent")
    return line


def state_line(live: Live) -> Line:
    """How the run stands, for the room."""
    line = Line().add(live.state, STATE_TOKENS[live.state]).add(f"  {live.plan.name}", "dim")
    if live.going and live.progress is not None:
        line.add(f"  {live.progress.label}", "strong")
    if live.error:
        line.add(f"  {live.error}", "critical")
    return line


def rates_line(live: Live) -> Line:
    """Output and total of now, or of the last step."""
    if live.going and live.progress is not None:
        output, total = live.progress.output_tokens_per_s, live.progress.total_tokens_per_s
    else:
        rates = (live.steps[-1].steady or live.steps[-1].whole) if live.steps else None
        if rates is None:
            return Line()
        output, total = rates.output_tokens_per_s, rates.total_tokens_per_s
    line = Line().add(rate(output), "good").add(" output, ", "dim")
    return line.add(rate(total), "accent").add(" in+out tok/s", "dim")


def short_step_row(step: StepResult, width: int) -> Row:
    """One finished step where there is little room."""
    rates = step.steady or step.whole
    line = Line().add("  ").cell(step.label, 14, "dim")
    line.cell(rate(rates.output_tokens_per_s if rates else None), 9, "good", ">")
    return line.cell(rate(rates.total_tokens_per_s if rates else None), 10, "accent", ">").row(
        width
    )


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the figures that are drawn large: what it is with its unit, and its digits."""

    label: str
    digits: str
    token: str


def milliseconds(value: float | None) -> str:
    """A latency as digits alone: `8.1`, `51.2`, `1,234`."""
    if value is None:
        return fmt.ABSENT
    return f"{value * 1e3:.1f}" if value < 0.1 else f"{value * 1e3:,.0f}"


def figures_of(live: Live) -> tuple[tuple[Figure, ...], tuple[Figure, ...]]:
    """Two lines of figures of the running step, or of the last one: rates, then latencies.

    Output and total always stand side by side.
    """
    now = live.progress if live.going else None
    last = live.steps[-1] if live.steps and now is None else None
    rates = (last.steady or last.whole) if last is not None else None
    output: float | None = None
    total: float | None = None
    ttft = tpot = e2e = None
    if now is not None:
        output, total = now.output_tokens_per_s, now.total_tokens_per_s
        # While it warms up nothing is measured yet: what ended in the last quarter of a second.
        ttft = median(live.ttft_s) or now.ttft_s
        tpot, e2e = median(live.tpot_s), median(live.e2e_s) or now.e2e_s
    elif last is not None:
        output = rates.output_tokens_per_s if rates else None
        total = rates.total_tokens_per_s if rates else None
        ttft, tpot, e2e = (
            summary.p50 if summary else None for summary in (last.ttft_s, last.tpot_s, last.e2e_s)
        )
    flying = str(now.in_flight) if now is not None else fmt.ABSENT
    failed = None if now is None and last is None else (now or last).failed  # type: ignore[union-attr]
    long = e2e is not None and e2e >= 10
    return (
        (
            Figure("output tokens/s", rate(output), "good"),
            Figure("input + output tokens/s", rate(total), "accent"),
            Figure("in flight", flying, "strong"),
        ),
        (
            Figure("TTFT ms, median", milliseconds(ttft), "memory"),
            Figure("TPOT ms, median", milliseconds(tpot), "memory"),
            Figure(
                f"latency {'s' if long else 'ms'}, median",
                f"{e2e:.1f}" if long and e2e is not None else milliseconds(e2e),
                "memory",
            ),
            Figure(
                "failed", fmt.ABSENT if failed is None else str(failed),
                "critical" if failed else "strong",
            ),
        ),
    )  # fmt: skip


def figure_rows(live: Live, width: int, glyphs: Glyphs, *, large: bool) -> list[Row]:
    """What runs, then its figures in two lines, each as high as there is room for."""
    rows = [head_line(live).row(width)]
    draw = tall if large else big
    for figures in figures_of(live):
        each = width // len(figures)
        drawn = [draw(figure.digits, ascii_only=glyphs.is_ascii) for figure in figures]
        for lines in zip(*drawn, strict=True):
            line = Line()
            for figure, text in zip(figures, lines, strict=True):
                line.add("  ").cell(text, each - 2, figure.token)
            rows.append(line.row(width))
        line = Line()
        for figure in figures:
            line.add("  ").cell(figure.label, each - 2, "dim")
        rows.append(line.row(width))
    rows.append(remark_row(live, width))
    return rows


def figure_height(*, large: bool) -> int:
    """How many rows `figure_rows` gives."""
    return 2 + 2 * ((TALL if large else HEIGHT) + 1)


def remark_row(live: Live, width: int) -> Row:
    """The thing to know now: an error, a client that limits, a grave finding, the baseline."""
    progress = live.progress
    if live.error:
        return text_row(f"  {live.error}", width, "critical")
    if live.going and progress is not None and progress.limited:
        return text_row(f"  the client limits: {progress.limited[0]}", width, "critical")
    grave = [finding for finding in live.findings if finding.severity is Severity.ERROR]
    if grave:
        return text_row(f"  {grave[-1].text}", width, "critical")
    if live.possible is not None and live.possible.misfit:
        return text_row(f"  DOES NOT FIT: {live.possible.misfit}", width, "critical")
    if live.compared:
        return text_row(f"  {live.compared}", width, "accent")
    if live.findings:
        newest = live.findings[-1]
        return text_row(f"  {newest.severity}: {newest.text}", width, "dim")
    return text_row("", width)


_GRAVEST: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)
FINDING_TOKENS: Final = {
    Severity.ERROR: "critical", Severity.WARNING: "warning", Severity.INFO: "dim",
}  # fmt: skip


def finding_rows(findings: Sequence[Finding], width: int, height: int) -> list[Row]:
    """What was found out, the gravest first, wrapped; how many there is no room for."""
    drawn: list[Row] = []
    for number, finding in enumerate(
        sorted(findings, key=lambda one: _GRAVEST.index(one.severity))
    ):
        pieces = wrap(finding.text, max(10, width - 13))
        fits = height - (number < len(findings) - 1)
        if drawn and len(drawn) + len(pieces) > fits:
            left = len(findings) - number
            return [*drawn, text_row(f"  {left} more findings are in the result", width, "dim")]
        for place, piece in enumerate(pieces):
            line = Line().add("  ").cell("" if place else finding.severity.value, 9, "dim")
            drawn.append(line.add(piece, FINDING_TOKENS[finding.severity]).row(width))
    return drawn


def power_row(snapshot: HostSnapshot, width: int, glyphs: Glyphs) -> Row:
    """One column a GPU: its power against its cap."""
    shares: list[float | None] = []
    for gpu in snapshot.gpus:
        limit, power = gpu.readings.power_limit_enforced_w, gpu.readings.power_w
        shares.append(power / limit if power is not None and limit else None)
    line = Line().add("  GPU power ", "dim")
    if not shares:
        return line.add("no GPU in sight", "dim").row(width)
    strip = sparkline(shares, 0.0, 1.0, glyphs)
    marks = "".join(
        "?" if share is None else mark for share, mark in zip(shares, strip, strict=True)
    )
    line.add(marks, "power").add(f"  {power_text(snapshot)}", "strong")
    caps = [gpu.readings.power_limit_enforced_w for gpu in snapshot.gpus]
    if all(cap is not None for cap in caps):
        line.add(f" of {fmt.watts(sum(cap or 0.0 for cap in caps))}", "dim")
    return line.row(width)


def distribution_rows(
    title: str, values: Sequence[float], width: int, height: int, glyphs: Glyphs
) -> list[Row]:
    """How many requests took how long: a histogram with its ends and its median."""
    head = Line().add(f"{title} ", "memory")
    if len(values) < 2:
        head.add("none yet", "dim")
        return [head.row(width), *(text_row("", width) for _ in range(height - 1))]
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    head.add(f"p50 {seconds(p50)}  p99 {seconds(p99)}", "strong").add(f"  {len(ordered)}", "dim")
    bins = [0] * min(width, 2 * int(len(ordered) ** 0.5) + 1)
    span = (high - low) or 1.0
    for value in ordered:
        bins[min(len(bins) - 1, int((value - low) / span * len(bins)))] += 1
    # Each bin is as many columns wide as there is room for.
    counts = [
        float(count) if (count := bins[x * len(bins) // (2 * width)]) else None
        for x in range(2 * width)
    ]
    rows = [head.row(width)]
    for text in curve(counts, max(1, height - 2), 0.0, float(max(bins)), glyphs):
        rows.append(text_row(text, width, "memory"))
    ends = Line().add(seconds(low), "dim")
    rows.append(ends.right([(seconds(high), "dim")], width).row(width))
    return rows[:height]
