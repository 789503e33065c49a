"""Benchmark runs that were: search, tag, note, pin, mark and compare, open."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from backends.errors import RoomError
from backends.storage.bench_tables import RunRow
from backends.storage.history import Filter, History, Note
from screens.detail import Detail
from screens.filtering import FilteringScreen
from screens.history_list import RunList, remarks
from screens.run_editing import RunEditingScreen
from tui.bindings import bindings
from tui.rows import Line, Span
from tui.shell import Shell
from tui.widgets.row_list import RowList

if TYPE_CHECKING:
    from tui.app import RoomApp

MOST = 1000


def query_of(text: str) -> Filter:
    """What was typed: words that must occur, `tag:NAME`, `plan:NAME`, `profile:NAME`."""
    words: list[str] = []
    exact = {"tag": "", "plan": "", "profile": ""}
    for word in text.split():
        name, colon, value = word.partition(":")
        if colon and value and name in exact:
            exact[name] = value
        else:
            words.append(word)
    return Filter(" ".join(words), exact["tag"], exact["profile"], exact["plan"], MOST)


class HistoryScreen(RunEditingScreen, FilteringScreen):
    """See the module."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings("runs")
    AREAS = ("runs", "nav")
    AUTO_FOCUS = "#runs"
    HINT = "words, tag:NAME, plan:NAME, profile:NAME"
    ABOUT = (
        "Every benchmark run of this user, newest first: output and input + output tokens a "
        "second of its best step, medians of its first. / searches plan, model, host, engine, "
        "GPUs, tags and notes. Space marks; C compares the marked with the first that was marked, "
        "or the one under the cursor with its baseline. B pins a run as the baseline of its "
        "profile and plan, or lets it go. T adds tags and takes them away, N writes a note, "
        "about the marked or the run under the cursor. Enter opens a run."
    )

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self.list = RunList(shell.look)
        self.detail = Detail(shell.look)
        self._notes: dict[str, list[Note]] = {}
        self._asked = 0

    def crumbs(self) -> Sequence[str]:
        """Runs."""
        return ("runs",)

    def compose_body(self) -> Sequence[Widget]:
        """List, detail, the two inputs."""
        return (self.list, self.detail, self.filter_box, self.edit_box)

    @property
    def filtered(self) -> Widget:
        """The list."""
        return self.list

    def keys_back(self) -> None:
        """To the list."""
        self.set_focus(self.list)

    def chosen_runs(self) -> Sequence[str]:
        """The marked, or the one under the cursor."""
        current = self.list.current
        return self.list.marked or ([current.run_id] if current is not None else [])

    # --- reading ------------------------------------------------------------------------------

    def apply_filter(self, text: str) -> None:
        """Search."""
        self.changed()

    def on_screen_resume(self) -> None:
        """Read the list, at first and whenever one comes back to it."""
        super().on_screen_resume()
        self.changed()

    def changed(self) -> None:
        """Read the list again; of several readings under way the newest counts."""
        self._asked += 1
        number, query = self._asked, query_of(self.filter_text)

        def read() -> list[RunRow]:
            with History.at_home() as history:
                return history.runs(query)

        async def carry_out() -> None:
            try:
                found = await asyncio.to_thread(read)
            except RoomError as error:
                if self.is_attached:
                    self.list.empty = " ".join(f"{error.title}. {error.hint}".split())
                    self.list.show(self.list.runs)
                raise
            if number == self._asked and self.is_attached:
                self._notes.clear()
                self._show_runs(found)

        app: RoomApp = self.app  # type: ignore[assignment]
        app.controller.background(carry_out, "runs.list")

    def _show_runs(self, found: list[RunRow]) -> None:
        self.list.empty = (
            "nothing fits"
            if self.filter_text
            else "no runs yet: b measures, `gpuroom bench import FILE` takes other tools' results"
        )
        self.list.show(found)
        self._show_detail()
        self._read_notes()

    def _read_notes(self) -> None:
        """Of the run under the cursor, when it has some that are not known yet."""
        current = self.list.current
        if current is None or not current.notes or current.run_id in self._notes:
            return
        run_id = current.run_id

        def read() -> list[Note]:
            with History.at_home() as history:
                return history.notes(run_id)

        async def carry_out() -> None:
            self._notes[run_id] = await asyncio.to_thread(read)
            if self.is_attached:
                self._show_detail()

        app: RoomApp = self.app  # type: ignore[assignment]
        app.controller.background(carry_out, "runs.notes")

    # --- what is shown ------------------------------------------------------------------------

    def show_body(self, now_s: float) -> None:
        """The past does not change by itself; the look may."""
        self.list.redraw()
        self._show_detail()

    def _show_detail(self) -> None:
        count = f"{len(self.list.runs):,} run{'s' if len(self.list.runs) != 1 else ''}"
        if len(self.list.runs) == MOST:
            count = f"the newest {count}"
        line = Line().add(count, "dim")
        if self.filter_text:
            line.add(
                f" that fit{'s' if len(self.list.runs) == 1 else ''} {self.filter_text!r}", "accent"
            )
        if self.list.marked:
            line.add(f"  {len(self.list.marked)} marked, C compares them", "warning")
        shown: list[Sequence[Span]] = [[*line.spans, ("", "text")]]
        current = self.list.current
        if current is not None:
            first = Line().add(current.run_id, "strong").add(f"  {current.url}", "dim")
            for part in (current.gpus, current.profile and f"profile {current.profile}"):
                if part:
                    first.add(f"  {part}", "dim")
            first.add(f"  {current.requests:,} requests", "dim")
            shown.append(first.spans)
            found = remarks(current)
            if found:
                last = Line()
                for span in found:
                    last.extend([span]).add("  ")
                shown.append([*last.spans, ("", "text")])
            for note in reversed(self._notes.get(current.run_id, [])):
                written = f"{note.written_utc.astimezone():%m-%d %H:%M}"
                shown.append([(f"{written}  {note.text}", "info")])
        self.detail.show(shown)

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """Follow the cursor."""
        self._show_detail()
        self._read_notes()

    # --- keys ---------------------------------------------------------------------------------

    def on_row_list_opened(self, message: RowList.Opened) -> None:
        """Open the run."""
        from screens.result import ResultScreen

        self.app.push_screen(ResultScreen(self.shell, [str(message.key)]))

    def action_mark(self) -> None:
        """Mark the run under the cursor, or not any more, and go on."""
        current = self.list.current
        if current is None:
            return
        if current.run_id in self.list.marked:
            self.list.marked.remove(current.run_id)
        else:
            self.list.marked.append(current.run_id)
        self.list.move_by(1)
        self.list.redraw()
        self._show_detail()

    def action_compare(self) -> None:
        """The marked, the first as the reference; one alone is shown against its baseline."""
        from screens.compare import CompareScreen
        from screens.result import ResultScreen

        chosen = list(self.chosen_runs())
        if len(chosen) > 1:
            self.app.push_screen(CompareScreen(self.shell, chosen))
        elif chosen:
            self.app.push_screen(ResultScreen(self.shell, chosen))

    def back(self) -> bool:
        """Close an input, clear the search, take the marks away."""
        if self.close_box():
            return True
        if self.filter_text or self.filter_box.has_class("-open"):
            return FilteringScreen.back(self)
        if self.list.marked:
            self.list.marked.clear()
            self.list.redraw()
            self._show_detail()
            return True
        return False
