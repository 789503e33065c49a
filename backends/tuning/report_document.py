"""A document for colleagues: what remains, by worth; what was changed; what was seen. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from backends.tuning.catalogue import GROUPS
from backends.tuning.facts import Vantage
from backends.tuning.findings import Finding, Verdict
from backends.tuning.report import WRONG, by_worth, escaped, summary
from backends.tuning.snapshot import GOOD, Result, Snapshot

OPEN = (Verdict.INCONCLUSIVE, Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Made:
    """One change of the past.

    Attributes:
        at_utc: When.
        taken_back_utc: When it was taken back; None where it was not.
    """

    at_utc: str
    snapshot: Snapshot
    results: tuple[Result, ...]
    taken_back_utc: str | None = None


@dataclass(frozen=True, slots=True)
class About:
    """What the document is of.

    Attributes:
        boots: Boot ids by vantage.
        hosts: Names by vantage.
        read: How many facts had a value, and how many had not.
    """

    host: str
    at_utc: str
    boots: Mapping[Vantage, str]
    hosts: Mapping[Vantage, str]
    read: tuple[int, int]


def document(about: About, findings: Sequence[Finding], changes: Sequence[Made]) -> str:
    """The whole document, in Markdown."""
    boots = "; ".join(
        f"{escaped(about.hosts.get(vantage, vantage.value))} (boot {escaped(boot)})"
        for vantage, boot in about.boots.items()
    )
    have, lack = about.read
    lines = [
        f"# Tuning of {escaped(about.host)}",
        "",
        f"{summary(findings)}. Judged {about.at_utc} on {boots or 'no boot that is known'}, "
        f"on {have} facts; {lack} could not be read.",
        "",
        *_remaining(findings),
        *_open(findings),
        *_changed(changes, {f.check: f for f in findings}),
        *_seen(findings),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _heads(findings: Iterable[Finding]) -> list[Finding]:
    return [f for f in by_worth(findings) if not f.cause and not f.part]


def _remaining(findings: Sequence[Finding]) -> list[str]:
    """What is to be done, worth most first; waived findings after it."""
    wrong = [f for f in _heads(findings) if f.verdict in WRONG]
    todo = [f for f in wrong if not f.waived]
    lines = ["## What remains, by worth", ""]
    if not todo:
        lines += ["Nothing is wrong.", ""]
    for number, finding in enumerate(todo, 1):
        lines += [
            f"{number}. **{finding.verdict.value}** `{finding.check}`, "
            f"{finding.severity.value}: {escaped(finding.title)}",
            f"   - read: {escaped(finding.evidence)}",
        ]
        if finding.columns is not None:
            columns = finding.columns
            told = [
                f"{name} {escaped(value) if value else 'not read'}"
                for name, value in (
                    ("running", columns.running),
                    ("configured", columns.configured),
                    ("effective", columns.effective),
                )
            ]
            lines.append(f"   - {', '.join(told)}")
        if finding.why:
            lines.append(f"   - why: {escaped(finding.why)}")
        if finding.fix_text:
            lines.append(f"   - fix ({takes(finding)}): {escaped(finding.fix_text)}")
        each = [
            f"{f.instance}: {f.evidence}"
            for f in findings
            if f.rule == finding.rule and f.part and f.verdict in WRONG
        ]
        each = each if len(each) > 1 else []
        lines += [f"   - {escaped(text)}" for text in each[:8]]
        if len(each) > 8:
            lines.append(f"   - and {len(each) - 8} more")
        symptoms = [f.check for f in findings if f.cause == finding.rule and not f.part]
        if symptoms:
            lines.append(f"   - explains: {', '.join(f'`{s}`' for s in symptoms)}")
        lines += [f"   - source: <{url}>" for url in finding.sources[:3]]
    waived = [f for f in wrong if f.waived]
    if waived:
        lines += ["", "Waived:", ""]
        lines += [f"- `{f.check}`: {escaped(f.evidence)} ({escaped(f.waived)})" for f in waived]
    return [*lines, ""]


def takes(finding: Finding) -> str:
    """What carrying a fix out would take, in words."""
    fix = finding.fix
    if fix is None or not fix.applicable:
        words = ["by hand"]
    elif fix.reboot:
        words = ["with a reboot"]
    elif fix.restarts:
        words = [f"then restart {fix.restarts}"]
    else:
        words = ["at once"]
    if fix is not None and finding.vantage == "guest" and fix.target.value == "host":
        words.append("on the hypervisor")
    return ", ".join(words)


def _open(findings: Sequence[Finding]) -> list[str]:
    """What could not be judged: those that a measurement or a right would settle."""
    unclear = [f for f in _heads(findings) if f.verdict in OPEN]
    loaded = [f for f in unclear if f.verdict is Verdict.INCONCLUSIVE]
    hinted = [f for f in unclear if f.verdict is Verdict.UNKNOWN and f.hint]
    if not unclear:
        return []
    lines = ["## What could not be judged", ""]
    for finding in (*loaded, *hinted):
        hint = f" ({escaped(finding.hint)})" if finding.hint else ""
        lines.append(
            f"- {finding.verdict.value} `{finding.check}`: {escaped(finding.evidence)}{hint}"
        )
    left = len(unclear) - len(loaded) - len(hinted)
    if left:
        lines.append(f"- {left} more: not readable from here, or not with these rights.")
    return [*lines, ""]


def _changed(changes: Sequence[Made], now: Mapping[str, Finding]) -> list[str]:
    lines = ["## What was changed", ""]
    if not changes:
        return [*lines, "Nothing, as far as this history knows.", ""]
    for made in changes:
        snapshot = made.snapshot
        back = f"; taken back {made.taken_back_utc[:19]}" if made.taken_back_utc else ""
        lines += [
            f"### {made.at_utc[:19]} by {escaped(snapshot.operator)}{back}",
            "",
            f"Snapshot `{snapshot.snapshot_id}`.",
            "",
            "| check | what came of it | what changed | it is now |",
            "| --- | --- | --- | --- |",
        ]
        for result in made.results:
            finding = now.get(result.check)
            today = f"{finding.verdict.value}" if finding is not None else ""
            detail = f": {escaped(result.detail)}" if result.outcome not in GOOD else ""
            lines.append(
                f"| `{result.check}` | {result.outcome.value}{detail} | "
                f"{_what(snapshot, result)} | {today} |"
            )
        lines.append("")
    return lines


def _what(snapshot: Snapshot, result: Result) -> str:
    """Values as `old -> new`, files by name, commands as they ran; many of a kind as one."""
    told: list[str] = []
    for saved in snapshot.saved:
        if saved.check != result.check:
            continue
        if saved.kind == "command":
            if saved.where in result.ran:
                told.append(f"ran `{shlex.join(saved.argv)}`")
        elif saved.path in result.after:
            new = result.after[saved.path]
            if saved.kind == "write":
                told.append(f"`{saved.path}`: {_value(saved.old)} to {_value(new)}")
            else:
                verb = "removed" if new is None else "new" if saved.old is None else "edited"
                told.append(f"{verb} `{saved.path}`")
    if len(told) > 4:
        told = [told[0], f"and {len(told) - 2} more of the kind", told[-1]]
    return "; ".join(told)


def _value(data: bytes | None) -> str:
    return "nothing" if data is None else escaped(data.decode("utf-8", "replace").strip()[:40])


def _seen(findings: Sequence[Finding]) -> list[str]:
    """Every check by group, what was not looked at left out."""
    lines = ["## What was seen", ""]
    for group, heading in {**GROUPS, "yours": "Your own checks"}.items():
        rows = [
            f
            for f in findings
            if f.group == group and not f.part and f.verdict is not Verdict.NOT_APPLICABLE
        ]
        rows = [f for f in rows if f.verdict is not Verdict.UNKNOWN or f.touched]
        if rows:
            lines += [f"### {heading}", "", "| check | verdict | evidence |", "| --- | --- | --- |"]
            lines += [f"| `{f.check}` | {f.verdict.value} | {escaped(f.evidence)} |" for f in rows]
            lines.append("")
    return lines
