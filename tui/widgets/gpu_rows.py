"""GPUs as rows: which columns fit, one row a GPU, totals, heat cells. Pure functions.

Power against the cap in force comes first, since utilisation alone can't tell working from
waiting. Colour says state, not level: busy is good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from backends.model import (
    DriverState,
    EventReasons,
    GpuProcess,
    GpuState,
    GpuStatus,
    HostSnapshot,
    Lane,
    LinkState,
    Severity,
    Verdict,
)
from tui import format as fmt
from tui.glyphs import Glyphs
from tui.rows import Line, Row, Span, text_row

SEVERITY_TOKENS = {
    Severity.INFO: "good",
    Severity.WARNING: "warning",
    Severity.CRITICAL: "critical",
}

CALM_WORDS = frozenset({"IDLE", "BUSY", "MIG", "MIG-BUSY", "UNKNOWN"})
"""What a GPU does; anything else that is said of it is news and comes before it."""

HELD_NAMES = {
    "power_cap": "cap",
    "thermal": "hot",
    "power_brake": "brake",
    "sync_boost": "sync",
    "hw_slowdown": "slow",
}

REASON_NAMES: tuple[tuple[EventReasons, str, str], ...] = (
    (EventReasons.HW_POWER_BRAKE, "brake", "critical"),
    (EventReasons.HW_THERMAL, "hot", "critical"),
    (EventReasons.SW_THERMAL, "hot", "warning"),
    (EventReasons.HW_SLOWDOWN, "slow", "critical"),
    (EventReasons.SW_POWER_CAP, "cap", "warning"),
    (EventReasons.SYNC_BOOST, "sync", "dim"),
    (EventReasons.APPLICATIONS_CLOCKS, "app clk", "dim"),
)

FRESH = frozenset({LinkState.LIVE})


@dataclass(frozen=True, slots=True)
class GpuItem:
    """One GPU with what else a row needs."""

    gpu: GpuStatus
    verdict: Verdict | None = None
    runs: str = ""
    marked: bool = False
    stale_s: float | None = None

    @property
    def token(self) -> str:
        """The token that says its state."""
        if self.gpu.state is not GpuState.OK:
            return "critical"
        if self.verdict is None:
            return "busy"
        if self.verdict.word in ("IDLE", "MIG", "UNKNOWN"):
            return "idle"
        if self.verdict.severity is Severity.INFO:
            return "busy"
        return SEVERITY_TOKENS[self.verdict.severity]


def items_of(snapshot: HostSnapshot, now_s: float, marked: frozenset[str]) -> list[GpuItem]:
    """Every GPU of a host, in the order of its indices."""
    verdicts: dict[str, Verdict] = {}
    for verdict in snapshot.verdicts:
        uuid = verdict.gpu_uuid
        if uuid is not None and _matters_more(verdict, verdicts.get(uuid)):
            verdicts[uuid] = verdict
    runs: dict[str, list[GpuProcess]] = {}
    for process in snapshot.processes:
        for uuid in process.memory_bytes:
            runs.setdefault(uuid, []).append(process)
    stale_s = stale_for(snapshot, now_s)
    return [
        GpuItem(
            gpu,
            verdicts.get(gpu.uuid),
            runs_text(runs.get(gpu.uuid, ())),
            gpu.uuid in marked,
            _age_of(gpu, now_s) if gpu.state is GpuState.STUCK else stale_s,
        )
        for gpu in snapshot.gpus
    ]


_RANKS = {severity: number for number, severity in enumerate(Severity)}


def _matters_more(verdict: Verdict, than: Verdict | None) -> bool:
    if than is None:
        return True
    mine = (_RANKS[verdict.severity], verdict.word not in CALM_WORDS)
    return mine > (_RANKS[than.severity], than.word not in CALM_WORDS)


def _age_of(gpu: GpuStatus, now_s: float) -> float:
    """Age of the newest sample of one GPU."""
    return max(0.0, now_s - gpu.read_s.get(Lane.FAST, now_s))


def stale_for(snapshot: HostSnapshot, now_s: float) -> float | None:
    """Age of the newest sample when the host no longer gives new ones, else None."""
    if snapshot.sampled_s is None:
        return None
    age_s = max(0.0, now_s - snapshot.sampled_s)
    stuck = snapshot.driver is not None and snapshot.driver.state is not DriverState.OK
    if snapshot.link.state not in FRESH or stuck or age_s > 3 * snapshot.interval_s + 1:
        return age_s
    return None


def program_name(process: GpuProcess) -> str:
    """The model it serves where that is known, else the program's own name."""
    if process.model:
        return process.model.rstrip("/").rpartition("/")[2]
    words = process.command.split()
    names = [word.rpartition("/")[2] for word in words if not word.startswith("-")]
    if len(names) > 1 and names[0].startswith("python"):
        return names[1]
    return names[0] if names else f"pid {process.pid}"


