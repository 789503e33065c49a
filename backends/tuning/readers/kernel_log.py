"""The kernel's log, from dmesg or the journal: the lines that say something about this host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from backends.tuning.facts import Fact
from backends.tuning.readers.excerpt import Excerpt, Line, continued
from backends.tuning.readers.pci_address import address, domain_as_printed

KEPT: Final = re.compile(
    r"NVRM|\bXid\b|\bAER\b|PCIe Bus Error|_OSC:|BAR \d+|mempolicy:|soft lockup|hard LOCKUP|"
    r"blocked for more than|Out of memory|oom-kill|oom_reaper|page allocation failure|"
    r"fallen off the bus|TSC unstable|Default domain type|DMAR|AMD-Vi|mem auto-init|"
    r"after FLR|Linux version|Command line:|nvidia|nova_core|nouveau|Surprise|EDAC|mce:|"
    r"error status/mask|^\s*\[[ .\d]+\] pcieport|clocksource:|Hardware Error|Memory failure|"
    r"available PCIe bandwidth|inaccessible"
)
MAX_KEPT: Final = 10_000
_ACTION: Final = re.compile(
    r"Xid \(PCI:(?P<bdf>[0-9A-Fa-f:.]+)\): 154,.*?recovery action changed from .*? to "
    r"(?P<code>0x[0-9a-fA-F]+)(?: \((?P<words>[^)]*)\))?"
)
_MODULE: Final = re.compile(
    r"(?:NVRM: l|nvidia-modeset: L)oading NVIDIA UNIX (?P<open>Open )?(?:\S+ )*?Kernel "
    r"(?:Module|Mode Setting Driver).*?(?P<version>\d{3}\.\d+(?:\.\d+)?)"
)
_MISMATCH: Final = re.compile(
    r"API mismatch: the (?:client|NVIDIA kernel module).*?version (?P<first>\d{3}\.\d+(?:\.\d+)?)"
)
_LIMITED: Final = re.compile(
    r" (?P<bdf>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): [\d.]+ Gb/s available PCIe bandwidth, "
    r"limited by [\d.]+ GT/s (?:PCIe )?x(?P<width>\d{1,2}) link at (?P<at>[0-9a-f:.]{7,12}) "
    r"\(capable of [\d.]+ Gb/s with [\d.]+ GT/s (?:PCIe )?x(?P<most>\d{1,2}) link\)"
)
_REFUSED: Final = re.compile(
    r"nvidia(?:[-_]\w+)?: (?:version magic '.{1,120}' should be|disagrees about version of symbol|"
    r"Unknown symbol).*|could not insert '?nvidia.*|nvidia\S*: module verification failed.*rejected"
)
_THROTTLED: Final = re.compile(
    r"CPU(?P<cpu>\d{1,5}): (?:Core|Package) temperature (?:is )?above threshold.*?clock throttled"
    r"(?: \(total events = (?P<events>\d{1,12})\))?"
)
_LOOKS: Final = re.compile(
    r"^\s*(?:<\d+>)?\[\s*\d+\.\d+\]"  # dmesg
    r"|^\w{3,8} *:\w{3,7} *: *\[[^\]]{5,30}\] "  # dmesg -x
    r"|^\[\w{2,4}\.? +\w{3,5}\.? +\d+ [\d:]{8} \d{4}\]"  # dmesg -T, in any language
    r"|^\w{3} +\d+ [\d:]{8} \S+ kernel:"  # syslog, journalctl
    r"|^\d{4}-\d\d-\d\d[T ]\S+ \S+ kernel:"
    r"|^\s*(?:kernel: )?(?:NVRM: |(?:pcieport|pci|nvidia|vfio-pci|acpi) [0-9A-Za-z]+:|"
    r"nvidia-modeset: )"
    r"|\bNVRM: Xid \("
)


def read(excerpt: Excerpt) -> Iterator[Fact]:
    """The telling lines as `log/kernel`, and what single lines establish by themselves."""
    kept: list[str] = []
    first: Line | None = None
    for line in continued(excerpt.lines, _LOOKS.search):
        if not _LOOKS.search(line.text) or not KEPT.search(line.text):
            continue
        first = first or line
        if len(kept) < MAX_KEPT:
            kept.append(line.text.strip())
        yield from _single(excerpt, line)
    if first is not None:
        yield excerpt.fact("log/kernel", kept, first)


def _single(excerpt: Excerpt, line: Line) -> Iterator[Fact]:
    text = line.text
    if match := re.search(r"Linux version (\d+\.\d+\S*)", text):
        yield excerpt.fact("/proc/sys/kernel/osrelease", match[1], line)
    elif match := re.search(r"Command line: (.+)$", text):
        yield excerpt.fact("/proc/cmdline", match[1], line)
    elif match := _MODULE.search(text):
        yield excerpt.fact("nvrm/version", match["version"], line)
        yield excerpt.fact("nvrm/open", bool(match["open"]), line)
    elif match := _LIMITED.search(text):
        told = f"x{match['width']} of x{match['most']} at {match['at']}"
        yield excerpt.fact(f"log/limited/{match['bdf']}", told, line)
    elif match := re.search(
        r"API mismatch: the client '.{1,80}'|NVRM: has the version (?P<first>\d{3}\.\d+(?:\.\d+)?)"
        r", but this kernel module",
        text,
    ):
        yield excerpt.fact("nvml/error", "Driver/library version mismatch", line)
        if match["first"]:
            yield excerpt.fact("nvml/library_version", match["first"], line)
    elif match := _REFUSED.search(text):
        yield excerpt.fact("log/module_refused", match[0], line)
    elif re.search(r"NVRM: No NVIDIA (?:GPU found|devices probed)", text):
        yield excerpt.fact("log/no_gpu", True, line)
    elif "NVIDIA probe routine was not called" in text:
        yield excerpt.fact("gpu_binding/another", "another driver has a GPU", line)
    elif match := _MISMATCH.search(text):
        yield excerpt.fact("nvml/error", "Driver/library version mismatch", line)
        yield excerpt.fact("nvml/library_version", match["first"], line)
    elif match := re.search(r"NVRM: GPU \S+ is already bound to (nouveau|nova_core)\b", text):
        yield excerpt.fact(f"gpu_binding/{match[1]}", "bound to a GPU", line)
    elif "requires use of the NVIDIA open kernel modules" in text:
        yield excerpt.fact("log/open_module_needed", True, line)
    elif match := _THROTTLED.search(text):
        yield excerpt.fact(f"log/cpu_throttled/{match['cpu']}", int(match["events"] or 1), line)
    elif match := _ACTION.search(text):
        id_ = address(match["bdf"])
        if id_:
            yield excerpt.fact(f"gpu/{id_}/printed_domain", domain_as_printed(match["bdf"]), line)
            yield excerpt.fact(f"gpu/{id_}/recovery_action", int(match["code"], 16), line)
    elif "Enabling automatic NUMA balancing" in text:
        yield excerpt.fact("log/numa_balancing_enabled", True, line)
    elif "Disabling automatic NUMA balancing" in text:
        yield excerpt.fact("log/numa_balancing_enabled", False, line)
    elif match := re.search(r"Default domain type: (Translated|Passthrough)", text):
        yield excerpt.fact("iommu/default_domain", match[1], line)
    elif match := re.search(
        r"_OSC: (platform does not support|OS now controls) \[([^\]]*)\]", text
    ):
        if "AER" in match[2].split():
            owner = "os" if "controls" in match[1] else "firmware"
            yield excerpt.fact("log/aer_owner", owner, line)
    elif match := re.search(r"mem auto-init: .*heap alloc:\s?(on|off)", text):
        yield excerpt.fact("log/init_on_alloc", match[1], line)
