"""PCI configuration space, decoded from its bytes without lspci.

Source: the register definitions of `include/uapi/linux/pci_regs.h` and the PCI Express base
specification. The kernel gives 64 bytes without CAP_SYS_ADMIN, then 256, then 4096.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backends.tuning.facts import Value

HEADER_BYTES: Final = 64
CAPABILITY_LIST: Final = 0x10
PCI_EXPRESS: Final = 0x10
EXT_AER, EXT_ACS, EXT_REBAR, EXT_SRIOV = 0x01, 0x0D, 0x15, 0x10
SPEEDS_GTS: Final = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
PORT_TYPES: Final = {
    0: "endpoint",
    1: "legacy endpoint",
    4: "root port",
    5: "upstream port",
    6: "downstream port",
    7: "pci-express to pci/pci-x bridge",
    9: "root complex integrated endpoint",
}
ASPM: Final = ("Disabled", "L0s Enabled", "L1 Enabled", "L0s L1 Enabled")
ACS_BITS: Final = (
    "SrcValid",
    "TransBlk",
    "ReqRedir",
    "CmpltRedir",
    "UpstreamFwd",
    "EgressCtrl",
    "DirectTrans",
)
SURPRISE_DOWN: Final = 0x20
MAX_EXTENDED: Final = 96


@dataclass(frozen=True, slots=True)
class ConfigSpace:
    """The bytes of one function's configuration space."""

    data: bytes

    @property
    def all_ones(self) -> bool:
        """Whether the device is gone: every read answers ones."""
        return len(self.data) >= 4 and self.data[:4] == b"\xff" * 4

    @property
    def truncated(self) -> bool:
        """Whether the kernel gave the header alone."""
        return len(self.data) <= HEADER_BYTES

    def u16(self, offset: int) -> int | None:
        """A 16-bit register; None beyond the bytes that were read."""
        if offset >= 0 and offset + 2 <= len(self.data):
            return int(struct.unpack_from("<H", self.data, offset)[0])
        return None

    def u32(self, offset: int) -> int | None:
        """A 32-bit register; None beyond the bytes that were read."""
        if offset >= 0 and offset + 4 <= len(self.data):
            return int(struct.unpack_from("<I", self.data, offset)[0])
        return None

    def capabilities(self) -> Mapping[int, int]:
        """Offset of each capability by id; loops and bad pointers end the walk."""
        status = self.u16(6)
        if self.truncated or status is None or not status & CAPABILITY_LIST:
            return {}
        found: dict[int, int] = {}
        pointer, seen = self.data[0x34] & 0xFC, set[int]()
        while pointer >= HEADER_BYTES and pointer not in seen and pointer + 2 <= len(self.data):
            seen.add(pointer)
            found.setdefault(self.data[pointer], pointer)
            pointer = self.data[pointer + 1] & 0xFC
        return found

    def extended(self) -> Mapping[int, int]:
        """Offset of each extended capability by id."""
        found: dict[int, int] = {}
        pointer = 0x100
        for _ in range(MAX_EXTENDED):
            header = self.u32(pointer) if pointer >= 0x100 else None
            if header is None or header in (0, 0xFFFFFFFF):
                break
            found.setdefault(header & 0xFFFF, pointer)
            pointer = header >> 20 & 0xFFC
        return found


