"""What a rule is: a pure function from a view of the facts to judgements, and when it applies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from backends.tuning.context import Context, Gpu, Kind
from backends.tuning.findings import Columns, Judgement, Verdict
from backends.tuning.fixes import Fix
from backends.tuning.gpus import Generation
from backends.tuning.profiles import Profile
from backends.tuning.view import View


@dataclass(frozen=True, slots=True)
class Scene:
    """What a rule is given.

    Attributes:
        view: The facts of the vantage that is judged.
        context: What kind of machine they come from.
        profile: Thresholds that are ours.
        other: The other vantage's facts: the hypervisor's for a guest, the guest's for a host.
        expected: Values the operator set (`gpu.count = 8`), by check id.
        use: What the host is for: any, dedicated, shared or vm_passthrough.
    """

    view: View
    context: Context
    profile: Profile
    other: View | None = None
    expected: Mapping[str, str] = field(default_factory=dict)
    use: str = "any"

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that the facts know."""
        return self.context.gpus


Judgements: TypeAlias = Iterator[Judgement]
Check: TypeAlias = Callable[[Scene], Judgements]


@dataclass(frozen=True, slots=True)
class Applies:
    """Where a rule makes sense; what is not known never excludes it."""

    kinds: frozenset[Kind] = frozenset()
    vendors: frozenset[str] = frozenset()
    min_nodes: int = 0
    min_gpus: int = 0
    generations: frozenset[Generation] = frozenset()
    rdma: bool = False

    def objection(self, context: Context) -> str:
        """Why the rule does not apply, empty when it does or may."""
        if self.kinds and context.kind is not Kind.UNKNOWN and context.kind not in self.kinds:
            return f"this is a {context.kind.value}"
        if self.vendors and context.cpu_vendor and context.cpu_vendor not in self.vendors:
            return f"the CPU is of {context.cpu_vendor}"
        if context.nodes is not None and context.nodes < self.min_nodes:
            return f"{context.nodes} NUMA node{'s' if context.nodes != 1 else ''}"
        if context.gpu_count is not None and context.gpu_count < self.min_gpus:
            return f"{context.gpu_count} GPU{'s' if context.gpu_count != 1 else ''}"
        if (
            self.generations
            and context.gpus
            and all(gpu.generation for gpu in context.gpus)
            and not context.generations & self.generations
        ):
            return "no GPU of a generation that has it"
        if self.rdma and context.rdma is False:
            return "no RDMA network card"
        return ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One check: its id in the catalogue, where it applies, how it is judged."""

    id: str
    applies: Applies
    check: Check


def rule(
    id_: str,
    *,
    kinds: tuple[Kind, ...] = (),
    vendors: tuple[str, ...] = (),
    min_nodes: int = 0,
    min_gpus: int = 0,
    generations: tuple[Generation, ...] = (),
    rdma: bool = False,
) -> Callable[[Check], Rule]:
    """Turn a function into the rule of the catalogue's entry `id_`."""
    applies = Applies(
        frozenset(kinds), frozenset(vendors), min_nodes, min_gpus, frozenset(generations), rdma
    )
    return lambda check: Rule(id_, applies, check)


def collect(namespace: Mapping[str, object]) -> tuple[Rule, ...]:
    """All rules of a module, in the order they are written."""
    return tuple(value for value in namespace.values() if isinstance(value, Rule))


def passed(evidence: str, instance: str = "", *, columns: Columns | None = None) -> Judgement:
    """It was looked at and is right."""
    return Judgement(Verdict.PASS, evidence, instance, columns=columns)


def warned(
    evidence: str,
    instance: str = "",
    *,
    fix: Fix | None = None,
    columns: Columns | None = None,
    hint: str = "",
) -> Judgement:
    """It costs something, or will."""
    return Judgement(Verdict.WARN, evidence, instance, fix, columns, hint)


def failed(
    evidence: str,
    instance: str = "",
    *,
    fix: Fix | None = None,
    columns: Columns | None = None,
    hint: str = "",
) -> Judgement:
    """It is wrong."""
    return Judgement(Verdict.FAIL, evidence, instance, fix, columns, hint)


def info(
    evidence: str,
    instance: str = "",
    *,
    fix: Fix | None = None,
    columns: Columns | None = None,
    hint: str = "",
    experiment: bool = False,
) -> Judgement:
    """A recorded choice, or an experiment that may be tried."""
    return Judgement(Verdict.INFO, evidence, instance, fix, columns, hint, experiment)


def not_applicable(evidence: str, instance: str = "", *, fix: Fix | None = None) -> Judgement:
    """It makes no sense here."""
    return Judgement(Verdict.NOT_APPLICABLE, evidence, instance, fix)


def unknown(evidence: str, instance: str = "", *, hint: str = "") -> Judgement:
    """It applies, and what is needed is not at hand."""
    return Judgement(Verdict.UNKNOWN, evidence, instance, hint=hint)


def inconclusive(evidence: str, instance: str = "", *, hint: str = "") -> Judgement:
    """It needs a measurement under load."""
    return Judgement(Verdict.INCONCLUSIVE, evidence, instance, hint=hint)
