"""Facts documents, what is derived of raw readings, reports, and the operator's own word."""

from __future__ import annotations

import json

import msgspec
import pytest

from backends.errors import ConfigError
from backends.tuning import report, report_document
from backends.tuning.compare import compare
from backends.tuning.custom import Use, parse
from backends.tuning.engine import Options, evaluate
from backends.tuning.facts import (
    Fact,
    FactsDocument,
    FactsError,
    Vantage,
    decode,
    encode,
    merge,
)
from backends.tuning.findings import Finding, Severity, Verdict
from backends.tuning.fixes import Fix, Write
from backends.tuning.normalise import normalise
from backends.tuning.prepare import choose
from backends.tuning.probes import PROBES, ProbeKind, probes_for
from backends.tuning.profiles import NAMES, load
from backends.tuning.report_document import About
from tests.tuning.cases import CASES, LXC_BASE, MOUNTS, STALE, Guest, document
from tests.tuning.samples import DMESG_SICK, LSCPU_OFFLINE, LXC_STALE

RAW = FactsDocument(
    [
        Fact("cmd/lscpu", LSCPU_OFFLINE, "lscpu"),
        Fact("cmd/dmesg", DMESG_SICK, "dmesg", needs_root=True),
        Fact("cmd/systemctl is-active tuned", "inactive\n", "systemctl"),
        Fact("cmd/systemd-detect-virt", "none\n", "systemd-detect-virt"),
        Fact("nvml/0/pci_bus_id", "00000000:06:00.0", "NVML"),
        Fact("nvml/0/power_limit_w", 600, "NVML"),
        Fact("nvml/0/power_default_w", 600, "NVML"),
        Fact("nvml/0/mem_temp_c", None, "NVML", "NotSupported"),
        Fact(
            "/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release\n",
            "f",
        ),
        Fact("/etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"\n', "f"),
        Fact("/etc/kernel/cmdline", "root=ZFS=rpool quiet\n", "f"),
        Fact("/proc/cmdline", "root=ZFS=rpool quiet", "f"),
        Fact(
            "cmd/proxmox-boot-tool status",
            "System currently booted with uefi\n1A2B-3C4D is configured with: uefi (versions: x)\n",
            "proxmox-boot-tool",
        ),
        Fact("/etc/pve/lxc/129.conf", LXC_STALE, "f", needs_root=True),
        Fact(
            "/etc/sysctl.d/99-old.conf", "# x\nkernel.sched_latency_ns = 1\nvm.swappiness=10\n", "f"
        ),
        Fact("/proc/sys/kernel/sched_latency_ns", None, "f", "ENOENT"),
        Fact("/proc/sys/vm/swappiness", "10\n", "f"),
        Fact(
            "/sys/bus/pci/devices/0000:06:00.0",
            "../../../devices/pci0000:00/0000:00:01.1/0000:06:00.0",
            "link",
        ),
        Fact(
            "proc/41/limits",
            "Max open files            1024                 4096      files\n",
            "f",
        ),
        Fact("/sys/fs/cgroup/memory.events", "low 0\nhigh 0\noom_kill 2\n", "f"),
    ],
    host="gpu01",
)


def derived() -> dict[str, object]:
    return {fact.key: fact.value for fact in normalise(RAW).facts}


def test_raw_readings_become_named_facts() -> None:
    facts = derived()
    assert facts["/sys/devices/system/cpu/offline"] == "239"
    assert facts["unit/tuned/active"] == "inactive"
    assert facts["virt/kind"] == "none"
    assert facts["gpu/0000:06:00.0/power_limit_w"] == 600
    assert facts["nvrm/version"] == "580.95.05"
    assert facts["nvrm/open"] is True
    assert facts["boot/loader"] == "systemd-boot"
    assert facts["boot/grub_cmdline"] == "quiet iommu=pt"
    assert facts["pci/0000:06:00.0/parent"] == "0000:00:01.1"
    assert facts["limits/41/nofile_hard"] == "4096"
    assert facts["cgroup/memory/oom_kill"] == 2
    assert facts["log/complete"] is True
    assert isinstance(facts["log/kernel"], list)


def test_deriving_twice_changes_nothing() -> None:
    once = normalise(RAW)
    assert once.derived
    again = normalise(msgspec.structs.replace(once, derived=False))
    assert {f.key: f.value for f in again.facts} == {f.key: f.value for f in once.facts}


def test_an_edit_of_the_other_loaders_file_is_found() -> None:
    found = {f.check: f for f in evaluate(RAW)}
    drift = found["kernel.cmdline_drift"]
    assert drift.verdict.value == "FAIL"
    assert "iommu=pt" in drift.evidence
    assert drift.columns is not None
    assert drift.columns.configured == "root=ZFS=rpool quiet"


def test_a_dead_sysctl_line_is_named() -> None:
    found = {f.check: f for f in evaluate(RAW)}
    assert "kernel.sched_latency_ns" in found["svc.sysctl_drift"].evidence


def test_a_snapshot_of_a_container_is_not_read() -> None:
    lines = derived()["pve/lxc/129"]
    assert isinstance(lines, list)
    assert "cores: 8" not in lines


def test_documents_survive_the_trip() -> None:
    trip = decode(encode(RAW))
    assert trip.host == "gpu01"
    assert [(f.key, f.error, f.needs_root) for f in trip.facts] == [
        (f.key, f.error, f.needs_root) for f in RAW.facts
    ]
    assert encode(decode(encode(trip))) == encode(trip)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"facts": [{"key": 1}]}', '{"format": 99}', '{"facts": [{}]}']
)
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(FactsError):
        decode(text)


