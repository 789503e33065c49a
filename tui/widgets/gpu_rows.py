"""GPUs as rows: lines, heat cells, totals, the host, the finding that matters. Pure functions.

Colour says state, not level: busy is good.
"""

from __future__ import annotations

from backends.model import GpuState, HostSnapshot, Severity
from tui import format as fmt
from tui.glyphs import Glyphs
from tui.rows import Line, Row, Span, text_row
from tui.widgets.gpu_columns import HEAT_CELL, INDEX_WIDTH, SORT_COLUMNS, GridPlan
from tui.widgets.gpu_items import (
    CALM_WORDS,
    SEVERITY_RANKS,
    SEVERITY_TOKENS,
    GpuItem,
    Totals,
    share_of,
)


def bar(share: float | None, width: int, token: str, glyphs: Glyphs) -> list[Span]:
    """A bar of `width` cells with half-cell steps; empty and hollow where there is no value."""
    if share is None:
        return [(" " * width, "faint")]
    halves = round(min(1.0, max(0.0, share)) * width * 2)
    full, half = divmod(halves, 2)
    filled = glyphs.bar_full * full + glyphs.bar_half * half
    empty = glyphs.bar_empty * (width - full - half)
    return [span for span in ((filled, token), (empty, "bar-back")) if span[0]]


def head_spans(plan: GridPlan, sort: str, descending: bool, glyphs: Glyphs) -> list[Span]:
    """Column titles of one tile."""
    line = Line()
    arrow = glyphs.descending if descending else glyphs.ascending
    sorted_column = SORT_COLUMNS.get(sort, "")
    line.cell("#" + (arrow if sort == "index" else ""), INDEX_WIDTH - 1, "dim", ">").add(" ")
    for column, width in plan.columns:
        title, mine = column.title, column.key == sorted_column
        if column.key == "power":
            title = "now/cap"
        text = (title + arrow) if mine else title
        line.cell(text, width, "accent" if mine else "dim", column.align).add(" ", "dim")
    return list(line.row(plan.tile_width).spans)


def gpu_spans(item: GpuItem, plan: GridPlan, glyphs: Glyphs, *, current: bool) -> list[Span]:
    """One GPU as a tile."""
    gpu, stale = item.gpu, item.stale_s is not None
    line = Line()
    mark = glyphs.cursor if current else glyphs.marked if item.marked else " "
    line.add(mark, "accent").cell(str(gpu.index), INDEX_WIDTH - 2, "strong", ">").add(" ")
    if gpu.state is not GpuState.OK and gpu.readings.power_w is None:
        text = f"{glyphs.lost} {gpu.state.value.upper()}  {gpu.state_detail or gpu.name}"
        return list(line.add(text, "critical").row(plan.tile_width).spans)
    for column, width in plan.columns:
        if column.key == "bar":
            readings = gpu.readings
            share = share_of(readings.power_w, readings.power_limit_enforced_w)
            line.extend(bar(share, width, "stale" if stale else item.token, glyphs))
        else:
            text, token = column.cell(item)
            line.cell(text, width, "stale" if stale else token, column.align)
        line.add(" ")
    return list(line.row(plan.tile_width).spans)


def heat_spans(item: GpuItem, glyphs: Glyphs, *, current: bool) -> list[Span]:
    """One GPU as a heat cell: height is power against the cap, colour is state."""
    readings = item.gpu.readings
    share = share_of(readings.power_w, readings.power_limit_enforced_w)
    if item.gpu.state is not GpuState.OK:
        character, token = glyphs.lost, "critical"
    elif share is None:
        character, token = "?", "faint"
    else:
        step = min(len(glyphs.levels) - 1, int(share * len(glyphs.levels)))
        character, token = glyphs.levels[step], item.token
    if item.stale_s is not None:
        token = "stale"
    edge = glyphs.cursor if current else glyphs.marked if item.marked else " "
    return [(edge, "accent"), (character * (HEAT_CELL - 1), token)]


