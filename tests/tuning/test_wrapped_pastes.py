"""Pastes that a mail, an editor or another system wrapped, and GPUs that no longer answer."""

from __future__ import annotations

import codecs
import textwrap
from pathlib import Path

import pytest

from tests.tuning import samples
from tests.tuning.test_readers import verdicts
from tui.cli.tuning import load_files

TEXTS = [
    samples.SMI_TABLE,
    samples.SMI_Q_SICK,
    samples.LSPCI_TREE,
    samples.TOPO,
    samples.DMESG_SICK,
    samples.CPUPOWER_GOOD,
    samples.LXC_STALE,
    samples.PROC_DEVICES,
]
HOT = """GPU 00000000:3B:00.0
    Product Name                          : NVIDIA A100-PCIE-40GB
    Temperature
        GPU Current Temp                  : {gpu} C
        GPU Slowdown Temp                 : 92 C
        Memory Current Temp               : 96 C
"""


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_what_stands_before_every_line_changes_nothing(text: str) -> None:
    wanted = verdicts(text)
    assert wanted
    for wrapped in (
        "\ufeff" + text,
        textwrap.indent(text, "        "),
        textwrap.indent(text, "> ", lambda _: True),
    ):
        assert verdicts(wrapped) == wanted


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [("utf-8", codecs.BOM_UTF8), ("utf-16-le", codecs.BOM_UTF16_LE), ("utf-16-be", b"\xfe\xff")],
)
def test_files_of_windows_are_read(tmp_path: Path, encoding: str, mark: bytes) -> None:
    path = tmp_path / "smi.txt"
    path.write_bytes(mark + samples.SMI_TABLE.replace("\n", "\r\n").encode(encoding))
    found = {fact.key: fact.value for fact in load_files([str(path)]).facts}
    path.write_text(samples.SMI_TABLE, encoding="utf-8")
    assert found == {fact.key: fact.value for fact in load_files([str(path)]).facts}


@pytest.mark.parametrize(
    "text",
    [
        "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error",
        "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot it",
        "Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error",
        "Unable to determine the device handle for gpu 0000:3b:00.0: Not Found",
        "Unable to determine the device handle for GPU2: Unknown Error",
    ],
)
def test_a_gpu_that_does_not_answer_is_missing(text: str) -> None:
    assert verdicts(f"$ nvidia-smi\n{text}\n")["gpu.count"] == "FAIL"


@pytest.mark.parametrize(
    "start",
    [
        "kern  :err   : [  100.000000] ",
        "[Fr Jan  2 03:04:05 2026] ",
        "[ven. janv.  2 03:04:05 2026] ",
    ],
)
def test_the_kernel_log_in_other_forms(start: str) -> None:
    lost = verdicts(f"{start}NVRM: Xid (PCI:0000:3b:00): 48, DBE\n")
    assert lost["gpu.xid"] == "FAIL"
    killed = verdicts(f"{start}Out of memory: Killed process 42 (sglang) total-vm:1kB\n")
    assert killed["vm.engine_swap"] == "FAIL"


def test_a_gpu_past_its_slowdown_is_worse_than_warm_memory() -> None:
    assert verdicts(HOT.format(gpu=93))["gpu.temperature"] == "FAIL"
    assert verdicts(HOT.format(gpu=60))["gpu.temperature"] == "WARN"


CARD = """41:00.0 3D controller: NVIDIA Corporation GH100 [H100 PCIe] (rev a1)
\tSubsystem: NVIDIA Corporation Device 1626
\tControl: I/O- Mem+ BusMaster+ SpecCycle- MemWINV-
\tNUMA node: 0
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tDevCap:\tMaxPayload 256 bytes, PhantFunc 0
\t\tDevCtl:\tCorrErr- NonFatalErr+ FatalErr+ UnsupReq-
\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+
\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkCtl:\tASPM Disabled; RCB 64 bytes
\t\tLnkSta:\tSpeed 32GT/s, Width x8 (downgraded)
\tKernel driver in use: nvidia
"""
GOVERNORS = "# cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor | sort | uniq -c\n"


def test_lspci_without_its_tabs_is_one_device() -> None:
    wanted = verdicts(CARD)
    assert wanted["pcie.link_width"] == "FAIL"
    assert wanted["pcie.mps"] == wanted["kernel.gpu_binding"] == "PASS"
    flat = "\n".join(line.strip() for line in CARD.split("\n"))
    assert verdicts(flat) == wanted
    assert verdicts(flat + flat.replace("41:00.0", "42:00.0")).keys() > wanted.keys()


@pytest.mark.parametrize(
    ("text", "check", "verdict"),
    [
        (GOVERNORS + "    256 schedutil\n", "cpu.governor", "WARN"),
        (GOVERNORS + "    256 performance\n", "cpu.governor", "PASS"),
        (GOVERNORS + "    250 performance\n      6 powersave\n", "cpu.governor", "WARN"),
        ("shm on /dev/shm type tmpfs (rw,nosuid,size=65536k,inode64)\n", "vm.shm", "FAIL"),
        ("tmpfs on /dev/shm type tmpfs (rw,nosuid,size=67108864k)\n", "vm.shm", "PASS"),
        (
            "[   10.1] NVRM: GPU 0000:01:00.0 is already bound to nouveau.\n",
            "kernel.gpu_binding",
            "FAIL",
        ),
        (
            "[ 9.1] nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 30\n",
            "gpu.xid",
            "FAIL",
        ),
        (
            "[ 9.1] nvidia-nvswitch0: SXid (PCI:0000:c5:00.0): 11004, Non-fatal, Link 32\n",
            "gpu.xid",
            "WARN",
        ),
    ],
)
def test_small_answers(text: str, check: str, verdict: str) -> None:
    assert verdicts(text)[check] == verdict


FLAGS = (
    "BOOT_IMAGE=/boot/vmlinuz-6.8.0-51-generic root=UUID=0f3e ro console=tty0 quiet splash "
    "iommu=pt mitigations=off\n"
)
FAULT = (
    "[    1.2] pci 0000:41:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 "
    "link at 0000:40:01.1 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)\n"
    "[    9.1] NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\n"
)


def broken_at(text: str, width: int) -> str:
    """What a terminal of that width shows, copied from its screen."""
    lines = text.expandtabs(8).split("\n")
    return "\n".join(
        line[start : start + width] for line in lines for start in range(0, len(line) or 1, width)
    )


def broken_at_words(text: str, width: int) -> str:
    lines = text.expandtabs(8).split("\n")
    return "\n".join(part for line in lines for part in textwrap.wrap(line, width) or [""])


@pytest.mark.parametrize("text", [CARD, samples.LSPCI_TREE, FLAGS, FAULT], ids=range(4))
def test_lines_that_were_broken_are_one_again(text: str) -> None:
    wanted = verdicts(text)
    assert wanted
    for width in (80, 100):
        assert verdicts(broken_at(text, width)) == wanted
        assert verdicts(broken_at_words(text, width - 4)) == wanted


def test_the_lines_of_a_table_stay_lines() -> None:
    # Old tables are 79 wide, and a log's longest lines may be as long as a terminal is wide.
    row = "[    1.0] NVRM: " + "x" * 64 + "\n"
    text = row + row + "[    9.1] NVRM: Xid (PCI:0000:41:00): 48, pid=1, DBE\n"
    assert max(map(len, text.split("\n"))) == 80
    assert verdicts(text)["gpu.xid"] == "FAIL"
    assert verdicts(broken_at(samples.SMI_TABLE, 80)) == verdicts(samples.SMI_TABLE)
