"""Several benchmark runs beside each other, each against the first."""

from __future__ import annotations

from collections.abc import Sequence

from backends.bench.against import Opened
from backends.bench.results import RunResult
from screens.result import ResultScreen, several_lines
from screens.result_table import MARKS, LoadLine
from screens.result_text import several_head
from tui.rows import Line


class CompareScreen(ResultScreen):
    """See the module."""

    ABOUT = (
        "Each load, and below it each run by its letter: A is the reference, the others are "
        "compared with it. The word is faster, slower, no difference shown (and what it would "
        "take to find 2 %), or not comparable and why; all words of a comparison together are "
        "wrong about equal runs at most 5 times in 100. Below stand every metric of the run and "
        "load under the cursor with its 95 % interval and effect size, and the curves of all "
        "runs over each other. i says what else changed between them, m what was possible."
    )

    def crumbs(self) -> Sequence[str]:
        """Where one is."""
        return ("runs", "comparison")

    def chosen_runs(self) -> Sequence[str]:
        """The run under the cursor."""
        keys = self.table.keys()
        run = self.run_of(self.table.cursor_index(keys)) if keys else None
        return (run.run_id,) if run is not None else ()

    def drawn_runs(self, opened: Opened) -> Sequence[RunResult]:
        """All of them."""
        return opened.runs

    def head_lines(self, opened: Opened) -> list[Line]:
        """A line a run."""
        return several_head(opened)

    def lines(self, opened: Opened) -> list[LoadLine]:
        """Each load, each run."""
        return several_lines(opened)

    def run_of(self, place: int) -> RunResult | None:
        """By the letter of the line."""
        if self.opened is None or not self.table.lines:
            return None
        return self.opened.runs[MARKS.index(self.table.lines[place].mark)]
