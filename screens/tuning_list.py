"""The rows of the checklist: verdict, check, evidence, what came of a change."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from backends.tuning.findings import Finding, Verdict
from backends.tuning.report import by_worth, counts
from backends.tuning.snapshot import Outcome, Result
from tui.rows import Line, Row, Span
from tui.themes import Look
from tui.widgets.row_list import RowList

TOKENS = {
    Verdict.FAIL: "critical",
    Verdict.WARN: "warning",
    Verdict.INCONCLUSIVE: "info",
    Verdict.UNKNOWN: "stale",
    Verdict.INFO: "info",
    Verdict.PASS: "good",
    Verdict.NOT_APPLICABLE: "faint",
}
OUTCOME_TOKENS = {
    Outcome.APPLIED: "good",
    Outcome.ALREADY_SO: "good",
    Outcome.FAILED: "critical",
    Outcome.REFUSED: "critical",
    Outcome.NEEDS_REBOOT: "warning",
    Outcome.NEEDS_RESTART: "warning",
    Outcome.BEGUN: "accent",
}
SHOWN: Mapping[str, frozenset[Verdict]] = {
    "wrong": frozenset({Verdict.FAIL, Verdict.WARN}),
    "open": frozenset({Verdict.UNKNOWN, Verdict.INCONCLUSIVE}),
    "information": frozenset({Verdict.INFO}),
    "passed": frozenset({Verdict.PASS}),
    "all": frozenset(Verdict),
}
"""What each choice of the filter shows, in the order of the key."""


class FindingList(RowList):
    """Findings, worst first; instances and symptoms of a named cause are folded away.

    Attributes:
        choice: Which verdicts are shown, one of `SHOWN`.
        marked: Checks that were marked.
        results: What came of changes, by check.
    """

    opens = False

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="findings")
        self.choice = "wrong"
        self.marked: set[str] = set()
        self.results: dict[str, Result] = {}
        self.message = "not judged yet"
        self._findings: dict[str, Finding] = {}
        self._keys: list[str] = []

    def show(self, findings: Sequence[Finding]) -> None:
        """Take a run."""
        self._findings = {f.check: f for f in by_worth(findings) if not f.instance and not f.cause}
        self.marked &= self._findings.keys()
        self.choose(self.choice)

    def choose(self, choice: str) -> None:
        """Show these verdicts; what was changed stays in sight."""
        self.choice = choice
        wanted = SHOWN[choice]
        self._keys = [
            check
            for check, finding in self._findings.items()
            if finding.verdict in wanted or check in self.results
        ]
        self.redraw()

    def keys(self) -> Sequence[Hashable]:
        """Checks in the order of what they are worth."""
        return self._keys

    def of(self, key: Hashable) -> Finding:
        """The finding of a check."""
        return self._findings[str(key)]

    def current(self) -> Finding | None:
        """The finding under the cursor."""
        return self.of(self._keys[self.cursor_index(self._keys)]) if self._keys else None

    def empty_text(self) -> str:
        """What is at hand instead."""
        if not self._findings:
            return self.message
        return f"nothing here ({self.choice}); the key o shows others"

    def head_rows(self, width: int) -> list[Row]:
        """Column titles."""
        line = Line().add("   ").cell("verdict", 14, "dim").cell("check", 26, "dim")
        return [line.add("evidence", "dim").row(width)]

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """Mark, glyph and word, check, what it costs to mend, evidence or result."""
        finding = self.of(key)
        glyphs = self.look.glyphs
        glyph = {
            Verdict.FAIL: glyphs.critical,
            Verdict.WARN: glyphs.warning,
            Verdict.PASS: glyphs.ok,
            Verdict.INFO: glyphs.info,
            Verdict.INCONCLUSIVE: glyphs.waiting,
            Verdict.UNKNOWN: glyphs.stale,
            Verdict.NOT_APPLICABLE: glyphs.separator.strip() or "-",
        }[finding.verdict]
        token = TOKENS[finding.verdict]
        line = Line().add(glyphs.cursor if current else " ", "accent")
        line.add((glyphs.marked if finding.check in self.marked else " ") + " ", "accent")
        line.add(f"{glyph} ", token).cell(finding.verdict.value, 12, token)
        line.cell(finding.check, 25, "strong").add(" ")
        result = self.results.get(finding.check)
        if result is not None:
            line.add(f"{result.outcome.value} ", OUTCOME_TOKENS[result.outcome])
            line.add(result.detail or finding.evidence)
        else:
            line.add(finding.evidence)
            if cost := cost_of(finding):
                line.add(f"  [{cost}]", "dim")
        return line.row(width, "cursor-row" if current else "text")


def cost_of(finding: Finding) -> str:
    """What it would take, in a word or two; empty where nothing can be carried out."""
    fix = finding.fix
    if fix is None or finding.verdict is Verdict.PASS:
        return ""
    if not fix.applicable:
        return "by hand"
    words = ["reboot" if fix.reboot else f"restart {fix.restarts}" if fix.restarts else "at once"]
    if finding.vantage == "guest" and fix.target.value == "host":
        words.append("on the host below")
    return ", ".join(words)


def summary(findings: Sequence[Finding]) -> list[Span]:
    """How many checks came to which verdict, the bad ones in their colours."""
    told = counts(findings)
    wanted = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.PASS)
    return [(f"{told[v]} {v.value}  ", TOKENS[v] if told[v] else "dim") for v in wanted]


def worst_lines(findings: Sequence[Finding], most: int) -> list[Line]:
    """What is wrong, worst first."""
    wrong = [
        finding
        for finding in by_worth(findings)
        if finding.verdict in SHOWN["wrong"] and not finding.instance and not finding.cause
    ]
    return [
        Line().add("  ").add(f"{f.check} ", TOKENS[f.verdict]).add(f.evidence)
        for f in wrong[: max(0, most)]
    ]
