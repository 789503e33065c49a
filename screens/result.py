"""One benchmark run: a table of its loads beside the baseline, curves, the theoretical maximum."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.events import Resize
from textual.widget import Widget

from backends.bench.against import Opened, open_runs
from backends.bench.compare_steps import StepWord, step_words
from backends.bench.overview import loads_of
from backends.bench.possible import StepPossible
from backends.bench.results import RunResult
from backends.errors import RoomError
from backends.storage.history import History
from screens.gpu import Facts
from screens.result_charts import chart_rows
from screens.result_pages import conditions_page, maximum_page
from screens.result_table import MARKS, TOKENS, LoadLine, head_row, table_row
from screens.result_text import (
    detail_lines,
    single_head,
)
from screens.run_editing import RunEditingScreen
from tui.bindings import bindings
from tui.rows import Line, Row, between_words
from tui.shell import Shell
from tui.themes import Look
from tui.widgets.row_list import RowList
from tui.widgets.rows_view import RowsView

if TYPE_CHECKING:
    from tui.app import RoomApp

DETAIL_ROWS = 5
TALL = 40
"""From this many lines on there is room for every metric of the load under the cursor."""


class Lines(RowsView):
    """Lines as they are, one a row."""

    def __init__(self, look: Look, *, id: str) -> None:
        super().__init__(look, id=id)
        self.lines: Sequence[Line] = ()
        self.ruled = False

    def show(self, lines: Sequence[Line]) -> None:
        """Draw."""
        self.lines = lines
        self.redraw()

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """A rule where one is wanted, then the lines; long ones go on where there is room."""
        rows = [Line().add(self.look.glyphs.rule * width, "faint").row(width)] if self.ruled else []
        indent = " " if self.ruled else ""
        spare = height - len(rows) - len(self.lines)
        for line in self.lines:
            pieces = [line.spans]
            if line.width + len(indent) > width and spare > 0:
                pieces = between_words(line.spans, width - 4, 1 + spare)
                spare -= len(pieces) - 1
            for place, spans in enumerate(pieces):
                rows.append(Line().add(indent + "  " * (place > 0)).extend(spans).row(width))
        return rows


class LoadTable(RowList):
    """The loads, one line a run each."""

    opens = False

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="loads")
        self.lines: Sequence[LoadLine] = ()
        self.against = ""
        self.waiting = "reading the history"

    @property
    def marked(self) -> bool:
        """Whether runs are told apart by letters."""
        return any(line.mark for line in self.lines)

    def show(self, lines: Sequence[LoadLine], against: str) -> None:
        """Draw."""
        self.lines, self.against = lines, against
        self.redraw()

    @property
    def current(self) -> LoadLine | None:
        """The line under the cursor."""
        keys = self.keys()
        return self.lines[self.cursor_index(keys)] if keys else None

    def keys(self) -> Sequence[Hashable]:
        """Places."""
        return range(len(self.lines))

    def head_rows(self, width: int) -> list[Row]:
        """Column titles."""
        return [head_row(width, self.marked, self.against)]

    def empty_text(self) -> str:
        """Why there is nothing."""
        return self.waiting

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """One load of one run."""
        line = self.lines[int(str(key))]
        return table_row(line, width, current=current, marked=self.marked, glyphs=self.look.glyphs)


class Charts(RowsView):
    """The curves of the runs, over each other."""

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="charts")
        self.runs: Sequence[RunResult] = ()

    def show(self, runs: Sequence[RunResult]) -> None:
        """Draw."""
        self.runs = runs
        self.redraw()

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """Side by side."""
        return chart_rows(self.runs, width, height, self.look.glyphs) if self.runs else []


class ResultScreen(RunEditingScreen):
    """See the module.

    Args:
        shell: What screens share.
        run_ids: The run; several for `screens.compare`.
    """

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings("results", "runs.tag", "runs.note", "runs.pin")
    AREAS = ("results", "runs", "nav")
    AUTO_FOCUS = "#loads"
    ABOUT = (
        "A line a load: output tokens and input + output tokens a second always side by side, "
        "medians of time to first token (TTFT), time per output token (TPOT) and latency, means "
        "over the repetitions. `of max` is a stream's decode speed as a share of the theoretical "
        "maximum on paper; m has all four figures with what each assumes. The last column says "
        "how the load compares with the pinned baseline: faster, slower, no difference shown, or "
        "not comparable and why. Below stand the figures of the load under the cursor in full. "
        "i has everything that produced the run, and the ledger of tokens: asked for, reported "
        "by the server, seen by the client, counted by the server's own metrics."
    )

    def __init__(self, shell: Shell, run_ids: Sequence[str]) -> None:
        super().__init__(shell)
        self.run_ids = tuple(run_ids)
        self.opened: Opened | None = None
        self.head = Lines(shell.look, id="head")
        self.table = LoadTable(shell.look)
        self.charts = Charts(shell.look)
        self.detail = Lines(shell.look, id="detail")
        self.detail.ruled = True
        self.page = Facts(shell.look)
        self._page = ""

    def crumbs(self) -> Sequence[str]:
        """Where one is."""
        return ("runs", "result")

    def compose_body(self) -> Sequence[Widget]:
        """Head, table, curves, detail; or a page of text in their place."""
        return (
            self.head,
            Container(self.table, self.charts, self.detail, id="figures"),
            self.page,
            self.edit_box,
        )

    def on_mount(self) -> None:
        """Read the runs."""
        super().on_mount()
        self.changed()

    def chosen_runs(self) -> Sequence[str]:
        """The run shown."""
        return self.run_ids[:1]

    def keys_back(self) -> None:
        """To the table, or the page that is open."""
        self.set_focus(self.page if self._page else self.table)

    def changed(self) -> None:
        """Read the runs again."""
        app: RoomApp = self.app  # type: ignore[assignment]
        app.controller.background(self._load, "runs.open")

    async def _load(self) -> None:
        def opened() -> Opened:
            with History.at_home() as history:
                return open_runs(history, self.run_ids)

        try:
            self.opened = await asyncio.to_thread(opened)
        except RoomError as error:
            self.table.waiting = str(error)
            self.table.redraw()
            raise
        if self.is_attached:
            self._show_runs()

    # --- what is shown ------------------------------------------------------------------------

    def drawn_runs(self, opened: Opened) -> Sequence[RunResult]:
        """The runs of the curves, in the order of their letters."""
        return (*opened.runs, *((opened.reference,) if opened.reference is not None else ()))

    def head_lines(self, opened: Opened) -> list[Line]:
        """What stands at the top."""
        return single_head(opened)

    def lines(self, opened: Opened) -> list[LoadLine]:
        """The table."""
        return single_lines(opened)

    def run_of(self, place: int) -> RunResult | None:
        """The run of a line of the table."""
        return self.opened.runs[0] if self.opened is not None else None

    def _show_runs(self) -> None:
        opened = self.opened
        if opened is None:
            return
        lines = self.lines(opened)
        head = self.head_lines(opened)
        self.head.styles.height = len(head)
        self.head.show(head)
        self.table.waiting = "the run has no step"
        against = against_text(opened)
        self.table.show(lines, against)
        self.table.styles.height = 1 + max(1, min(len(lines), self._table_room()))
        self.charts.show(self.drawn_runs(opened))
        self._show_detail()
        if self._page:
            self._open_page(self._page)

    def _table_room(self) -> int:
        height = self.size.height or 24
        return max(3, (height - 12) // 2)

    def _show_detail(self) -> None:
        current, opened = self.table.current, self.opened
        if current is None or opened is None:
            self.detail.show([])
            return
        run = self.run_of(self.table.cursor_index(self.table.keys())) or opened.runs[0]
        self.detail.show(detail_lines(current, opened.comparison_of(run.run_id), run))

    def show_body(self, now_s: float) -> None:
        """Runs of the past do not change by themselves; the look may."""
        for view in (self.head, self.table, self.charts, self.detail, self.page):
            view.redraw()

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """Follow the cursor."""
        self._show_detail()

    def on_resize(self, event: Resize) -> None:
        """More detail where there is room."""
        self.detail.styles.height = DETAIL_ROWS if event.size.height < TALL else 2 * DETAIL_ROWS + 1
        self.call_after_refresh(self._show_runs)

    # --- pages --------------------------------------------------------------------------------

    def action_maximum(self) -> None:
        """The four figures with what they assume, or back."""
        self._open_page("" if self._page == "maximum" else "maximum")

    def action_conditions(self) -> None:
        """Everything that produced the runs, or back."""
        self._open_page("" if self._page == "conditions" else "conditions")

    def _open_page(self, name: str) -> None:
        opened = self.opened
        if opened is None:
            return
        if name != self._page:
            self.page.top = 0
        self._page = name
        self.query_one("#figures").display = not name
        self.page.display = bool(name)
        makers: dict[str, Callable[[int], list[Row]]] = {
            "maximum": lambda width: maximum_page(opened.runs, width),
            "conditions": lambda width: conditions_page(opened, width),
        }
        if name:
            self.page.show(makers[name])
        self.keys_back()
        self.refresh_bindings()

    def back(self) -> bool:
        """Close the input or the page."""
        if super().back():
            return True
        if self._page:
            self._open_page("")
            return True
        return False

    def save(self, name: str) -> None:
        """Write the result to a file by its ending: a picture, the document, a table, text."""
        from screens.result_files import write_result

        opened = self.opened
        app: RoomApp = self.app  # type: ignore[assignment]
        if opened is None:
            return
        look, where = self.shell.look.palette.name, Path(name).expanduser()

        async def carry_out() -> None:
            path = await asyncio.to_thread(write_result, where, opened, look)
            app.notify(f"written: {path}", timeout=5, markup=False)

        app.controller.background(carry_out, "results.save")


def against_text(opened: Opened) -> str:
    """What the words of the table compare with."""
    if opened.reference is None:
        return ""
    return "against A" if len(opened.runs) > 1 else "against the baseline"


def words_of(opened: Opened, run: RunResult) -> dict[str, StepWord]:
    """By load, what the comparison of a run with the reference says."""
    found = opened.comparison_of(run.run_id)
    return {} if found is None else step_words(found)


def _possible(run: RunResult, label: str) -> StepPossible | None:
    return None if run.possible is None else run.possible.step(label)


def single_lines(opened: Opened) -> list[LoadLine]:
    """The table of one run: a line a load."""
    (run,) = opened.runs
    words = words_of(opened, run)
    return [
        LoadLine(load, word=words.get(load.label), possible=_possible(run, load.label))
        for load in loads_of(run)
    ]


def several_lines(opened: Opened) -> list[LoadLine]:
    """The table of several runs: each load, then each run that has it."""
    by_run = [{load.label: load for load in loads_of(run)} for run in opened.runs]
    words = [words_of(opened, run) for run in opened.runs]
    lines = []
    for label in dict.fromkeys(label for loads in by_run for label in loads):
        first = True
        for place, run in enumerate(opened.runs):
            load = by_run[place].get(label)
            if load is None:
                continue
            lines.append(
                LoadLine(
                    load,
                    MARKS[place % len(MARKS)],
                    TOKENS[place % len(TOKENS)],
                    first,
                    words[place].get(label),
                    _possible(run, label),
                    reference=run is opened.reference,
                )
            )
            first = False
    return lines
