"""The benchmark of a host: choose a plan, start it, watch it, read its result."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Input

from backends.bench import endpoint, planfile
from backends.bench.desk import BenchDesk, Live
from backends.bench.place import HostSession
from backends.bench.plan import Plan
from backends.errors import RoomError, UsageError
from backends.model import HostSnapshot
from backends.telemetry.history import Window
from screens import bench_rows as rows
from screens.base import HubScreen
from screens.confirm import ConfirmScreen
from screens.detail import Detail
from tui import VERSION
from tui.bindings import bindings
from tui.rows import Line, Row
from tui.shell import Shell
from tui.themes import Look
from tui.widgets.history_chart import Curve, HistoryChart
from tui.widgets.row_list import RowList
from tui.widgets.rows_view import RowsView

if TYPE_CHECKING:
    from tui.app import RoomApp

DEFAULT_SERVER = "8000"


def desk_of(shell: Shell) -> BenchDesk:
    """The desk of this room, made when it is first needed."""
    if shell.bench is None:
        shell.bench = BenchDesk(VERSION)
    return shell.bench


class PlanList(RowList):
    """Plans by name; those of the user come with the shipped ones."""

    opens = False

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self.plans: dict[str, Plan] = {}

    def load(self) -> None:
        """Read them; one that cannot be read is left out."""
        for name in planfile.available():
            try:
                self.plans[name] = planfile.load(name)
            except RoomError:
                continue

    def keys(self) -> Sequence[Hashable]:
        """Names."""
        return tuple(self.plans)

    @property
    def chosen(self) -> Plan | None:
        """The plan under the cursor."""
        keys = self.keys()
        return self.plans[str(keys[self.cursor_index(keys)])] if keys else None

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """Name and what it does."""
        line = Line().add((self.look.glyphs.cursor if current else " ") + " ", "accent")
        line.cell(str(key), 16, "strong").add(self.plans[str(key)].description, "dim")
        return line.row(width, "cursor-row" if current else "text")


class StepList(RowList):
    """The finished steps of a run."""

    opens = False

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="steps")
        self.live: Live | None = None

    def show(self, live: Live) -> None:
        """Draw; the one call a frame."""
        self.live = live
        self.redraw()

    def keys(self) -> Sequence[Hashable]:
        """Places in the run."""
        return range(len(self.live.steps)) if self.live is not None else ()

    def head_rows(self, width: int) -> list[Row]:
        """Column titles."""
        return [Line().add(rows.STEP_HEAD, "dim").row(width)]

    def empty_text(self) -> str:
        """Nothing yet."""
        return "no step has ended yet"

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """One step."""
        assert self.live is not None
        step = self.live.steps[int(str(key))]
        return rows.step_row(self.live, step, width, current=current, glyphs=self.look.glyphs)


class Figures(RowsView):
    """The running step, big."""

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="figures")
        self._shown: tuple[Live, HostSnapshot] | None = None

    def show(self, live: Live, snapshot: HostSnapshot) -> None:
        """Draw; the one call a frame."""
        self._shown = (live, snapshot)
        self.redraw()

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """Figures, then power."""
        if self._shown is None:
            return []
        live, snapshot = self._shown
        glyphs = self.look.glyphs
        power = rows.power_row(snapshot, width, glyphs)
        return [*rows.figure_rows(live, snapshot, width, glyphs), power]


class Spread(RowsView):
    """How the latencies of the running or the last step are spread."""

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="spread")
        self._live: Live | None = None

    def show(self, live: Live) -> None:
        """Draw; the one call a frame."""
        self._live = live
        self.redraw()

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """A histogram."""
        if self._live is None:
            return []
        values = list(self._live.e2e_s)
        return rows.distribution_rows("latency", values, width, height, self.look.glyphs)


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
        "of the running step. `of max` is a stream's speed as a share of the theoretical maximum "
        "on paper, `bound` what held the server back. The run goes on when this screen is left; "
        "x stops it, and what was measured is kept in the history."
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
        self.box = Input(placeholder="port, URL as seen from the host, or profile", id="server")
        self.box.cursor_blink = False
        self.server = self._first_server()
        self._choosing: bool | None = None

    def _first_server(self) -> str:
        for profile in self.shell.config.servers:
            if profile.get("host") == self.shell.current and profile.get("name"):
                return str(profile["name"])
        return DEFAULT_SERVER

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
        self.figures.show(live, self.shell.snapshot())
        self.chart.show([self._curve(live)], self.shell.window, now_s, "")
        self.spread.show(live)
        self.steps.show(live)

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
        server = Line().add("server ", "dim").add(self.server, "strong")
        server.add(f" on {self.shell.current}", "dim").add("   e changes it", "dim")
        shown = [server.spans]
        if plan is not None:
            shown.append(Line().add(plan_words(plan), "text").spans)
        self.about.show(shown)

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """Follow the cursor."""
        if message.list is self.plans:
            self._show_plan()

    def _curve(self, live: Live) -> Curve:
        def source(window: Window, points: int, end_s: float) -> Sequence[float | None]:
            samples = [(point.at_s, point.output_tokens_per_s) for point in live.curve]
            return resampled(samples, window, points, end_s)

        now = rows.rate(live.curve[-1].output_tokens_per_s if live.curve and live.going else None)
        return Curve("output tokens/s", "utilization", source, now, None, rows.rate)

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
        if action in ("start", "edit_server", "stop") and isinstance(self.focused, Input):
            return False
        if action == "stop":
            return live is not None and live.going
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
            if plan is None or not isinstance(session, HostSession):
                raise UsageError(
                    f"{self.shell.current} is not connected", hint="a run needs the host"
                )
            url, profile = self._address()
            python = self.shell.host_config(self.shell.current).python
            self.desk.start(session, python, endpoint.parse_url(url), plan, profile=profile)
        except RoomError as error:
            app.controller.show_error(error)
            return
        self._again = False
        self._first_frame()
        self.refresh_bindings()

    def _address(self) -> tuple[str, str | None]:
        """URL and profile of what was typed. Raises RoomError."""
        from backends.servers.profiles import resolve_profiles

        if self.server.isdecimal():
            return f"http://127.0.0.1:{self.server}", None
        if "://" in self.server:
            return self.server, None
        profiles = resolve_profiles(self.shell.config.servers)
        found = next((one for one in profiles if one.name == self.server), None)
        if found is None:
            raise UsageError(f"no server is called {self.server!r}", hint="give its port or URL")
        port = found.port or found.engine.default_port
        return f"http://127.0.0.1:{port}", found.name

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
        self.server = event.value.strip() or DEFAULT_SERVER
        self._close_box()

    def _close_box(self) -> None:
        self.box.remove_class("-open")
        self.set_focus(self.plans)
        self._show_plan()

    def action_window(self) -> None:
        """Look further back."""
        self.shell.next_window()
        self._first_frame()


def plan_words(plan: Plan) -> str:
    """What a plan does, in a sentence."""
    from backends.bench.steps import unroll

    steps = unroll(plan)
    labels = list(dict.fromkeys(step.label for step in steps))
    shown = ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if labels[8:] else "")
    part = plan.parts[0]
    lengths = ""
    if isinstance(part.input, int) and isinstance(part.output, int):
        lengths = f" {part.input} tokens in, {part.output} out;"
    times = f" {plan.repetitions} times, interleaved;" if plan.repetitions > 1 else ""
    return f"{len(steps)} steps:{lengths}{times} {shown}"


def resampled(
    samples: Sequence[tuple[float, float]], window: Window, points: int, end_s: float
) -> list[float | None]:
    """The mean of the samples in each of `points` spans before `end_s`; None where none is."""
    sums, counts = [0.0] * points, [0] * points
    begin_s = end_s - window.seconds
    for at_s, value in reversed(samples):
        if at_s < begin_s:
            break
        place = int((at_s - begin_s) / window.seconds * points)
        if 0 <= place < points:
            sums[place] += value
            counts[place] += 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]