def totals_row(totals: Totals, width: int, glyphs: Glyphs, *, stale: bool) -> Row:
    """The line under the GPUs."""
    value, dim = ("stale", "stale") if stale else ("strong", "dim")
    share = share_of(totals.power_w, totals.cap_w)
    line = Line().add("  = " if glyphs.is_ascii else "  Σ ", "title")
    cells = 14 if width >= 90 else 6
    line.extend(bar(share, cells, "stale" if stale else "power", glyphs)).add(" ")
    line.add(fmt.watts(totals.power_w), value).add(f" of {fmt.watts(totals.cap_w)}", dim)
    if share is not None:
        line.add(f" {share * 100:.0f}%", dim)
    if totals.answering != totals.count:
        line.add(f"  {totals.answering} of {totals.count} answer", "critical")
    line.add("  util ", dim).add(fmt.percent(totals.utilization_pct), value)
    used, total = fmt.gibibytes(totals.memory_used_bytes), fmt.gibibytes(totals.memory_total_bytes)
    line.add("  mem ", dim).add(f"{used}/{total}G", value)
    line.add("  max ", dim).add(fmt.celsius(totals.hottest_c), value)
    return line.row(width, "bar-row")


def host_row(snapshot: HostSnapshot, width: int, *, stale: bool) -> Row:
    """The line of the host itself: CPU, load, memory, network, disks, how long it is up."""
    readings = snapshot.readings
    value, dim = ("stale", "stale") if stale else ("text", "dim")
    line = Line().add("  host", "title")
    if snapshot.link.via == "tools":
        line.add("  no python3 and no nvidia-smi there: ", value)
        return line.add("tuning facts only", dim).row(width)
    if snapshot.link.via == "nvidia-smi":
        line.add("  read through nvidia-smi: ", value)
        return line.add("no python3 there, so no host readings, processes, energy", dim).row(width)

    def say(name: str, text: str, more: str = "") -> None:
        if line.width + len(name) + len(text) + len(more) + 4 <= width:
            line.add(f"  {name} ", dim).add(text, "faint" if text == fmt.ABSENT else value)
            line.add(more, dim)

    cores = "" if readings.cpu_count is None else f" of {readings.cpu_count}"
    say("cpu", fmt.percent(readings.cpu_pct), cores)
    say("load", fmt.decimal(readings.load_1m))
    total = fmt.size(readings.memory_total_bytes)
    say("mem", f"{fmt.size(readings.memory_used_bytes)}/{total}")
    if readings.swap_used_bytes:
        say("swap", fmt.size(readings.swap_used_bytes))
    say("up", fmt.duration(readings.uptime_s))
    say("net in", fmt.rate(readings.network_rx_bytes_per_s))
    say("out", fmt.rate(readings.network_tx_bytes_per_s))
    say("disk read", fmt.rate(readings.disk_read_bytes_per_s))
    say("write", fmt.rate(readings.disk_write_bytes_per_s))
    if readings.kernel:
        say("kernel", readings.kernel)
    return line.row(width)


def verdict_row(snapshot: HostSnapshot, current: GpuItem | None, width: int, glyphs: Glyphs) -> Row:
    """The finding that matters most here, with its evidence and the next step.

    That is what is said of the GPU under the cursor, unless it is calm and something else is not.
    """
    verdict = current.verdict if current is not None else None
    if verdict is None or verdict.word in CALM_WORDS:
        others = [v for v in snapshot.verdicts if v.word not in CALM_WORDS]
        verdict = max(others, key=lambda v: SEVERITY_RANKS[v.severity], default=verdict)
    if verdict is None:
        return text_row("", width)
    token = "dim" if verdict.word in CALM_WORDS else SEVERITY_TOKENS[verdict.severity]
    glyph = {
        Severity.INFO: glyphs.info,
        Severity.WARNING: glyphs.warning,
        Severity.CRITICAL: glyphs.critical,
    }[verdict.severity]
    line = Line().add(f"  {glyph} ", token)
    if verdict.gpu_uuid is not None:
        gpu = snapshot.gpu(verdict.gpu_uuid)
        line.add(f"GPU {gpu.index} " if gpu is not None else "", "strong")
    line.add(verdict.word, token).add(f"  {verdict.evidence}", "text")
    if verdict.advice:
        line.add(f"  {glyphs.crumb} ", "accent").add(verdict.advice, "dim")
    return line.row(width)
