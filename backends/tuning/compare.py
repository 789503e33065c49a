"""Two hosts, or one host at two times: which findings and which facts differ. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from backends.tuning.facts import Fact, FactsDocument
from backends.tuning.findings import Finding

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
)
"""Last parts of keys whose values differ from one second to the next, or by nature."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not the same on both sides; None where it is absent."""

    what: str
    a: str | None
    b: str | None


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

    def to_text(self) -> str:
        """Both lists for people."""
        lines = ["findings:"] if self.findings else ["no finding differs"]
        lines += [f"  {c.what}: {c.a or '-'} | {c.b or '-'}" for c in self.findings]
        if self.facts:
            lines.append("facts:")
            lines += [f"  {c.what}: {_short(c.a)} | {_short(c.b)}" for c in self.facts[:200]]
            if len(self.facts) > 200:
                lines.append(f"  and {len(self.facts) - 200} more")
        return "\n".join(lines) + "\n"


def _short(value: str | None) -> str:
    if value is None:
        return "-"
    return value if len(value) <= 60 else value[:59] + "\u2026"


def compare(
    first: FactsDocument,
    second: FactsDocument,
    found_a: Sequence[Finding],
    found_b: Sequence[Finding],
) -> Comparison:
    """What differs between two hosts: verdicts by check, values by key."""
    a = {f.check: f.verdict.value for f in found_a}
    b = {f.check: f.verdict.value for f in found_b}
    findings = [
        Change(check, a.get(check), b.get(check))
        for check in dict.fromkeys([*a, *b])
        if a.get(check) != b.get(check)
    ]
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
    return "; ".join(fact.value) if isinstance(fact.value, list) else str(fact.value)
