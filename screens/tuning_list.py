"""The rows of the checklist: verdict, check, evidence, what it takes; by worth or by group."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from backends.config import HostConfig
from backends.tuning.catalogue import GROUPS
from backends.tuning.custom import OWN_GROUP
from backends.tuning.desk import Judged
from backends.tuning.facts import Vantage
from backends.tuning.findings import WORST_FIRST, Finding, Verdict
from backends.tuning.prepare import vantage_of
from backends.tuning.report import by_worth, counts, waived
from tui import filters
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
WAIVED = "waived"
SHOWN: Mapping[str, frozenset[Verdict]] = {
    "wrong": frozenset({Verdict.FAIL, Verdict.WARN}),
    "open": frozenset({Verdict.UNKNOWN, Verdict.INCONCLUSIVE}),
    "information": frozenset({Verdict.INFO}),
    "passed": frozenset({Verdict.PASS}),
    WAIVED: frozenset({Verdict.FAIL, Verdict.WARN}),
    "all": frozenset(Verdict),
}
"""What each choice shows, in the order of the key."""
FELL_BACK = "fell back"
"""The choice that is there after a boot: what is worse than before it."""
WIDE = 110
"""From so many columns on, what it takes stands before the evidence."""
NOWHERE: Mapping[Vantage, str] = {}
GROUP = "group "
"""What the key of a group's heading begins with; no check does."""


class FindingList(RowList):
    """Findings, worst first or by group; instances and symptoms of a named cause are folded away.

    Attributes:
        choice: Which verdicts are shown, one of `choices`.
        marked: Checks that were marked.
        grouped: Whether groups stand one after the other, each below a heading.
        form: Which form of fixes is chosen, for the head.
        places: Names of the two machines of a pair.
        profile: By which profile it was judged, for the head.
        message: What is said while there is nothing.
    """

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="findings")
        self.choice = "wrong"
        self.marked: set[str] = set()
        self.grouped = False
        self.form = ""
        self.profile = ""
        self.places: Mapping[Vantage, str] = NOWHERE
        self.message = "not judged yet"
        self._before: dict[str, Verdict] = {}
        self._folded: set[str] = set()
        self._filter = filters.Filter()
        self._findings: dict[str, Finding] = {}
        self._keys: list[str] = []

    def show(self, findings: Sequence[Finding], fell_back: Mapping[str, Verdict]) -> None:
        """Take a run.

        Args:
            findings: All of them.
            fell_back: After a boot: verdicts that were better before it, by check.
        """
        self._findings = {f.check: f for f in by_worth(findings) if not f.part and not f.cause}
        for finding in findings:
            if finding.check in fell_back and finding.check not in self._findings:
                self._findings[finding.check] = finding
        self.marked &= self._findings.keys()
        self._before = dict(fell_back)
        self.choose(FELL_BACK if fell_back else self.choice)

    @property
    def choices(self) -> list[str]:
        """What can be chosen now."""
        return [*([FELL_BACK] if self._before else []), *SHOWN]

    def choose(self, choice: str) -> None:
        """Show these verdicts."""
        self.choice = choice if choice in self.choices else "wrong"
        self.lay_out()

    def next_choice(self) -> None:
        """Show the next kind of verdicts."""
        names = self.choices
        self.choose(names[(names.index(self.choice) + 1) % len(names)])

    def narrow(self, text: str) -> None:
        """Show only what fits."""
        self._filter = filters.parse(text)
        self.lay_out()

    def lay_out(self) -> None:
        """Work out which rows there are."""
        chosen = [f for f in self._findings.values() if self._wanted(f)]
        if not self.grouped:
            self._keys = [finding.check for finding in chosen]
        else:
            self._keys = []
            for group in dict.fromkeys([*GROUPS, *(f.group for f in chosen)]):
                members = [f.check for f in chosen if f.group == group]
                if members:
                    self._keys.append(GROUP + group)
                    self._keys += [] if group in self._folded else members
        self.redraw()

    def fold(self, key: Hashable) -> None:
        """Fold a group, or unfold it."""
        self._folded ^= {str(key).removeprefix(GROUP)}
        self.lay_out()

    def _wanted(self, finding: Finding) -> bool:
        if self.choice == FELL_BACK:
            chosen = finding.check in self._before
        else:
            chosen = finding.verdict in SHOWN[self.choice] and not finding.part
            if self.choice != "all":
                chosen = chosen and bool(finding.waived) == (self.choice == WAIVED)
        text = f"{finding.check} {finding.title} {finding.evidence} {finding.verdict.value}"
        return chosen and self._filter.fits(f"{text} {finding.group} {finding.vantage}", {})

    def keys(self) -> Sequence[Hashable]:
        """Checks in the order of what they are worth, or groups with theirs below."""
        return self._keys

    def of(self, key: Hashable) -> Finding | None:
        """The finding of a check; None for the heading of a group."""
        return self._findings.get(str(key))

    def current(self) -> Finding | None:
        """The finding under the cursor."""
        return self.of(self._keys[self.cursor_index(self._keys)]) if self._keys else None

    def empty_text(self) -> str:
        """What is at hand instead."""
        if not self._findings:
            return self.message
        if self._filter:
            return "nothing fits the filter; Esc clears it"
        return f"nothing here ({self.choice}); the key o shows others"

    def head_rows(self, width: int) -> list[Row]:
        """How many came to each verdict; column titles."""
        line = Line().add(" ").extend(self._counts())
        line.right([(f"form: {self.form} ", "accent")] if self.form else [], width)
        titles = Line().add("   ").cell("verdict", 14, "dim").cell("check", 26, "dim")
        titles.add("evidence", "dim")
        titles.right([(f"profile: {self.profile} ", "dim")] if self.profile else [], width)
        return [line.row(width), titles.row(width)]

    def _counts(self) -> list[Span]:
        told = counts(self._findings.values())
        spans: list[Span] = []
        for verdict in WORST_FIRST:
            if told[verdict]:
                spans.append((f"{told[verdict]} {verdict.value}  ", TOKENS[verdict]))
        accepted = len(waived(self._findings.values()))
        if accepted:
            spans.append((f"{accepted} waived  ", "dim"))
        return spans or [(self.message, "dim")]

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """Mark, glyph and word, check, evidence, what it takes; or the heading of a group."""
        glyphs = self.look.glyphs
        base = "cursor-row" if current else "text"
        line = Line().add(glyphs.cursor if current else " ", "accent")
        finding = self.of(key)
        if finding is None:
            return self._heading(line, str(key).removeprefix(GROUP)).row(width, base)
        token = TOKENS[finding.verdict]
        line.add((glyphs.marked if finding.check in self.marked else " ") + " ", "accent")
        line.add(f"{glyph_of(finding.verdict, self.look)} ", token)
        line.cell(finding.verdict.value, 12, token).cell(finding.check, 25, "strong").add(" ")
        if self.choice == FELL_BACK:
            line.add(f"was {self._before[finding.check].value}  ", "warning")
        if finding.waived:
            line.add("(waived) ", "dim")
        if finding.group == OWN_GROUP:
            line.add("(own) ", "accent")
        cost = cost_of(finding, self.places)
        if cost and width >= WIDE:
            line.add(f"[{cost}] ", "dim")
        line.add(named_evidence(finding))
        if cost and width < WIDE:
            line.add(f"  [{cost}]", "dim")
        return line.row(width, base)

    def _heading(self, line: Line, group: str) -> Line:
        members = [f for f in self._findings.values() if f.group == group and not f.part]
        told = counts(members)
        line.add(" + " if group in self._folded else " - ", "accent")
        line.add(f"{GROUPS.get(group, 'Your own checks')}  ", "title")
        for verdict in WORST_FIRST:
            if told[verdict]:
                line.add(f"{told[verdict]} {verdict.value}  ", TOKENS[verdict])
        return line


