"""The operator's own word: checks, waivers with an end, expected values. All from TOML.

```toml
[[checks]]
id = "site.hugepages"
title = "Huge pages as agreed"
reads = "/proc/sys/vm/nr_hugepages"
equals = "8192"                 # or: one_of, matches, minimum, maximum
why = "The storage target needs them."
fix = { write = "8192" }        # or: fix = { text = "ask the storage team" }

[[waivers]]
check = "kernel.mitigations"
reason = "single-tenant host, agreed with security"
until = 2027-03-31

[expected]
"gpu.count" = "8"
```

`use = "dedicated"`, `"shared"` or `"vm_passthrough"` at the top says what the host is for: some
rules depend on it (mitigations, heap zeroing, ACS, IOMMU).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

from backends.errors import ConfigError
from backends.tuning import numbers
from backends.tuning.catalogue import Entry, entries
from backends.tuning.findings import Finding, Judgement, Severity, Verdict
from backends.tuning.fixes import Fix, Write, manual
from backends.tuning.rules.base import Applies, Judgements, Rule, Scene, passed, unknown

Use = Literal["any", "dedicated", "shared", "vm_passthrough"]
"""What the host is for: one trusted tenant, several that are not, or handing cards to machines."""


class CustomFix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the operator would put it right: a value to write into the file, or words."""

    write: str = ""
    text: str = ""


class CustomCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One check of the operator's own: one fact and what it must be."""

    id: str
    title: str
    reads: str
    why: str
    equals: str | None = None
    one_of: list[str] | None = None
    matches: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    verdict: Literal["FAIL", "WARN", "INFO"] = "WARN"
    severity: Severity = Severity.MEDIUM
    source: str = ""
    fix: CustomFix | None = None


class Waiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finding that was accepted, why, and until when."""

    check: str
    reason: str
    until: datetime.date


class Custom(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    checks: list[CustomCheck] = []
    waivers: list[Waiver] = []
    expected: dict[str, str] = {}
    use: Use = "any"


def parse(text: str, path: Path | None = None) -> Custom:
    """Read the operator's file.

    Raises:
        ConfigError: Not TOML, an unknown key, a check that asks for nothing, a bad pattern.
    """
    try:
        custom = msgspec.toml.decode(text, type=Custom)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ConfigError(f"tuning checks: {error}", path=path) from error
    for check in custom.checks:
        _validate(check, path)
    for waiver in custom.waivers:
        if not waiver.reason.strip():
            raise ConfigError(f"waiver of {waiver.check} gives no reason", path=path)
    return custom


def _validate(check: CustomCheck, path: Path | None) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)+", check.id):
        raise ConfigError(
            f"check id {check.id!r} is not of the form group.name", path=path, hint="site.my_check"
        )
    if check.id in entries():
        raise ConfigError(
            f"check id {check.id!r} is one of gpuroom's own",
            path=path,
            hint="choose another, or waive that one",
        )
    wanted = (check.equals, check.one_of, check.matches, check.minimum, check.maximum)
    if all(value is None for value in wanted):
        raise ConfigError(
            f"check {check.id} does not say what the value must be",
            path=path,
            hint="one of: equals, one_of, matches, minimum, maximum",
        )
    if check.matches is not None:
        if len(check.matches) > 200:
            raise ConfigError(f"check {check.id}: pattern too long", path=path)
        try:
            re.compile(check.matches)
        except re.error as error:
            raise ConfigError(f"check {check.id}: pattern: {error}", path=path) from error


def custom_entry(check: CustomCheck) -> Entry:
    """The catalogue's form of the operator's check."""
    return Entry(
        id=check.id,
        title=check.title,
        severity=check.severity,
        where="both",
        in_vm="judge",
        in_container="judge",
        needs="none",
        reboot="no",
        risk="",
        reads=check.reads,
        expects=_wanted(check),
        not_applicable="",
        why=check.why,
        fix=check.fix.text if check.fix else "",
        persist="",
        undo="",
        sources=[check.source] if check.source else [],
        group="yours",
    )


def custom_rule(check: CustomCheck) -> Rule:
    """The operator's check as a rule."""

    def judge(scene: Scene) -> Judgements:
        value = scene.view.text(check.reads)
        if value is None:
            error = scene.view.error(check.reads)
            if error:
                yield unknown(f"{check.reads}: {error}")
            return
        if _holds(check, value):
            yield passed(f"{check.reads} = {value[:120]}")
        else:
            yield Judgement(
                Verdict(check.verdict),
                f"{check.reads} = {value[:120]}, expected {_wanted(check)}",
                fix=_fix(check),
            )

    return Rule(check.id, Applies(), judge)


def _holds(check: CustomCheck, value: str) -> bool:
    if check.equals is not None and value != check.equals:
        return False
    if check.one_of is not None and value not in check.one_of:
        return False
    if check.matches is not None and not re.fullmatch(check.matches, value[:4096]):
        return False
    if check.minimum is not None or check.maximum is not None:
        number = numbers.number(value)
        if number is None:
            return False
        if check.minimum is not None and number < check.minimum:
            return False
        if check.maximum is not None and number > check.maximum:
            return False
    return True


def _wanted(check: CustomCheck) -> str:
    parts = []
    if check.equals is not None:
        parts.append(check.equals)
    if check.one_of is not None:
        parts.append("one of " + ", ".join(check.one_of))
    if check.matches is not None:
        parts.append(f"like {check.matches}")
    if check.minimum is not None:
        parts.append(f"at least {check.minimum:g}")
    if check.maximum is not None:
        parts.append(f"at most {check.maximum:g}")
    return " and ".join(parts)


def _fix(check: CustomCheck) -> Fix | None:
    if check.fix is None:
        return None
    if check.fix.write and check.reads.startswith(("/proc/sys/", "/sys/")):
        return Fix(
            f"write {check.fix.write} to {check.reads}",
            runtime=(Write(check.reads, check.fix.write),),
        )
    return manual(check.fix.text) if check.fix.text else None


def waive(findings: Sequence[Finding], waivers: Sequence[Waiver], today: str) -> list[Finding]:
    """Mark accepted findings; a waiver past its end does nothing."""
    in_force = {w.check: w for w in waivers if today and w.until.isoformat() >= today}
    if not in_force:
        return list(findings)
    result = []
    for finding in findings:
        waiver = in_force.get(finding.check) or in_force.get(finding.rule)
        if waiver and finding.verdict in (Verdict.FAIL, Verdict.WARN):
            reason = f"{waiver.reason} (until {waiver.until.isoformat()})"
            result.append(replace(finding, waived=reason))
        else:
            result.append(finding)
    return result
