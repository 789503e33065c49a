"""The GPUs of one host: lines side by side, or heat cells, whichever fits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import ClassVar

from textual.binding import BindingType

from backends.model import HostSnapshot
from tui import filters
from tui import format as fmt
from tui.bindings import bindings
from tui.rows import Line, Row, Span
from tui.themes import Look
from tui.widgets.gpu_columns import HEAT_CELL, GridPlan, plan_grid, state_text, useless_columns
from tui.widgets.gpu_items import GpuItem, items_of, share_of, short_name, totals_of
from tui.widgets.gpu_rows import (
    gpu_spans,
    head_spans,
    heat_spans,
    host_row,
    totals_row,
    verdict_row,
)
from tui.widgets.host_state import notice_rows, trouble
from tui.widgets.pane_title import pane_title
from tui.widgets.row_list import RowList

SORTS: Mapping[str, Callable[[GpuItem], float | None]] = {
    "index": lambda item: item.gpu.index,
    "power": lambda item: item.gpu.readings.power_w,
    "utilization": lambda item: item.gpu.readings.utilization_gpu_pct,
    "memory": lambda item: item.gpu.readings.memory_used_bytes,
    "temperature": lambda item: item.gpu.readings.temperature_gpu_c,
}

FRAME_ROWS = 3
"""Title, column titles, totals."""


def filter_numbers(item: GpuItem) -> dict[str, float | None]:
    """What comparisons of a filter can be made with."""
    readings = item.gpu.readings
    share = share_of(readings.memory_used_bytes, readings.memory_total_bytes)
    return {
        "index": item.gpu.index,
        "power": readings.power_w,
        "util": readings.utilization_gpu_pct,
        "temp": readings.temperature_gpu_c,
        "mem": None if share is None else share * 100,
        "clock": readings.sm_clock_mhz,
        "width": readings.pcie_width,
        "gen": readings.pcie_generation,
    }


class GpuGrid(RowList):
    """Shows the newest snapshot it was given. Keys: lists, sort, filter, marks."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(
        "gpus.mark", "gpus.reverse", "nav.left", "nav.right"
    )

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(look, id=id)
        self.snapshot: HostSnapshot | None = None
        self.now_s = 0.0
        self.sort = "index"
        self.descending = False
        self.filter = filters.Filter()
        self.filter_text = ""
        self.marked: frozenset[str] = frozenset()
        self._items: dict[Hashable, GpuItem] = {}
        self._plan = GridPlan(1, 0)

    def show(self, snapshot: HostSnapshot, now_s: float) -> None:
        """Draw a snapshot; the one call a frame."""
        self.snapshot = snapshot
        self.now_s = now_s
        self._items = {
            item.gpu.uuid: item for item in self._chosen(items_of(snapshot, now_s, self.marked))
        }
        self.redraw()

    def refresh_items(self) -> None:
        """Apply a new order, filter or mark."""
        if self.snapshot is not None:
            self.show(self.snapshot, self.now_s)

    def _chosen(self, items: list[GpuItem]) -> list[GpuItem]:
        if self.filter:
            items = [item for item in items if self.filter.fits(_words(item), filter_numbers(item))]
        value_of = SORTS[self.sort]
        sign = -1 if self.descending else 1

        def order(item: GpuItem) -> tuple[bool, float, int]:
            value = value_of(item)
            # What has no value comes last, whichever way round.
            return (value is None, sign * (value or 0), item.gpu.index)

        return sorted(items, key=order)

    def keys(self) -> Sequence[Hashable]:
        """UUIDs in the order shown."""
        return tuple(self._items)

    def current(self) -> GpuItem | None:
        """The GPU under the cursor."""
        keys = self.keys()
        return self._items[keys[self.cursor_index(keys)]] if keys else None

    def title_row(self, width: int) -> Row:
        """Pane number and title, what the host is, what is wrong with it."""
        line = pane_title(1, "GPUs", self.look.glyphs, focused=self.has_focus)
        snapshot = self.snapshot
        rule = self.look.glyphs.rule
        if snapshot is None:
            return line.add(rule * (width - line.width), "faint").row(width)
        problem = trouble(snapshot, self.now_s) if snapshot.gpus else []
        if problem:
            line.extend(problem).add(" ")
        else:
            line.extend(_about(snapshot)).add(" ")
        if self.filter_text:
            line.add(f"filter {self.filter_text} ", "accent")
            line.add(f"{len(self._items)}/{len(snapshot.gpus)} ", "dim")
        if len(self.marked):
            line.add(f"{len(self.marked)} marked ", "accent")
        return line.add(rule * max(0, width - line.width), "faint").row(width)

    def rows_without_gpus(self, snapshot: HostSnapshot, now_s: float, width: int) -> int:
        """Rows of the title and of what stands in the place of GPUs while there are none."""
        return 1 + len(notice_rows(snapshot, now_s, width, self.look.glyphs))

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """Title, column titles, GPUs, totals."""
        snapshot, glyphs = self.snapshot, self.look.glyphs
        rows = [self.title_row(width)]
        if snapshot is None or not snapshot.gpus:
            if snapshot is not None:
                rows += notice_rows(snapshot, self.now_s, width, glyphs)
            return rows
        items = list(self._items.values())
        space = height - FRAME_ROWS
        self._plan = plan = plan_grid(
            len(items), width, space, useless_columns(list(self._items.values()))
        )
        if not items:
            rows.append(Line().add("  no GPU fits the filter; / changes it", "dim").row(width))
        elif plan.tiles == 0:
            rows += self._heat_rows(items, width, space)
        else:
            gap: list[Span] = [("  ", "text")]
            head = head_spans(plan, self.sort, self.descending, glyphs)
            rows.append(Line().extend((head + gap) * plan.tiles).row(width))
            rows += self._tile_rows(items, width)
        totals = totals_of(snapshot.gpus)
        stale = bool(items) and all(item.stale_s is not None for item in items)
        rows.append(totals_row(totals, width, glyphs, stale=stale))
        if len(rows) < height:
            rows.append(host_row(snapshot, width, stale=stale))
        if len(rows) < height:
            rows.append(verdict_row(snapshot, self.current(), width, glyphs))
        return rows

    def _tile_rows(self, items: list[GpuItem], width: int) -> list[Row]:
        plan, glyphs = self._plan, self.look.glyphs
        current = self.cursor_index(self.keys())
        rows = []
        for y in range(plan.lines):
            line = Line()
            for number in range(y, len(items), plan.lines):
                here = number == current
                line.extend(gpu_spans(items[number], plan, glyphs, current=here)).add("  ")
            chosen = self.has_focus and plan.tiles == 1 and y == current
            base = "cursor-row" if chosen else "text"
            rows.append(line.row(width, base))
        return rows

    def _heat_rows(self, items: list[GpuItem], width: int, height: int) -> list[Row]:
        glyphs = self.look.glyphs
        per_row = self._per_row(width)
        current = self.cursor_index(self.keys())
        lines = -(-len(items) // per_row)
        shown = max(1, height)
        here = current // per_row
        self.top = min(max(self.top, here - shown + 1, 0), here, max(0, lines - shown))
        rows = [self._current_row(items[current], width)]
        for y in range(self.top, min(lines, self.top + shown)):
            line = Line()
            for number in range(y * per_row, min(len(items), (y + 1) * per_row)):
                line.extend(heat_spans(items[number], glyphs, current=number == current))
            rows.append(line.row(width))
        return rows

    def _current_row(self, item: GpuItem, width: int) -> Row:
        readings = item.gpu.readings
        word, token = state_text(item)
        line = Line().add(f" GPU {item.gpu.index} ", "strong")
        line.add(fmt.of(readings.power_w, readings.power_limit_enforced_w, "W") + "  ")
        line.add(fmt.percent(readings.utilization_gpu_pct) + "  ")
        line.add(fmt.celsius(readings.temperature_gpu_c) + "  ").add(word, token)
        return line.add("  " + item.runs, "dim").row(width)

    def _per_row(self, width: int) -> int:
        per_row = max(1, (width - 1) // HEAT_CELL)
        return per_row - per_row % 8 if per_row > 8 else per_row

    def move_by(self, step: int) -> None:
        """In the heat grid, up and down go by rows."""
        heat = self._plan.tiles == 0 and abs(step) == 1
        super().move_by(step * self._per_row(self.size.width) if heat else step)

    def _sideways(self, step: int) -> None:
        keys = self.keys()
        if keys:
            by = step if self._plan.tiles == 0 else step * self._plan.lines
            target = self.cursor_index(keys) + by
            if 0 <= target < len(keys):
                self.move_to(target)

    def action_right(self) -> None:
        """To the GPU on the right."""
        self._sideways(1)

    def action_left(self) -> None:
        """To the GPU on the left."""
        self._sideways(-1)

    def action_mark(self) -> None:
        """Mark or unmark, and go on."""
        item = self.current()
        if item is not None:
            self.marked = self.marked ^ {item.gpu.uuid}
            self.move_by(1)
            self.refresh_items()

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.descending = not self.descending
        self.refresh_items()

    def set_filter(self, text: str) -> None:
        """Show only what fits."""
        self.filter_text = text.strip()
        self.filter = filters.parse(text)
        self.refresh_items()

    def set_sort(self, sort: str) -> None:
        """Order by a column: indices upwards, everything else the most first."""
        self.sort = sort if sort in SORTS else "index"
        self.descending = self.sort != "index"
        self.refresh_items()


def _words(item: GpuItem) -> str:
    gpu = item.gpu
    word, _ = state_text(item)
    held = " ".join(gpu.held_pct)
    return f"{gpu.index} {gpu.name} {gpu.uuid} {gpu.bus_id} {word} {item.runs} {held}".lower()


def _about(snapshot: HostSnapshot) -> list[Span]:
    names: dict[str, int] = {}
    for gpu in snapshot.gpus:
        name = short_name(gpu)
        names[name] = names.get(name, 0) + 1
    kinds = ", ".join(f"{count} × {name}" for name, count in names.items())
    if not kinds:
        return []
    spans: list[Span] = [(kinds, "text")]
    if snapshot.driver is not None and snapshot.driver.version:
        spans.append((f" · driver {snapshot.driver.version}", "dim"))
    return spans
