"""What a rule says about a host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from backends.tuning.fixes import Fix


class Verdict(StrEnum):
    """The seven answers. Only PASS says that something was looked at and is right."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    WARN = "WARN"
    FAIL = "FAIL"
    INFO = "INFO"
    """A recorded choice, neither right nor wrong."""
    NOT_APPLICABLE = "N/A"
    UNKNOWN = "UNKNOWN"
    """It applies, but what is needed is not at hand: rights, vantage, or the reading itself."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """It cannot be judged in this state; a measurement under load can."""


WORST_FIRST: Final = (
    Verdict.FAIL,
    Verdict.WARN,
    Verdict.INCONCLUSIVE,
    Verdict.UNKNOWN,
    Verdict.INFO,
    Verdict.PASS,
    Verdict.NOT_APPLICABLE,
)


class Severity(StrEnum):
    """What a failed check costs."""

    CRITICAL = "critical"
    """Work stops or results are wrong."""
    HIGH = "high"
    """A large part of the speed, or the next outage."""
    MEDIUM = "medium"
    LOW = "low"
    """Worth knowing."""


SEVEREST_FIRST: Final = (Severity.CRITICAL, Severity.HIGH, Severity.MEDIUM, Severity.LOW)


@dataclass(frozen=True, slots=True)
class Columns:
    """The three states of what persists; None where it was not read."""

    running: str | None = None
    configured: str | None = None
    effective: str | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a rule's function yields; the engine adds what the catalogue knows.

    Attributes:
        verdict: One of seven.
        evidence: What was read, in one line.
        instance: Which GPU, device or pair, when the rule judges several.
        fix: What would put it right, when that is known from the facts.
        columns: Running, configured and effective state of what persists.
        hint: What to read or run to learn more.
        experiment: A belief without proof: it may be tried, with a measurement before and after.
        cause: Id of the finding that already names the root cause of this one.
    """

    verdict: Verdict
    evidence: str
    instance: str = ""
    fix: Fix | None = None
    columns: Columns | None = None
    hint: str = ""
    experiment: bool = False
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the checklist.

    Attributes:
        instance: Which GPU, device or container; also where there is only that one.
        check: Id, with `[instance]` and `@host` or `@guest` where several are judged.
        rule: Id alone.
        rests_on: Keys of the facts whose values carry the verdict.
        touched: Whether any fact this rule reads was at hand.
        waived: Reason of a waiver in force, empty otherwise.
        wants: What it should be, in words; of the operator's own checks too.
    """

    check: str
    rule: str
    title: str
    group: str
    verdict: Verdict
    severity: Severity
    evidence: str
    vantage: str
    why: str
    sources: tuple[str, ...]
    instance: str = ""
    fix: Fix | None = None
    fix_text: str = ""
    columns: Columns | None = None
    hint: str = ""
    experiment: bool = False
    cause: str = ""
    rests_on: tuple[str, ...] = field(default=())
    touched: bool = True
    waived: str = ""
    wants: str = ""

    @property
    def part(self) -> bool:
        """Whether it is one instance of a check that has a finding of its own for all of them."""
        return "[" in self.check

    @property
    def whole(self) -> str:
        """Id of the finding for all instances: without `[instance]`, with `@host` or `@guest`."""
        name, bracket, rest = self.check.partition("[")
        return name + rest.rpartition("]")[2] if bracket else name

    @property
    def trial(self) -> str:
        """What may be tried with a measurement before and after; empty where nothing acts at once.

        Such a fix is no remedy: nothing bears it out but what this host shows (`experiment`).
        """
        can = self.experiment and self.fix is not None and self.fix.runtime and not self.fix.manual
        return self.fix.summary if can and self.fix is not None else ""


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that a set of instances amounts to; N/A for none."""
    present = set(verdicts)
    return next((verdict for verdict in WORST_FIRST if verdict in present), Verdict.NOT_APPLICABLE)
