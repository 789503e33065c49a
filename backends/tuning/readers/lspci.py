"""`lspci -v`, `-vv`, `-vvv`, whole or cut down to a few lines, and `setpci` answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from backends.tuning import numbers
from backends.tuning.facts import Fact, Value
from backends.tuning.readers.excerpt import Excerpt, Line, continued
from backends.tuning.readers.pci_address import address

_DEVICE: Final = re.compile(
    r"^(?:\S+[:>$#]\s+)?(?P<bdf>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s+"
    r"(?P<class>[A-Z0-9][\w /()-]+?)(?:\s*\[(?P<code>[0-9a-f]{4})\])?:\s+(?P<name>.+)$"
)
_IDS: Final = re.compile(r"\[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\]")
_BARE_ID: Final = re.compile(r"\bDevice (?P<device>[0-9a-f]{4})\b")
_SPEED: Final = r"(?P<speed>\d+(?:\.\d+)?)\s?GT/s"
_FLAGS: Final = ("RlxdOrd", "ExtTag", "NoSnoop")
_REGION: Final = re.compile(
    r"(?:Region (?P<index>\d): )?Memory at (?P<at>\S+) "
    r"\((?P<bits>32|64)-bit, (?P<kind>non-)?prefetchable\)"
    r".*?\[size=(?P<size>\d+[KMGT]?)\]"
)
_SETPCI: Final = re.compile(
    r"setpci\s.*?-s\s*(?P<bdf>[0-9a-fA-F:.]+)\s+"
    r"(?P<register>CAP_EXP\+(?:0x)?0?8\.w|ECAP_ACS\+(?:0x)?0?6\.w|"
    r"CAP_EXP\+(?:0x)?0?10\.w)\s*$",
    re.IGNORECASE,
)
_UNNAMED: Final = "unnamed"
_FLAT: Final = re.compile(
    r"(?:Subsystem|DeviceName|Control|Flags|Physical Slot|NUMA node|IOMMU group|Latency|Interrupt|"
    r"Bus|Region \d|Capabilities|Kernel (?:driver in use|modules)|LnkCap|LnkSta|DevCap|DevCtl)"
    r": ?\S|Memory at "
)
"""What follows a device's name at once; not indented where a paste lost its tabs."""
_PROMPT: Final = re.compile(r"\S*[$#](?: |$)|```|[#=-]{2,}")


class _Device:
    def __init__(self, excerpt: Excerpt, bdf: str) -> None:
        self._excerpt = excerpt
        self.bdf = bdf
        self.facts: dict[str, Fact] = {}
        self.section = ""

    def put(self, field: str, value: Value | None, line: Line, error: str | None = None) -> None:
        key = f"pci/{self.bdf}/{field}"
        self.facts[key] = self._excerpt.fact(key, value, line, error)

    def has(self, field: str) -> bool:
        return f"pci/{self.bdf}/{field}" in self.facts


