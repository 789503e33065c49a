"""What comes of a change, one row a fix: at work, applied, already so, failed and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from backends.tuning.snapshot import WORDS_BACK, Outcome, Result
from tui.rows import Line, Row, Span
from tui.themes import Look
from tui.widgets.row_list import RowList

TOKENS = {
    Outcome.APPLIED: "good",
    Outcome.ALREADY_SO: "good",
    Outcome.FAILED: "critical",
    Outcome.REFUSED: "critical",
    Outcome.NEEDS_REBOOT: "warning",
    Outcome.NEEDS_RESTART: "warning",
    Outcome.BEGUN: "accent",
}


class ResultTable(RowList):
    """The results of one change, or of taking one back, as they come.

    Attributes:
        results: In the order in which they came.
        heading: What was done.
        done: Whether all have come and are verified.
        back: Whether something is taken back.
    """

    opens = False

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="results")
        self.results: list[Result] = []
        self.heading = ""
        self.done = False
        self.back = False

    def begin(self, heading: str, *, back: bool = False) -> None:
        """Forget the last one.

        Args:
            heading: What is done.
            back: Whether something is taken back.
        """
        self.heading, self.results, self.done, self.back = heading, [], False, back
        self.redraw()

    def put(self, result: Result) -> None:
        """Take one result; it takes the place of the row that said it was at work."""
        if self.results and self.results[-1].outcome is Outcome.BEGUN:
            self.results[-1] = result
        else:
            self.results.append(result)
        self.redraw()

    def finish(self, results: Sequence[Result]) -> None:
        """All of them, verified."""
        self.results, self.done = list(results), True
        self.redraw()

    def current(self) -> Result | None:
        """The result under the cursor."""
        keys = self.keys()
        return self.results[self.cursor_index(keys)] if keys else None

    def keys(self) -> Sequence[Hashable]:
        """Numbers."""
        return range(len(self.results))

    def empty_text(self) -> str:
        """Before the first."""
        return "nothing had to be done" if self.done else "begins"

    def head_rows(self, width: int) -> list[Row]:
        """What was done, how it went; column titles."""
        line = Line().add(f" {self.heading}  ", "title").extend(tally(self.results, self.back))
        if not self.done:
            line.add("being verified" if self.results else "", "accent")
        titles = Line().add("   ").cell("result", 16, "dim").cell("check", 26, "dim")
        return [line.row(width), titles.add("what was read afterwards, or why", "dim").row(width)]

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """Glyph and word, check, why."""
        result = self.results[int(str(key))]
        glyphs = self.look.glyphs
        glyph = {
            "good": glyphs.ok,
            "critical": glyphs.critical,
            "warning": glyphs.warning,
            "accent": glyphs.waiting,
        }[TOKENS[result.outcome]]
        word = word_of(result.outcome, self.back)
        line = Line().add(glyphs.cursor if current else " ", "accent").add("  ")
        line.add(f"{glyph} ", TOKENS[result.outcome]).cell(word, 14, TOKENS[result.outcome])
        line.cell(result.check, 25, "strong").add(" ").add(result.detail)
        return line.row(width, "cursor-row" if current else "text")


def word_of(outcome: Outcome, back: bool) -> str:
    """An outcome in a word."""
    if outcome is Outcome.BEGUN:
        return "at work"
    return WORDS_BACK.get(outcome, outcome.value) if back else outcome.value


def tally(results: Sequence[Result], back: bool = False) -> list[Span]:
    """How many came to each outcome."""
    told = Counter(result.outcome for result in results)
    told.pop(Outcome.BEGUN, None)
    return [
        (f"{count} {word_of(outcome, back)}  ", TOKENS[outcome]) for outcome, count in told.items()
    ]


def paragraphs_of(result: Result, back: bool = False) -> list[Sequence[Span]]:
    """One result in full, with the kernel's own lines."""
    word = word_of(result.outcome, back)
    lines: list[Sequence[Span]] = [
        Line().add(f"{result.check}: {word}", TOKENS[result.outcome]).spans
    ]
    if result.detail:
        lines.append(Line().add(result.detail).spans)
    lines += [Line().add(f"kernel: {text}", "critical").spans for text in result.kernel]
    return lines
