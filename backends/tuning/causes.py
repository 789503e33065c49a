"""A fault shows in several checks; its root cause is named once.

Symptoms keep their verdict and evidence, and point to the finding that explains them, so that
lists, counts and exit codes speak of the cause alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from backends.tuning.findings import WORST_FIRST, Finding, Verdict

BAD: Final = (Verdict.FAIL, Verdict.WARN)

CAUSES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    # symptom: (cause, words that the symptom's evidence must contain; empty for any)
    "virt.dev_nodes": (("virt.lxc_majors", ""),),
    "virt.lxc_devn": (("virt.lxc_majors", ""),),
    "cuda.uvm_node": (
        ("virt.lxc_majors", ""),
        ("virt.container_cgroup", "EPERM"),
        ("virt.dev_nodes", ""),
    ),
    "cuda.init": (
        ("gpu.driver_match", "803"),
        ("gpu.fabric_manager", "802"),
        ("cuda.compat_lib", "80"),
        ("virt.lxc_majors", "999"),
        ("virt.container_cgroup", "999"),
        ("virt.dev_nodes", "999"),
        ("cuda.uvm_node", "999"),
    ),
    "cuda.count": (("virt.lxc_majors", ""), ("cuda.init", "")),
    "gpu.gsp": (("gpu.xid", "Xid"),),
    "pcie.bar1": (("kernel.pci_alloc", "not placed"),),
    "svc.persistenced": (("gpu.persistence", ""),),
}
"""Which finding explains which, the nearest cause first."""


def name_root_causes(findings: Sequence[Finding]) -> list[Finding]:
    """`findings`, each symptom with the id of the finding that is behind it."""
    worst: dict[str, Verdict] = {}
    for finding in findings:
        known = worst.get(finding.rule, Verdict.PASS)
        if WORST_FIRST.index(finding.verdict) < WORST_FIRST.index(known):
            worst[finding.rule] = finding.verdict
    result = []
    for finding in findings:
        cause = finding.cause
        if not cause and finding.verdict in BAD:
            cause = next(
                (
                    rule
                    for rule, words in CAUSES.get(finding.rule, ())
                    if words in finding.evidence and _explains(worst.get(rule), finding.verdict)
                ),
                "",
            )
        result.append(replace(finding, cause=cause) if cause != finding.cause else finding)
    return result


def _explains(cause: Verdict | None, symptom: Verdict) -> bool:
    """Whether a finding is bad enough to be behind another."""
    return cause in BAD and WORST_FIRST.index(cause) <= WORST_FIRST.index(symptom)