def glyph_of(verdict: Verdict, look: Look) -> str:
    """A verdict without its colour."""
    glyphs = look.glyphs
    return {
        Verdict.FAIL: glyphs.critical,
        Verdict.WARN: glyphs.warning,
        Verdict.PASS: glyphs.ok,
        Verdict.INFO: glyphs.info,
        Verdict.INCONCLUSIVE: glyphs.waiting,
        Verdict.UNKNOWN: glyphs.stale,
        Verdict.NOT_APPLICABLE: glyphs.separator.strip() or "-",
    }[verdict]


def named_evidence(finding: Finding) -> str:
    """What was read, with the device where there is only that one."""
    alone = finding.instance and not finding.part
    return f"{finding.instance}: {finding.evidence}" if alone else finding.evidence


def places_of(judged: Judged, host: HostConfig) -> Mapping[Vantage, str]:
    """Names of a guest and of the hypervisor below it; empty where one machine was read."""
    if Vantage.GUEST not in judged.gathered.boot_ids:
        return {}
    return {Vantage.GUEST: host.name, Vantage.HOST: host.hypervisor or "the host below"}


def cost_of(finding: Finding, places: Mapping[Vantage, str] = NOWHERE) -> str:
    """What it would take, in a word or two; empty where nothing can be carried out.

    Args:
        finding: What is wrong.
        places: Names of the two machines of a pair; see `places_of`.
    """
    fix = finding.fix
    if fix is None or finding.verdict is Verdict.PASS:
        return ""
    if not fix.applicable:
        return f"by hand on {_place(finding, places)}" if places else "by hand"
    words = ["reboot" if fix.reboot else f"restart {fix.restarts}" if fix.restarts else "at once"]
    return f"{', '.join(words)} on {_place(finding, places)}" if places else ", ".join(words)


def _place(finding: Finding, places: Mapping[Vantage, str]) -> str:
    return places[vantage_of(finding, paired=True)]


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
        if finding.verdict in SHOWN["wrong"]
        and not (finding.part or finding.cause or finding.waived)
    ]
    return [
        Line().add("  ").add(f"{f.check} ", TOKENS[f.verdict]).add(f.evidence)
        for f in wrong[: max(0, most)]
    ]
