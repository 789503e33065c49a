"""Answers of small tools: tuned-adm, timedatectl, chronyc, ibstat, nvidia-smi -L and nvlink -s."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from backends.tuning.facts import Fact
from backends.tuning.gpus import model_of
from backends.tuning.readers.excerpt import Excerpt, Line
from backends.tuning.readers.pci_address import address

MAX_ROWS: Final = 4000

_GPU: Final = re.compile(r"^GPU (?P<index>\d{1,3}): (?P<name>.+?) \(UUID: (?P<uuid>[\w-]+)\)$")
_LINK: Final = re.compile(r"^\s*Link (?P<link>\d{1,3}): (?P<state><inactive>|[\d.]+ GB/s)$")
_MEMORY: Final = re.compile(r"^(?:Mem|Swap|Commit)\w+:\s+\d{1,15} kB$")
_IB_STATES: Final = {
    "Active": "4: ACTIVE",
    "Down": "1: DOWN",
    "Initializing": "2: INIT",
    "Armed": "3: ARMED",
}
_IB_PHYSICAL: Final = {"LinkUp": "5: LinkUp", "Disabled": "3: Disabled", "Polling": "2: Polling"}


_FAILED: Final = re.compile(r"^\W{0,3}(?P<unit>[\w@.:\\-]+\.\w+)\s+loaded\s+failed\s+failed\b")


def read_failed_units(excerpt: Excerpt) -> Iterator[Fact]:
    """`systemctl --failed`: the units it lists, none where it counts none."""
    failed: list[str] = []
    first: Line | None = None
    for line in excerpt.lines:
        if match := _FAILED.match(line.text):
            first = first or line
            failed.append(match["unit"])
        elif line.text.strip() == "0 loaded units listed.":
            first = first or line
    if first is not None:
        yield excerpt.fact("systemd/failed", failed, first)


def read_tuned(excerpt: Excerpt) -> Iterator[Fact]:
    """`tuned-adm active`."""
    for line in excerpt.lines:
        if match := re.match(r"\s*Current active profile: (\S+)", line.text):
            yield excerpt.fact("/etc/tuned/active_profile", match[1], line)
            yield excerpt.fact("unit/tuned/active", "active", line)
        elif re.match(r"\s*No current active profile", line.text):
            yield excerpt.fact("unit/tuned/active", "inactive", line)


def read_clock(excerpt: Excerpt) -> Iterator[Fact]:
    """`timedatectl` and `chronyc tracking`."""
    for line in excerpt.lines:
        if match := re.match(r"\s*(?:System clock|NTP) synchronized: (yes|no)$", line.text):
            yield excerpt.fact("time/ntp_synchronized", match[1], line)
        elif match := re.match(
            r"\s*System time\s+: (\d+\.\d+) seconds (slow|fast) of NTP time", line.text
        ):
            sign = 1 if match[2] == "fast" else -1
            yield excerpt.fact("time/offset_s", sign * float(match[1]), line)


def read_meminfo(excerpt: Excerpt) -> Iterator[Fact]:
    """`/proc/meminfo`, the fields that rules ask for."""
    found: list[str] = []
    first: Line | None = None
    for line in excerpt.lines:
        if _MEMORY.match(line.text.strip()):
            first = first or line
            found.append(line.text.strip())
    if first is not None and any(row.startswith("MemTotal:") for row in found):
        yield excerpt.fact("/proc/meminfo", "\n".join(found), first)


def read_ibstat(excerpt: Excerpt) -> Iterator[Fact]:
    """`ibstat`, as the files of sysfs that it prints."""
    card = port = ""
    for line in excerpt.lines:
        text = line.text.strip()
        if match := re.match(r"CA '(\w{1,32})'$", text):
            card, port = match[1], ""
        elif card and (match := re.match(r"Port (\d{1,3}):$", text)):
            port = match[1]
        elif card and port:
            base = f"/sys/class/infiniband/{card}/ports/{port}"
            if (match := re.match(r"State: (\w+)$", text)) and match[1] in _IB_STATES:
                yield excerpt.fact(f"{base}/state", _IB_STATES[match[1]], line)
            elif match := re.match(r"Physical state: (\w+)$", text):
                yield excerpt.fact(f"{base}/phys_state", _IB_PHYSICAL.get(match[1], match[1]), line)
            elif match := re.match(r"Rate: (\d{1,5})$", text):
                yield excerpt.fact(f"{base}/rate", f"{match[1]} Gb/sec", line)
            elif match := re.match(r"Link layer: (\w+)$", text):
                yield excerpt.fact(f"{base}/link_layer", match[1], line)


def read_information(excerpt: Excerpt) -> Iterator[Fact]:
    """`/proc/driver/nvidia/gpus/ADDRESS/information`."""
    name = ""
    for line in excerpt.lines:
        if match := re.match(r"\s*Model:\s+(\S.{2,80})$", line.text):
            name = match[1].strip()
        elif name and (match := re.match(r"\s*Bus Location:\s+([0-9a-f:.]{7,16})$", line.text)):
            id_ = address(match[1])
            if id_:
                yield excerpt.fact(f"gpu/{id_}/name", name, line)
            name = ""


def read_memory_modules(excerpt: Excerpt) -> Iterator[Fact]:
    """`dmidecode -t memory`, as the command that the agent runs."""
    first = next((n for n in excerpt.lines if n.text.strip() == "Memory Device"), None)
    if first is not None:
        kept = [n.text for n in excerpt.lines if n.number >= first.number][:MAX_ROWS]
        yield excerpt.fact("cmd/dmidecode -t 17", "\n".join(kept), first)


def read_gpu_list(excerpt: Excerpt) -> Iterator[Fact]:
    """`nvidia-smi -L` and `nvidia-smi nvlink -s`."""
    index = name = ""
    count = 0
    last: Line | None = None
    for line in excerpt.lines:
        if match := _GPU.match(line.text):
            index, name, last = match["index"], match["name"], line
            count += 1
            yield excerpt.fact(f"gpu/index-{index}/name", match["name"], line)
        elif index and (match := _LINK.match(line.text)):
            state = "Inactive" if "inactive" in match["state"] else "Active"
            yield excerpt.fact(f"gpu/index-{index}/nvlink/{match['link']}/state", state, line)
        elif index and "all links are inactive" in line.text.lower():
            model = model_of(name)
            if model is not None and model.nvlinks:
                yield excerpt.fact(f"gpu/index-{index}/nvlink/all/state", "Inactive", line)
    if last is not None:
        yield excerpt.fact("gpu/attached", count, last)
