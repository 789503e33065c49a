"""A benchmark run as rows: its figures, its distribution, its steps. Pure: a run in, rows out."""

from __future__ import annotations

from collections.abc import Sequence

from backends.bench.desk import Live
from backends.bench.results import StepResult
from backends.model import HostSnapshot
from tui import format as fmt
from tui.glyphs import Glyphs
from tui.rows import Line, Row, text_row
from tui.widgets.big_digits import big
from tui.widgets.braille import curve, sparkline

FIGURE_ROWS = 7
STATE_TOKENS = {
    "preparing": "accent", "running": "good", "stopping": "warning", "over": "good",
    "refused": "critical", "failed": "critical",
}  # fmt: skip


def seconds(value: float | None) -> str:
    """A latency in three figures: `8.1 ms`, `512 ms`, `2.31 s`."""
    if value is None:
        return fmt.ABSENT
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


def figure_rows(live: Live, snapshot: HostSnapshot, width: int, glyphs: Glyphs) -> list[Row]:
    """The figures of the running step, output and total always side by side."""
    now = live.progress if live.going else None
    last = live.steps[-1] if live.steps else None
    rates = (last.steady or last.whole) if last is not None else None
    output: float | None = None
    total: float | None = None
    if now is not None:
        output, total = now.output_tokens_per_s, now.total_tokens_per_s
    else:
        output = rates.output_tokens_per_s if rates else None
        total = rates.total_tokens_per_s if rates else None
    half = width // 2
    rows = [head_line(live).row(width)]
    left = big(rate(output), ascii_only=glyphs.is_ascii)
    right = big(rate(total), ascii_only=glyphs.is_ascii)
    for one, other in zip(left, right, strict=True):
        line = Line().add("  ").cell(one, half - 2, "good").cell(other, width - half, "accent")
        rows.append(line.row(width))
    which = "" if now is not None or last is None else f" ({last.label})"
    line = Line().add("  ").cell(f"output tokens/s{which}", half - 2, "strong")
    rows.append(line.add("input + output tokens/s", "strong").row(width))
    rows.append(_latencies(live, last, now is not None, snapshot).row(width))
    rows.append(_remark(live, width))
    return rows


def _latencies(live: Live, last: StepResult | None, going: bool, snapshot: HostSnapshot) -> Line:
    if going:
        ttft, tpot, e2e = median(live.ttft_s), median(live.tpot_s), median(live.e2e_s)
    else:
        ttft, tpot, e2e = (
            summary.p50 if summary is not None else None
            for summary in (
                (last.ttft_s, last.tpot_s, last.e2e_s) if last is not None else (None,) * 3
            )
        )
    line = Line().add(" ")
    for name, value in (("TTFT", ttft), ("TPOT", tpot), ("latency", e2e)):
        line.add(f" {name} ", "dim").add(seconds(value) + " ", "strong")
    progress = live.progress
    flying = str(progress.in_flight) if going and progress is not None else fmt.ABSENT
    failed = progress.failed if progress is not None else 0
    line.add(" in flight ", "dim").add(flying, "strong")
    line.add("  failed ", "dim").add(str(failed), "critical" if failed else "strong")
    return line.add("  GPUs ", "dim").add(power_text(snapshot), "power")


def _remark(live: Live, width: int) -> Row:
    """The thing to know now: an error, a client that limits, the newest finding, the baseline."""
    progress = live.progress
    if live.error:
        return text_row(f"  {live.error}", width, "critical")
    if live.going and progress is not None and progress.limited:
        return text_row(f"  the client limits: {progress.limited[0]}", width, "critical")
    if live.compared:
        return text_row(f"  {live.compared}", width, "accent")
    if live.findings:
        newest = live.findings[-1]
        return text_row(f"  {newest.severity}: {newest.text}", width, "dim")
    return text_row("", width)


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
        head.add("no two requests yet", "dim")
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


STEP_HEAD = (
    f"  {'load':<14}{'output/s':>10}{'in+out/s':>10}{'TTFT':>9}{'TPOT':>9}{'J/tok':>7}"
    f"{'of max':>7}  bound"
)


def step_row(live: Live, step: StepResult, width: int, *, current: bool, glyphs: Glyphs) -> Row:
    """One step of the table."""
    rates = step.steady or step.whole
    line = Line().add((glyphs.cursor if current else " ") + " ", "accent")
    line.cell(step.label, 14, "strong")
    line.cell(rate(rates.output_tokens_per_s if rates else None), 10, "good", ">")
    line.cell(rate(rates.total_tokens_per_s if rates else None), 10, "accent", ">")
    for summary in (step.ttft_s, step.tpot_s):
        line.cell(seconds(summary.p50 if summary else None), 9, "text", ">")
    line.cell(fmt.decimal(step.joules_per_output_token, 2), 7, "power", ">")
    line.cell(_share(live, step), 7, "text", ">")
    line.add("  ").add(step.bound or fmt.ABSENT, "dim")
    if not step.client.valid:
        line.add("  client-limited", "critical")
    elif step.failed:
        line.add(f"  {step.failed} failed", "critical")
    return line.row(width, "cursor-row" if current else "text")


def _share(live: Live, step: StepResult) -> str:
    """Of what the cards could do on paper; absent where that is not known."""
    found = None if live.possible is None else live.possible.step(step.label)
    share = None if found is None else found.stream_share("paper")
    return fmt.ABSENT if share is None else f"{share:.1%}"
