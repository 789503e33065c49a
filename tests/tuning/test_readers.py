"""Printed output of each tool: recognised by what it looks like, and judged."""

from __future__ import annotations

import pytest

from backends.tuning import readers
from backends.tuning.engine import Options, evaluate
from backends.tuning.facts import Vantage
from tests.tuning import samples


def verdicts(*texts: str, names: tuple[str, ...] = ()) -> dict[str, str]:
    """Verdict of each check for pasted texts of one host."""
    named = [(names[i] if i < len(names) else f"paste{i}.txt", t) for i, t in enumerate(texts)]
    document = readers.read_texts(named)
    return {f.check: f.verdict.value for f in evaluate(document, Options(only_touched=True))}


CASES = [
    (
        samples.SMI_TABLE,
        {
            "gpu.persistence[0]": "PASS",
            "gpu.persistence[1]": "WARN",
            "gpu.mig[0]": "PASS",
            "gpu.mig[1]": "WARN",
            "gpu.compute_mode[1]": "WARN",
            "gpu.ecc_errors[1]": "FAIL",
            "gpu.util_vs_power[0]": "PASS",
            "gpu.stale_procs[0]": "PASS",
        },
    ),
    (
        samples.SMI_CSV,
        {"gpu.throttle[0]": "WARN", "gpu.throttle[1]": "PASS", "gpu.throttle[2]": "FAIL"},
    ),
    (
        samples.SMI_Q_SICK,
        {
            "gpu.ecc_errors[41:00.0]": "FAIL",
            "gpu.ecc_errors[81:00.0]": "WARN",
            "gpu.rows[41:00.0]": "FAIL",
            "gpu.rows[81:00.0]": "PASS",
            "gpu.fabric_manager": "FAIL",
        },
    ),
    (
        samples.TOPO,
        {"gpu.topology": "INFO", "numa.gpu_affinity[0]": "PASS", "numa.gpu_affinity[3]": "PASS"},
    ),
    ("$ nvidia-smi topo -p2p r\n" + samples.P2P_MATRIX, {"gpu.p2p": "PASS"}),
    ("$ nvidia-smi topo -p2p p\n" + samples.P2P_MATRIX, {"gpu.p2p": "INCONCLUSIVE"}),
    (samples.P2P_MATRIX, {"gpu.p2p": "INCONCLUSIVE"}),
    (
        samples.LSPCI_TREE,
        {
            "pcie.link_width[01:00.0]": "FAIL",
            "pcie.link_width[00:01.1]": "FAIL",
            "pcie.acs": "WARN",
            "pcie.aspm": "WARN",
            "pcie.bar1": "PASS",
            "pcie.mps": "WARN",
            "pcie.mrrs": "WARN",
            "pcie.relaxed_ordering": "WARN",
            "kernel.gpu_binding": "FAIL",
        },
    ),
    (
        samples.LSPCI_DENIED,
        {
            "pcie.mps": "UNKNOWN",
            "pcie.aspm": "UNKNOWN",
            "pcie.bar1": "PASS",
            "pcie.mrrs": "UNKNOWN",
            "kernel.gpu_binding": "PASS",
        },
    ),
    (samples.LSCPU_OFFLINE, {"cpu.offline": "WARN", "numa.nps": "PASS", "cpu.smt": "INFO"}),
    (samples.CPUPOWER_NO_DRIVER, {"cpu.scaling_driver": "FAIL", "cpu.boost": "FAIL"}),
    (
        samples.CPUPOWER_GOOD,
        {
            "cpu.scaling_driver": "PASS",
            "cpu.governor": "PASS",
            "cpu.epp": "PASS",
            "cpu.boost": "PASS",
            "cpu.freq_cap": "PASS",
        },
    ),
    (samples.CPUPOWER_IDLE, {"cpu.cstates": "PASS"}),
    (
        samples.DMESG_SICK,
        {
            "gpu.xid": "FAIL",
            "gpu.gsp": "FAIL",
            "pcie.aer": "FAIL",
            "kernel.iommu": "FAIL",
            "gpu.open_module": "PASS",
            "vm.engine_swap": "FAIL",
            "kernel.watchdog": "FAIL",
        },
    ),
    (
        samples.LXC_STALE,
        {"virt.lxc_majors": "UNKNOWN", "virt.lxc_devn": "WARN", "virt.lxc_priv": "PASS"},
    ),
    (samples.LXC_DEVN, {"virt.lxc_majors": "PASS", "virt.lxc_devn": "PASS"}),
    (
        samples.STRACE,
        {
            "cuda.uvm_node[nvidia-uvm]": "FAIL",
            "cuda.uvm_node[nvidiactl]": "PASS",
            "cuda.init": "FAIL",
        },
    ),
    (samples.FABRIC_INACTIVE, {"gpu.fabric_manager": "FAIL"}),
    (samples.AER_FATAL, {"pcie.aer": "FAIL"}),
    (samples.NVLINK, {"gpu.nvlink[0]": "PASS", "gpu.nvlink[1]": "FAIL"}),
    (
        samples.SMALL_TOOLS,
        {
            "svc.tuned": "WARN",
            "svc.time_sync": "WARN",
            "net.ib_port": "FAIL",
            "vm.swappiness": "N/A",
        },
    ),
    (samples.CPUINFO, {"kernel.version": "WARN"}),
    (samples.TORCH_802, {"cuda.init": "FAIL", "gpu.fabric_manager": "FAIL"}),
    (samples.MISMATCH, {"gpu.driver_match": "FAIL"}),
    (samples.POWER_FAR, {"gpu.throttle": "WARN", "gpu.power_limit": "PASS"}),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=range(len(CASES)))
