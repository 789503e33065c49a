"""Findings as text, Markdown, JSON and SARIF, and the exit status they amount to. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from backends.tuning.catalogue import GROUPS
from backends.tuning.custom import OWN_GROUP
from backends.tuning.findings import (
    SEVEREST_FIRST,
    WORST_FIRST,
    Finding,
    Severity,
    Verdict,
)
from backends.tuning.fixes import Command, Fix, InstallFile, RemoveFile, Step, Write

EXIT_OK: Final = 0
EXIT_WARN: Final = 10
EXIT_FAIL: Final = 20
EXIT_CRITICAL: Final = 30

WRONG: Final = (Verdict.FAIL, Verdict.WARN)
Json = Mapping[str, object]


def exit_code(findings: Iterable[Finding]) -> int:
    """0 for nothing wrong, 10 for warnings, 20 for failures, 30 for critical ones.

    Waived findings, and symptoms of a cause that is listed, do not count. INFO, UNKNOWN and
    INCONCLUSIVE give 0: they are no faults, though no pass either.
    """
    code = EXIT_OK
    for finding in findings:
        if finding.waived or finding.cause:
            continue
        if finding.verdict is Verdict.FAIL:
            severe = finding.severity is Severity.CRITICAL
            code = max(code, EXIT_CRITICAL if severe else EXIT_FAIL)
        elif finding.verdict is Verdict.WARN:
            code = max(code, EXIT_WARN)
    return code


def by_worth(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first, then the severest: the order in which they are worth looking at."""
    return sorted(
        findings,
        key=lambda f: (WORST_FIRST.index(f.verdict), SEVEREST_FIRST.index(f.severity)),
    )


def counts(findings: Iterable[Finding]) -> Counter[Verdict]:
    """How many checks came to each verdict; instances count once, what is waived not at all."""
    counted = (f for f in findings if not f.part and not f.cause and not f.waived)
    return Counter(f.verdict for f in counted)


def waived(findings: Iterable[Finding]) -> list[Finding]:
    """What is wrong and was accepted."""
    return [f for f in findings if f.waived and not f.part and not f.cause]


def to_json(findings: Sequence[Finding]) -> bytes:
    """A JSON list: `check`, `verdict`, `evidence`, `fix` and what else a program may want."""
    return (
        msgspec.json.format(msgspec.json.encode([as_dict(f) for f in findings]), indent=2) + b"\n"
    )


def as_dict(finding: Finding) -> Json:
    """One finding for JSON."""
    result: dict[str, object] = {
        "check": finding.check,
        "verdict": finding.verdict.value,
        "evidence": finding.evidence,
        "fix": finding.fix_text or None,
        "title": finding.title,
        "group": finding.group,
        "severity": finding.severity.value,
        "vantage": finding.vantage,
        "why": finding.why,
        "sources": list(finding.sources),
    }
    if finding.instance:
        result["instance"] = finding.instance
    if finding.hint:
        result["hint"] = finding.hint
    if finding.cause:
        result["cause"] = finding.cause
    if finding.experiment:
        result["experiment"] = True
        if finding.trial:
            result["trial"] = finding.trial
    if finding.waived:
        result["waived"] = finding.waived
    if finding.columns:
        result["columns"] = {
            "running": finding.columns.running,
            "configured": finding.columns.configured,
            "effective": finding.columns.effective,
        }
    if finding.fix is not None:
        result["fix_plan"] = fix_as_dict(finding.fix)
    return result


def fix_as_dict(fix: Fix) -> Json:
    """A fix for JSON."""
    return {
        "summary": fix.summary,
        "target": fix.target.value,
        "risk": fix.risk.value,
        "reboot": fix.reboot,
        "restarts": fix.restarts,
        "manual": fix.manual,
        "undo": fix.undo,
        "runtime": [_step(step) for step in fix.runtime],
        "persistent": [_step(step) for step in fix.persistent],
    }


def _step(step: Step) -> Json:
    if isinstance(step, Write):
        return {"write": step.path, "value": step.value}
    if isinstance(step, Command):
        return {"run": list(step.argv), "undo": list(step.undo)}
    if isinstance(step, InstallFile):
        return {"install": step.path, "content": step.content, "mode": f"{step.mode:04o}"}
    if isinstance(step, RemoveFile):
        return {"remove": step.path}
    return {
        "edit": step.path,
        "planner": step.planner,
        "arguments": [list(a) for a in step.arguments],
    }


def step_text(step: Step) -> str:
    """What a step does, in one line."""
    if isinstance(step, Write):
        return f"write {step.value!r} to {step.path}"
    if isinstance(step, Command):
        return "run " + " ".join(step.argv)
    if isinstance(step, InstallFile):
        return f"install {step.path} ({len(step.content)} bytes)"
    if isinstance(step, RemoveFile):
        return f"remove {step.path}"
    told = ", ".join("=".join(pair) if pair[0] else pair[1] for pair in step.arguments)
    return f"edit {step.path or 'the boot loader'}: {told}"