def read(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts of each device: `pci/0000:06:00.0/width`, `.../mrrs_bytes`, `.../acs_control`, ...

    Lines such as `LnkSta:` without a device above them make a device without a name.
    """
    device: _Device | None = None
    unnamed = 0
    after_name = flat = False
    pending: str | None = None
    set_in = any(line.text[:1].isspace() for line in excerpt.lines)
    for line in continued(excerpt.lines, _is_row) if set_in else excerpt.lines:
        text = line.text
        if match := _DEVICE.match(text):
            if device:
                yield from device.facts.values()
            device = _header(excerpt, match, line)
            after_name, flat = True, False
            continue
        if after_name:
            after_name, flat = False, bool(_FLAT.match(text))
        if flat and (not text.strip() or _PROMPT.match(text)):
            flat = False
        if match := _SETPCI.search(text):
            pending = f"{match['bdf']} {match['register']}"
            continue
        if pending and re.fullmatch(r"\s*[0-9a-fA-F]{4}\s*", text):
            yield from _setpci(excerpt, pending, int(text.strip(), 16), line)
            pending = None
            continue
        register = re.match(r"\s*(LnkCap|LnkSta|LnkCtl|DevCap|DevCtl|ACSCtl)\d?:", text)
        if register is None and device is None:
            continue
        indented = flat or text[:1].isspace()
        if device is not None and not indented and text.strip() and register is None:
            yield from device.facts.values()
            device = None
            continue
        if device is None or (
            register
            and device.bdf.startswith(_UNNAMED)
            and device.has(f"seen_{register[0].strip()}")
        ):
            if device:
                yield from device.facts.values()
            device = _Device(excerpt, f"{_UNNAMED}-{unnamed}")
            unnamed += 1
        if register and device.bdf.startswith(_UNNAMED):
            device.put(f"seen_{register[0].strip()}", True, line)
        _line(device, text, line)
    if device:
        yield from device.facts.values()


def _is_row(text: str) -> bool:
    return bool(text[:1].isspace() or _DEVICE.match(text) or re.match(r"[A-Z][\w ]{3,24}:", text))


def _header(excerpt: Excerpt, match: re.Match[str], line: Line) -> _Device:
    device = _Device(excerpt, address(match["bdf"]) or match["bdf"])
    device.put("class", match["class"].strip(), line)
    device.put("name", match["name"].strip(), line)
    if match["name"].rstrip().endswith(")") and re.search(r"\(rev ff\)", match["name"]):
        device.put("all_ones", True, line)
    if ids := _IDS.search(match["name"]):
        device.put("vendor_id", ids["vendor"], line)
        device.put("device_id", ids["device"], line)
    elif bare := _BARE_ID.search(match["name"]):
        device.put("device_id", bare["device"], line)
    return device


def _line(device: _Device, text: str, line: Line) -> None:
    stripped = text.strip()
    if match := re.match(
        r"(DevCap|DevCtl|DevSta|LnkCap|LnkCtl|LnkSta|DevCap2|DevCtl2|LnkCap2|LnkCtl2|"
        r"LnkSta2|ACSCap|ACSCtl|UESta|CESta|SltCap|SltCtl|SltSta|LnkCtl3):",
        stripped,
    ):
        device.section = match[1]
    elif stripped.startswith("Capabilities:"):
        device.section = ""
    _identity(device, stripped, line)
    section = device.section
    if section in ("DevCap", "DevCtl"):
        _device_control(device, section, stripped, line)
    elif section in ("DevCap2", "DevCtl2"):
        _tags(device, section, stripped, line)
    elif section in ("LnkCap", "LnkSta", "LnkCtl", "LnkCtl2"):
        _link(device, section, stripped, line)
    elif section in ("ACSCap", "ACSCtl"):
        flags = re.findall(r"\b([A-Z][A-Za-z]+)([+-])", stripped)
        if flags:
            name = "acs_control" if section == "ACSCtl" else "acs_capability"
            device.put(name, " ".join(a + b for a, b in flags), line)
    elif section in ("UESta", "CESta") and stripped.startswith(section):
        hits = [name for name, sign in re.findall(r"\b(\w+)([+-])", stripped) if sign == "+"]
        name = "aer_uncorrectable" if section == "UESta" else "aer_correctable"
        device.put(name, " ".join(hits) or "none", line)


def _identity(device: _Device, text: str, line: Line) -> None:
    if match := re.match(r"Bus: primary=[0-9a-f]{2}, secondary=([0-9a-f]{2}),", text):
        device.put("secondary_bus", int(match[1], 16), line)
    if "<access denied>" in text:
        device.put("truncated", True, line)
    elif match := re.search(r"\bNUMA node[: ]\s*(\d+)", text):
        device.put("numa_node", int(match[1][:6]), line)
    elif match := re.match(r"Kernel driver in use: ([\w-]+)", text):
        device.put("driver", match[1], line)
    elif match := re.match(r"Kernel modules: (.+)", text):
        device.put("modules", match[1], line)
        if not device.has("driver"):
            # lspci names the driver first; where it names none, none is bound.
            device.put("driver", None, line, "ENOENT")
    elif text.startswith("!!! Unknown header type 7f"):
        device.put("all_ones", True, line)
    if match := re.search(r"NUMA node (\d+)$", text):
        device.put("numa_node", int(match[1][:6]), line)
    if match := re.search(
        r"Express (?:\(v\d\) )?(Legacy Endpoint|Endpoint|Root Port|Upstream Port|Downstream Port|"
        r"Root Complex Integrated Endpoint|PCI-Express to PCI/PCI-X Bridge)",
        text,
    ):
        device.put("port_type", match[1].lower(), line)
    if (match := _REGION.search(text)) and not match["kind"]:
        size = numbers.size_bytes(match["size"])
        key = f"pci/{device.bdf}/bar_bytes"
        known = device.facts.get(key)
        before = known.value if known and isinstance(known.value, int) else 0
        # SR-IOV lists its regions too; those carry no size, so they never come here.
        if size and size > before:
            device.put("bar_bytes", size, line)
    if "Memory at <unassigned>" in text or "Memory at <ignored>" in text:
        device.put("bar_unassigned", True, line)
    if (match := re.match(r"BAR (\d): current size: (\w+), supported: (.+)$", text)) and not (
        device.has("rebar_bytes")
    ):
        sizes = [numbers.size_bytes(word) for word in match[3].split()]
        device.put("rebar_bytes", numbers.size_bytes(match[2]), line)
        device.put("rebar_max_bytes", max((s for s in sizes if s), default=0), line)


def _device_control(device: _Device, section: str, text: str, line: Line) -> None:
    if section == "DevCap":
        if match := re.search(r"MaxPayload (\d+) bytes", text):
            device.put("mps_max_bytes", int(match[1][:6]), line)
        return
    if match := re.search(r"MaxPayload (\d+) bytes", text):
        device.put("mps_bytes", int(match[1][:6]), line)
    if match := re.search(r"MaxReadReq (\d+) bytes", text):
        device.put("mrrs_bytes", int(match[1][:6]), line)
    for flag in _FLAGS:
        if match := re.search(rf"\b{flag}([+-])", text):
            name = {"RlxdOrd": "relaxed_ordering", "ExtTag": "ext_tag", "NoSnoop": "no_snoop"}[flag]
            device.put(name, match[1] == "+", line)


def _tags(device: _Device, section: str, text: str, line: Line) -> None:
    for word, name in (("10BitTagComp", "tag10_completer"), ("10BitTagReq", "tag10_requester")):
        if match := re.search(rf"\b{word}([+-])", text):
            device.put("tag10_enabled" if section == "DevCtl2" else name, match[1] == "+", line)


def _link(device: _Device, section: str, text: str, line: Line) -> None:
    if section == "LnkCap" and text.startswith("LnkCap"):
        if match := re.search(_SPEED, text):
            device.put("max_speed_gts", float(match["speed"]), line)
        if match := re.search(r"Width x(\d+)", text):
            device.put("max_width", int(match[1][:3]), line)
        if match := re.search(r"ASPM ([^,]+),", text):
            device.put("aspm_capability", match[1], line)
    elif section == "LnkSta" and text.startswith("LnkSta"):
        if match := re.search(
            rf"{_SPEED}(?P<note> \((?:ok|downgraded|overdriven|strange)\))?", text
        ):
            device.put("speed_gts", float(match["speed"]), line)
            if match["note"]:
                device.put("speed_note", match["note"].strip(" ()"), line)
        if match := re.search(r"Width x(\d+)( \((?:ok|downgraded|overdriven|strange)\))?", text):
            device.put("width", int(match[1][:3]), line)
            if match[2]:
                device.put("width_note", match[2].strip(" ()"), line)
    elif section == "LnkCtl" and (match := re.match(r"LnkCtl:\s*ASPM ([^;]+);", text)):
        device.put("aspm", match[1].strip(), line)
    elif section == "LnkCtl2" and (
        match := re.search(r"Target Link Speed: (\d+(?:\.\d+)?)GT/s", text)
    ):
        device.put("target_speed_gts", float(match[1]), line)


def _setpci(excerpt: Excerpt, asked: str, value: int, line: Line) -> Iterator[Fact]:
    bdf, register = asked.split(" ", 1)
    base = f"pci/{address(bdf) or bdf}"
    register = register.lower()
    if "acs" in register:
        names = (
            "SrcValid",
            "TransBlk",
            "ReqRedir",
            "CmpltRedir",
            "UpstreamFwd",
            "EgressCtrl",
            "DirectTrans",
        )
        words = " ".join(n + ("+" if value >> i & 1 else "-") for i, n in enumerate(names))
        yield excerpt.fact(f"{base}/acs_control", words, line)
    elif "10" in register:
        words = ("Disabled", "L0s Enabled", "L1 Enabled", "L0s L1 Enabled")[value & 3]
        yield excerpt.fact(f"{base}/aspm", words, line)
    else:
        yield excerpt.fact(f"{base}/mps_bytes", 128 << (value >> 5 & 7), line)
        yield excerpt.fact(f"{base}/mrrs_bytes", 128 << (value >> 12 & 7), line)
        yield excerpt.fact(f"{base}/relaxed_ordering", bool(value & 0x10), line)
        yield excerpt.fact(f"{base}/ext_tag", bool(value & 0x100), line)