def test_output_is_recognised_and_judged(text: str, expected: dict[str, str]) -> None:
    found = verdicts(text)
    assert {check: found.get(check) for check in expected} == expected


@pytest.mark.parametrize(("text", "expected"), CASES, ids=range(len(CASES)))
def test_prose_around_it_changes_nothing(text: str, expected: dict[str, str]) -> None:
    before = "Hello, this is what our new host says; any idea why it is slow?\n\n```\n"
    found = verdicts(before + text + "\n```\nThanks in advance,\nA colleague\n")
    assert {check: found.get(check) for check in expected} == expected


def test_a_container_and_its_host_are_read_together() -> None:
    found = verdicts(samples.LXC_STALE, samples.PROC_DEVICES)
    assert found["virt.lxc_majors"] == "FAIL"


def test_the_v2_rules_of_devn_need_no_majors() -> None:
    assert verdicts(samples.LXC_DEVN, samples.PROC_DEVICES)["virt.lxc_majors"] == "PASS"


def test_stale_majors_are_one_finding() -> None:
    text = f"{samples.LXC_STALE}\n{samples.PROC_DEVICES}\n{samples.DEV_LISTING}\n{samples.STRACE}"
    document = readers.read_texts([("all.txt", text)])
    failed = [
        f
        for f in evaluate(document, Options(only_touched=True))
        if f.verdict.value in ("FAIL", "WARN") and "[" not in f.check
    ]
    causes = [f.rule for f in failed if not f.cause]
    assert causes == ["virt.lxc_majors"]
    assert {f.rule for f in failed if f.cause == "virt.lxc_majors"} >= {
        "cuda.init",
        "cuda.uvm_node",
        "virt.dev_nodes",
        "virt.lxc_devn",
    }


def test_host_and_guest_are_told_apart_by_headings() -> None:
    text = "# host\n" + samples.SMI_TABLE + "# container\n" + samples.SMI_TABLE
    document = readers.read_texts([("both.txt", text)])
    assert {fact.vantage for fact in document.facts} == {Vantage.HOST, Vantage.GUEST}
    found = verdicts(text)
    assert found["gpu.persistence@guest"] == "N/A"
    assert found["gpu.persistence[0]@host"] == "PASS"


def test_every_fact_says_where_it_was_read() -> None:
    for name, text in samples.ALL.items():
        document = readers.read_texts([(f"{name}.txt", text)])
        assert document.facts, name
        assert all(fact.source.startswith(f"{name}.txt:") for fact in document.facts)
        assert all(fact.seen for fact in document.facts)


def test_what_is_nothing_gives_nothing() -> None:
    assert verdicts("The quick brown fox\njumps over: the lazy dog\n\n1 2 3\n") == {}
    assert verdicts("") == {}


def test_control_sequences_do_not_survive() -> None:
    text = samples.SMI_TABLE.replace("sglang", "\x1b]0;evil\x07\x1b[31msgl\u202eang")
    document = readers.read_texts([("x.txt", text)])
    for fact in document.facts:
        assert "\x1b" not in str(fact.value) + fact.seen
        assert "\u202e" not in str(fact.value) + fact.seen


def test_a_gpu_that_tools_name_differently_is_one() -> None:
    listing = (
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-4000-8000-000000000001)\n"
        "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-4000-8000-000000000002)\n"
    )
    found = verdicts(samples.SMI_Q_SICK, samples.NVLINK, listing)
    assert {c for c in found if c.startswith("gpu.nvlink[")} == {
        "gpu.nvlink[41:00.0]",
        "gpu.nvlink[81:00.0]",
    }
    assert {c for c in found if c.startswith("gpu.rows[")} == {
        "gpu.rows[41:00.0]",
        "gpu.rows[81:00.0]",
    }


@pytest.mark.parametrize(
    ("text", "without", "check"),
    [
        (samples.POWER_FAR.replace(": Active", ": Not Active"), "HW Power Brake", "gpu.throttle"),
        (
            samples.SMI_Q_SICK.split("GPU 00000000:81")[0]
            .replace(": 4", ": 0")
            .replace(": 9", ": 0"),
            "DRAM Uncorrectable",
            "gpu.ecc_errors",
        ),
        (samples.CPUPOWER_IDLE, "Latency: 290", "cpu.cstates"),
        (samples.CPUPOWER_IDLE, "Latency: 1", "cpu.cstates"),
    ],
)
def test_a_part_of_what_must_be_known_is_no_pass(text: str, without: str, check: str) -> None:
    assert verdicts(text)[check] == "PASS"
    left = "\n".join(line for line in text.split("\n") if without not in line)
    assert verdicts(left)[check] == "UNKNOWN"


def test_peer_access_by_kernel_is_judged_for_the_kernel_that_runs() -> None:
    text = "kernel 6.17.13-6-pve : nvidia-smi topo -p2p r -> OK\n"
    assert verdicts(text)["gpu.p2p"] == "UNKNOWN"
    assert (
        verdicts(text + "$ uname -r\n6.17.13-6-pve\nuname -r: 6.17.13-6-pve\n")["gpu.p2p"] == "PASS"
    )
