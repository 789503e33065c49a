"""Machines that are unlike most: Windows, ARM, memory without CPUs, GPUs cut into instances."""

from __future__ import annotations

import pytest

from backends.tuning.engine import Options, evaluate
from backends.tuning.facts import FactsDocument, Value
from tests.tuning.cases import CPU, NODE, Facts, Guest, Missing, document
from tests.tuning.test_readers import verdicts

WINDOWS = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 572.16                 Driver Version: 572.16         CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                  Driver-Model | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA GeForce RTX 5090      WDDM  |   00000000:01:00.0  On |                  N/A |
|  0%   41C    P8             24W /  575W |    1811MiB /  32607MiB |      2%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA RTX A6000              TCC  |   00000000:05:00.0 Off |                    3 |
| 30%   45C    P8             15W /  300W |       9MiB /  49140MiB |      0%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A            2044    C+G   ...xyewy\\ShellExperienceHost.exe      N/A      |
|    0   N/A  N/A            7120    C+G   Insufficient Permissions              N/A      |
+-----------------------------------------------------------------------------------------+
"""
WINDOWS_OLD = """\
| NVIDIA-SMI 471.41       Driver Version: 471.41       CUDA Version: 11.4     |
|-------------------------------+----------------------+----------------------+
| GPU  Name            TCC/WDDM | Bus-Id        Disp.A | Volatile Uncorr. ECC |
|   0  NVIDIA GeForce ... WDDM  | 00000000:0A:00.0  On |                  N/A |
|  0%   53C    P8    12W / 170W |   1203MiB / 12288MiB |      7%      Default |
|                               |                      |                  N/A |
+-------------------------------+----------------------+----------------------+
"""
GRACE_LSCPU = """\
Architecture:             aarch64
  CPU op-mode(s):         64-bit
CPU(s):                   72
  On-line CPU(s) list:    0-71
Vendor ID:                ARM
  Model name:             Neoverse-V2
    Thread(s) per core:   1
    Core(s) per socket:   72
    Socket(s):            1
NUMA:
  NUMA node(s):           9
  NUMA node0 CPU(s):      0-71