def runs_text(processes: Sequence[GpuProcess]) -> str:
    """What runs on a GPU, in few words."""
    if not processes:
        return ""
    biggest = max(
        processes, key=lambda p: max((m or 0 for m in p.memory_bytes.values()), default=0)
    )
    name = program_name(biggest) if biggest.visible else f"pid {biggest.pid}"
    return name if len(processes) == 1 else f"{name} +{len(processes) - 1}"


def bar(share: float | None, width: int, token: str, glyphs: Glyphs) -> list[Span]:
    """A bar of `width` cells with half-cell steps; empty and hollow where there is no value."""
    if share is None:
        return [(" " * width, "faint")]
    halves = round(min(1.0, max(0.0, share)) * width * 2)
    full, half = divmod(halves, 2)
    filled = glyphs.bar_full * full + glyphs.bar_half * half
    empty = glyphs.bar_empty * (width - full - half)
    return [span for span in ((filled, token), (empty, "bar-back")) if span[0]]


def short_name(gpu: GpuStatus) -> str:
    """The card without its maker."""
    return gpu.name.removeprefix("NVIDIA ")


def share_of(value: float | None, limit: float | None) -> float | None:
    """The share that a value has of its limit, where both are there."""
    return None if value is None or not limit else value / limit


def held_text(gpu: GpuStatus) -> tuple[str, str]:
    """What holds the clocks and for which share of the last minute, and its token."""
    bits = EventReasons(gpu.readings.event_reasons or 0)
    for name, share in sorted(gpu.held_pct.items(), key=lambda item: -item[1]):
        if share >= 0.5:
            word = HELD_NAMES.get(name, name.replace("_", " "))
            token = "warning" if name in ("power_cap", "sync_boost") else "critical"
            return f"{word} {share:.0f}%", token
    for reason, word, token in REASON_NAMES:
        if bits & reason:
            return word, token
    return "", "dim"


def link_text(gpu: GpuStatus) -> tuple[str, str]:
    """PCIe generation and width now; with a mark and in warning where the width is reduced."""
    readings = gpu.readings
    if readings.pcie_generation is None and readings.pcie_width is None:
        return fmt.ABSENT, "faint"
    text = f"{fmt.whole(readings.pcie_generation)}x{fmt.whole(readings.pcie_width)}"
    narrow = (
        readings.pcie_width is not None
        and readings.pcie_width_max is not None
        and readings.pcie_width < readings.pcie_width_max
    )
    return (text + "!", "warning") if narrow else (text, "dim")


def state_text(item: GpuItem) -> tuple[str, str]:
    """The word for its state: that of the verdict, or what is wrong with it."""
    gpu = item.gpu
    if gpu.state is not GpuState.OK:
        return gpu.state.value.upper(), "critical"
    if item.verdict is not None:
        # Capitals are for what needs a look.
        calm = item.verdict.severity is Severity.INFO
        return item.verdict.word.lower() if calm else item.verdict.word, item.token
    if gpu.readings.mig_enabled:
        return "MIG", "info"
    return "", "dim"


