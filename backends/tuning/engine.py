"""From a facts document to findings: every rule, on each vantage it can be judged from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from backends.tuning import causes, context, states
from backends.tuning.catalogue import Entry, entries
from backends.tuning.context import Kind
from backends.tuning.custom import CustomCheck, Use, Waiver, custom_entry, custom_rule, waive
from backends.tuning.facts import FactsDocument, Vantage
from backends.tuning.findings import Columns, Finding, Judgement, Verdict, worst
from backends.tuning.fixes import Target
from backends.tuning.normalise import normalise
from backends.tuning.profiles import Profile, load
from backends.tuning.rules import all_rules
from backends.tuning.rules.base import Rule, Scene, not_applicable, unknown
from backends.tuning.view import FactTable, View

OF_GPUS: Final = frozenset({"gpu", "cuda", "pcie", "virt"})
"""Groups of checks that speak of GPUs alone."""
NAMED_BELOW: Final = 'hypervisor = "NAME", container = ID in this host\'s configuration'
"""The line that lets a guest's hypervisor be read beside it (`backends.config.Host`)."""
OF_ANY_MACHINE: Final = frozenset({"virt.kind", "parse.devices"})
"""Checks of those groups that do not."""


@dataclass(frozen=True, slots=True)
class Options:
    """How facts are judged.

    Attributes:
        profile: Thresholds that are ours.
        only_touched: Leave out checks of which nothing was read; right for pasted extracts.
        checks: The operator's own checks.
        waivers: Findings the operator has accepted, with reason and end.
        expected: Values set by the operator, by check id.
        today: ISO date, against which waivers run out; empty means that none is in force.
        only: Ids to judge; all when empty.
        use: What the host is for; some rules depend on it.
    """

    profile: Profile = field(default_factory=load)
    only_touched: bool = False
    checks: Sequence[CustomCheck] = ()
    waivers: Sequence[Waiver] = ()
    expected: Mapping[str, str] = field(default_factory=dict)
    today: str = ""
    only: frozenset[str] = frozenset()
    use: Use = "any"


def evaluate(document: FactsDocument, options: Options | None = None) -> list[Finding]:
    """Judge a host (and its hypervisor, when both are in the document).

    Findings come in the order of the catalogue. A rule that judges several devices gives one
    finding for all of them, with the worst verdict, and one for each.
    """
    options = options or Options()
    facts = normalise(document).facts if not document.derived else document.facts
    seen = [v for v in Vantage if any(f.vantage is v for f in facts)] or [Vantage.HOST]
    tables = {v: FactTable(f for f in facts if f.vantage is v) for v in seen}
    views = {vantage: View(table, vantage) for vantage, table in tables.items()}
    contexts = {vantage: context.build(view) for vantage, view in views.items()}
    if options.use == "vm_passthrough":
        contexts = {v: replace(ctx, vm_host=True) for v, ctx in contexts.items()}
    catalogue = dict(entries())
    rules = list(all_rules())
    for check in options.checks:
        entry = custom_entry(check)
        catalogue[entry.id] = entry
        rules.append(custom_rule(check))
    findings: list[Finding] = []
    for rule in rules:
        if options.only and rule.id not in options.only:
            continue
        judged: list[tuple[Vantage, list[Finding]]] = []
        for vantage, view in views.items():
            other = views.get(Vantage.GUEST if vantage is Vantage.HOST else Vantage.HOST)
            scene = Scene(
                view, contexts[vantage], options.profile, other, options.expected, options.use
            )
            found = _judge(rule, catalogue[rule.id], scene)
            if not options.only_touched or any(finding.touched for finding in found):
                judged.append((vantage, found))
        findings.extend(_join(judged))
    findings = causes.name_root_causes(findings)
    return waive(findings, options.waivers, options.today)


def _join(judged: Sequence[tuple[Vantage, list[Finding]]]) -> Iterable[Finding]:
    """One list out of the vantages; a vantage that saw nothing yields to the one that did."""
    seen = [(vantage, found) for vantage, found in judged if any(f.touched for f in found)]
    kept = seen or judged[:1]
    for vantage, found in kept:
        suffix = f"@{vantage.value}" if len(kept) > 1 else ""
        for finding in found:
            yield replace(finding, check=finding.check + suffix) if suffix else finding


