"""One GPU: everything that is read of it, why what is missing is missing, and its past."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.events import Resize
from textual.widget import Widget

from backends.model import GpuStatus
from backends.telemetry.history import Window
from screens.base import HubScreen
from screens.gpu_facts import fact_rows
from tui import format as fmt
from tui.bindings import bindings
from tui.rows import Row, fit_row
from tui.shell import Shell
from tui.themes import Look
from tui.widgets.gpu_items import items_of
from tui.widgets.history_chart import (
    Curve,
    HistoryChart,
    percent_scale,
    watts_scale,
)
from tui.widgets.rows_view import RowsView


class Facts(RowsView, can_focus=True):
    """The readings, in as many columns as fit; it scrolls by lines."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(
        "nav.down", "nav.up", "nav.top", "nav.bottom", "nav.page-down", "nav.page-up"
    )

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="facts")
        self.make: Callable[[int], list[Row]] = lambda width: []
        self.top = 0
        self.more_key = "j"
        self._count = 0

    def show(self, make: Callable[[int], list[Row]]) -> None:
        """Draw what `make` gives for a width; the one call a frame."""
        self.make = make
        self.redraw()

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """The lines from the top one on."""
        rows = self.make(width)
        self._count = len(rows)
        self.top = max(0, min(self.top, len(rows) - height))
        shown = rows[self.top : self.top + height]
        if len(rows) > self.top + height:
            count = len(rows) - self.top - height
            left = f" {self.look.glyphs.more} {count} more lines, {self.more_key} goes on"
            shown[-1] = fit_row(Row(((left, "accent"),)), width)
        return shown

    def scroll_by(self, lines: int) -> None:
        """Move the view."""
        self.top = max(0, self.top + lines)
        self.redraw()

    def action_down(self) -> None:
        """One line down."""
        self.scroll_by(1)

    def action_up(self) -> None:
        """One line up."""
        self.scroll_by(-1)

    def action_top(self) -> None:
        """To the first line."""
        self.scroll_by(-self._count)

    def action_bottom(self) -> None:
        """To the last line."""
        self.scroll_by(self._count)

    def action_page_down(self) -> None:
        """A page down."""
        self.scroll_by(self.size.height - 1)

    def action_page_up(self) -> None:
        """A page up."""
        self.scroll_by(1 - self.size.height)


class GpuScreen(HubScreen):
    """See the module."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings("gpu", "gpus.window", "gpus.processes")
    AREAS = ("gpu", "nav")
    AUTO_FOCUS = "#facts"
    ABOUT = (
        "Everything that is read of this GPU. `–` is a value that is absent; behind it stands "
        "why. `held` is the share of the last minute during which something kept the clocks down. "
        "w changes how far back the curves look; n and N go to the next and the previous GPU."
    )

    def __init__(self, shell: Shell, uuid: str) -> None:
        super().__init__(shell)
        self.uuid = uuid
        self.host = shell.current
        self.facts = Facts(shell.look)
        self.charts = [HistoryChart(shell.look, id=f"chart-{n}") for n in range(5)]

    def crumbs(self) -> Sequence[str]:
        """Which GPU."""
        gpu = self._gpu()
        return (f"GPU {gpu.index}" if gpu else "GPU",)

    def compose_body(self) -> Sequence[Widget]:
        """Facts, and curves beside or below them."""
        return (Container(self.facts, Container(*self.charts, id="charts"), id="gpu"),)

    def _gpu(self) -> GpuStatus | None:
        return self.shell.snapshot(self.host).gpu(self.uuid)

    def show_body(self, now_s: float) -> None:
        """The newest of this GPU."""
        if self.shell.current != self.host:
            # Another host was chosen: its first GPU takes the place, or the page is left.
            gpus = self.shell.snapshot().gpus
            if not gpus:
                self.app.pop_screen()
                return
            self.host, self.uuid = self.shell.current, gpus[0].uuid
        snapshot = self.shell.snapshot(self.host)
        items = items_of(snapshot, now_s, frozenset())
        item = next((item for item in items if item.gpu.uuid == self.uuid), None)
        if item is None:
            self.app.pop_screen()
            return
        running = [p for p in snapshot.processes if self.uuid in p.memory_bytes]
        glyphs = self.look.glyphs
        self.facts.show(lambda width: fact_rows(item, snapshot, running, width, now_s, glyphs))
        end_s = now_s if snapshot.sampled_s is None else min(now_s, snapshot.sampled_s)
        for chart, (curve, window) in zip(self.charts, self._curves(item.gpu), strict=False):
            if chart.display:
                chart.show([curve], window, end_s, "")

    @property
    def look(self) -> Look:
        """How it is drawn."""
        return self.shell.look

    def _curves(self, gpu: GpuStatus) -> list[tuple[Curve, Window]]:
        history, readings = self.shell.history(self.host), gpu.readings
        window = self.shell.window

        def series(key: str) -> Callable[[Window, int, float], Sequence[float | None]]:
            return lambda w, points, now_s: history.series(self.uuid, key, w, points, now_s)

        return [
            (Curve("power", "power", series("power_w"),
                   f"{fmt.watts(readings.power_w)} of {fmt.watts(readings.power_limit_enforced_w)}",
                   readings.power_limit_enforced_w, watts_scale), window),
            (Curve("utilisation", "utilization", series("utilization_gpu_pct"),
                   fmt.percent(readings.utilization_gpu_pct), 100.0, percent_scale), window),
            (Curve("memory", "memory", series("memory_used_bytes"),
                   f"{fmt.size(readings.memory_used_bytes)} of "
                   f"{fmt.size(readings.memory_total_bytes)}",
                   readings.memory_total_bytes, fmt.size), window),
            (Curve("temperature", "temperature", series("temperature_gpu_c"),
                   fmt.celsius(readings.temperature_gpu_c),
                   readings.temperature_slowdown_c or 100.0, fmt.celsius), window),
            (Curve("SM clock", "clocks", series("sm_clock_mhz"),
                   fmt.plain(readings.sm_clock_mhz, "MHz"),
                   readings.sm_clock_max_mhz, watts_scale), window),
        ]  # fmt: skip

    def on_resize(self, event: Resize) -> None:
        """Curves beside the facts where there is room, below them otherwise."""
        wide = event.size.width >= 110
        self.query_one("#gpu").set_class(wide, "-wide")
        height = event.size.height - 2
        room = height if wide else max(0, height - 14)
        # Below the facts three stand side by side, so that all five fit 24 lines.
        count = max(1, min(len(self.charts), room // 4 * (1 if wide else 3)))
        for number, chart in enumerate(self.charts):
            chart.display = number < count

    def action_window(self) -> None:
        """Look further back."""
        self.shell.next_window()
        self._first_frame()

    def action_next(self) -> None:
        """The next GPU of the host."""
        self._step(1)

    def action_previous(self) -> None:
        """The previous GPU of the host."""
        self._step(-1)

    def _step(self, by: int) -> None:
        uuids = [gpu.uuid for gpu in self.shell.snapshot(self.host).gpus]
        if self.uuid in uuids:
            self.uuid = uuids[(uuids.index(self.uuid) + by) % len(uuids)]
            self.facts.top = 0
            self._first_frame()

    def action_processes(self) -> None:
        """Open the process page."""
        from screens.processes import ProcessScreen

        self.app.push_screen(ProcessScreen(self.shell, self.uuid))