Cell = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: what it is called, how wide it is, how it comes from a GPU."""

    key: str
    title: str
    width: int
    cell: Callable[[GpuItem], Cell]
    align: str = ">"
    flexible: int = 0
    """How much more than `width` it can use."""


def _power(item: GpuItem) -> Cell:
    readings = item.gpu.readings
    return fmt.of(readings.power_w, readings.power_limit_enforced_w, "W"), "strong"


def _value(text: str, token: str = "text") -> Cell:
    return text, "faint" if text == fmt.ABSENT else token


def _memory(item: GpuItem) -> Cell:
    readings = item.gpu.readings
    used, total = readings.memory_used_bytes, readings.memory_total_bytes
    if used is None and total is None:
        # The one reason that fits the column: there is no memory of its own to speak of.
        unified = "unified" in item.gpu.absent.get("memory_total_bytes", "")
        return ("unified", "info") if unified else (fmt.ABSENT, "faint")
    return f"{fmt.gibibytes(used)}/{fmt.gibibytes(total)}G", "text"


def _temperature(item: GpuItem) -> Cell:
    margin = item.gpu.readings.temperature_margin_c
    token = "critical" if margin is not None and margin <= 3 else "text"
    return _value(fmt.celsius(item.gpu.readings.temperature_gpu_c), token)


COLUMNS: Mapping[str, Column] = {
    column.key: column
    for column in (
        Column("bar", "power", 6, lambda i: ("", "text"), "<", flexible=24),
        Column("power", "", 8, _power),
        Column(
            "utilization", "util", 4,
            lambda i: _value(fmt.percent(i.gpu.readings.utilization_gpu_pct)),
        ),
        Column("memory", "memory", 8, _memory),
        Column("temperature", "temp", 4, _temperature),
        Column("state", "state", 12, state_text, "<", flexible=2),
        Column("held", "held", 8, lambda i: held_text(i.gpu), "<"),
        Column(
            "sm_clock", "sm", 5,
            lambda i: _value(fmt.gigahertz(i.gpu.readings.sm_clock_mhz), "dim"),
        ),
        Column("link", "pcie", 5, lambda i: link_text(i.gpu), "<"),
        Column("runs", "runs", 6, lambda i: (i.runs, "dim"), "<", flexible=50),
        Column(
            "memory_busy", "mutil", 5,
            lambda i: _value(fmt.percent(i.gpu.readings.utilization_memory_pct), "dim"),
        ),
        Column(
            "memory_clock", "mclk", 5,
            lambda i: _value(fmt.gigahertz(i.gpu.readings.memory_clock_mhz), "dim"),
        ),
        Column(
            "temperature_memory", "tmem", 4,
            lambda i: _value(fmt.celsius(i.gpu.readings.temperature_memory_c), "dim"),
        ),
        Column("nvlink", "nvl", 5, lambda i: _nvlink(i), "<"),
        Column("name", "name", 10, lambda i: (short_name(i.gpu), "dim"), "<", flexible=14),
    )
}  # fmt: skip


def _nvlink(item: GpuItem) -> Cell:
    active, total = item.gpu.readings.nvlink_links_active, item.gpu.readings.nvlink_links_total
    if total is None:
        return fmt.ABSENT, "faint"
    token = "dim" if active == total else "warning"
    return f"{fmt.whole(active)}/{total}", token


ORDER = (
    "bar", "power", "utilization", "memory_busy", "memory", "temperature", "temperature_memory",
    "sm_clock", "memory_clock", "link", "nvlink", "held", "state", "runs", "name",
)  # fmt: skip
"""Columns from left to right."""

PRIORITY = (
    "bar", "power", "utilization", "temperature", "memory", "state", "sm_clock", "held", "link",
    "runs", "memory_busy", "temperature_memory", "memory_clock", "nvlink", "name",
)  # fmt: skip
"""Columns in the order in which they get room."""

SORT_COLUMNS = {
    "index": "#",
    "power": "power",
    "utilization": "utilization",
    "memory": "memory",
    "temperature": "temperature",
}
"""Sort key of the configuration -> column that carries the arrow."""

INDEX_WIDTH = 4
MIN_TILE_WIDTH = 38
"""Below this a GPU line says too little, and heat cells say more."""


@dataclass(frozen=True, slots=True)
class GridPlan:
    """How GPUs are laid out in a space.

    Attributes:
        tiles: GPU lines side by side; 0 for the heat grid.
        tile_width: Cells of each.
        columns: Columns of a line with their widths.
        lines: Rows that hold GPUs.
    """

    tiles: int
    tile_width: int
    columns: tuple[tuple[Column, int], ...] = ()
    lines: int = 0


def useless_columns(items: Sequence[GpuItem]) -> frozenset[str]:
    """Columns that would say nothing: no GPU has such a value, or all have the same name."""
    rows = [item.gpu.readings for item in items]
    useless = {
        key
        for key, field_name in (
            ("nvlink", "nvlink_links_total"),
            ("temperature_memory", "temperature_memory_c"),
            ("memory_busy", "utilization_memory_pct"),
            ("memory_clock", "memory_clock_mhz"),
        )
        if all(getattr(readings, field_name) is None for readings in rows)
    }
    if len({item.gpu.name for item in items}) < 2:
        useless.add("name")
    return frozenset(useless)


def plan_grid(
    count: int, width: int, height: int, without: frozenset[str] = frozenset()
) -> GridPlan:
    """Choose: one line a GPU, several lines side by side, or heat cells when nothing else fits.

    Args:
        count: GPUs.
        width: Cells.
        height: Rows there are for GPUs alone.
        without: Columns to leave out.
    """
    height = max(1, height)
    tiles = 1 if count <= height else -(-count // height)
    tile_width = (width - 2 * (tiles - 1)) // tiles
    if tiles > 1 and tile_width < MIN_TILE_WIDTH:
        per_row = max(1, (width - 1) // HEAT_CELL)
        return GridPlan(0, HEAT_CELL, (), min(height, -(-count // per_row)))
    return GridPlan(
        tiles, tile_width, fit_columns(tile_width, without), -(-count // tiles) if count else 0
    )


def fit_columns(
    width: int, without: frozenset[str] = frozenset()
) -> tuple[tuple[Column, int], ...]:
    """The columns that fit, most important first; what is left widens bar and text."""
    left = width - INDEX_WIDTH
    chosen = []
    for key in PRIORITY:
        column = COLUMNS[key]
        if key in without:
            continue
        if column.width + 1 <= left:
            chosen.append(key)
            left -= column.width + 1
        elif key in ("bar", "power"):
            break
    widths = {key: COLUMNS[key].width for key in chosen}
    for key, most in (("runs", 8), ("bar", 14), ("runs", 12), ("bar", 10),
                      ("name", 14), ("runs", 30)):  # fmt: skip
        if key in widths and left > 0:
            room = COLUMNS[key].width + COLUMNS[key].flexible - widths[key]
            extra = min(left, most, room)
            widths[key] += extra
            left -= extra
    return tuple((COLUMNS[key], widths[key]) for key in ORDER if key in widths)


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


HEAT_CELL = 3


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


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over GPUs; a sum counts only what was read, and says of how many."""

    count: int = 0
    answering: int = 0
    power_w: float | None = None
    cap_w: float | None = None
    utilization_pct: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    hottest_c: float | None = None
    by_word: Mapping[str, int] = field(default_factory=dict)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def totals_of(gpus: Sequence[GpuStatus]) -> Totals:
    """Add up the GPUs of a host; one that is stuck counts with what it read last."""
    rows = [gpu.readings for gpu in gpus if gpu.state in (GpuState.OK, GpuState.STUCK)]
    answering = sum(gpu.state is GpuState.OK for gpu in gpus)
    utilization = [r.utilization_gpu_pct for r in rows if r.utilization_gpu_pct is not None]
    temperatures = [r.temperature_gpu_c for r in rows if r.temperature_gpu_c is not None]
    return Totals(
        count=len(gpus),
        answering=answering,
        power_w=_sum([r.power_w for r in rows]),
        cap_w=_sum([r.power_limit_enforced_w for r in rows]),
        utilization_pct=sum(utilization) / len(utilization) if utilization else None,
        memory_used_bytes=_sum([r.memory_used_bytes for r in rows]),
        memory_total_bytes=_sum([r.memory_total_bytes for r in rows]),
        hottest_c=max(temperatures, default=None),
    )


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
        verdict = max(others, key=lambda v: _RANKS[v.severity], default=verdict)
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
