"""A walk over every check: its texts, its three verdicts, its fix and the way back.

What a finding says is what an operator sees, so fixes are looked at as the engine gives them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backends.tuning.catalogue import Entry, entries
from backends.tuning.findings import Finding, Severity, Verdict
from backends.tuning.fixes import Command, Fix, Risk, Target
from tests.tuning.cases import CASES, document
from tests.tuning.test_rules import ALWAYS, find

FIRST = (
    "virt.lxc_majors", "virt.lxc_devn", "cuda.init", "cuda.uvm_node", "gpu.driver_match",
    "kernel.cmdline_drift", "kernel.reboot_pending", "kernel.iommu", "pcie.acs", "pcie.link_gen",
    "pcie.link_width", "pcie.link_flap", "pcie.aer", "pcie.mrrs", "pcie.bar1", "gpu.p2p_copy",
    "gpu.util_vs_power", "gpu.throttle", "gpu.xid", "gpu.fabric_manager", "cpu.scaling_driver",
    "cpu.cstates", "numa.balancing", "vm.shm", "bench.roofline",
)  # fmt: skip
"""The checks that are worth most."""
IN_GROUPS = {
    "cpu": 12, "numa": 8, "kernel": 13, "vm": 11, "pcie": 15, "gpu": 28, "cuda": 4, "virt": 15,
    "net": 8, "fs": 8, "svc": 10, "bench": 6,
}  # fmt: skip
"""How many each group of the catalogue has at least."""
WORSE = (Verdict.FAIL, Verdict.WARN)
MAY_ONLY_INFORM = {"virt.kind", "parse.devices", "fs.cache_fit"}
"""Checks whose other verdict is no fault: they record what is there."""


def _findings(rule: str) -> Iterator[Finding]:
    case = CASES[rule]
    for facts in (case.good, case.bad, case.none):
        yield find(document(facts), rule, case.expected)


def _fixes() -> Iterator[tuple[str, Fix]]:
    for rule in CASES:
        for finding in _findings(rule):
            if finding.fix is not None:
                yield rule, finding.fix


def test_the_groups_are_whole() -> None:
    counts = dict.fromkeys(IN_GROUPS, 0)
    for entry in entries().values():
        counts[entry.group] += 1
    assert {group: n for group, n in IN_GROUPS.items() if counts[group] < n} == {}
    assert set(FIRST) <= set(CASES)
    assert len(FIRST) == 25


@pytest.mark.parametrize("entry", entries().values(), ids=lambda entry: entry.id)
def test_nothing_is_left_blank(entry: Entry) -> None:
    for field in (
        "title", "why", "reads", "expects", "wants", "not_applicable", "fix", "persist", "undo",
        "risk", "reboot",
    ):  # fmt: skip
        assert getattr(entry, field).strip(), f"{entry.id}: no {field}"
    assert entry.severity in Severity
    assert entry.sources


@pytest.mark.parametrize("rule", sorted(CASES))
def test_three_verdicts(rule: str) -> None:
    good, bad, none = (finding.verdict for finding in _findings(rule))
    assert good not in WORSE
    assert bad in WORSE or rule in MAY_ONLY_INFORM
    assert none not in (*WORSE, Verdict.PASS)
    if rule not in ALWAYS:
        # Where it never is out of place, nothing read is no pass either.
        assert none in (Verdict.NOT_APPLICABLE, Verdict.UNKNOWN, Verdict.INFO)


@pytest.mark.parametrize("rule", sorted(set(CASES) - MAY_ONLY_INFORM))
def test_what_is_wrong_has_a_fix(rule: str) -> None:
    finding = list(_findings(rule))[1]
    fix = finding.fix
    assert fix is not None, f"{rule}: {finding.evidence}"
    assert finding.fix_text
    assert fix.summary
    assert fix.manual or fix.applicable, f"{rule}: nothing to carry out, and not said so"
    assert finding.wants
    assert finding.why
    assert finding.sources
    assert fix.target in Target


def test_every_command_has_its_way_back_or_says_that_there_is_none() -> None:
    for rule, fix in _fixes():
        for step in (*fix.runtime, *fix.persistent):
            if not isinstance(step, Command) or step.undo:
                continue
            files = any(not isinstance(other, Command) for other in fix.persistent)
            enabled = step.argv[:2] == ("systemctl", "enable")
            assert fix.undo.startswith("nothing") or files or enabled, f"{rule}: {step.argv}"


def test_no_way_back_is_a_promise_without_a_step() -> None:
    promised = ("from the snapshot", "set again", "with the old")
    for rule, fix in _fixes():
        only_commands = all(isinstance(s, Command) and not s.undo for s in fix.runtime)
        if fix.runtime and only_commands and not fix.persistent:
            assert not any(words in fix.undo for words in promised), f"{rule}: {fix.undo}"


def test_what_interrupts_work_is_no_low_risk() -> None:
    for rule, fix in _fixes():
        argvs = [step.argv for step in fix.runtime if isinstance(step, Command)]
        if any("--gpu-reset" in argv or argv[:2] == ("systemctl", "restart") for argv in argvs):
            assert fix.risk is Risk.HIGH, rule
        if fix.restarts and not fix.manual:
            assert fix.risk is not Risk.LOW or "container" in fix.restarts, rule


def test_kernel_and_cards_are_put_right_on_the_host_that_has_them() -> None:
    for rule, fix in _fixes():
        group = entries()[rule].group
        if group in ("cpu", "numa", "kernel", "pcie", "net") and rule != "net.ifname":
            assert fix.target is Target.HOST, rule
    guest = {rule for rule, fix in _fixes() if fix.target is Target.GUEST}
    assert guest <= {"vm.shm", "cuda.compat_lib", "net.ifname"} | {
        rule for rule in CASES if entries()[rule].where in ("guest", "both")
    }


BELIEFS: dict[str, dict[str, str | int | float | bool | list[str]]] = {
    # MaxReadReq of 512 on a GPU, deep idle states of an EPYC, a busy GPU at a quarter of its power.
    "pcie.mrrs": {
        "pci/0000:06:00.0/class": "3D controller",
        "pci/0000:06:00.0/name": "NVIDIA Corporation Device 2bb5",
        "pci/0000:06:00.0/mrrs_bytes": 512,
    },
    "cpu.cstates": {
        "cpu/vendor": "AuthenticAMD",
        "/sys/devices/system/cpu/online": "0",
        "/sys/devices/system/cpu/cpu0/cpuidle/state2/latency": 800,
        "/sys/devices/system/cpu/cpu0/cpuidle/state2/disable": 0,
        "/sys/devices/system/cpu/cpu0/cpuidle/state2/name": "C2",
    },
    "gpu.util_vs_power": {
        "gpu/0000:06:00.0/util_pct": 100,
        "gpu/0000:06:00.0/power_w": 150,
        "gpu/0000:06:00.0/power_limit_w": 600,
        "engine/tokens_per_s": 40,
    },
    "kernel.mitigations": {"/sys/devices/system/cpu/vulnerabilities/retbleed": "Mitigation: x"},
    "kernel.thp": {"/sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"},
    "kernel.init_on_alloc": {"/proc/cmdline": "root=/dev/sda init_on_alloc=1"},
    "cpu.smt": {"/sys/devices/system/cpu/smt/control": "on"},
    "numa.rank_binding": {
        "/sys/devices/system/node/online": "0-1",
        "engine/41/cpus_allowed": "0-127",
        "engine/41/gpu_cpus": "0-63",
        "engine/41/remote_pages_pct": 3,
    },
}


@pytest.mark.parametrize("rule", BELIEFS)
def test_a_belief_is_an_experiment_and_no_failure(rule: str) -> None:
    finding = find(document(BELIEFS[rule]), rule, {})
    assert finding.verdict in (Verdict.PASS, Verdict.INFO), finding.evidence


def test_what_may_be_tried_is_marked_so() -> None:
    for rule in ("pcie.mrrs", "cpu.cstates", "cpu.smt"):
        assert find(document(BELIEFS[rule]), rule, {}).experiment, rule


def test_aspm_is_judged_by_the_register_and_not_by_the_flag() -> None:
    card = "pci/0000:06:00.0"
    facts: dict[str, str | int | float | bool | list[str]] = {
        f"{card}/class": "3D controller",
        f"{card}/name": "NVIDIA Corporation Device 2bb5",
        f"{card}/aspm": "L1 Enabled",
        "/proc/cmdline": "root=/dev/sda pcie_aspm=off",
    }
    finding = find(document(facts), "pcie.aspm", {})
    assert finding.verdict is Verdict.WARN
    assert "pcie_aspm=off" in finding.evidence
