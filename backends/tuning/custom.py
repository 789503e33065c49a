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
import difflib
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import msgspec

from backends import toml
from backends.errors import ConfigError
from backends.tuning import numbers
from backends.tuning.catalogue import Entry, entries
from backends.tuning.findings import Finding, Judgement, Severity, Verdict
from backends.tuning.fixes import Fix, Write, manual
from backends.tuning.probes import PROBES, Probe, ProbeKind
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


class Waiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A finding that was accepted, why, and until when.

    Attributes:
        check: A check's id, for all its instances, or that of one instance.
        host: Where alone it holds; everywhere when empty.
        by: Who accepted it.
    """

    check: str
    reason: str
    until: datetime.date
    host: str = ""
    by: str = ""


class Custom(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    checks: list[CustomCheck] = []
    waivers: list[Waiver] = []
    expected: dict[str, str] = {}
    use: Use = "any"


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same as people write it: a number may stand without quotes."""

    checks: list[CustomCheck] = []
    waivers: list[Waiver] = []
    expected: dict[str, str | int | float] = {}
    use: Use = "any"


OWN_GROUP: Final = "yours"
"""The group of the operator's own checks."""
MAX_CHARS: Final = 1 << 20
MAX_CHECKS: Final = 1000
_PLACE: Final = re.compile(r"\$\.(?P<table>\w+)(?:\[(?P<index>\d+|\.\.\.)\])?(?:\.(?P<key>\w+))?")
_AT_LINE: Final = re.compile(r" ?\(at line (\d+), column \d+\)")
_NESTED: Final = re.compile(r"\([^()]*[+*}][^()]*\)[+*{]")
"""A repetition of a repetition: takes for ever on the wrong text."""


def parse(text: str, path: Path | None = None, known: Collection[str] = ()) -> Custom:
    """Read the operator's file.

    Args:
        text: TOML.
        path: Where it came from, for messages.
        known: Ids of checks of the operator's own that other files have.

    Raises:
        ConfigError: Not TOML, an unknown key, a check that asks for nothing, a bad pattern, an id
            that no check has; with file, line and what to do.
    """
    if len(text) > MAX_CHARS:
        raise ConfigError("tuning checks: the file is too long", path=path, hint="at most 1 MiB")
    try:
        written = toml.decode(text, _Written)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise _explained(error, text, path) from error
    expected = {name: str(value) for name, value in written.expected.items()}
    custom = Custom(written.checks, written.waivers, expected, written.use)
    if len(custom.checks) > MAX_CHECKS:
        raise ConfigError(
            f"tuning checks: {len(custom.checks)} checks", path=path, hint=f"at most {MAX_CHECKS}"
        )
    seen: set[str] = set(known)
    for place, check in enumerate(custom.checks):
        line = _line(text, "checks", place, "id")
        if check.id in seen:
            raise ConfigError(
                f"check id {check.id!r} is there twice", path=path, line=line, hint="rename one"
            )
        seen.add(check.id)
        _validate(check, path, line)
    for place, waiver in enumerate(custom.waivers):
        line = _line(text, "waivers", place, "check")
        if not waiver.reason.strip():
            raise ConfigError(
                f"waiver of {waiver.check} gives no reason",
                path=path,
                line=line,
                hint="say why, and for whom",
            )
        known_check(waiver.check, seen, path, line)
    for name in custom.expected:
        known_check(name, seen, path, _line(text, "expected", 0, name))
    return custom


def known_check(id_: str, own: Collection[str], path: Path | None, line: int | None) -> None:
    """A typing error in an id would be a waiver that never waives."""
    rule = re.split(r"[\[@]", id_, maxsplit=1)[0]
    if rule in own or rule in entries():
        return
    near = difflib.get_close_matches(rule, [*entries(), *own], n=3)
    hint = f"near: {', '.join(near)}" if near else "`gpuroom tuning list` names all"
    raise ConfigError(f"no check {rule[:60]!r}", path=path, line=line, hint=hint)


