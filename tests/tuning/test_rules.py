"""Every rule on facts that are right, wrong and none, and on facts that were lost or garbled."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from backends.tuning.catalogue import GROUPS, entries
from backends.tuning.engine import Options, evaluate
from backends.tuning.facts import Fact, FactsDocument
from backends.tuning.findings import Finding, Verdict
from backends.tuning.rules import all_rules
from tests.tuning.cases import CASES, Case, Facts, document

GARBAGE = ("", "garbage", "N/A", "Unknown Error", "-", "\u0007", "9" * 40, "[Not Supported]")


def find(facts: FactsDocument, rule: str, expected: Mapping[str, str]) -> Finding:
    findings = evaluate(facts, Options(only=frozenset({rule}), expected=expected))
    return next(f for f in findings if f.check.partition("@")[0] == rule)


def test_every_rule_has_a_text_and_every_text_a_rule() -> None:
    ids = [rule.id for rule in all_rules()]
    assert sorted(ids) == sorted(entries())
    assert len(ids) == len(set(ids)) >= 138


def test_every_rule_is_in_the_table() -> None:
    assert sorted(CASES) == sorted(rule.id for rule in all_rules())


def test_every_text_is_complete() -> None:
    for entry in entries().values():
        assert entry.group in GROUPS
        assert entry.title
        assert entry.why
        assert entry.reads
        assert entry.expects
        assert entry.wants.endswith(".")
        assert not set("→≥≤≠") & set(entry.wants), "a sentence, not code"
        assert entry.sources
        assert all(url.startswith("https://") for url in entry.sources)


WHOLE_REPOSITORIES = {
    "NVIDIA/nvbandwidth", "NVIDIA/nccl-tests", "NVIDIA/nvidia-modprobe", "NVIDIA/skyhook-packages",
    "huggingface/gpu-fryer", "intel/PerfSpect", "facebookresearch/gcm", "Azure/azhpc-images",
    "kubernetes/node-problem-detector",
}  # fmt: skip
"""Tools that are the source themselves."""


def test_a_source_is_the_page_that_says_it() -> None:
    for entry in entries().values():
        for url in entry.sources:
            host, _, path = url.removeprefix("https://").partition("/")
            assert path.strip("/"), f"{entry.id}: {url} is a front page"
            if host == "github.com" and path.count("/") < 3:
                assert path in WHOLE_REPOSITORIES, f"{entry.id}: {url} is a whole repository"


@pytest.mark.parametrize("rule", CASES)
def test_right_facts(rule: str) -> None:
    case = CASES[rule]
    finding = find(document(case.good), rule, case.expected)
    assert finding.verdict.value == case.good_verdict, finding.evidence


@pytest.mark.parametrize("rule", CASES)
def test_wrong_facts(rule: str) -> None:
    case = CASES[rule]
    finding = find(document(case.bad), rule, case.expected)
    assert finding.verdict.value == case.bad_verdict, finding.evidence
    if finding.verdict in (Verdict.FAIL, Verdict.WARN):
        assert finding.why


@pytest.mark.parametrize("rule", CASES)
def test_facts_it_does_not_apply_to(rule: str) -> None:
    case = CASES[rule]
    finding = find(document(case.none), rule, case.expected)
    assert finding.verdict.value == case.none_verdict, finding.evidence
    if case.none_verdict == "UNKNOWN" and not case.none:
        assert finding.evidence.startswith("not read")


ALWAYS = {
    "cpu.offline", "cpu.quota", "kernel.version", "kernel.reboot_pending", "kernel.iommu",
    "kernel.mitigations", "kernel.pcie_port_pm", "kernel.pci_alloc", "kernel.clocksource",
    "kernel.thp", "kernel.isolation", "kernel.init_on_alloc", "vm.engine_swap", "vm.overcommit",
    "vm.max_map_count", "vm.shm", "vm.memlock", "vm.nofile", "vm.cgroup_mem", "net.somaxconn",
    "net.ifname", "fs.free", "fs.type", "fs.loader", "fs.cache_fit", "svc.auto_upgrade",
    "svc.sysctl_drift", "svc.failed_units", "svc.monitors", "bench.tools", "bench.wakeup",
    "kernel.gpu_binding", "kernel.watchdog", "virt.kind", "parse.devices",
}  # fmt: skip
"""Checks that apply on every machine: INFO or UNKNOWN where nothing is wrong or read."""
NOT_HERE: dict[str, Facts] = {
    "a host without a GPU": {
        "/sys/bus/pci/devices/0000:00:00.0/class": "0x060000",
        "virt/kind": "none",
    },
    "a virtual machine": {"virt/kind": "kvm"},
    "a container": {"virt/kind": "lxc"},
}


@pytest.mark.parametrize("rule", sorted(set(CASES) - ALWAYS))
def test_every_rule_has_a_machine_it_does_not_apply_to(rule: str) -> None:
    case = CASES[rule]
    if case.none_verdict == "N/A":
        return  # test_facts_it_does_not_apply_to shows it
    found = {find(document(machine), rule, case.expected).verdict for machine in NOT_HERE.values()}
    assert Verdict.NOT_APPLICABLE in found


def test_what_always_applies_is_never_out_of_place() -> None:
    assert set(CASES) >= ALWAYS
    assert all(CASES[rule].none_verdict != "N/A" for rule in ALWAYS)


@pytest.mark.parametrize("rule", [r for r, c in CASES.items() if c.good_verdict == "PASS"])
def test_a_pass_rests_on_facts_and_falls_with_them(rule: str) -> None:
    case = CASES[rule]
    whole = find(document(case.good), rule, case.expected)
    assert whole.rests_on, "a PASS must say what it rests on"
    for key in whole.rests_on:
        for changed in _damaged(case, key):
            finding = find(changed, rule, case.expected)
            assert finding.verdict is not Verdict.PASS or key not in finding.rests_on, (
                f"{key} is damaged and still carries a PASS: {finding.evidence}"
            )


@pytest.mark.parametrize("rule", [r for r, c in CASES.items() if c.good_verdict == "PASS"])
def test_without_its_facts_nothing_passes(rule: str) -> None:
    case = CASES[rule]
    whole = find(document(case.good), rule, case.expected)
    left: Facts = {k: v for k, v in case.good.items() if k not in whole.rests_on}
    finding = find(document(left), rule, case.expected)
    assert finding.verdict is not Verdict.PASS, finding.evidence


def test_a_card_on_no_fabric_is_no_failure() -> None:
    # An H200 passed through to a virtual machine alone: nvidia-smi prints N/A for its fabric.
    facts = {
        "gpu/0000:00:06.0/name": "NVIDIA H200",
        "gpu/0000:00:06.0/fabric_state": "N/A",
    }
    assert find(document(facts), "gpu.fabric_manager", {}).verdict is Verdict.NOT_APPLICABLE


def _damaged(case: Case, key: str) -> list[FactsDocument]:
    whole = document(case.good)
    result = []
    for bad in GARBAGE:
        if case.good.get(key) == bad:
            continue
        facts = [Fact(f.key, bad, f.source) if f.key == key else f for f in whole.facts]
        result.append(FactsDocument(facts))
    gone = [Fact(f.key, None, f.source, "EACCES") if f.key == key else f for f in whole.facts]
    result.append(FactsDocument(gone))
    result.append(FactsDocument([f for f in whole.facts if f.key != key]))
    return result