def test_a_reading_that_failed_never_displaces_one_that_worked() -> None:
    good = FactsDocument([Fact("a", 1)])
    bad = FactsDocument([Fact("a", None, error="EPERM")])
    assert merge([good, bad]).facts == good.facts
    assert merge([bad, good]).facts == good.facts


def test_a_guest_and_its_host_are_judged_together() -> None:
    facts = document(
        {
            "pve/lxc/129": [*LXC_BASE, *STALE, *MOUNTS],
            "/proc/devices": ["509 nvidia-uvm"],
            "virt/kind": Guest("lxc"),
            "cuda/init": Guest(999),
            "open//dev/nvidia-uvm": Guest("EPERM"),
            "node//dev/nvidia-uvm": Guest("504:0 666 root root"),
        }
    )
    findings = evaluate(facts, Options(only_touched=True))
    wrong = [f for f in findings if f.verdict.value == "FAIL" and "[" not in f.check]
    assert [f.rule for f in wrong if not f.cause] == ["virt.lxc_majors"]
    assert {f.rule for f in wrong if f.cause} == {"cuda.init", "cuda.uvm_node", "virt.dev_nodes"}
    assert {f.vantage for f in wrong if f.cause} == {"guest"}
    assert next(f for f in wrong if not f.cause).vantage == "host"


def test_nothing_that_needs_the_host_passes_in_a_container() -> None:
    from backends.tuning.catalogue import entries

    facts: list[Fact] = [Fact("virt/kind", "lxc", vantage=Vantage.GUEST)]
    for rule, case in CASES.items():
        if entries()[rule].needs == "sys_admin":
            facts += [
                msgspec.structs.replace(f, vantage=Vantage.GUEST)
                for f in document(case.good).facts
                if f.key != "virt/kind"
            ]
    for finding in evaluate(FactsDocument(facts)):
        if entries()[finding.rule].needs == "sys_admin":
            assert finding.verdict.value in ("UNKNOWN", "N/A"), finding.check


def sick() -> list[Finding]:
    facts = {**CASES["gpu.rows"].bad, **CASES["numa.balancing"].bad, **CASES["cuda.init"].good}
    return evaluate(document(facts), Options(only_touched=True))


def test_json_is_a_list_of_findings() -> None:
    rows = json.loads(report.to_json(sick()))
    by_check = {row["check"]: row for row in rows}
    assert by_check["gpu.rows"]["verdict"] == "FAIL"
    assert by_check["gpu.rows"]["fix"]
    assert by_check["cuda.init"]["fix"] is None
    assert by_check["numa.balancing"]["fix_plan"]["runtime"] == [
        {"write": "/proc/sys/kernel/numa_balancing", "value": "0"}
    ]
    assert all({"check", "verdict", "evidence", "fix"} <= set(row) for row in rows)


def test_markdown_says_what_to_do_first() -> None:
    text = report.to_markdown(sick(), "gpu01 | [x](y)")
    assert text.startswith("# gpu01 \\| \\[x\\](y)")
    assert text.index("gpu.rows") < text.index("numa.balancing")
    assert "## What to do" in text


def test_sarif_has_a_result_for_each_finding() -> None:
    log = json.loads(report.to_sarif(sick(), "gpu01"))
    run = log["runs"][0]
    assert log["version"] == "2.1.0"
    assert len(run["results"]) == len(sick())
    ids = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} == ids
    assert {"error", "warning", "none"} == {result["level"] for result in run["results"]}


def test_exit_status_is_by_severity() -> None:
    assert report.exit_code([]) == 0
    assert report.exit_code(sick()) == 30
    warned = evaluate(document(CASES["numa.zone_reclaim"].bad), Options(only_touched=True))
    assert report.exit_code(warned) == 10


CUSTOM = """
[[checks]]
id = "site.hugepages"
title = "Huge pages as agreed"
reads = "/proc/sys/vm/nr_hugepages"
minimum = 8192
why = "The storage target needs them."
verdict = "FAIL"
fix = { write = "8192" }

[[waivers]]
check = "numa.zone_reclaim"
reason = "agreed with the MPI team"
until = 2030-01-31

[expected]
"gpu.count" = "8"
"""