def decode(data: bytes) -> dict[str, Value]:
    """The fields of `pci/ADDRESS/...` that these bytes establish; nothing is guessed.

    Sizes in bytes, speeds in GT/s. A device that is gone gives `all_ones` alone.
    """
    space = ConfigSpace(data)
    if space.all_ones:
        return {"all_ones": True}
    fields: dict[str, Value] = {"truncated": space.truncated}
    vendor, device = space.u16(0), space.u16(2)
    if vendor is not None and device is not None:
        fields["vendor_id"], fields["device_id"] = f"{vendor:04x}", f"{device:04x}"
    class_ = space.u32(8)
    if class_ is not None:
        fields["class"] = f"0x{class_ >> 8:06x}"
    if len(data) > 0x1A and data[0x0E] & 0x7F == 1:
        fields["secondary_bus"] = data[0x19]
    express = space.capabilities().get(PCI_EXPRESS)
    if express is not None:
        fields.update(_express(space, express))
    extended = space.extended()
    if EXT_ACS in extended and (control := space.u16(extended[EXT_ACS] + 6)) is not None:
        fields["acs_control"] = " ".join(
            name + ("+" if control >> bit & 1 else "-") for bit, name in enumerate(ACS_BITS)
        )
    if EXT_REBAR in extended:
        fields.update(_rebar(space, extended[EXT_REBAR]))
    if EXT_AER in extended:
        wrong = space.u32(extended[EXT_AER] + 4)
        right = space.u32(extended[EXT_AER] + 0x10)
        if wrong is not None and right is not None:
            fields["aer_uncorrectable_status"] = wrong
            fields["aer_correctable_status"] = right
            fields["surprise_down"] = bool(wrong & SURPRISE_DOWN)
    return fields


def _express(space: ConfigSpace, at: int) -> dict[str, Value]:
    fields: dict[str, Value] = {}
    flags, able, control = space.u16(at + 2), space.u32(at + 4), space.u16(at + 8)
    link_able, link_control, link = (
        space.u32(at + 0x0C),
        space.u16(at + 0x10),
        space.u16(at + 0x12),
    )
    if flags is not None and (kind := PORT_TYPES.get(flags >> 4 & 15)):
        fields["port_type"] = kind
    if able is not None:
        fields["mps_max_bytes"] = 128 << (able & 7)
    if control is not None:
        fields["mps_bytes"] = 128 << (control >> 5 & 7)
        fields["mrrs_bytes"] = 128 << (control >> 12 & 7)
        fields["relaxed_ordering"] = bool(control & 0x10)
        fields["ext_tag"] = bool(control & 0x100)
        fields["no_snoop"] = bool(control & 0x800)
    if link_able is not None and (speed := SPEEDS_GTS.get(link_able & 15)):
        fields["max_speed_gts"] = speed
        fields["max_width"] = link_able >> 4 & 63
    if link is not None and (speed := SPEEDS_GTS.get(link & 15)):
        fields["speed_gts"] = speed
        fields["width"] = link >> 4 & 63
    if link_control is not None:
        fields["aspm"] = ASPM[link_control & 3]
    able2, control2, link_control2 = (
        space.u32(at + 0x24),
        space.u16(at + 0x28),
        space.u16(at + 0x30),
    )
    if flags is not None and flags & 15 >= 2 and able2 is not None and control2 is not None:
        fields["tag10_completer"] = bool(able2 & 1 << 16)
        fields["tag10_requester"] = bool(able2 & 1 << 17)
        fields["tag10_enabled"] = bool(control2 & 1 << 12)
        if link_control2 is not None:
            fields["autonomous_speed_disabled"] = bool(link_control2 & 0x20)
            if speed := SPEEDS_GTS.get(link_control2 & 15):
                fields["target_speed_gts"] = speed
    return fields


def _rebar(space: ConfigSpace, at: int) -> dict[str, Value]:
    """Size now and largest size offered, of the largest resizable BAR."""
    first = space.u32(at + 8)
    if first is None:
        return {}
    now = most = 0
    for index in range(min(first >> 5 & 7, 6) or 1):
        able, control = space.u32(at + 4 + 8 * index), space.u32(at + 8 + 8 * index)
        if able is None or control is None:
            break
        sizes = able >> 4 | (control >> 16) << 28
        now = max(now, 1 << (control >> 8 & 0x3F))
        if sizes:
            most = max(most, 1 << (sizes.bit_length() - 1))
    fields: dict[str, Value] = {}
    if now < 1 << 40:
        fields["rebar_bytes"] = now << 20
    if 0 < most < 1 << 40:
        fields["rebar_max_bytes"] = most << 20
    return fields
