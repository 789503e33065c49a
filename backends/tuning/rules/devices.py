"""PCI devices of the facts: their roles, the path from a GPU to its root port, link figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backends.tuning.pci_devices import Device, Role
from backends.tuning.rules.base import Scene
from backends.tuning.view import View

GENERATIONS: Final = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCIe generation by transfer rate in GT/s."""
SPEEDS: Final = {generation: speed for speed, generation in GENERATIONS.items()}
TRUNCATED: Final = "the configuration space is cut to 64 bytes without CAP_SYS_ADMIN"


def devices(scene: Scene) -> Mapping[str, Device]:
    """Every PCI function of the facts, by address."""
    return scene.context.devices


def gpu_path(found: Mapping[str, Device]) -> set[str]:
    """Bridges above GPUs, as far as the facts tell them."""
    path: set[str] = set()
    for device in found.values():
        if device.role is not Role.GPU:
            continue
        parent, steps = device.parent, 0
        while parent and parent in found and parent not in path and steps < 32:
            path.add(parent)
            parent, steps = found[parent].parent, steps + 1
    return path


def endpoints(scene: Scene) -> list[tuple[str, str]]:
    """GPUs by id and label, from the driver's facts and from the bus, each once."""
    result = {gpu.id: gpu.label for gpu in scene.gpus}
    for device in devices(scene).values():
        if device.role in (Role.GPU, Role.UNNAMED) and device.bdf not in result:
            result[device.bdf] = device.label
    return list(result.items())


@dataclass(frozen=True, slots=True)
class Link:
    """A link as it is and as it could be; None is not read."""

    width: int | None
    max_width: int | None
    generation: int | None
    max_generation: int | None
    note: str = ""
    parent_limits: bool = False


def link_of(scene: Scene, id_: str) -> Link:
    """Width and generation of the link above a device; notes the facts it used."""
    view = scene.view
    width = view.integer(f"gpu/{id_}/link_width", 0, 32)
    if width is None:
        width = view.integer(f"pci/{id_}/width", 0, 32)
    most = view.integer(f"gpu/{id_}/link_width_max", 1, 32)
    if most is None:
        most = view.integer(f"pci/{id_}/max_width", 1, 32)
    generation = view.integer(f"gpu/{id_}/link_gen", 1, 7)
    if generation is None:
        generation = _generation(view, f"pci/{id_}/speed_gts")
    top = view.integer(f"gpu/{id_}/link_gen_max", 1, 7)
    if top is None:
        top = _generation(view, f"pci/{id_}/max_speed_gts")
    host_top = view.integer(f"gpu/{id_}/link_gen_host_max", 1, 7)
    if host_top is not None and top is not None:
        top = min(top, host_top)
    parent = view.peek(f"pci/{id_}/parent")
    limited = False
    if parent:
        above = view.peek_integer(f"pci/{parent}/max_width")
        if above and most and above < most:
            most, limited = above, True
        above_speed = view.peek_number(f"pci/{parent}/max_speed_gts")
        above_gen = GENERATIONS.get(above_speed) if above_speed else None
        if above_gen and top and above_gen < top:
            top = above_gen
    note = view.text(f"pci/{id_}/width_note") or ""
    return Link(width, most, generation, top, note, limited)


def _generation(view: View, key: str) -> int | None:
    speed = view.number(key, 2.5, 64)
    return GENERATIONS.get(speed) if speed is not None else None


def iommu_mode(view: View) -> str | None:
    """`identity`, `translated` or `off`; None when the facts do not say."""
    types = {reading.text for reading in view.each("/sys/kernel/iommu_groups/*/type")}
    if types & {"DMA", "DMA-FQ"}:
        return "translated"
    if types and types <= {"identity"}:
        return "identity"
    default = view.text("iommu/default_domain")
    words = set(view.boot_flags() or ())
    if words & {"iommu=off", "amd_iommu=off", "intel_iommu=off"}:
        return "off"
    if default in ("Translated", "Passthrough"):
        return "translated" if default == "Translated" else "identity"
    groups = view.items("/sys/kernel/iommu_groups")
    if groups is not None and not groups:
        return "off"
    if "iommu=pt" in words:
        return "identity"
    return None
