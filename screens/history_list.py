"""The list of benchmark runs: one line each, newest first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from backends.storage.bench_tables import RunRow
from screens.bench_rows import rate, seconds
from tui import format as fmt
from tui.format import width_of
from tui.rows import Line, Row
from tui.themes import Look
from tui.widgets.row_list import RowList


@dataclass(frozen=True, slots=True)
class Column:
    """A column that has its place where there is room."""

    head: str
    width: int
    align: str = "<"


_ALWAYS: Final = (
    Column("begun", 12), Column("plan", 11), Column("output/s", 9, ">"), Column("in+out/s", 9, ">"),
)  # fmt: skip
_MORE: Final = (
    Column("model", 15), Column("host", 11), Column("TTFT", 9, ">"), Column("TPOT", 9, ">"),
    Column("profile", 12), Column("engine", 14), Column("steps", 7, ">"), Column("GPUs", 22),
    Column("run", 26),
)  # fmt: skip
REMARK_CELLS: Final = 20


def columns_for(width: int) -> list[Column]:
    """The columns that fit beside the remarks."""
    left = width - 4 - REMARK_CELLS - sum(column.width for column in _ALWAYS)
    chosen = list(_ALWAYS)
    for column in _MORE:
        if column.width > left:
            break
        chosen.append(column)
        left -= column.width
    return chosen


def cell(row: RunRow, head: str) -> str:
    """One cell of a run."""
    match head:
        case "begun":
            return f"{row.started_utc.astimezone():%m-%d %H:%M}"
        case "plan":
            return row.plan
        case "output/s":
            return rate(row.output_tokens_per_s)
        case "in+out/s":
            return rate(row.total_tokens_per_s)
        case "model":
            # The end of a path says more than its beginning.
            return (row.model or fmt.ABSENT).rstrip("/").rpartition("/")[2]
        case "host":
            return row.host or fmt.ABSENT
        case "TTFT":
            return seconds(row.ttft_s)
        case "TPOT":
            return seconds(row.tpot_s)
        case "profile":
            return row.profile or fmt.ABSENT
        case "engine":
            return f"{row.engine} {row.engine_version or ''}".strip()
        case "steps":
            return f"{row.steps}x{row.repetitions}"
        case "GPUs":
            return row.gpus or fmt.ABSENT
        case _:
            return row.run_id


_TOKENS: Final = {
    "begun": "dim", "plan": "strong", "output/s": "good", "in+out/s": "accent", "run": "dim",
}  # fmt: skip


def remarks(row: RunRow) -> list[tuple[str, str]]:
    """What is particular about a run."""
    spans: list[tuple[str, str]] = []
    if row.baseline:
        spans.append(("BASELINE", "info"))
    if row.status != "complete":
        spans.append((row.status, "warning"))
    if not row.valid:
        spans.append(("client-limited", "critical"))
    if row.failed:
        spans.append((f"{row.failed} failed", "critical"))
    if row.harness != "gpuroom":
        spans.append((f"by {row.harness}", "warning"))
    spans += [(f"#{tag}", "accent") for tag in row.tags]
    if row.notes:
        spans.append((f"{row.notes} note{'s' if row.notes > 1 else ''}", "dim"))
    return spans


def _fitting(spans: Sequence[tuple[str, str]], width: int) -> list[tuple[str, str]]:
    """As many remarks as fit whole, and how many more there are; the page of the run has all."""
    shown: list[tuple[str, str]] = []
    left = width
    for place, (text, token) in enumerate(spans):
        later = len(spans) - place - 1
        if width_of(text) + (len(f" +{later}") if later else 0) > left:
            return [*shown, (f"+{later + 1}", "dim")]
        shown += [(text, token), (" ", "text")]
        left -= width_of(text) + 1
    return shown[:-1]


def past_lines(row: RunRow) -> tuple[Line, Line]:
    """A run of the past where there is little room: when and what, then how fast."""
    first = (
        Line().add(f"{row.started_utc.astimezone():%m-%d %H:%M} ", "dim").add(row.plan, "strong")
    )
    second = Line().add(rate(row.output_tokens_per_s), "good").add(" output, ", "dim")
    second.add(rate(row.total_tokens_per_s), "accent").add(" in+out tok/s", "dim")
    return first, second


class RunList(RowList):
    """Runs; the cursor stays on its run whatever is searched for.

    Attributes:
        runs: As found.
        marked: Ids, in the order in which they were marked.
    """

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="runs")
        self.runs: Sequence[RunRow] = ()
        self.marked: list[str] = []
        self._by_id: dict[str, RunRow] = {}
        self.empty = "reading the history"

    def show(self, runs: Sequence[RunRow]) -> None:
        """Draw."""
        self.runs = runs
        self._by_id = {row.run_id: row for row in runs}
        self.redraw()

    @property
    def current(self) -> RunRow | None:
        """The run under the cursor."""
        keys = self.keys()
        return self.runs[self.cursor_index(keys)] if keys else None

    def keys(self) -> Sequence[Hashable]:
        """Ids."""
        return list(self._by_id)

    def head_rows(self, width: int) -> list[Row]:
        """Column titles."""
        line = Line().add("    ")
        for column in columns_for(width):
            line.cell(column.head, column.width - 1, "dim", column.align).add(" ")
        return [line.add("remarks", "dim").row(width)]

    def empty_text(self) -> str:
        """Why there is nothing."""
        return self.empty

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """One run."""
        row = self._by_id[str(key)]
        glyphs = self.look.glyphs
        line = Line().add((glyphs.cursor if current else " ") + " ", "accent")
        line.add(f"{glyphs.marked if row.run_id in self.marked else ' '} ", "warning")
        for column in columns_for(width):
            token = _TOKENS.get(column.head, "text")
            line.cell(cell(row, column.head), column.width - 1, token, column.align).add(" ")
        line.extend(_fitting(remarks(row), width - line.width))
        return line.row(width, "cursor-row" if current else "text")