def to_text(findings: Sequence[Finding], *, every: bool = False) -> str:
    """A table for people: worst first; what passed only as a number unless `every`."""
    lines = []
    quiet = (Verdict.PASS, Verdict.NOT_APPLICABLE)
    for finding in by_worth(findings):
        if not every and (finding.verdict in quiet or finding.cause):
            continue
        if finding.part and finding.verdict in quiet:
            continue
        note = f" (waived: {finding.waived})" if finding.waived else ""
        lines.append(f"{finding.verdict.value:<12}  {finding.check}{note}: {finding.evidence}")
        if finding.cause:
            lines.append(f"{'':<14}because of {finding.cause}")
        if finding.trial:
            lines.append(f"{'':<14}{trial_text(finding)}")
        elif finding.fix_text and finding.verdict not in quiet:
            lines.append(f"{'':<14}fix: {finding.fix_text}")
        if finding.hint:
            lines.append(f"{'':<14}{finding.hint}")
        symptoms = [f.check for f in findings if f.cause == finding.rule and not f.part]
        if symptoms and not finding.part:
            lines.append(f"{'':<14}explains: {', '.join(symptoms)}")
    tried = {f.rule: f for f in findings if f.trial and f.verdict is Verdict.PASS and not every}
    lines += [f"{'':<14}{trial_text(finding)}" for finding in tried.values()]
    lines.append(summary(findings))
    return "\n".join(lines) + "\n"


def trial_text(finding: Finding) -> str:
    """What may be tried, and how."""
    return f"to be tried: {finding.trial} (`experiment {finding.rule}`)"


def summary(findings: Iterable[Finding]) -> str:
    """`2 FAIL, 3 WARN, 40 PASS`, worst first."""
    findings = list(findings)
    counted = counts(findings)
    parts = [f"{counted[verdict]} {verdict.value}" for verdict in WORST_FIRST if counted[verdict]]
    accepted = len(waived(findings))
    parts += [f"{accepted} waived"] if accepted else []
    return ", ".join(parts) or "nothing was recognised"


def to_markdown(findings: Sequence[Finding], title: str = "Tuning") -> str:
    """A document for colleagues: what is wrong first, then all by group."""
    lines = [f"# {escaped(title)}", "", summary(findings), ""]
    wrong = [f for f in by_worth(findings) if f.verdict in WRONG and not f.cause and not f.part]
    if wrong:
        lines += ["## What to do, by worth", ""]
        for finding in wrong:
            waived = f" *(waived: {escaped(finding.waived)})*" if finding.waived else ""
            evidence = escaped(finding.evidence) + waived
            lines.append(f"- **{finding.verdict.value}** `{finding.check}`: {evidence}")
            lines.append(f"  - why: {escaped(finding.why)}")
            if finding.fix_text:
                lines.append(f"  - fix: {escaped(finding.fix_text)}")
            symptoms = [f.check for f in findings if f.cause == finding.rule]
            if symptoms:
                lines.append(f"  - explains: {', '.join(f'`{s}`' for s in symptoms)}")
            lines.extend(f"  - source: <{url}>" for url in finding.sources[:2])
        lines.append("")
    for group, heading in {**GROUPS, OWN_GROUP: "Your own checks"}.items():
        rows = [f for f in findings if f.group == group]
        if rows:
            lines += [f"## {heading}", "", "| check | verdict | evidence |", "| --- | --- | --- |"]
            lines += [f"| `{f.check}` | {f.verdict.value} | {escaped(f.evidence)} |" for f in rows]
            lines.append("")
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    for char in "\\`*_[]<>|#":
        text = text.replace(char, "\\" + char)
    return text.replace("\n", " ")


_LEVELS: Final = {Verdict.FAIL: "error", Verdict.WARN: "warning"}


def to_sarif(findings: Sequence[Finding], host: str = "") -> bytes:
    """SARIF 2.1.0, for continuous integration."""
    rules: dict[str, object] = {}
    results = []
    for finding in findings:
        rules.setdefault(finding.rule, _sarif_rule(finding))
        text = f"{finding.check}: {finding.evidence}"
        if finding.fix_text and finding.verdict in WRONG:
            text += f". Fix: {finding.fix_text}"
        result: dict[str, object] = {
            "ruleId": finding.rule,
            "ruleIndex": list(rules).index(finding.rule),
            "level": _LEVELS.get(finding.verdict, "none"),
            "kind": _kind(finding.verdict),
            "message": {"text": text},
            "locations": [
                {
                    "logicalLocations": [
                        {
                            "name": host or finding.vantage,
                            "fullyQualifiedName": f"{host or 'host'}/{finding.check}",
                            "kind": "resource",
                        }
                    ]
                }
            ],
            "partialFingerprints": {"check/v1": f"{host or 'host'}/{finding.check}"},
            "properties": {"severity": finding.severity.value, "vantage": finding.vantage},
        }
        if finding.waived:
            result["suppressions"] = [{"kind": "external", "justification": finding.waived}]
        results.append(result)
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "gpuroom", "rules": list(rules.values())}},
                "columnKind": "utf16CodeUnits",
                "results": results,
            }
        ],
    }
    return msgspec.json.format(msgspec.json.encode(log), indent=2) + b"\n"


def _sarif_rule(finding: Finding) -> Json:
    rule: dict[str, object] = {
        "id": finding.rule,
        "name": "".join(part.title() for part in re.split(r"[._]", finding.rule)),
        "shortDescription": {"text": finding.title},
        "fullDescription": {"text": finding.why or finding.title},
        "properties": {"tags": [finding.group, finding.severity.value]},
    }
    if finding.fix_text:
        rule["help"] = {"text": finding.fix_text}
    if finding.sources and finding.sources[0].startswith("http"):
        rule["helpUri"] = finding.sources[0]
    return rule


def _kind(verdict: Verdict) -> str:
    return {
        Verdict.FAIL: "fail",
        Verdict.WARN: "fail",
        Verdict.PASS: "pass",
        Verdict.NOT_APPLICABLE: "notApplicable",
        Verdict.INFO: "informational",
    }.get(verdict, "open")