def _explained(error: Exception, text: str, path: Path | None) -> ConfigError:
    """The library's words, with the line they speak of and what would be right."""
    words = str(error)
    if at := _AT_LINE.search(words):
        told = _AT_LINE.sub("", words)
        return ConfigError(
            f"tuning checks: {told}", path=path, line=int(at[1]), hint="this is not TOML"
        )
    place = _PLACE.search(words)
    unknown_key = re.search(r"unknown field `([^`]+)`", words)
    line = None
    fields: Sequence[str] = Custom.__struct_fields__
    if place is not None:
        index = int(place["index"]) if (place["index"] or "").isdecimal() else 0
        key = unknown_key[1] if unknown_key else place["key"] or ""
        line = _line(text, place["table"], index, key) or _line(text, "", 0, place["table"])
        fields = {"checks": CustomCheck, "waivers": Waiver}.get(
            place["table"], Custom
        ).__struct_fields__
    elif unknown_key:
        line = _line(text, "", 0, unknown_key[1])
    hint = ""
    if unknown_key:
        near = difflib.get_close_matches(unknown_key[1], fields, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(fields)}"
    elif missing := re.search(r"missing required field `([^`]+)`", words):
        hint = f"add {missing[1]} = ..."
    told = words.partition(" - at `")[0]
    where = f" in {place[0].removeprefix('$.')}" if place else ""
    return ConfigError(f"tuning checks: {told}{where}", path=path, line=line, hint=hint)


def _line(text: str, table: str, index: int, key: str) -> int | None:
    """The line of a key in the `index`-th table of that name; of its heading without the key."""
    met = -1
    heading = None
    for number, row in enumerate(text.split("\n"), 1):
        if match := re.match(r"\s*\[{1,2}\s*[\"']?(\w+)", row):
            if heading is not None:
                break
            met += match[1] == table
            heading = number if match[1] == table and met == index else None
        named = re.match(r"\s*[\"']?([\w.\[\]:]+?)[\"']?\s*=", row)
        if named and key and named[1] == key and (heading is not None or not table):
            return number
        if not table and row.lstrip().startswith("[") and key in row:
            return number
    return heading


def _validate(check: CustomCheck, path: Path | None, line: int | None) -> None:
    def wrong(title: str, hint: str) -> ConfigError:
        return ConfigError(title, path=path, line=line, hint=hint)

    if not re.fullmatch(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)+", check.id):
        raise wrong(f"check id {check.id[:60]!r} is not of the form group.name", "site.my_check")
    if check.id in entries():
        raise wrong(
            f"check id {check.id!r} is one of gpuroom's own", "choose another, or waive that one"
        )
    if not re.fullmatch(r"[\w/.:@+,-]{1,512}", check.reads) or "/../" in check.reads:
        raise wrong(
            f"check {check.id}: reads {check.reads[:60]!r} is neither a path nor a fact's name",
            "an absolute path, or a key that `gpuroom facts HOST` prints",
        )
    wanted = (check.equals, check.one_of, check.matches, check.minimum, check.maximum)
    if all(value is None for value in wanted):
        raise wrong(
            f"check {check.id} does not say what the value must be",
            "one of: equals, one_of, matches, minimum, maximum",
        )
    if check.matches is not None:
        if len(check.matches) > 200 or _NESTED.search(check.matches):
            raise wrong(
                f"check {check.id}: pattern too long, or a repetition of a repetition",
                "at most 200 characters, no (a+)+",
            )
        try:
            re.compile(check.matches)
        except re.error as error:
            raise wrong(f"check {check.id}: pattern: {error}", "a regular expression") from error
    if check.fix is not None and check.fix.write and "\n" in check.fix.write.strip():
        raise wrong(f"check {check.id}: fix writes several lines", "one value for one file")


def custom_probes(checks: Sequence[CustomCheck]) -> tuple[Probe, ...]:
    """What has to be read besides the table for checks that name a file."""
    paths = dict.fromkeys(check.reads for check in checks if check.reads.startswith("/"))
    known = {probe.target for probe in PROBES}
    return tuple(
        Probe(ProbeKind.FILE, path, root=True, limit_bytes=4096)
        for path in paths
        if path not in known
    )


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
        wants=_wanted(check),
        not_applicable="",
        why=check.why,
        fix=check.fix.text if check.fix else "",
        persist="",
        undo="",
        sources=[check.source] if check.source else [],
        group=OWN_GROUP,
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
    """Mark accepted findings; a waiver past its end waives nothing, and is spoken of."""
    if not waivers or not today:
        return list(findings)
    by_check = {w.check: w for w in sorted(waivers, key=lambda w: w.until)}
    result = []
    for finding in findings:
        names = (finding.check, finding.whole, finding.rule)
        waiver = next((by_check[name] for name in names if name in by_check), None)
        if waiver is None or finding.verdict not in (Verdict.FAIL, Verdict.WARN):
            result.append(finding)
        elif waiver.until.isoformat() >= today:
            by = f", {waiver.by}" if waiver.by else ""
            reason = f"{waiver.reason} (until {waiver.until.isoformat()}{by})"
            result.append(replace(finding, waived=reason))
        else:
            ended = f"its waiver ended {waiver.until.isoformat()}: {waiver.reason}"
            hint = f"{finding.hint}; {ended}" if finding.hint else ended
            result.append(replace(finding, hint=hint))
    return result
