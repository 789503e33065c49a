"""Events in the kernel's log: Xid, AER, BAR placement, lock-ups, memory. Pure text in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from backends.tuning.readers.pci_address import address, domain_as_printed

_XID: Final = re.compile(
    r"Xid \((?:PCI:)?(?P<bdf>[0-9A-Fa-f:.]{5,20})\): (?P<code>\d{1,3})\b,?\s*(?P<text>.*)$"
)
_PID: Final = re.compile(r"pid='?(?P<pid>\d+)'?(?:, name=(?P<name>[^,]+))?")
_TIME: Final = re.compile(r"^\[\s*(\d+\.\d+)\]")
_BUS_LOSS: Final = re.compile(
    r"GPU (?:at )?(?:PCI:)?(?P<bdf>[0-9A-Fa-f:.]{7,20})?.*?(?:has )?fallen off the bus|"
    r"NVRM: fallen off the bus|RmInitAdapter failed|GPU is probably locked|"
    r"nvidia \S+: .*(?:config space|device) inaccessible|"
    r"GPU recovery action changed"
)
_AER: Final = re.compile(
    r"(?P<port>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]):\s+(?:AER: )?PCIe Bus Error: "
    r"severity=(?P<severity>\w+(?:[ -]\(?[\w-]+\)?)*)"
)
_BAR: Final = re.compile(
    r"(?:(?P<driver>nvidia|pci|vfio-pci|nouveau|amdgpu|NVRM):?\s+)?"
    r"(?P<bdf>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): "
    r"(?:BAR (?P<bar>\d+)|bridge window|VF BAR \d+)[^\n]*?"
    r"(?P<what>can't assign|failed to assign|no space|can't be (?:placed|assigned)|: assigned)"
)
_SIZE: Final = re.compile(
    r"\[mem (?:size (?P<size>0x[0-9a-f]{1,16})"
    r"|(?P<first>0x[0-9a-f]{1,16})-(?P<last>0x[0-9a-f]{1,16}))"
)
_EMPTY_BAR: Final = re.compile(
    r"NVRM: BAR\d is 0M @ 0x0 \(PCI:(?P<bdf>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\)"
)
LAST_DEVICE_BAR: Final = 5
"""Higher numbers are a bridge's windows and virtual functions."""


@dataclass(frozen=True, slots=True)
class Xid:
    """One Xid of one GPU."""

    bdf: str
    domain: str
    code: int
    text: str
    pid: str
    at_s: float | None


def xids(lines: Iterable[str]) -> list[Xid]:
    """Every Xid line, in order."""
    result = []
    for line in lines:
        match = _XID.search(line) if "Xid" in line else None
        if not match:
            continue
        pid = _PID.search(match["text"])
        time = _TIME.search(line)
        bdf = address(match["bdf"]) or match["bdf"].lower()
        result.append(
            Xid(
                bdf,
                domain_as_printed(match["bdf"]),
                int(match["code"]),
                match["text"].strip(),
                pid["pid"] if pid else "",
                float(time[1]) if time else None,
            )
        )
    return result


def incidents(found: Sequence[Xid], within_s: float = 60.0) -> list[Xid]:
    """One Xid per GPU, code and minute: repeats are the same incident."""
    last: dict[tuple[str, int], float | None] = {}
    result = []
    for xid in found:
        place = (xid.bdf, xid.code)
        before = last.get(place)
        if place in last and (before is None or xid.at_s is None or xid.at_s - before <= within_s):
            continue
        last[place] = xid.at_s
        result.append(xid)
    return result


def bus_losses(lines: Iterable[str]) -> list[str]:
    """Lines that say a GPU is gone or did not start, with or without an Xid."""
    return [
        line
        for line in lines
        if any(word in line for word in ("GPU", "RmInit", "fallen off", "inaccessible"))
        and (m := _BUS_LOSS.search(line))
        and "recovery action" not in m[0]
        and not _XID.search(line)
    ]


@dataclass(frozen=True, slots=True)
class AerEvent:
    """One reported PCIe error."""

    port: str
    severity: str
    """correctable, nonfatal or fatal."""


def aer_events(lines: Iterable[str]) -> list[AerEvent]:
    """Errors that AER reported, one each."""
    result = []
    for line in lines:
        match = _AER.search(line) if "PCIe Bus Error" in line else None
        if match:
            word = match["severity"].lower()
            if word.startswith("correct"):
                severity = "correctable"
            elif "non-fatal" in word or "nonfatal" in word:
                severity = "nonfatal"
            else:
                severity = "fatal"
            result.append(AerEvent(match["port"], severity))
    return result


