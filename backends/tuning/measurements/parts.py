"""What can be measured, as data: how long it takes, and which checks it answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from backends.errors import UsageError
from backends.tuning.findings import Finding, Verdict

LOAD_S: Final = 12.0
"""Of the load beside which links and clocks are read: `pcie.link_flap` wants ten seconds."""

BUSY_S: Final = 60.0
"""Of the load beside which errors and throttling are counted."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that can be measured.

    Attributes:
        name: As an operator names it.
        what: In words.
        answers: Checks whose INCONCLUSIVE or missing verdict it settles.
        gpu: Whether it works the GPUs, so that nothing may hold them.
        slow: Left out unless it is asked for by name.
    """

    name: str
    what: str
    answers: tuple[str, ...]
    gpu: bool = True
    slow: bool = False


PARTS: Final[tuple[Part, ...]] = (
    Part("wakeup", "wake-up latency of a CPU", ("bench.wakeup", "cpu.cstates"), gpu=False),
    Part("read", "reading the largest file at --path", ("fs.readahead",), gpu=False),
    Part(
        "link",
        "links, clocks and limits under a short load",
        ("pcie.link_gen", "pcie.link_width", "pcie.link_flap", "gpu.clocks", "gpu.throttle"),
    ),
    Part(
        "busy",
        "link errors and heat under a minute of load on GPUs and CPUs",
        ("pcie.replay", "cpu.thermal"),
        slow=True,
    ),
    Part("copies", "copies between host and GPU, near and far", ("bench.h2d",)),
    Part("memory", "bandwidth of the GPU's memory", ("bench.membw",)),
    Part("launch", "what a kernel launch costs", ()),
    Part("pairs", "copies between GPUs", ("bench.p2p", "numa.interconnect", "gpu.p2p_copy")),
    Part("matmul", "a bf16 matrix product", ()),
    Part("allreduce", "all-reduces over all GPUs, by size", ("bench.allreduce",)),
)
BY_NAME: Final = {part.name: part for part in PARTS}


def chosen(names: Sequence[str]) -> tuple[Part, ...]:
    """The parts of these names, in their own order; all that are not slow where none is named.

    A check's id names the parts that answer it.

    Raises:
        UsageError: A name is neither.
    """
    if not names:
        return tuple(part for part in PARTS if not part.slow)
    wanted: set[str] = set()
    for name in names:
        found = {part.name for part in PARTS if name in (part.name, *part.answers)}
        if not found:
            known = ", ".join(BY_NAME)
            raise UsageError(f"nothing to measure is called {name!r}", hint=f"there is {known}")
        wanted |= found
    return tuple(part for part in PARTS if part.name in wanted)


def settling(findings: Iterable[Finding]) -> tuple[Part, ...]:
    """The parts that can settle what is INCONCLUSIVE in these findings."""
    open_rules = {f.rule for f in findings if f.verdict is Verdict.INCONCLUSIVE}
    return tuple(part for part in PARTS if open_rules & set(part.answers))


TRIED_WITH: Final = {
    "pcie.": ("copies", "pairs", "launch"),
    "pcie.mrrs": ("copies", "pairs"),
    "pcie.relaxed_ordering": ("copies", "pairs"),
    "pcie.tag10": ("copies", "pairs"),
    "pcie.acs": ("pairs",),
    "pcie.aspm": ("launch", "copies", "pairs"),
    "cpu.": ("wakeup", "launch"),
    "numa.": ("copies", "wakeup", "launch"),
    "kernel.": ("launch", "copies", "wakeup"),
    "kernel.thp": ("launch", "copies", "read"),
    "kernel.iommu": ("copies", "pairs"),
    "fs.": ("read",),
    "gpu.": ("memory", "matmul", "launch", "copies"),
    "vm.": ("copies", "read", "wakeup"),
}
"""Which measurement shows what a fix does: by check, or by the beginning of its name."""


NOT_MEASURED: Final = {
    "cpu.quota": "throttling shows under the server's own load: run a benchmark before and after "
    "(`gpuroom bench`); between two readings meanwhile nr_throttled in cpu.stat must not rise",
    "net.": "what it does shows between hosts or clients, and nothing here is measured over the "
    "network: run a benchmark from the clients' side before and after",
}
"""Checks that no part shows anything of, and what does."""


def not_measured(check: str) -> str:
    """Why no part can show what a fix of this check does; empty where one can."""
    return next((why for name, why in NOT_MEASURED.items() if check.startswith(name)), "")


def suited(check: str) -> tuple[Part, ...]:
    """The parts that an experiment with this check is measured by; the closest name counts."""
    near = [name for name in TRIED_WITH if check == name or check.startswith(name)]
    names = TRIED_WITH[max(near, key=len)] if near else ("wakeup", "launch", "copies")
    return tuple(part for part in PARTS if part.name in names)
