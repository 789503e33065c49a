"""Printed output as it is really pasted: cut, wrapped, drawn twice, in errors, in German."""

from __future__ import annotations

import pytest

from tests.tuning.test_readers import verdicts

TOP = "| NVIDIA-SMI {v}             {kmd} Version: {v}     {cuda} Version: {c}     |"
EDGE = "+-----------------------------------------+------------------------+----------------------+"
BUSY = """{edge}
{top}
|-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA RTX PRO 6000 Blac...    On  |   00000000:01:00.0 Off |                    0 |
| 30%   62C    P1            142W /  600W |   93210MiB /  97887MiB |    100%      Default |
|                                         |                        |             Disabled |
{edge}
|   1  NVIDIA RTX PRO 6000 Blac...    On  |   00000000:41:00.0 Off |                    0 |
|ERR!  ERR!  ERR!            N/A  /  N/A  |   93210MiB /  97887MiB |    ERR!      Default |
|                                         |                        |                 ERR! |
{edge}

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|=========================================================================================|
|    0   N/A  N/A           12345      C   sglang::scheduler_TP0                 93194MiB |
|    1   N/A  N/A           12346      C   sglang::scheduler_TP1                 93194MiB |
+-----------------------------------------------------------------------------------------+
"""
TABLE = BUSY.format(edge=EDGE, top=TOP.format(v="580.82.07", kmd="Driver", cuda="CUDA", c="13.0"))
RENAMED = BUSY.format(
    edge=EDGE, top=TOP.format(v="595.45.04", kmd="KMD", cuda="CUDA UMD", c="13.2")
)
CUT = "\n".join(line[:80] for line in TABLE.split("\n"))
WRAPPED = "\n".join(part for line in TABLE.split("\n") for part in (line[:70], line[70:]) if part)
SPARK = """
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
|   0  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |                  N/A |
| N/A   44C    P8              4W /  N/A  | Not Supported          |      0%      Default |
|                                         |                        |                  N/A |
"""
Q = """==============NVSMI LOG==============

Timestamp                                 : Tue Jan 16 10:11:12 2024
Driver Version                            : 535.129.03
CUDA Version                              : 12.2

Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    GPU Reset Status
        Reset Required                    : {reset}
        Drain and Reset Recommended       : {drain}
    Performance State                     : P0
    FB Memory Usage
        Total                             : 81920 MiB
        Used                              : 70123 MiB
    Utilization
        Gpu                               : 97 %
    Remapped Rows                         : N/A
    Clocks
        SM                                : 900 MHz
        Memory                            : 1215 MHz
    Applications Clocks
        Graphics                          : 1155 MHz
    Default Applications Clocks
        Graphics                          : 1155 MHz
    Max Clocks
        SM                                : 1410 MHz
        Memory                            : 1593 MHz
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 5555
            Type                          : C
            Name                          : /usr/bin/python3
            Used GPU Memory               : 70100 MiB
"""
P2P = """$ nvidia-smi topo -p2p {what}
 \tGPU0\tGPU1\t
 GPU0\tX\t{status}\t
 GPU1\t{status}\tX\t
"""
GONE = """81:00.0 3D controller: NVIDIA Corporation GA102GL [A40] (rev ff) (prog-if ff)
\t!!! Unknown header type 7f
\tKernel driver in use: nvidia
\tKernel modules: nouveau, nvidia_drm, nvidia
"""
UNBOUND = """02:00.0 VGA compatible controller [0300]: NVIDIA Corporation GB202GL [10de:2bb1]
\tSubsystem: NVIDIA Corporation Device [10de:204b]
\tKernel modules: nvidiafb, nouveau
"""
AER = """01:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 80GB] (rev a1)
\tCapabilities: [420 v2] Advanced Error Reporting
\t\tUESta:\tDLP- SDES- TLP- FCP- CmpltTO{timeout} CmpltAbrt- UnsupReq+ ACSViol-
\t\tUEMsk:\tDLP+ SDES+ TLP+ FCP+ CmpltTO+ CmpltAbrt+ UnsupReq+ ACSViol+
\t\tCESta:\tRxErr{received} BadTLP- BadDLLP- Rollover- Timeout- AdvNonFatalErr+
"""
NO_FREQ = """analyzing CPU 0:
  no or unknown cpufreq driver is active on this CPU
  boost state support:
    Supported: {able}
    Active: no
"""
GRACE = """available: 2 nodes (0-1)
node 0 cpus: 0 1 2 3 4 5 6 7
node 0 size: 490310 MB
node 0 free: 470000 MB
node 1 cpus:
node 1 size: 96768 MB
node 1 free: 96000 MB
"""
LSCPU_SECTIONS = """CPU(s):                   256
  On-line CPU(s) list:    0-254
  Off-line CPU(s) list:   255
Vendor ID:                AuthenticAMD
    Frequency boost:      {boost}
NUMA:
  NUMA node(s):           2
Vulnerabilities:
  Spectre v1:             Mitigation; usercopy/swapgs barriers
  Spectre v2:             {state}
"""
LSCPU_GERMAN = """CPU(s):                                   32
Liste der Online-CPU(s):                  0-30
Liste der Offline-CPU(s):                 31
Thread(s) pro Kern:                       2
Sockel:                                   1
NUMA-Knoten:                              1
Anbieterkennung:                          AuthenticAMD
"""
LSCPU_FRENCH = """Processeur(s) :                         32
Liste de processeur(s) en ligne :       0-31
Thread(s) par cœur :                    2
Nœud(s) NUMA :                          1
Identifiant constructeur :              GenuineIntel
"""
CAPS_FOLDER = """195 nvidia
237 nvidia-caps
507 nvidia-caps-imex-channels
509 nvidia-uvm
arch: amd64
cores: 96
hostname: engine
memory: 921600
ostype: ubuntu
lxc.cgroup2.devices.allow: c 195:* rwm
lxc.cgroup2.devices.allow: c 509:* rwm
lxc.cgroup2.devices.allow: c 507:* rwm
lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file
lxc.mount.entry: /dev/nvidia-caps dev/nvidia-caps none bind,optional,create=dir
"""