@dataclass(frozen=True, slots=True)
class BarFailure:
    """A BAR that the kernel could not place."""

    device: str
    gpu: bool
    line: str


def bar_failures(lines: Iterable[str]) -> list[BarFailure]:
    """BARs that were not placed; whether it is a GPU's is told by driver and size."""
    result: list[BarFailure] = []
    for line in lines:
        if "BAR" not in line and "bridge window" not in line:
            continue
        if "NVRM" in line and (empty := _EMPTY_BAR.search(line)):
            result.append(BarFailure(empty["bdf"], True, line.strip()))
            continue
        if ": assigned" in line and not result:
            continue
        match = _BAR.search(line) if "assign" in line or "no space" in line else None
        if not match:
            continue
        if match["what"] == ": assigned":
            # It was placed in a later round.
            what = f"{match['bdf']}: BAR {match['bar']}"
            result = [f for f in result if not (match["bar"] and f"{what} " in f.line + " ")]
            continue
        number = int(match["bar"]) if match["bar"] else LAST_DEVICE_BAR + 1
        gpu = number <= LAST_DEVICE_BAR and (
            match["driver"] in ("nvidia", "NVRM", "nouveau", "amdgpu") or _size(line) >= 1 << 28
        )
        result.append(BarFailure(match["bdf"], gpu, line.strip()))
    gpus = {f.device for f in result if f.gpu}
    return [f for f in result if f.gpu or f.device not in gpus]


def _size(line: str) -> int:
    match = _SIZE.search(line)
    if match is None:
        return 0
    if match["size"]:
        return int(match["size"], 16)
    return int(match["last"], 16) - int(match["first"], 16) + 1


_EDAC: Final = re.compile(r"EDAC \S+: (?:\d+ )?(CE|UE)\b")
_MCA: Final = re.compile(r"MC\d+_STATUS\[[^\]]*")
_FIRMWARE: Final = re.compile(
    r"\{(?P<id>\d+)\}\[Hardware Error\]:\s+(?:Error \d+, type: (?P<type>\w+)|"
    r"section_type: (?P<section>memory) error)"
)


def memory_errors(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Corrected and uncorrected memory errors: of EDAC, AMD's decoder, firmware (GHES), mce."""
    corrected: list[str] = []
    uncorrected: list[str] = []
    types: dict[str, str] = {}
    wrong = False
    for line in lines:
        if "EDAC" in line and (match := _EDAC.search(line)):
            (corrected if match[1] == "CE" else uncorrected).append(line.strip())
        elif "Uncorrected hardware memory error" in line or "Memory failure: 0x" in line:
            uncorrected.append(line.strip())
        elif "Hardware Error" not in line:
            continue
        elif match := _MCA.search(line):
            wrong = bool(re.search(r"\b(?:UC|UECC)\b", match[0]))
        elif "Unified Memory Controller" in line:
            (uncorrected if wrong else corrected).append(line.strip())
        elif (match := _FIRMWARE.search(line)) and match["type"]:
            types[match["id"]] = match["type"]
        elif match and (told := types.get(match["id"])):
            (corrected if told in ("corrected", "info") else uncorrected).append(line.strip())
    return corrected, uncorrected


_IOMMU_FAULT: Final = re.compile(
    r"(?:IO_PAGE_FAULT device=|Request device \[)(?P<device>[0-9a-f:.]{7,12})|"
    r" (?P<named>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): AMD-Vi: .*IO_PAGE_FAULT"
)


def iommu_faults(lines: Iterable[str]) -> dict[str, int]:
    """How often the IOMMU stopped an access, by the device that made it."""
    result: dict[str, int] = {}
    for line in lines:
        if "IO_PAGE_FAULT" not in line and "DMAR" not in line:
            continue
        if match := _IOMMU_FAULT.search(line):
            bdf = address(match["device"] or match["named"])
            if bdf:
                result[bdf] = result.get(bdf, 0) + 1
    return result


def lockups(lines: Iterable[str]) -> list[str]:
    """Soft and hard lock-ups and hung tasks."""
    words = re.compile(r"soft lockup|hard LOCKUP|blocked for more than \d+ seconds")
    return [line for line in lines if words.search(line)]


def out_of_memory(lines: Iterable[str]) -> list[str]:
    """Kills of the kernel for want of memory."""
    words = re.compile(r"Out of memory: Killed process|oom-kill:|Memory cgroup out of memory")
    return [line for line in lines if words.search(line)]
