"""The room of one host: its GPUs, their past, and the panes for server, tuning and benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.events import Resize
from textual.widget import Widget

from backends.telemetry.history import TOTAL, Window
from screens.filtering import FilteringScreen
from screens.pane import Pane
from screens.panes import PANES
from screens.room_plan import plan_room
from screens.server_keys import POSSIBLE, ServerKeys, look_at, possible
from screens.server_pane import ServerPane
from tui import format as fmt
from tui.bindings import bindings
from tui.shell import Shell
from tui.widgets.gpu_grid import SORTS, GpuGrid
from tui.widgets.gpu_items import totals_of
from tui.widgets.history_chart import (
    Curve,
    HistoryChart,
    Source,
    percent_scale,
    watts_scale,
)
from tui.widgets.host_state import ticking
from tui.widgets.row_list import RowList

if TYPE_CHECKING:
    from backends.servers.view import ServerView


class RoomScreen(FilteringScreen, ServerKeys):
    """See the module."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings(
        "room", "gpus.sort", "gpus.filter", "gpus.window", "gpus.processes",
        "servers.start", "servers.stop", "servers.restart", "servers.log",
    )  # fmt: skip
    AREAS = ("room", "gpus", "servers", "nav")
    HINT = "words, !not, power<200, util>90, temp>80"
    ABOUT = (
        "Each GPU is a line. First comes power against the cap in force: a card at 100 % "
        "utilisation that draws a sixth of its cap is waiting, not working. Then utilisation, "
        "memory, temperature, clocks, link, what holds the clocks back and for how much of the "
        "last minute, the verdict on it all, and what runs there. Below the totals stands the "
        "finding that matters most, with the next step. Colour says state, not level: "
        "busy is good. `–` means that there is no value; the GPU's own page says why."
    )

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self.grid = GpuGrid(shell.look, id="grid")
        self.chart = HistoryChart(shell.look, id="chart")
        self.panes: list[Pane] = [spec.make(shell) for spec in PANES]
        self.grid.set_sort(shell.sort)
        self._planned: object = None
        self._seen: object = None
        self._possible: object = None

    def compose_body(self) -> Sequence[Widget]:
        """GPUs, chart, panes, and the filter's input while it is open."""
        return (self.grid, self.chart, Container(*self.panes, id="panes"), self.filter_box)

    def show_body(self, now_s: float) -> None:
        """The newest of the host looked at."""
        snapshot = self.shell.snapshot()
        self._arrange(len(snapshot.gpus))
        seen = (
            snapshot.host,
            snapshot.version,
            self.shell.window,
            self.grid.marked,
            self.shell.look.version,
            int(now_s) if ticking(snapshot, now_s) else -1,
        )
        if seen != self._seen:
            # Another host may have brought this frame about: what is shown here stands still then.
            self._seen = seen
            self.grid.show(snapshot, now_s)
            if self.chart.display:
                # The curve ends with the newest sample: a silent host leaves it as it is.
                end_s = now_s if snapshot.sampled_s is None else min(now_s, snapshot.sampled_s)
                self.chart.show(self._curves(), self.shell.window, end_s, self._subject())
        look_at(self.shell)
        for pane in self._visible_panes():
            pane.show(now_s)
        chosen = self.chosen_server()
        meant = self.server_pane.views if chosen is None else (chosen,)
        can = [possible(view) for view in meant]
        if can != self._possible:
            self._possible = can
            self.refresh_bindings()

    @property
    def server_pane(self) -> ServerPane:
        """The pane of the servers, shown or hidden."""
        return next(pane for pane in self.panes if isinstance(pane, ServerPane))

    def chosen_server(self) -> ServerView | None:
        """The one under the cursor of the pane, or the only one."""
        return self.server_pane.chosen()

    def no_server(self, asked_by: str) -> None:
        """Let the operator choose one."""
        self.action_pane(self.server_pane.number)
        key = {"servers.start": "s", "servers.stop": "x", "servers.restart": "R"}.get(asked_by, "l")
        self.notify(f"choose a server, then press {key}", timeout=4, markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of servers are there while they make sense for one that may be meant."""
        test = POSSIBLE.get(action)
        if test is not None:
            chosen = self.chosen_server()
            views = self.server_pane.views if chosen is None else (chosen,)
            if not any(map(test, views)):
                return False
        return super().check_action(action, parameters)

    def on_descendant_focus(self) -> None:
        """Another pane has the keys: others make sense."""
        self.refresh_bindings()

    def _visible_panes(self) -> list[Pane]:
        return [pane for pane in self.panes if pane.pane_id not in self.shell.hidden_panes]

    def _arrange(self, gpus: int) -> None:
        width, height = self.size
        visible = self._visible_panes()
        said = 0
        if not gpus and width:
            now_s = self.shell.clock.monotonic_s()
            said = self.grid.rows_without_gpus(self.shell.snapshot(), now_s, width)
        filled = tuple(not gpus and pane.filled for pane in visible)
        inputs = (width, height, gpus, tuple(pane.pane_id for pane in visible), said, filled)
        if inputs == self._planned or not width:
            return
        self._planned = inputs
        plan = plan_room(width, height - 2, gpus, len(visible), without_gpus=said, filled=filled)
        self.grid.styles.height = plan.grid
        self.chart.display = plan.chart > 0
        container = self.query_one("#panes")
        container.display = plan.panes > 0
        container.styles.height = plan.panes
        container.set_class(plan.boxes, "-boxes")
        for pane in self.panes:
            pane.display = pane in visible
        for pane, rows in zip(visible, plan.heights or (None,) * len(visible), strict=True):
            pane.styles.height = rows

    def on_resize(self, event: Resize) -> None:
        """Divide the space anew."""
        self._arrange(len(self.shell.snapshot().gpus))

    def _subject(self) -> str:
        marked = len(self.grid.marked)
        return f"{marked} marked" if marked else ""

    def _curves(self) -> list[Curve]:
        """Power, utilisation and memory of all GPUs or of the marked ones, and the host's CPU."""
        snapshot, history = self.shell.snapshot(), self.shell.history()
        marked = [gpu for gpu in snapshot.gpus if gpu.uuid in self.grid.marked]
        uuids = [gpu.uuid for gpu in marked]
        totals = totals_of(marked or snapshot.gpus)

        def series(key: str, *, mean: bool = False) -> Source:
            def values(window: Window, points: int, now_s: float) -> Sequence[float | None]:
                if not uuids:
                    return history.series(TOTAL, key, window, points, now_s)
                rows = [history.series(uuid, key, window, points, now_s) for uuid in uuids]
                return [_together(column, mean=mean) for column in zip(*rows, strict=True)]

            return values

        return [
            Curve("power", "power", series("power_w"),
                  f"{fmt.watts(totals.power_w)} of {fmt.watts(totals.cap_w)}",
                  totals.cap_w, watts_scale),
            Curve("utilisation", "utilization", series("utilization_gpu_pct", mean=True),
                  fmt.percent(totals.utilization_pct), 100.0, percent_scale),
            Curve("GPU memory", "memory", series("memory_used_bytes"),
                  f"{fmt.gibibytes(totals.memory_used_bytes)} GiB",
                  totals.memory_total_bytes, fmt.size),
            Curve("host CPU", "clocks",
                  lambda w, p, n: history.series(TOTAL, "cpu_pct", w, p, n),
                  fmt.percent(snapshot.readings.cpu_pct), 100.0, percent_scale),
        ]  # fmt: skip

    def on_row_list_opened(self, message: RowList.Opened) -> None:
        """Open the page of a GPU."""
        if message.list is self.grid:
            from screens.gpu import GpuScreen

            self.app.push_screen(GpuScreen(self.shell, str(message.key)))
        elif message.list is self.server_pane:
            from screens.server import ServerScreen

            self.app.push_screen(ServerScreen(self.shell, str(message.key)))

    def action_pane(self, number: int) -> None:
        """Go to a pane; one that was hidden comes back."""
        if number == 1:
            self.set_focus(self.grid)
            return
        pane = next((pane for pane in self.panes if pane.number == number), None)
        if pane is None:
            return
        if pane.pane_id in self.shell.hidden_panes:
            self._set_hidden(tuple(p for p in self.shell.hidden_panes if p != pane.pane_id))
            pane.focus()
        else:
            self.set_focus(pane)  # at once: the next key may be there already

    def action_hide_pane(self) -> None:
        """Hide the pane that has the keys; from the GPUs, hide all or show all again."""
        focused = self.focused
        hidden = self.shell.hidden_panes
        if isinstance(focused, Pane):
            self.grid.focus()
            self._set_hidden((*hidden, focused.pane_id))
        else:
            self._set_hidden(() if hidden else tuple(pane.pane_id for pane in self.panes))

    def _set_hidden(self, hidden: tuple[str, ...]) -> None:
        self.shell.hidden_panes = hidden
        self.shell.touch()
        self.shell.save()
        self._first_frame()

    def action_sort(self) -> None:
        """Order by the next column."""
        names = list(SORTS)
        self.shell.sort = names[(names.index(self.grid.sort) + 1) % len(names)]
        self.grid.set_sort(self.shell.sort)
        self.shell.save()

    def action_window(self) -> None:
        """Look further back."""
        self.shell.next_window()
        self._first_frame()

    def action_bench(self) -> None:
        """Open the benchmark."""
        from screens.bench import BenchScreen

        self.app.push_screen(BenchScreen(self.shell))

    def action_tuning(self) -> None:
        """Open the tuning checklist."""
        from screens.tuning import TuningScreen

        self.app.push_screen(TuningScreen(self.shell))

    def action_processes(self) -> None:
        """Open the process page."""
        from screens.processes import ProcessScreen

        self.app.push_screen(ProcessScreen(self.shell))

    @property
    def filtered(self) -> Widget:
        """The GPUs."""
        return self.grid

    def apply_filter(self, text: str) -> None:
        """Show only the GPUs that fit."""
        self.grid.set_filter(text)

    def back(self) -> bool:
        """What Esc undoes here: the filter, the marks, being elsewhere. False when nothing is."""
        if super().back():
            return True
        if self.grid.marked:
            self.grid.marked = frozenset()
            self.grid.refresh_items()
        elif self.focused is not self.grid:
            self.grid.focus()
        else:
            return False
        return True


def _together(column: Sequence[float | None], *, mean: bool) -> float | None:
    known = [value for value in column if value is not None]
    if not known:
        return None
    return sum(known) / len(known) if mean else sum(known)
