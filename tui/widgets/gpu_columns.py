"""The columns of a GPU line: what each says, and which of them fit. Pure functions.

Power against the cap in force comes first, since utilisation alone can't tell working from
waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backends.model import EventReasons, GpuState, GpuStatus, Severity
from tui import format as fmt
from tui.widgets.gpu_items import GpuItem, short_name

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


HEAT_CELL = 3
