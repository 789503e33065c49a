"""The benchmark of a host: choose a plan, start it, watch it, read its result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.events import Resize
from textual.widget import Widget
from textual.widgets import Input

from backends.bench import endpoint
from backends.bench.desk import BenchDesk, Live
from backends.bench.place import HostSession
from backends.errors import RoomError, UsageError
from screens.base import HubScreen
from screens.bench_live import Figures, Spread, StepList, curves
from screens.bench_plans import PlanList, plan_words
from screens.bench_target import DEFAULT_PORT, address_of, first_server, headers_of, server_line
from screens.confirm import ConfirmScreen
from screens.detail import Detail
from tui import VERSION
from tui.bindings import bindings
from tui.rows import Line
from tui.shell import Shell
from tui.widgets.edit_line import EditLine
from tui.widgets.history_chart import HistoryChart
from tui.widgets.row_list import RowList

if TYPE_CHECKING:
    from tui.app import RoomApp


def desk_of(shell: Shell) -> BenchDesk:
    """The desk of this room, made when it is first needed."""
    if shell.bench is None:
        shell.bench = BenchDesk(VERSION)
    return shell.bench


class BenchScreen(HubScreen):
    """See the module."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings("bench", "gpus.window")
    AREAS = ("bench", "nav")
    AUTO_FOCUS = "PlanList"
    ABOUT = (
        "s sends the load of the plan under the cursor from the host itself to the server there; "
        "e says which server. Output tokens and input + output tokens a second always stand side "
        "by side. TTFT is the time to first token, TPOT the time per output token, both medians "
        "of the running step, as is the latency; d shows the spread of another one. `of max` is "
        "a stream's speed as a share of the theoretical maximum on paper, `bound` what held the "
        "server back. The run goes on when this screen is left; x stops it, and what was measured "
        "is kept. As a load ends, the last column compares it with the pinned baseline. When the "
        "run is over, r opens the result; h lists all runs."
    )

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self.desk = desk_of(shell)
        self.plans = PlanList(shell.look)
        self.about = Detail(shell.look)
        self.figures = Figures(shell.look)
        self.chart = HistoryChart(shell.look, id="rates")
        self.spread = Spread(shell.look)
        self.steps = StepList(shell.look)
        self.box = EditLine(placeholder="port, URL as seen from the host, or profile", id="server")
        self.box.cursor_blink = False
        self.server = first_server(shell)
        self._choosing: bool | None = None

    def crumbs(self) -> Sequence[str]:
        """Benchmark."""
        return ("benchmark",)

    def compose_body(self) -> Sequence[Widget]:
        """Plans to choose from, or the run."""
        return (
            Container(self.plans, self.about, id="choose"),
            Container(
                self.figures, Container(self.chart, self.spread, id="curves"), self.steps, id="live"
            ),
            self.box,
        )

    def on_mount(self) -> None:
        """Read the plans."""
        self.plans.load()
        super().on_mount()

    @property
    def live(self) -> Live | None:
        """The run of the host looked at."""
        return self.desk.live(self.shell.current)

    def show_body(self, now_s: float) -> None:
        """The newest."""
        live = self.live
        self._arrange(choosing=live is None or self._again)
        if live is None or self._again:
            self._show_plan()
            return
        snapshot = self.shell.snapshot()
        self.figures.show(live, snapshot)
        drawn = curves(live, snapshot, self.shell.history())
        self.chart.show(drawn, self.shell.window, now_s, "")
        self.spread.show(live)
        self.steps.show(live)
        if live.going is not self._going:
            self._going = live.going
            self.refresh_bindings()

    _going: bool | None = None
    _again = False

    def _arrange(self, *, choosing: bool) -> None:
        if choosing is self._choosing:
            return
        self._choosing = choosing
        self.query_one("#choose").display = choosing
        self.query_one("#live").display = not choosing
        self.set_focus(self.plans if choosing else self.steps)
        self.refresh_bindings()

    def _show_plan(self) -> None:
        self.plans.redraw()
        plan = self.plans.chosen
        shown = [server_line(self.shell, self.server).spans]
        if plan is not None:
            shown.append(Line().add(plan.description, "strong").spans)
            shown.append(Line().add(plan_words(plan), "text").spans)
        elif (name := self.plans.chosen_name) in self.plans.broken:
            shown.append(Line().add(self.plans.broken[name], "critical").spans)
        shown.append(Line().add("s measures", "dim").add("   h lists earlier runs", "dim").spans)
        self.about.show(shown)

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """Follow the cursor."""
        if message.list is self.plans:
            self._show_plan()

    def back(self) -> bool:
        """Close the input, or go back to the run."""
        if self.box.has_class("-open"):
            self._close_box()
            return True
        if self._again and self.live is not None:
            self._again = False
            self._first_frame()
            return True
        return False

    # --- keys ---------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Start where nothing runs, stop where something does."""
        live = self.live
        if action in ("start", "edit_server", "stop", "result", "spread") and isinstance(
            self.focused, Input
        ):
            return False
        if action == "stop":
            return live is not None and live.going
        if action == "result":
            return live is not None and not live.going and bool(live.run_id) and not self._again
        if action == "spread":
            return live is not None and not self._again
        if action == "start":
            return live is None or not live.going
        if action == "edit_server":
            return live is None or self._again
        return super().check_action(action, parameters)

    def action_start(self) -> None:
        """Start the plan; after a run, choose again first."""
        if self.live is not None and not self._again:
            self._again = True
            self._first_frame()
            return
        plan = self.plans.chosen
        app: RoomApp = self.app  # type: ignore[assignment]
        try:
            session: object = self.shell.session()
            if plan is None:
                name = self.plans.chosen_name
                raise UsageError(f"The plan {name} cannot be read", self.plans.broken.get(name, ""))
            if not isinstance(session, HostSession):
                raise UsageError(
                    f"{self.shell.current} is not connected", hint="a run needs the host"
                )
            url, profile = address_of(self.shell, self.server)
            python = self.shell.host_config(self.shell.current).python
            target = endpoint.parse_url(url, headers_of(self.shell, profile))
            self.desk.start(session, python, target, plan, profile=profile)
        except RoomError as error:
            app.controller.show_error(error)
            return
        self._again = False
        self._first_frame()
        self.refresh_bindings()

    def action_stop(self) -> None:
        """Stop the run, once that is confirmed."""
        host = self.shell.current
        dialog = ConfirmScreen(
            self.shell.look,
            title=f"Stop the benchmark on {host}?",
            text="All its requests end at once. What was measured is kept.",
        )
        self.app.push_screen(dialog, lambda yes: self.desk.stop(host) if yes else None)

    def action_edit_server(self) -> None:
        """Say which server."""
        self.box.add_class("-open")
        self.box.value = self.server
        self.set_focus(self.box)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take it."""
        self.server = event.value.strip() or DEFAULT_PORT
        self._close_box()

    def _close_box(self) -> None:
        self.box.remove_class("-open")
        self.set_focus(self.plans)
        self._show_plan()

    def action_result(self) -> None:
        """Open what was measured."""
        from screens.result import ResultScreen

        live = self.live
        if live is not None and live.run_id:
            self.app.push_screen(ResultScreen(self.shell, [live.run_id]))

    def action_spread(self) -> None:
        """The spread of another latency."""
        self.spread.next()

    def on_resize(self, event: Resize) -> None:
        """Digits as large as there is room for."""
        self.figures.fit(event.size.width, event.size.height)

    def action_window(self) -> None:
        """Look further back."""
        self.shell.next_window()
        self._first_frame()
