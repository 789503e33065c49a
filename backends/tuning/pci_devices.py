"""The PCI functions of the facts, and what each is to us."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from backends.tuning.view import View


class Role(StrEnum):
    """What a PCI function is to us."""

    GPU = "gpu"
    NIC = "nic"
    BRIDGE = "bridge"
    NVME = "nvme"
    UNNAMED = "unnamed"
    """Lines of lspci without the device's name."""
    VIRTUAL = "virtual function"
    OTHER = "other"


MELLANOX_VFS = frozenset({"1014", "1016", "1018", "101a", "101c", "101e"})
PORTS = frozenset({"root port", "downstream port", "upstream port"})


@dataclass(frozen=True, slots=True)
class Device:
    """One PCI function."""

    bdf: str
    role: Role
    parent: str | None = None

    @property
    def label(self) -> str:
        """Short name for findings."""
        return self.bdf.removeprefix("0000:")

    def key(self, field: str) -> str:
        """The fact's key of one field."""
        return f"pci/{self.bdf}/{field}"


def find_devices(view: View) -> Mapping[str, Device]:
    """Every PCI function of the facts, by address."""
    bdfs: dict[str, None] = {}
    for key in view.table.below("pci"):
        parts = key.split("/")
        if len(parts) == 3:
            bdfs[parts[1]] = None
    buses = {}
    for bdf in bdfs:
        secondary = view.peek_integer(f"pci/{bdf}/secondary_bus")
        if secondary is not None:
            buses[f"{bdf[:5]}{secondary:02x}"] = bdf
    result = {}
    for bdf in bdfs:
        parent = view.peek(f"pci/{bdf}/parent") or buses.get(bdf[:7])
        result[bdf] = Device(bdf, _role(view, bdf), parent if parent != bdf else None)
    return result


def _role(view: View, bdf: str) -> Role:
    class_ = (view.peek(f"pci/{bdf}/class") or "").lower()
    name = (view.peek(f"pci/{bdf}/name") or "").lower()
    vendor = (view.peek(f"pci/{bdf}/vendor_id") or "").lower().removeprefix("0x")
    if bdf.startswith("unnamed"):
        port = view.peek(f"pci/{bdf}/port_type") or ""
        return Role.BRIDGE if port in PORTS else Role.UNNAMED
    if re.search(r"vga|3d controller|display|processing accel|^0x03|^0x12", class_):
        ours = vendor in ("10de", "1002") or re.search(r"nvidia|instinct|\bamd/ati\b", name)
        return Role.GPU if ours else Role.OTHER
    if re.search(r"bridge|^0x0604", class_) or view.peek(f"pci/{bdf}/port_type") in PORTS:
        return Role.BRIDGE
    if re.search(r"ethernet|infiniband|network|^0x02", class_):
        # A virtual function has no payload, ordering or requests of its own to set.
        device = (view.peek(f"pci/{bdf}/device_id") or "").lower().removeprefix("0x")
        virtual = "virtual function" in name or (vendor == "15b3" and device in MELLANOX_VFS)
        return Role.VIRTUAL if virtual else Role.NIC
    if re.search(r"non-volatile|^0x0108", class_):
        return Role.NVME
    unknown = not (class_ or name or vendor) and view.peek(f"pci/{bdf}/width")
    return Role.UNNAMED if unknown else Role.OTHER
