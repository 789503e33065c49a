"""Two hosts, or one host at two times: which findings and which facts differ. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from backends.tuning.facts import Fact, FactsDocument
from backends.tuning.findings import Finding
from backends.tuning.report import by_worth

VOLATILE: Final = (
    "power_w",
    "power_now_w",
    "temp_c",
    "mem_temp_c",
    "util_pct",
    "used_mib",
    "clock_sm_mhz",
    "clock_mem_mhz",
    "temp_margin_c",
    "uuid",
    "MemFree",
    "usage",
    "rejected",
    "reasons",
    "free_bytes",
    "free_inodes",
)
"""Last parts of keys whose values differ from one second to the next, or by nature."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not the same on both sides; None where it is absent.

    Attributes:
        a_evidence: Of a finding: what was read there.
        title: Of a finding: what it is about.
    """

    what: str
    a: str | None
    b: str | None
    a_evidence: str = ""
    b_evidence: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs, findings before facts."""

    findings: tuple[Change, ...]
    facts: tuple[Change, ...]

    @property
    def differs(self) -> bool:
        """Whether any finding came to another verdict."""
        return bool(self.findings)

    def to_json(self) -> bytes:
        """Both lists as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def to_text(self, a: str = "A", b: str = "B") -> str:
        """Both lists for people, worst first, under the names of the two sides."""
        lines = [f"{a} | {b}", ""]
        lines += ["findings:"] if self.findings else ["no finding differs"]
        for change in self.findings:
            lines.append(f"  {change.what}: {change.a or '-'} | {change.b or '-'}  {change.title}")
            if change.a_evidence != change.b_evidence:
                lines.append(f"    {_short(change.a_evidence or None, 100)}")
                lines.append(f"    {_short(change.b_evidence or None, 100)}")
        if self.facts:
            lines.append("facts:")
            lines += [f"  {c.what}: {_short(c.a)} | {_short(c.b)}" for c in self.facts[:200]]
            if len(self.facts) > 200:
                lines.append(f"  and {len(self.facts) - 200} more")
        return "\n".join(lines) + "\n"


def _short(value: str | None, most: int = 60) -> str:
    if value is None:
        return "-"
    return value if len(value) <= most else value[: most - 1] + "\u2026"


def compare(
    first: FactsDocument,
    second: FactsDocument,
    found_a: Sequence[Finding],
    found_b: Sequence[Finding],
) -> Comparison:
    """What differs between two hosts: verdicts by check, values by key."""
    a = {f.check: f for f in found_a}
    b = {f.check: f for f in found_b}
    findings = []
    for finding in by_worth([*found_a, *found_b]):
        one, other = a.pop(finding.check, None), b.pop(finding.check, None)
        was, is_ = (None if f is None else f.verdict for f in (one, other))
        if was is not is_:
            findings.append(
                Change(
                    finding.check,
                    None if was is None else was.value,
                    None if is_ is None else is_.value,
                    "" if one is None else one.evidence,
                    "" if other is None else other.evidence,
                    finding.title,
                )
            )
    left, right = _values(first), _values(second)
    facts = [
        Change(key, left.get(key), right.get(key))
        for key in dict.fromkeys([*left, *right])
        if left.get(key) != right.get(key)
    ]
    return Comparison(tuple(findings), tuple(facts))


def _values(document: FactsDocument) -> dict[str, str]:
    return {
        f"{fact.key}@{fact.vantage.value}": _value(fact)
        for fact in document.facts
        if fact.key.rpartition("/")[2] not in VOLATILE and fact.key != "log/kernel"
    }


def _value(fact: Fact) -> str:
    if fact.value is None:
        return f"({fact.error or 'absent'})"
    value = "; ".join(fact.value) if isinstance(fact.value, list) else str(fact.value)
    return value.strip().replace("\n", "; ")