""" + "".join(f"  NUMA node{n} CPU(s):\n" for n in range(1, 9))
GRACE_NUMACTL = (
    "available: 9 nodes (0-8)\nnode 0 cpus: 0 1 2 3 4 5 6 7 8 9 10 11\nnode 0 size: 490310 MB\n"
    + "".join(f"node {n} cpus:\nnode {n} size: 0 MB\nnode {n} free: 0 MB\n" for n in range(1, 9))
    + "node distances:\nnode   0   1   2   3   4   5   6   7   8 \n"
    + "".join(
        f"  {n}:  " + "  ".join("10" if n == m else "80" for m in range(9)) + "\n" for n in range(9)
    )
)
UNAME = "Linux node7 {release} #12-Ubuntu SMP Tue Mar 4 10:11:12 UTC 2026 {arch} GNU/Linux\n"


def test_the_table_of_windows_is_read_and_has_no_persistence() -> None:
    found = verdicts(WINDOWS)
    assert found["gpu.persistence"] == "N/A"
    assert found["gpu.compute_mode[0]"] == "PASS"
    assert found["gpu.ecc_errors[1]"] == "FAIL"
    assert found["gpu.reset_capable"] == "INFO"
    assert "gpu.util_vs_power[0]" in found
    assert verdicts(WINDOWS_OLD)["gpu.persistence"] == "N/A"
    whole = "GPU 00000000:01:00.0\n    Driver Model\n        Current : WDDM\n"
    assert verdicts(whole)["gpu.persistence"] == "N/A"


@pytest.mark.parametrize(
    ("release", "arch", "verdict"),
    [
        ("6.8.0-1021-nvidia-64k", "aarch64", "PASS"),
        ("5.15.148-tegra", "aarch64", "PASS"),
        ("5.14.0-427.13.1.el9_4.aarch64+64k", "aarch64", "PASS"),
        ("6.1.0-28-arm64", "", "PASS"),
        ("6.8.0-51-generic", "aarch64", "PASS"),
        ("6.8.0-51-generic", "x86_64", "UNKNOWN"),
        ("6.8.0-51-generic", "", "UNKNOWN"),
        ("7.0.0-3-pve", "aarch64", "FAIL"),
    ],
)
def test_a_kernel_for_arm_needs_no_floor_of_amd(release: str, arch: str, verdict: str) -> None:
    assert verdicts(UNAME.format(release=release, arch=arch))["kernel.version"] == verdict


@pytest.mark.parametrize(
    ("cpu", "verdict"),
    [
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n", "PASS"),
        ("Architektur:   aarch64\nCPU(s):   72\nNUMA-Knoten:   1\n", "PASS"),
        ("vendor_id\t: GenuineIntel\ncpu family\t: 6\n", "PASS"),
        ("Vendor ID: GenuineIntel\nNUMA node(s): 2\n", "PASS"),
        ("Vendor ID: AuthenticAMD\nNUMA node(s): 2\n", "UNKNOWN"),
        ("Vendor ID: AuthenticAMD\nCPU family: 26\nNUMA node(s): 2\n", "WARN"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05\n", "PASS"),
    ],
)
def test_the_floor_is_that_of_the_cpu_s_maker(cpu: str, verdict: str) -> None:
    uname = UNAME.format(release="6.8.0-51-generic", arch="")
    assert verdicts(cpu + uname)["kernel.version"] == verdict


@pytest.mark.parametrize("text", [GRACE_LSCPU, GRACE_NUMACTL], ids=["lscpu", "numactl"])
def test_memory_without_cpus_is_no_node_of_a_socket(text: str) -> None:
    assert verdicts(text)["numa.nps"] == "PASS"


def test_small_nodes_are_still_found_beside_memory_alone() -> None:
    facts = {
        f"{NODE}/online": "0-2",
        "cpu/sockets": 1,
        f"{NODE}/node0/cpulist": "0-3",
        f"{NODE}/node1/cpulist": "4-63",
        f"{NODE}/node2/cpulist": "",
    }
    found = {f.check: f for f in evaluate(document(facts)) if f.check == "numa.nps"}
    assert found["numa.nps"].verdict == "WARN"
    assert "2 nodes on 1 sockets; 1 more hold memory alone" in found["numa.nps"].evidence


INSTANCES: Facts = {
    "gpu/attached": 2,
    **{
        f"gpu/0000:0{n + 6}:00.0/mig_{when}": "Enabled"
        for n in (0, 1)
        for when in ("current", "pending")
    },
    "gpu/0000:06:00.0/index": 0,
    "gpu/0000:07:00.0/index": 1,
}


@pytest.mark.parametrize(
    ("more", "plan", "verdict"),
    [
        ({}, "", "INFO"),
        ({}, "on", "PASS"),
        ({}, "off", "WARN"),
        ({"engine/41/gpus": "0", "engine/42/gpus": "1"}, "", "INFO"),
        ({"engine/41/gpus": "0,1"}, "", "FAIL"),
        ({"engine/tensor_parallel": 2, "engine/gpu_indices": "0,1"}, "on", "FAIL"),
        ({"engine/tensor_parallel": 1, "engine/gpu_indices": "0,1"}, "", "INFO"),
        ({"engine/tensor_parallel": 2, "engine/gpu_indices": "4,5"}, "", "INFO"),
    ],
)
def test_mig_is_wrong_where_one_server_spans_gpus(more: Facts, plan: str, verdict: str) -> None:
    options = Options(only=frozenset({"gpu.mig"}), expected={"gpu.mig": plan} if plan else {})
    found = {f.check: f.verdict for f in evaluate(document({**INSTANCES, **more}), options)}
    assert found["gpu.mig"] == verdict


@pytest.mark.parametrize(
    ("rule", "facts", "verdict"),
    [
        (
            "gpu.gsp",
            {"gpu/0000:06:00.0/name": "Tesla V100-PCIE-32GB", "gpu/0000:06:00.0/gsp_version": None},
            "N/A",
        ),
        (
            "gpu.gsp",
            {
                "gpu/0000:06:00.0/name": "NVIDIA A100-PCIE-40GB",
                "gpu/0000:06:00.0/gsp_version": None,
            },
            "INFO",
        ),
        (
            "numa.interconnect",
            {
                f"{NODE}/online": "0-1",
                "cpu/sockets": 1,
                "bench/p2p_same_node_gb_s": 50.0,
                "bench/p2p_cross_node_gb_s": 10.0,
            },
            "N/A",
        ),
        (
            "pcie.runtime_pm",
            {
                "gpu/0000:06:00.0/name": "NVIDIA GeForce RTX 4090 Laptop GPU",
                "/sys/bus/pci/devices/0000:06:00.0/power/control": "auto",
                "/sys/bus/pci/devices/0000:06:00.0/d3cold_allowed": "1",
            },
            "N/A",
        ),
        (
            "pcie.mrrs",
            {
                "pci/0000:21:00.1/class": "0x020000",
                "pci/0000:21:00.1/vendor_id": "15b3",
                "pci/0000:21:00.1/device_id": "101e",
                "pci/0000:21:00.1/mrrs_bytes": 128,
            },
            "UNKNOWN",
        ),
        (
            "pcie.mrrs",
            {
                "pci/0000:21:00.0/class": "0x020000",
                "pci/0000:21:00.0/vendor_id": "15b3",
                "pci/0000:21:00.0/device_id": "1021",
                "pci/0000:21:00.0/mrrs_bytes": 128,
            },
            "INFO",
        ),
    ],
)
def test_where_a_check_makes_no_sense(
    rule: str, facts: dict[str, Value | None], verdict: str
) -> None:
    told: dict[str, Value | Missing] = {
        key: Missing("NotSupported") if value is None else value for key, value in facts.items()
    }
    found = {f.check: f.verdict for f in evaluate(document(told), Options(only=frozenset({rule})))}
    assert found[rule] == verdict


def test_a_virtual_machine_and_its_hypervisor_are_one_machine() -> None:
    guest: Facts = {
        "virt/kind": Guest("kvm"),
        "/proc/sys/kernel/numa_balancing": Guest("1"),
        f"{NODE}/online": Guest("0-1"),
    }
    host: Facts = {
        "pve/qemu/200": ["machine: q35", "cpu: kvm64", "hostpci0: 01:00", "memory: 4096"],
        f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave",
        "/sys/kernel/iommu_groups/1/type": "DMA",
        "virt/kind": "none",
    }
    both = evaluate(FactsDocument([*document(guest).facts, *document(host).facts]))
    found = {f.check: (f.verdict.value, f.vantage) for f in both}
    assert found["virt.vm_machine"] == ("FAIL", "host")
    assert found["cpu.governor"] == ("WARN", "host")
    assert found["kernel.iommu"] == ("PASS", "host")  # translated, as virtual machines need
    assert found["numa.balancing"] == ("WARN", "guest")
    alone = {f.check: f for f in evaluate(document(guest))}
    assert alone["kernel.iommu"].verdict == "UNKNOWN"
    assert "not visible from inside" in alone["kernel.iommu"].evidence
    assert 'hypervisor = "NAME"' in alone["kernel.iommu"].hint
    assert not any("NAME" in f.hint for f in both)


@pytest.mark.parametrize(
    ("kind", "name", "verdict"),
    [
        ("lxc", "vm.swappiness", "N/A"),
        ("lxc", "net.core.somaxconn", "WARN"),
        ("none", "vm.swappiness", "WARN"),
    ],
)
def test_a_container_drifts_in_its_own_settings_alone(kind: str, name: str, verdict: str) -> None:
    path = "/proc/sys/" + name.replace(".", "/")
    facts: Facts = {"virt/kind": kind, f"sysctl/configured/{name}": "10", path: "60"}
    found = {f.check: f.verdict for f in evaluate(document(facts))}
    assert found["svc.sysctl_drift"] == verdict
