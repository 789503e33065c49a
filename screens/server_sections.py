"""The sections of a server's own screen: who says what, what failed, what it runs with. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from screens.server_rows import cause_title, facts_line, progress_line, word_line
from tui import format as fmt
from tui.glyphs import Glyphs
from tui.rows import Line, Row
from tui.widgets.gpu_rows import bar
from tui.widgets.host_state import wrap

if TYPE_CHECKING:
    from backends.servers.configuration import Comparison
    from backends.servers.view import PhaseTime, ServerView

STANDINGS = {
    "differs": ("asked, and it runs with something else", "warning"),
    "unasked": ("nobody asked for it", "warning"),
    "not-reported": ("asked, and the engine does not say", "dim"),
    "same": ("asked, and taken", "good"),
}
NOW_S = 3.0
"""What was said within so many seconds was said now."""


def head_rows(view: ServerView, width: int, glyphs: Glyphs) -> list[Row]:
    """State, what it is, what is being done."""
    line = Line().add(" ").extend(word_line(view, glyphs).spans)
    if view.up_s is not None:
        line.add(f"  up {fmt.duration(view.up_s)}", "text")
    line.add("  ").extend(facts_line(view).spans)
    if view.model is not None:
        line.add(f"  {view.model}", "strong")
    rows = [line.row(width, "bar-row")]
    found = view.found
    if view.doing is not None:
        rows += said(view.step or f"{view.doing.value} ...", width, "accent")
    if view.starts:
        rows.append(Line().add(" ").extend(progress_line(view, glyphs, 24).spans).row(width))
    elif found is not None and not view.failed:
        rows += said(found.why, width, "dim")
    elif view.run is None:
        ever = "not running" if view.earlier else "never started here"
        rows += said(f"{ever}; s starts it", width, "dim")
    if found is not None and found.last_known is not None:
        rows += said(f"when it was last seen: {found.last_known.value}", width, "stale")
    for text in found.disagreements if found is not None else ():
        rows += said(f"{glyphs.warning} {text}", width, "warning")
    for text in view.left_over:
        rows += said(f"{glyphs.critical} {text}", width, "critical")
    return rows


def cause_rows(view: ServerView, width: int, glyphs: Glyphs, *, headed: bool = True) -> list[Row]:
    """Of a crash: what failed (where `headed`), the lines that show it, what to try."""
    verdict, found = view.verdict, view.found
    if not view.failed or found is None:
        return []
    rows: list[Row] = []
    if headed:
        rows.append(title("what failed", width, glyphs))
        rows += said(cause_title(view), width, "critical")
    if verdict is not None and verdict.outcome.value in ("crash", "stalled"):
        if verdict.evidence is not None:
            rows += said(f"line {verdict.evidence.line}: {verdict.evidence.text}", width, "text")
        for remedy in verdict.remedies:
            rows += said(f"try: {remedy}", width, "accent")
        if verdict.reference:
            rows += said(verdict.reference, width, "dim")
    elif found.why != cause_title(view):
        rows += said(found.why, width, "text")
    if found.exit_code is not None:
        code = found.exit_code
        words = f"exit code {code}" if code >= 0 else f"ended by signal {-code}"
        rows += said(words, width, "dim")
    if view.last_lines:
        rows += said("the last lines of its log:", width, "dim")
        rows += [Line().add("   ").add(text, "stale").row(width) for text in view.last_lines[-3:]]
    return rows


def phase_rows(view: ServerView, width: int, glyphs: Glyphs) -> list[Row]:
    """Phases with how long each took, and takes usually."""
    if not view.phases:
        return []
    rows = [title("start-up", width, glyphs, "took", "usual")]
    most = max((p.took_s or p.usual_s or 0.0 for p in view.phases), default=0.0)
    for phase in view.phases:
        rows.append(_phase_row(phase, width, most, glyphs))
    known = [p.took_s for p in view.phases if p.took_s is not None]
    if known:
        usual = [p.usual_s for p in view.phases if p.usual_s is not None]
        line = Line().add("   ").cell("in all", 19, "strong")
        line.cell(fmt.duration(sum(known)), 9, "strong", ">")
        line.cell(fmt.duration(sum(usual)) if usual else "", 9, "dim", ">")
        rows.append(line.row(width))
    return rows


def _phase_row(phase: PhaseTime, width: int, most: float, glyphs: Glyphs) -> Row:
    if phase.now:
        sign, token = glyphs.waiting, "accent"
    elif phase.took_s is not None:
        sign, token = glyphs.ok, "good"
    else:
        sign, token = " ", "dim"
    line = Line().add(f" {sign} ", token).cell(phase.phase.words, 19, token)
    line.cell(duration(phase.took_s) if phase.took_s is not None else "", 9, "text", ">")
    line.cell(duration(phase.usual_s) if phase.usual_s is not None else "", 9, "dim", ">")
    line.add("  ")
    cells = max(0, min(24, width - line.width - 10))
    share = phase.progress.fraction if phase.progress is not None else None
    if share is not None:
        line.extend(bar(share, cells, "accent", glyphs)).add(f" {share * 100:.0f}%", "accent")
    elif phase.took_s is not None and most > 0:
        line.extend(bar(phase.took_s / most, cells, "busy", glyphs))
    return line.row(width)


def duration(seconds: float) -> str:
    """A span of a phase: tenths where it is short."""
    return f"{seconds:.1f}s" if seconds < 9.95 else fmt.duration(seconds)


def witness_rows(view: ServerView, width: int, glyphs: Glyphs) -> list[Row]:
    """Each witness with what it said and when."""
    found = view.found
    if found is None:
        return []
    rows = [title("witnesses", width, glyphs)]
    for each in found.testimonies:
        age_s = max(0.0, view.now_s - each.at_s)
        when = "now" if age_s < NOW_S else f"{fmt.duration(age_s)} ago"
        token = "stale" if each.stale else "text"
        room = max(8, width - 14 - 12)
        line = Line().add("   ").cell(each.witness.value, 11, "dim")
        line.cell(each.said, room, token).cell(when, 11, "stale" if each.stale else "dim", ">")
        rows.append(line.row(width))
    for part, why in view.silent.items():
        rows += said(f"{part}: {why}", width, "warning")
    return rows


def warning_rows(view: ServerView, width: int, glyphs: Glyphs) -> list[Row]:
    """Performance warnings, pinned."""
    verdict = view.verdict
    if verdict is None or not verdict.warnings:
        return []
    rows = [title("slower than it could be", width, glyphs)]
    for warned in verdict.warnings:
        times = f" ({warned.count:,} times)" if warned.count > 1 else ""
        rows += said(f"{glyphs.warning} {warned.title}{times}", width, "warning")
        rows.append(Line().add(f"   line {warned.line}: {warned.text}", "dim").row(width))
    return rows


def complaint_rows(view: ServerView, width: int, glyphs: Glyphs) -> list[Row]:
    """Errors of the log that are no failure of the server, or not yet."""
    if view.failed or not view.complaints:
        return []
    rows = [title("errors in its log", width, glyphs)]
    for place in view.complaints[-4:]:
        line = Line().add("   ").add(f"line {place.line}: ", "dim").add(place.text, "critical")
        rows.append(line.row(width))
    return rows


def process_rows(view: ServerView, width: int, glyphs: Glyphs) -> list[Row]:
    """Its processes, and who started it."""
    run = view.run
    if run is None:
        return []
    rows = [title("processes", width, glyphs)]
    who = "found running" if run.adopted else f"started by {run.by} from {run.origin}"
    log = "no log that can be followed"
    if run.log is not None:
        log = f"log {run.log.path or ' '.join(run.log.argv)}"
    rows += said(f"{who}, by {run.launcher}; {log}", width, "dim")
    for member in view.members:
        token = "critical" if member.state in ("Z", "X", "D") else "text"
        state = {"Z": " dead", "X": " dead", "D": " waits for the kernel"}.get(member.state, "")
        line = Line().add("   ").cell(str(member.pid), 9, "dim").add(member.command, token)
        rows.append(line.add(state, token).row(width))
    return rows


def history_rows(view: ServerView, width: int, glyphs: Glyphs) -> list[Row]:
    """Earlier starts."""
    if not view.earlier:
        return []
    rows = [title("earlier starts", width, glyphs)]
    for start in view.earlier:
        good = start.outcome == "ready"
        line = Line().add("   ").cell(f"{start.started.astimezone():%d %b %H:%M}", 14, "dim")
        line.cell(start.outcome, 10, "good" if good else "critical")
        line.cell(fmt.duration(start.took_s), 9, "text", ">").add("  ")
        line.add(start.cause or start.version or "", "dim")
        rows.append(line.row(width))
    return rows


def configuration_rows(
    view: ServerView, width: int, glyphs: Glyphs, *, whole: bool = False
) -> list[Row]:
    """What was asked beside what it runs with, what differs first.

    Args:
        view: The server.
        width: Cells.
        glyphs: Characters.
        whole: Also what is as asked.
    """
    shown = [
        row for row in view.configuration if whole or row.standing.value in ("differs", "unasked")
    ]
    if not view.configuration:
        if not whole:
            return []
        return [title("configuration", width, glyphs),
                *said("nothing is known yet of what it runs with", width, "dim")]  # fmt: skip
    rows: list[Row] = []
    name = max((fmt.width_of(row.name) for row in shown), default=0)
    head = ""
    for row in shown:
        if row.standing.value != head:
            head = row.standing.value
            words, token = STANDINGS[head]
            rows.append(title(words, width, glyphs, token=token))
        rows.append(_comparison_row(row, min(name, 30), width))
    if not whole and not shown:
        if not any(row.standing.value == "same" for row in view.configuration):
            words, token = "it has not said what it runs with", "dim"
        elif view.lives:
            words, token = "runs with all that was asked, and nothing that was not", "good"
        else:
            words, token = "had taken all that was asked, as far as it said", "dim"
        rows = [title("configuration", width, glyphs), *said(words, width, token)]
    return rows


def _comparison_row(row: Comparison, name: int, width: int) -> Row:
    line = Line().add("   ").cell(row.name, name, "strong").add("  ")
    if row.standing.value == "same":
        line.add(row.asked or "", "text")
    else:
        line.add(row.asked if row.asked is not None else "–", "dim").add(" → ", "dim")
        line.add(
            row.effective if row.effective is not None else "?", STANDINGS[row.standing.value][1]
        )
        if row.default is not None and row.asked is None:
            line.add(f"  (default {row.default})", "dim")
    return line.row(width)


def log_rows(view: ServerView, width: int, glyphs: Glyphs) -> list[Row]:
    """The newest lines of its log, while nothing has failed."""
    if view.failed or not view.last_lines:
        return []
    rows = [title("log, newest lines", width, glyphs)]
    return rows + [Line().add("   ").add(text, "dim").row(width) for text in view.last_lines]


Section = Callable[["ServerView", int, Glyphs], list[Row]]


def narrow(view: ServerView) -> tuple[Section, ...]:
    """All sections, what matters most in its state first."""
    told: tuple[Section, ...] = (warning_rows, complaint_rows, witness_rows, configuration_rows)
    if view.starts:
        return (phase_rows, witness_rows, warning_rows, complaint_rows, log_rows,
                configuration_rows, process_rows, history_rows)  # fmt: skip
    return (cause_rows, *told, log_rows, process_rows, phase_rows, history_rows)


LEFT: tuple[Section, ...] = (cause_rows, witness_rows, phase_rows, process_rows, history_rows)
RIGHT: tuple[Section, ...] = (warning_rows, complaint_rows, configuration_rows, log_rows)


def title(text: str, width: int, glyphs: Glyphs, *columns: str, token: str = "title") -> Row:
    """The head of a section."""
    line = Line().add(f" {text} ", token)
    if columns:
        line.pad_to(22).extend((fmt.fit(column, 9, ">"), "dim") for column in columns).add(" ")
    return line.add(glyphs.rule * max(0, width - line.width - 1), "faint").row(width)


def said(text: str, width: int, token: str) -> list[Row]:
    """Text, wrapped; what follows the first row is set in."""
    rows = []
    for number, piece in enumerate(wrap(text, max(10, width - 5))):
        rows.append(Line().add("   " if number == 0 else "     ").add(piece, token).row(width))
    return rows


def sections(view: ServerView, width: int, glyphs: Glyphs, chosen: Sequence[Section]) -> list[Row]:
    """Several sections, one below the other."""
    rows: list[Row] = []
    for section in chosen:
        rows += section(view, width, glyphs)
    return rows
