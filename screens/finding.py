"""One finding in full: what was read and where, what it should be, why, what it would take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from backends.tuning.custom import OWN_GROUP
from backends.tuning.desk import Judged
from backends.tuning.facts import Fact, Vantage
from backends.tuning.findings import Finding
from backends.tuning.report import step_text, trial_text
from screens.base import HubScreen
from screens.gpu import Facts
from screens.tuning_list import TOKENS, cost_of, glyph_of, named_evidence, places_of
from tui.bindings import bindings
from tui.rows import Line, Row
from tui.shell import Shell
from tui.widgets.host_state import wrap

LABEL = 12
MAX_FACTS = 40


class FindingScreen(HubScreen):
    """See the module.

    Args:
        shell: The room.
        judged: The run it is of.
        finding: Which.
        fix: Begins to put it right, once this screen is gone.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("tuning.fix")
    AREAS = ("nav",)
    AUTO_FOCUS = "#facts"
    ABOUT = (
        "Everything about one finding: the facts it rests on with file, time and machine; what it "
        "should be; running, configured and effective state of what persists; why it matters, with "
        "its source; the fix in both forms and the way back. Esc goes back to the checklist."
    )

    def __init__(
        self,
        shell: Shell,
        judged: Judged,
        finding: Finding,
        fix: Callable[[str], None] = lambda check: None,
    ) -> None:
        super().__init__(shell)
        self._begin_fix = fix
        self.judged = judged
        self.finding = finding
        self.text = Facts(shell.look)

    def crumbs(self) -> Sequence[str]:
        """Tuning, and the check."""
        return ("tuning", self.finding.check)

    def compose_body(self) -> Sequence[Widget]:
        """The text."""
        return (self.text,)

    def action_fix(self) -> None:
        """Go back, and show there what would be done for it."""
        self.dismiss(None)
        self._begin_fix(self.finding.check)

    def show_body(self, now_s: float) -> None:
        """A finding does not change; a new run has new ones."""
        self.text.show(self._rows)

    def _rows(self, width: int) -> list[Row]:
        finding = self.finding
        token = TOKENS[finding.verdict]
        glyph = glyph_of(finding.verdict, self.shell.look)
        head = Line().add(f" {glyph} {finding.verdict.value} ", token).add(finding.title, "strong")
        rows = [head.row(width), Line().row(width)]
        for label, text, paint in self._parts():
            rows += labelled(label, text, width, paint)
        return rows

    def _parts(self) -> Iterator[tuple[str, str, str]]:
        """Label, text, token, in the order in which they are read."""
        finding = self.finding
        yield "read", named_evidence(finding), "text"
        facts = self._facts()
        for fact in facts:
            yield "", fact_text(fact), "dim"
        yield "where", self._where(facts), "dim"
        if finding.wants:
            yield "should be", finding.wants, "text"
        if finding.columns is not None:
            columns = finding.columns
            yield "running", columns.running or "not read", "accent"
            yield "configured", columns.configured or "not read", "accent"
            yield "effective", columns.effective or "not read", "accent"
        yield "why", finding.why, "text"
        for source in finding.sources:
            yield "source", source, "info"
        yield from self._fix()
        if finding.hint:
            yield "note", finding.hint, "info"
        if finding.waived:
            yield "waived", finding.waived, "warning"
        for one in self.judged.findings:
            if one.part and one.rule == finding.rule and one.check != finding.check:
                yield (
                    "each",
                    f"{one.verdict.value} {one.check}: {one.evidence}",
                    TOKENS[one.verdict],
                )
        for one in self.judged.findings:
            if one.cause == finding.rule and not one.part:
                yield "explains", f"{one.check}: {one.evidence}", "text"

    @property
    def _places(self) -> Mapping[Vantage, str]:
        return places_of(self.judged, self.shell.host_config(self.shell.current))

    def _where(self, facts: Sequence[Fact]) -> str:
        """The machine that was read, and when."""
        name = self.shell.current
        if self._places:
            vantage = Vantage(self.finding.vantage)
            what = "the guest" if vantage is Vantage.GUEST else "the hypervisor below"
            name = f"{self._places[vantage]}, {what}"
        at = max((fact.time for fact in facts if fact.time), default="")
        when = f", read {at[:10]} {at[11:19]} UTC" if at else ""
        own = ", a check of your own" if self.finding.group == OWN_GROUP else ""
        return f"{name}{when}; check {self.finding.check}{own}"

    def _facts(self) -> list[Fact]:
        """The facts whose values carry the verdict."""
        wanted, vantage = set(self.finding.rests_on), Vantage(self.finding.vantage)
        found = [
            fact
            for fact in self.judged.gathered.document.facts
            if fact.key in wanted and fact.vantage is vantage
        ]
        return found[:MAX_FACTS]

    def _fix(self) -> Iterator[tuple[str, str, str]]:
        finding = self.finding
        if finding.trial:
            yield "experiment", trial_text(finding), "accent"
        elif finding.fix_text:
            yield "fix", finding.fix_text, "accent"
        fix = finding.fix
        if fix is None:
            return
        if cost := cost_of(finding, self._places):
            lasting = " (the lasting form acts from the next boot on)" if fix.reboot else ""
            yield "takes", cost + lasting, "warning" if fix.reboot or fix.restarts else "text"
        for label, steps in (("at once", fix.runtime), ("to last", fix.persistent)):
            for step in steps[:8]:
                yield label, step_text(step), "text"
            if len(steps) > 8:
                yield "", f"and {len(steps) - 8} more of the kind", "dim"
        yield "risk", fix.risk.value, "text"
        yield "way back", fix.undo, "text"


def fact_text(fact: Fact) -> str:
    """A fact with its source."""
    if fact.value is None:
        value = f"absent ({fact.error or 'not read'})"
    else:
        value = "; ".join(fact.value) if isinstance(fact.value, list) else str(fact.value)
    source = f" from {fact.source}" if fact.source and fact.source != fact.key else ""
    return f"{fact.key} = {value[:160]}{source}"


def labelled(label: str, text: str, width: int, token: str) -> list[Row]:
    """A label and its text, wrapped; long words (paths, links) are broken, never cut."""
    room = max(20, width - LABEL - 4)
    rows = []
    for index, piece in enumerate(broken(text, room)):
        line = Line().add(" ").cell(label if not index else "", LABEL, "dim").add(" ")
        rows.append(line.add(piece, token).row(width))
    return rows


def broken(text: str, room: int) -> list[str]:
    """Pieces of at most `room` cells; words longer than that are broken."""
    words = []
    for word in text.split():
        words += [word[at : at + room] for at in range(0, len(word), room)]
    return wrap(" ".join(words), room)