def test_the_operators_checks_waivers_and_expected_values() -> None:
    custom = parse(CUSTOM)
    facts = document(
        {
            **CASES["numa.zone_reclaim"].bad,
            "/proc/sys/vm/nr_hugepages": "1024",
            "nvml/count": 7,
        }
    )

    def judge(today: str) -> dict[str, Finding]:
        options = Options(
            only_touched=True,
            checks=custom.checks,
            waivers=custom.waivers,
            expected=custom.expected,
            today=today,
        )
        return {f.check: f for f in evaluate(facts, options)}

    found = judge("2029-12-31")
    assert found["site.hugepages"].verdict.value == "FAIL"
    assert found["site.hugepages"].fix is not None
    assert found["gpu.count"].verdict.value == "FAIL"
    assert "MPI" in found["numa.zone_reclaim"].waived
    assert not judge("2030-02-01")["numa.zone_reclaim"].waived


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[[checks]]\nid='a.b'\ntitle='t'\nreads='x'\nwhy='w'\n", "must be"),
        ("[[checks]]\nid='cpu.governor'\ntitle='t'\nreads='x'\nwhy='w'\nequals='1'\n", "own"),
        ("[[checks]]\nid='a.b'\ntitle='t'\nreads='x'\nwhy='w'\nmatches='('\n", "pattern"),
        ("[[checks]]\nid='A'\ntitle='t'\nreads='x'\nwhy='w'\nequals='1'\n", "form"),
        ("[[waivers]]\ncheck='cpu.smt'\nreason=' '\nuntil=2030-01-01\n", "reason"),
        ("[[waivers]]\ncheck='x'\nreason='r'\n", "until"),
        ("chekcs = 1\n", "chekcs"),
        ("[[", "tuning checks"),
    ],
)
def test_a_wrong_file_of_checks_says_what_is_wrong(text: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        parse(text)


def test_profiles_change_thresholds_that_exist() -> None:
    assert {load(name).name for name in NAMES} == set(NAMES)
    assert load("latency")["cpu_cstate_latency_us"] < load()["cpu_cstate_latency_us"]
    with pytest.raises(ConfigError):
        load("no such")


def test_a_difference_between_two_hosts_is_named() -> None:
    a = document({**CASES["numa.balancing"].good, "cuda/init": 0})
    b = document({**CASES["numa.balancing"].bad, "cuda/init": 0})
    result = compare(
        a, b, evaluate(a, Options(only_touched=True)), evaluate(b, Options(only_touched=True))
    )
    assert [(c.what, c.a, c.b) for c in result.findings] == [("numa.balancing", "PASS", "WARN")]
    assert [c.what for c in result.facts] == ["/proc/sys/kernel/numa_balancing@host"]
    assert result.differs
    assert not compare(a, a, [], []).differs


def test_probes_are_read_only_and_unique() -> None:
    assert len({(p.kind, p.target) for p in PROBES}) == len(PROBES)
    for probe in PROBES:
        if probe.kind is ProbeKind.COMMAND:
            assert probe.argv
            assert not {"set", "write", "-pl", "-pm", "enable", "disable"} & set(probe.argv)
        elif probe.kind in (ProbeKind.FILE, ProbeKind.GLOB, ProbeKind.BYTES, ProbeKind.LISTING):
            assert probe.target.startswith("/")
    assert len(probes_for(Vantage.GUEST)) < len(PROBES)


def test_what_a_host_is_for_decides_some_rules() -> None:
    off = document(CASES["kernel.mitigations"].bad)
    acs = document({"pci/0000:00:01.1/acs_control": "SrcValid+ ReqRedir+ CmpltRedir+"})

    def verdict(facts: FactsDocument, rule: str, use: Use) -> str:
        found = evaluate(facts, Options(only=frozenset({rule}), use=use))
        return found[0].verdict.value

    assert verdict(off, "kernel.mitigations", "any") == "WARN"
    assert verdict(off, "kernel.mitigations", "shared") == "FAIL"
    assert verdict(acs, "pcie.acs", "dedicated") == "WARN"
    assert verdict(acs, "pcie.acs", "vm_passthrough") == "PASS"
    assert parse('use = "shared"\n').use == "shared"
    with pytest.raises(ConfigError):
        parse('use = "everything"\n')


def test_a_check_of_one_instance_alone_is_reported_and_a_whole_one_means_all() -> None:
    def finding(check: str, instance: str, path: str) -> Finding:
        return Finding(
            check, "pcie.runtime_pm", "Runtime power management", "pcie", Verdict.WARN,
            Severity.LOW, "auto", "host", "It sleeps.", (), instance=instance,
            fix=Fix("write on", runtime=(Write(path, "on"),)),
        )  # fmt: skip

    alone = finding("pcie.runtime_pm", "0", "/sys/a")
    about = About("gpu01", "2026-03-14T09:26", {}, {Vantage.HOST: "gpu01"}, (1, 0))
    assert "`pcie.runtime_pm`" in report_document.document(about, [alone], [])
    both = [
        finding("pcie.runtime_pm@host", "", "/sys/a"),
        finding("pcie.runtime_pm[0]@host", "0", "/sys/a"),
        finding("pcie.runtime_pm[1]@host", "1", "/sys/b"),
        finding("pcie.runtime_pm@guest", "", "/sys/c"),
    ]
    assert [f.whole for f in both[:3]] == ["pcie.runtime_pm@host"] * 3
    chosen = choose(both, ["pcie.runtime_pm@host"])
    assert [f.check for f in chosen] == ["pcie.runtime_pm[0]@host", "pcie.runtime_pm[1]@host"]