CASES = [
    # Every row whole; ERR! is no number, and no GPU's rows are another's.
    (
        TABLE,
        {
            "gpu.driver_floor": "PASS",
            "gpu.util_vs_power[0]": "INFO",
            "gpu.util_vs_power[1]": "UNKNOWN",
            "gpu.temperature[1]": None,
            "gpu.stale_procs[1]": "PASS",
            "gpu.mig[1]": "UNKNOWN",
        },
    ),
    (RENAMED, {"gpu.driver_floor": "PASS", "gpu.persistence[1]": "PASS"}),
    (TABLE + TABLE, {"gpu.stale_procs[0]": "PASS", "gpu.persistence[0]": "PASS"}),
    # Cut at the terminal's edge: what is whole is read, the process list claims nothing.
    (
        CUT,
        {
            "gpu.persistence[0]": "PASS",
            "gpu.temperature": "INFO",
            "gpu.ecc_errors": None,
            "gpu.stale_procs": None,
            "gpu.reset_capable": None,
        },
    ),
    (
        WRAPPED,
        {
            "gpu.persistence[0]": "PASS",
            "gpu.ecc_errors[0]": "PASS",
            "gpu.util_vs_power[0]": "INFO",
            "gpu.mig[0]": "PASS",
        },
    ),
    # A card that shares the machine's memory.
    (SPARK, {"gpu.power_limit": "N/A", "gpu.compute_mode": "PASS", "gpu.temperature": "INFO"}),
    (
        Q.format(reset="Yes", drain="No"),
        {
            "gpu.driver_floor": "PASS",
            "gpu.recovery_action": "FAIL",
            "gpu.clocks": "WARN",
            "gpu.rows": "N/A",
            "gpu.stale_procs": "PASS",
        },
    ),
    (Q.format(reset="No", drain="Yes"), {"gpu.recovery_action": "WARN"}),
    (Q.format(reset="No", drain="No"), {"gpu.recovery_action": None}),
    # The NVLink matrix says nothing of peer access over PCIe.
    (P2P.format(what="n", status="NS"), {"gpu.p2p": "UNKNOWN"}),
    (P2P.format(what="a", status="NS"), {"gpu.p2p": "UNKNOWN"}),
    (P2P.format(what="rw", status="CNS"), {"gpu.p2p": "FAIL"}),
    (
        P2P.format(what="r", status="OK") + P2P.format(what="n", status="NS"),
        {"gpu.p2p": "PASS"},
    ),
    (
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tPHB\t0-23\tN/A\t\tN/A\nGPU1\tPHB\t X \t0-23\tN/A\t\tN/A\n",
        {"numa.gpu_affinity": "UNKNOWN"},
    ),
    (GONE, {"gpu.count": "FAIL", "kernel.gpu_binding": "UNKNOWN"}),
    (UNBOUND, {"kernel.gpu_binding": "FAIL"}),
    (AER.format(timeout="+", received="+"), {"pcie.aer": "FAIL"}),
    (AER.format(timeout="-", received="+"), {"pcie.aer": "WARN"}),
    (AER.format(timeout="-", received="-"), {"pcie.aer": None}),
    (NO_FREQ.format(able="yes"), {"cpu.scaling_driver": "FAIL", "cpu.boost": "FAIL"}),
    (NO_FREQ.format(able="no"), {"cpu.scaling_driver": "UNKNOWN", "cpu.boost": "N/A"}),
    (GRACE, {"numa.memory_balance": "N/A"}),
    (
        LSCPU_SECTIONS.format(boost="enabled", state="Vulnerable; IBPB: disabled"),
        {"cpu.boost": "PASS", "kernel.mitigations": "INFO", "cpu.offline": "WARN"},
    ),
    (
        LSCPU_SECTIONS.format(boost="disabled", state="Mitigation; Retpolines"),
        {"cpu.boost": "WARN", "kernel.mitigations": "PASS"},
    ),
    (LSCPU_GERMAN, {"cpu.offline": "WARN", "cpu.smt": "INFO"}),
    (LSCPU_FRENCH, {"cpu.offline": "PASS", "cpu.smt": "INFO"}),
    (CAPS_FOLDER, {"virt.lxc_majors": "FAIL"}),
    (CAPS_FOLDER.replace("c 507", "c 237"), {"virt.lxc_majors": "PASS"}),
    # The kernel's log, in other words.
    (
        "[    9.9] nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver for x86_64"
        "  570.153.02  Release Build",
        {"gpu.open_module": "PASS"},
    ),
    (
        "[  777.3] NVRM: API mismatch: the client has the version 550.120, but\n"
        "               NVRM: this kernel module has the version 550.90.07.  Please\n",
        {"gpu.driver_match": "FAIL"},
    ),
    (
        "[   14.2] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2bb1)\n"
        "               NVRM: installed in this system requires use of the NVIDIA open kernel "
        "modules.\n",
        {"gpu.open_module": "FAIL"},
    ),
    (
        "[200.1] mce: CPU12: Package temperature above threshold, cpu clock throttled "
        "(total events = 3112)",
        {"cpu.thermal": "WARN"},
    ),
    (
        "root=/dev/sda2 rw pcie_acs_override=downstream,multifunction quiet",
        {"virt.vm_binding": "WARN", "kernel.mitigations": "PASS"},
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=range(len(CASES)))
def test_printed_output_is_judged_right(text: str, expected: dict[str, str | None]) -> None:
    found = verdicts(text)
    assert {check: found.get(check) for check in expected} == expected
