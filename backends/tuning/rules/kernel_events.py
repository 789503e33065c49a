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
        if ("GPU" in line or "RmInit" in line or "fallen off" in line)
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


def memory_errors(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Corrected and uncorrected errors of memory modules that EDAC reported."""
    corrected: list[str] = []
    uncorrected: list[str] = []
    for line in lines:
        match = re.search(r"EDAC \S+: \d+ (CE|UE)\b", line) if "EDAC" in line else None
        if match:
            (corrected if match[1] == "CE" else uncorrected).append(line.strip())
    return corrected, uncorrected


def lockups(lines: Iterable[str]) -> list[str]:
    """Soft and hard lock-ups and hung tasks."""
    words = re.compile(r"soft lockup|hard LOCKUP|blocked for more than \d+ seconds")
    return [line for line in lines if words.search(line)]


def out_of_memory(lines: Iterable[str]) -> list[str]:
    """Kills of the kernel for want of memory."""
    words = re.compile(r"Out of memory: Killed process|oom-kill:|Memory cgroup out of memory")
    return [line for line in lines if words.search(line)]
