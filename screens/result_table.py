"""The loads of runs as a table: what fits of each column, and one word a step. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from backends.bench.compare import Word
from backends.bench.compare_steps import StepWord
from backends.bench.overview import Load
from backends.bench.possible import StepPossible
from screens.bench_rows import rate, seconds
from tui import format as fmt
from tui.glyphs import Glyphs
from tui.rows import Line, Row

MARKS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Letters of the runs of a screen."""
TOKENS: Final = ("accent", "warning", "utilization", "memory", "temperature", "power")
"""Their colours, round and round."""
WORD_TOKENS: Final = {
    Word.FASTER: "good",
    Word.SLOWER: "critical",
    Word.NO_DIFFERENCE: "dim",
    Word.NOT_COMPARABLE: "warning",
}


@dataclass(frozen=True, slots=True)
class LoadLine:
    """A line of the table: one load of one run.

    Attributes:
        load: Its figures.
        mark: Letter of the run; empty where there is only one.
        token: Colour of the run.
        first: Whether the load's label stands on this line.
        word: What the comparison says of it; None of the reference, or where there is none.
        possible: The theoretical maximum of the load.
        reference: Whether this is the run that others are compared with.
    """

    load: Load
    mark: str = ""
    token: str = "text"
    first: bool = True
    word: StepWord | None = None
    possible: StepPossible | None = None
    reference: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """One column: head, width, how a line's cell is written, in which colour."""

    head: str
    width: int
    cell: Callable[[LoadLine], str]
    token: str = "text"


def share_text(share: float | None) -> str:
    """`2.5%`, or a dash."""
    return fmt.ABSENT if share is None else f"{share:.1%}"


def _of_max(line: LoadLine) -> str:
    return share_text(None if line.possible is None else line.possible.stream_share("paper"))


def _realistic(line: LoadLine) -> str:
    return share_text(None if line.possible is None else line.possible.stream_share("realistic"))


_ALWAYS: Final = (
    Column("output/s", 9, lambda line: rate(line.load.output_tokens_per_s), "good"),
    Column("in+out/s", 9, lambda line: rate(line.load.total_tokens_per_s), "accent"),
)
_MORE: Final = (
    Column("TTFT", 8, lambda line: seconds(line.load.ttft_s)),
    Column("TPOT", 8, lambda line: seconds(line.load.tpot_s)),
    Column("of max", 7, _of_max),
    Column("J/tok", 7, lambda line: fmt.decimal(line.load.joules_per_output_token, 2), "power"),
    Column("bound", 8, lambda line: line.load.bound or fmt.ABSENT, "dim"),
    Column("latency", 8, lambda line: seconds(line.load.e2e_s)),
    Column("failed", 7, lambda line: str(line.load.failed)),
    Column("TTFT p99", 9, lambda line: seconds(line.load.ttft_p99_s)),
    Column("lat p99", 8, lambda line: seconds(line.load.e2e_p99_s)),
    Column("power", 9, lambda line: fmt.watts(line.load.power_w), "power"),
    Column("req/s", 7, lambda line: fmt.decimal(line.load.requests_per_s, 2)),
    Column("gap p99", 8, lambda line: seconds(line.load.gap_p99_s)),
    Column("of real", 8, _realistic),
    Column("whole/s", 9, lambda line: rate(line.load.whole_output_tokens_per_s)),
)
"""By importance; as many as leave room for the word."""
LABEL_CELLS: Final = 14
WORD_CELLS: Final = 20
REMARK_CELLS: Final = 4
"""Where no word is to come."""
WIDE_WORD_CELLS: Final = 46


def columns_for(width: int, marked: bool, words: bool = True) -> list[Column]:
    """The columns that fit, in their order; `words` leaves room for one a line."""
    word = (WORD_CELLS if width < 140 else WIDE_WORD_CELLS) if words else REMARK_CELLS
    left = width - 2 - LABEL_CELLS - word - (2 if marked else 0)
    chosen = list(_ALWAYS)
    left -= sum(column.width for column in chosen)
    for column in _MORE:
        if column.width > left:
            break
        chosen.append(column)
        left -= column.width
    return chosen


def head_row(width: int, marked: bool, against: str, words: bool = True) -> Row:
    """Column titles; `against` names what the words compare with."""
    line = Line().add("  ").cell("load", LABEL_CELLS, "dim").add("  " if marked else "")
    for column in columns_for(width, marked, words):
        line.cell(column.head, column.width, "dim", ">")
    return line.add("  ").add(against, "dim").row(width)


def table_row(
    shown: LoadLine,
    width: int,
    *,
    current: bool,
    marked: bool,
    glyphs: Glyphs,
    words: bool = True,
) -> Row:
    """One line of the table."""
    columns = columns_for(width, marked, words)
    line = Line().add((glyphs.cursor if current else " ") + " ", "accent")
    line.cell(shown.load.label if shown.first else "", LABEL_CELLS, "strong")
    if marked:
        line.add(f"{shown.mark} ", shown.token)
    for column in columns:
        text = column.cell(shown)
        failed = column.head == "failed" and shown.load.failed
        line.cell(text, column.width, "critical" if failed else column.token, ">")
    line.add("  ")
    failures = any(column.head == "failed" for column in columns)
    line.add(_troubles(shown.load, failures, width - line.width)[: width - line.width], "critical")
    if shown.reference:
        line.add("the reference" if shown.mark else "", "dim")
    elif shown.word is not None and (
        shown.load.valid or line.width + len(shown.word.word.value) <= width
    ):
        line.extend(word_spans(shown.word, width - line.width))
    return line.row(width, "cursor-row" if current else "text")


def _troubles(load: Load, failures_shown: bool, width: int) -> str:
    """Why a load's figures are not to be trusted, in words that fit whole; shorter if they must."""
    failed, thousands = "", ""
    if load.failed and not failures_shown:
        failed = f"{load.failed} failed"
        thousands = f"{load.failed // 1000}k failed" if load.failed >= 1000 else failed
    words = [failed, thousands, thousands.replace(" failed", " bad")]
    if not load.valid:
        words = [f"client-limited {failed}", f"limited {thousands}", f"client {words[2]}"]
    fitting = [text.rstrip() for text in words if len(text.rstrip()) <= width]
    found = fitting[0] if fitting else "!"
    return f"{found} " if found else ""


def word_spans(word: StepWord, width: int) -> Sequence[tuple[str, str]]:
    """The word, its size, and why, as far as there is room."""
    token = WORD_TOKENS[word.word]
    spans = [(word.word.value, token)]
    used = len(word.word.value)
    if word.change is not None and used + 8 <= width and word.word in (Word.FASTER, Word.SLOWER):
        spans.append((f" {word.change * 100:+.1f} %", "strong"))
        used += 9
    if word.why and used + 12 <= width:
        spans.append((f"  {fmt.shorten(word.why, width - used - 2)}", "dim"))
    return spans
