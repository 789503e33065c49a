"""Hosts as they are pasted: the kernel's log, other languages, ports and cards."""

from __future__ import annotations

import pytest

from tests.tuning.test_readers import verdicts

LIMITED = (
    "[    1.2] pci {bdf}: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link "
    "at 0000:40:01.1 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)\n"
)
GPU = """41:00.0 3D controller: NVIDIA Corporation GB202GL [RTX PRO 6000 Blackwell Server Edition]
\tCapabilities: [60] Express (v2) Endpoint, IntMsgNum 0
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 32GT/s, Width x16
\tCapabilities: [200 v1] Access Control Services
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-
"""
PORT = """{bdf} PCI bridge: Advanced Micro Devices, Inc. [AMD] Device 14ab
\tBus: primary=40, secondary={below}, subordinate={below}, sec-latency=0
\tCapabilities: [2a0 v1] Access Control Services
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir{r} CmpltRedir{r} UpstreamFwd+ EgressCtrl- DirectTrans-
"""
UNPLACED = """e1:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 80GB] (rev a1)
\tRegion 1: Memory at <unassigned> (64-bit, prefetchable)
\tRegion 3: Memory at 2000000000 (64-bit, prefetchable) [size=32M]
"""
GERMAN = """analysiere CPU 12:
  {driver}
  Folgende CPUs laufen mit der gleichen Hardware-Taktfrequenz: 12
  Hardwarebedingte Grenzen der Taktfrequenz: 1.50 GHz - 3.70 GHz
  mögliche Regler: performance schedutil
  momentane Taktik: die Frequenz soll innerhalb 1.50 GHz und {most} GHz.
                    liegen. Der Regler "{governor}" kann frei entscheiden,
                    welche Taktfrequenz innerhalb dieser Grenze verwendet wird.
"""
FRENCH = """analyse du CPU 3 :
  pilote : amd-pstate-epp
  limitation matérielle : 1.50 GHz - 3.70 GHz
  tactique actuelle : la fréquence doit être comprise entre 1.50 GHz et 3.70 GHz.
                  Le régulateur "powersave" est libre de choisir la vitesse
                  dans cette plage de fréquences.
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            GERMAN.format(driver="Treiber: amd-pstate", most="3.70", governor="schedutil"),
            {"cpu.scaling_driver": "PASS", "cpu.governor": "WARN", "cpu.freq_cap": "PASS"},
        ),
        (
            GERMAN.format(driver="Treiber: acpi-cpufreq", most="2.00", governor="performance"),
            {"cpu.scaling_driver": "WARN", "cpu.governor": "PASS", "cpu.freq_cap": "WARN"},
        ),
        (
            "analysiere CPU 0:\n  kein oder nicht bestimmbarer cpufreq-Treiber aktiv\n"
            "  boost state support:\n    Supported: yes\n    Active: no\n",
            {"cpu.scaling_driver": "FAIL"},
        ),
        (FRENCH, {"cpu.scaling_driver": "PASS", "cpu.freq_cap": "PASS"}),
    ],
)
def test_cpupower_in_other_languages(text: str, expected: dict[str, str]) -> None:
    found = verdicts(text)
    assert {check: found.get(check) for check in expected} == expected


def test_a_node_whose_cpus_went_on_in_a_new_line_is_whole() -> None:
    text = "available: 2 nodes (0-1)\nnode 0 cpus: 0 1 2 3\n4 5 6 7\nnode 1 cpus: 8 9 10 11 12 13\n"
    more = "14 15\nnode distances:\nnode 0 1\n  0: 10 12\n  1: 12 10\n"
    assert verdicts(text + more)["numa.nps"] == "INFO"  # each has eight
    assert verdicts(text)["numa.nps"] == "UNKNOWN"


def test_a_card_s_own_acs_word_says_nothing_of_the_ports_above() -> None:
    assert verdicts(GPU).get("pcie.acs") in (None, "UNKNOWN")
    above = PORT.format(bdf="40:01.1", below="41", r="-")
    aside = PORT.format(bdf="40:03.1", below="44", r="+")
    assert verdicts(above + aside + GPU)["pcie.acs"] == "PASS"
    assert verdicts(above.replace("Redir-", "Redir+") + aside + GPU)["pcie.acs"] == "WARN"
    assert verdicts(aside)["pcie.acs"] == "WARN"  # what hangs below is not known


def test_a_bar_without_address_is_no_small_one() -> None:
    assert verdicts(UNPLACED)["pcie.bar1"] == "FAIL"


def test_a_link_that_came_up_narrow() -> None:
    told = LIMITED.format(bdf="0000:41:00.0")
    assert verdicts(told)["pcie.link_width"] == "FAIL"
    assert verdicts(told, GPU)["pcie.link_width"] == "PASS"  # read since
    nic = "41:00.0 Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
    assert "pcie.link_width" not in verdicts(told, nic)


@pytest.mark.parametrize(
    ("text", "check", "verdict"),
    [
        (
            "[ 9.1] AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:41:00.0 domain=0x0021 a=0x1]\n",
            "kernel.iommu",
            "FAIL",
        ),
        (
            "[ 9.1] nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x21 a=0x1]\n",
            "kernel.iommu",
            "FAIL",
        ),
        (
            "[ 9.1] DMAR: [DMA Read NO_PASID] Request device [41:00.0] fault addr 0xfc000000\n",
            "kernel.iommu",
            "FAIL",
        ),
        (
            "[ 9.1] mce: Uncorrected hardware memory error in user-access at 1f\n",
            "mem.dimms",
            "FAIL",
        ),
        ("[ 9.1] Memory failure: 0x1f2: recovery action for dirty page\n", "mem.dimms", "FAIL"),
        ("[ 9.1] EDAC MC0: UE row 0, channel-a= 0\n", "mem.dimms", "FAIL"),
        (
            "[ 9.1] {1}[Hardware Error]:  Error 0, type: corrected\n"
            "[ 9.1] {1}[Hardware Error]:   section_type: memory error\n",
            "mem.dimms",
            "WARN",
        ),
        (
            "[ 9.1] {1}[Hardware Error]:  Error 0, type: fatal\n"
            "[ 9.1] {1}[Hardware Error]:   section_type: memory error\n",
            "mem.dimms",
            "FAIL",
        ),
        (
            "[ 9.1] [Hardware Error]: CPU:2 (19:11:1) MC21_STATUS[Over|UE|MiscV|UECC|-]: 0xdc20\n"
            "[ 9.1] [Hardware Error]: Unified Memory Controller Ext. Error Code: 0\n",
            "mem.dimms",
            "FAIL",
        ),
        (
            "[ 9.1] [Hardware Error]: CPU:2 (19:11:1) MC21_STATUS[-|CE|MiscV|CECC|-]: 0x9c20\n"
            "[ 9.1] [Hardware Error]: Unified Memory Controller Ext. Error Code: 0\n",
            "mem.dimms",
            "WARN",
        ),
        (
            "[ 9.1] nvidia 0000:3b:00.0: can't change power state from D3cold to D0 (config space "
            "inaccessible)\n",
            "gpu.xid",
            "FAIL",
        ),
        (
            "[ 7.3] NVRM: API mismatch: the client 'nvidia-smi' (pid 42)\n"
            "               NVRM: has the version 570.153.02, but this kernel module has\n",
            "gpu.driver_match",
            "FAIL",
        ),
        ("[ 7.3] NVRM: No NVIDIA GPU found.\n", "gpu.count", "FAIL"),
        (
            "NVRM: The NVIDIA probe routine was not called for 1 device(s).\n",
            "kernel.gpu_binding",
            "FAIL",
        ),
        (
            "[ 5.1] nvidia: version magic '6.8.0-50-generic SMP ' should be '6.8.0-51-generic '\n",
            "gpu.count",
            "FAIL",
        ),
    ],
)
def test_words_of_the_kernel(text: str, check: str, verdict: str) -> None:
    assert verdicts(text)[check] == verdict