def _judge(rule: Rule, entry: Entry, scene: Scene) -> list[Finding]:
    view = scene.view
    view.drain()
    view.take_touched()
    objection = rule.applies.objection(scene.context)
    of_gpus = entry.group in OF_GPUS and entry.id not in OF_ANY_MACHINE
    if not objection and scene.context.no_gpu and of_gpus:
        objection = "no GPU on this host's bus"
    judged = [(judgement, view.drain()) for judgement in rule.check(scene)]
    touched = view.take_touched()
    judged = [(not_applicable(objection), ())] if objection else _elsewhere(entry, scene, judged)
    if not judged:
        why = f"not read: {entry.reads}" if entry.reads else "not read"
        judged = [(unknown(why, hint=_how(entry)), ())]
        touched = False
    # One instance alone is the check itself.
    alone = len(judged) == 1
    findings = [_finding(entry, scene, j, used, touched, alone=alone) for j, used in judged]
    return findings if alone else [_summary(entry, findings), *findings]


def _elsewhere(
    entry: Entry, scene: Scene, judged: list[tuple[Judgement, tuple[str, ...]]]
) -> list[tuple[Judgement, tuple[str, ...]]]:
    """What a guest may say about things that belong to the machine below it."""
    kind = scene.context.kind
    mode = entry.in_vm if kind is Kind.VM else entry.in_container
    if not scene.context.guest or mode == "judge":
        if scene.context.container and entry.where != "guest":
            return [(_on_the_host(j), used) for j, used in judged]
        return judged
    if mode == "na":
        return [(not_applicable(f"in a {kind.value} only the host below has this"), ())]
    shown = "" if scene.other is not None else f", or have it read too with {NAMED_BELOW}"
    return [
        (
            unknown(
                f"not visible from inside a {kind.value}",
                hint=f"ask the host below{shown}: {entry.reads}",
            ),
            (),
        )
    ]


def _on_the_host(judgement: Judgement) -> Judgement:
    """A container shares its host's kernel: kernel settings are changed there."""
    if judgement.fix is None or judgement.fix.target is Target.GUEST:
        return judgement
    return replace(
        judgement,
        hint=judgement.hint
        or "a container has its host's kernel: this is changed on the host below",
    )


def _how(entry: Entry) -> str:
    return {"none": "", "root": "needs root", "sys_admin": "needs CAP_SYS_ADMIN on the host"}[
        entry.needs
    ]


def _finding(
    entry: Entry,
    scene: Scene,
    judgement: Judgement,
    used: tuple[str, ...],
    touched: bool,
    *,
    alone: bool,
) -> Finding:
    instance = "" if alone else judgement.instance
    check = f"{entry.id}[{instance}]" if instance else entry.id
    return Finding(
        check=check,
        rule=entry.id,
        title=entry.title,
        group=entry.group,
        verdict=judgement.verdict,
        severity=entry.severity,
        evidence=judgement.evidence,
        vantage=scene.view.vantage.value,
        why=entry.why,
        sources=tuple(entry.sources),
        instance=judgement.instance,
        fix=judgement.fix,
        fix_text=_fix_text(entry, judgement),
        columns=judgement.columns or _columns(entry, scene, judgement, used),
        hint=judgement.hint,
        experiment=judgement.experiment,
        cause=judgement.cause,
        rests_on=used,
        touched=touched,
        wants=entry.wants or entry.expects,
    )


def _columns(
    entry: Entry, scene: Scene, judgement: Judgement, used: tuple[str, ...]
) -> Columns | None:
    if judgement.verdict in (Verdict.NOT_APPLICABLE, Verdict.UNKNOWN):
        return None
    return states.columns(entry.id, scene.view, used, judgement.evidence)


def _fix_text(entry: Entry, judgement: Judgement) -> str:
    if judgement.verdict is Verdict.PASS:
        return ""  # A trial may go with it; there is nothing to put right.
    if judgement.fix is not None:
        return judgement.fix.summary
    if judgement.verdict in (Verdict.FAIL, Verdict.WARN):
        lasting = f"; to last: {entry.persist}" if entry.persist[:1] not in ("", "—") else ""
        return entry.fix + lasting
    return ""


def _summary(entry: Entry, findings: Sequence[Finding]) -> Finding:
    """One finding for all instances of a check."""
    verdict = worst(finding.verdict for finding in findings)
    of_it = [finding for finding in findings if finding.verdict is verdict]
    first = of_it[0]
    total = len(findings)
    count = f"{len(of_it)} of {total}" if len(of_it) < total else f"all {total}"
    used = tuple(dict.fromkeys(key for finding in findings for key in finding.rests_on))
    return replace(
        first,
        check=entry.id,
        instance="",
        evidence=f"{count}: {first.instance or first.check}: {first.evidence}",
        rests_on=used,
    )
