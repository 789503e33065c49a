"""A server in a line: its word, its way up, the one thing to know of it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui import format as fmt
from tui.glyphs import Glyphs
from tui.rows import Line, Row
from tui.widgets.gpu_rows import bar

if TYPE_CHECKING:
    from backends.servers.view import ServerView

TOKENS = {
    "ready": "good", "serving": "good", "stopped": "idle", "exited": "idle",
    "launching": "accent", "loading": "accent", "warming": "accent", "starting": "accent",
    "checking": "accent", "being looked at": "dim", "unknown": "dim", "stopping": "warning",
    "degraded": "warning",
    "unresponsive": "warning", "stalled": "warning", "lost": "stale", "crashed": "critical",
}  # fmt: skip
NAME_CELLS = 18


def glyph_of(word: str, glyphs: Glyphs) -> str:
    """The sign that stands beside a word."""
    token = TOKENS.get(word, "text")
    return {
        "good": glyphs.ok, "accent": glyphs.waiting, "warning": glyphs.warning,
        "critical": glyphs.critical, "stale": glyphs.lost,
    }.get(token, glyphs.bar_empty)  # fmt: skip


def word_line(view: ServerView, glyphs: Glyphs) -> Line:
    """Sign and word."""
    token = TOKENS.get(view.word, "text")
    return Line().add(f"{glyph_of(view.word, glyphs)} {view.word}", token)


def progress_line(
    view: ServerView, glyphs: Glyphs, bar_cells: int = 12, *, counts: bool = True
) -> Line:
    """How far a start is: phase, bar, and the time that is left where that can be known."""
    line = Line()
    found = view.found
    if found is None or not view.starts:
        return line
    if found.phase is not None:
        line.add(found.phase.words, "text")
    progress = found.progress
    if progress is not None:
        share = progress.fraction
        if share is not None:
            line.add(" " if bar_cells else "").extend(bar(share, bar_cells, "accent", glyphs))
            line.add(f" {share * 100:.0f}%", "accent")
        if counts or share is None:
            line.add(f" {count_words(progress.done, progress.total)}", "dim")
    if found.left_s is not None:
        line.add(f"  {left_words(found.left_s)}", "strong")
    elif found.stall is None:
        line.add("  first start: time unknown" if counts else "  time unknown", "dim")
    if found.stall is not None:
        line.add(f"  nothing moves for {fmt.duration(found.stall.quiet_s)}", "warning")
    return line


def count_words(done: float, total: float | None) -> str:
    """What a bar counts: `31/83`; bytes as sizes."""
    if total is not None and total >= 1e6:
        return f"{fmt.size(done)}/{fmt.size(total)}"
    return f"{done:g}/{total:g}" if total is not None else f"{done:g}"


def left_words(left_s: float) -> str:
    """The time that is left, in words that do not promise too much."""
    return "a moment left" if left_s < 1 else f"about {fmt.duration(left_s)} left"


def why_line(view: ServerView, glyphs: Glyphs) -> Line:
    """The one thing to know of it besides its word."""
    found = view.found
    if view.doing is not None:
        return Line().add(view.step, "dim")
    if found is None:
        if view.run is not None:
            return Line()
        if not view.listed:
            return Line().add("the host has not said yet what runs there", "dim")
        return Line().add("never started here" if not view.earlier else "", "dim")
    if view.starts:
        return progress_line(view, glyphs)
    line = Line()
    if view.failed:
        return line.add(cause_title(view), "critical")
    if view.left_over:
        return line.add(view.left_over[0], "critical")
    if view.answers:
        if view.up_s is not None:
            line.add(f"up {fmt.duration(view.up_s)}", "text")
        if found.disagreements:
            line.add(f"  {found.disagreements[0]}", "warning")
        return line
    return line.add(found.why, "dim" if view.word in ("stopped", "exited") else "warning")


def cause_title(view: ServerView) -> str:
    """What failed, in words."""
    from backends.servers import report

    return report.cause_title(view.found, view.verdict) if view.found is not None else ""


def facts_line(view: ServerView) -> Line:
    """Engine, port, model, who started it."""
    line = Line().add(view.engine, "dim")
    if view.port is not None:
        line.add(f" :{view.port}", "dim")
    if view.run is not None and view.run.adopted:
        line.add(" found", "info")
    return line


def warnings_line(view: ServerView, glyphs: Glyphs) -> Line:
    """How many performance warnings its log has pinned."""
    count = len(view.verdict.warnings) if view.verdict is not None else 0
    line = Line()
    if count:
        line.add(f"{glyphs.warning} {count} slow", "warning")
    return line


def one_line(view: ServerView, width: int, glyphs: Glyphs, more: int = 0) -> Row:
    """A server in one line, what matters most first."""
    line = word_line(view, glyphs)
    line.add(" ").add(fmt.shorten(view.name, NAME_CELLS), "strong").add("  ")
    right = warnings_line(view, glyphs)
    if more:
        right.add(f"  +{more}", "dim")
    room = width - (right.width + 1 if right.spans else 0)
    why = why_line(view, glyphs)
    if view.starts and view.doing is None and line.width + why.width > room:
        why = progress_line(view, glyphs, 6, counts=False)
        if line.width + why.width > room:
            why = progress_line(view, glyphs, 0, counts=False)
    facts = facts_line(view)
    if line.width + facts.width + why.width + 2 <= room:
        line.extend(facts.spans).add("  ")
    line.extend(why.spans)
    row = line.row(room)
    return Line().extend(row.spans).right(right.spans, width).row(width)


def list_row(view: ServerView, width: int, glyphs: Glyphs, *, current: bool) -> Row:
    """A server in a list."""
    line = Line().add((glyphs.cursor if current else " ") + " ", "accent")
    name = max(10, min(26, width // 3))
    line.cell(view.name, name, "strong").add(" ")
    line.extend(word_line(view, glyphs).spans).pad_to(name + 18).add(" ")
    line.extend(facts_line(view).spans)
    line.right(warnings_line(view, glyphs).spans, width - 1)
    return line.row(width, "cursor-row" if current else "text")
