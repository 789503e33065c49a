"""What a GPU's name or PCI device id says about it: generation, class, memory, NVLink.

Sources: the PCI ID list for device ids, vendors' data sheets for memory and links.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Generation(StrEnum):
    """Families that rules tell apart, oldest first."""

    MAXWELL = "Maxwell"
    PASCAL = "Pascal"
    VOLTA = "Volta"
    TURING = "Turing"
    AMPERE = "Ampere"
    ADA = "Ada Lovelace"
    HOPPER = "Hopper"
    BLACKWELL = "Blackwell"


ORDER: Final = tuple(Generation)


def at_least(generation: Generation, floor: Generation) -> bool:
    """Whether `generation` is `floor` or newer."""
    return ORDER.index(generation) >= ORDER.index(floor)


@dataclass(frozen=True, slots=True)
class Model:
    """One product: pattern over its printed name, and what is known of it."""

    pattern: str
    generation: Generation
    vram_gib: int | None = None
    consumer: bool = False
    nvlinks: int = 0
    nvlink_mb_s: int = 0
    """Speed of one link, MB/s in one direction."""
    nvswitch: bool = False
    """Sold on boards with NVSwitch, so a fabric manager is expected."""


_B, _H, _D, _A = Generation.BLACKWELL, Generation.HOPPER, Generation.ADA, Generation.AMPERE

MODELS: Final = (
    Model(r"GB300", _B, 288, nvlinks=18, nvlink_mb_s=53125, nvswitch=True),
    Model(r"GB200", _B, 186, nvlinks=18, nvlink_mb_s=53125, nvswitch=True),
    Model(r"B300", _B, 288, nvlinks=18, nvlink_mb_s=53125, nvswitch=True),
    Model(r"B200", _B, 180, nvlinks=18, nvlink_mb_s=53125, nvswitch=True),
    Model(r"RTX PRO 6000", _B, 96),
    Model(r"RTX PRO 5000", _B, 48),
    Model(r"RTX PRO \d", _B),
    Model(r"RTX 5090", _B, 32, consumer=True),
    Model(r"RTX 50[5678]0", _B, consumer=True),
    Model(r"GH200", _H, nvlinks=18, nvlink_mb_s=26562),
    Model(r"H200 NVL", _H, 141),
    Model(r"H200", _H, 141, nvlinks=18, nvlink_mb_s=26562, nvswitch=True),
    Model(r"H100 (?:PCIe|NVL)", _H, 80),
    Model(r"H100", _H, 80, nvlinks=18, nvlink_mb_s=26562, nvswitch=True),
    Model(r"H800|H20\b", _H, nvswitch=True),
    Model(r"GB10\b", _B),
    Model(r"RTX 6000 Ada", _D, 48),
    Model(r"RTX [2345]\d00(?: SFF)? Ada", _D),
    Model(r"\bL20\b", _D, 48),
    Model(r"\bL2\b", _D, 24),
    Model(r"RTX 4090", _D, 24, consumer=True),
    Model(r"RTX 40[5678]0", _D, consumer=True),
    Model(r"\bL40S?\b", _D, 48),
    Model(r"\bL4\b", _D, 24),
    Model(r"A800-SXM4", _A, 80, nvlinks=8, nvlink_mb_s=25000, nvswitch=True),
    Model(r"A[18]00.*(?:PCIe.*80 ?GB|80 ?GB.*PCIe)", _A, 80),
    Model(r"A100.*PCIe.*40 ?GB", _A, 40),
    Model(r"A[18]00.*PCIe", _A),
    Model(r"A100-SXM4-80GB", _A, 80, nvlinks=12, nvlink_mb_s=25000, nvswitch=True),
    Model(r"A100", _A, 40, nvlinks=12, nvlink_mb_s=25000, nvswitch=True),
    Model(r"RTX A6000|\bA40\b", _A, 48),
    Model(r"\bA[123]\d?\b|RTX A\d000", _A),
    Model(r"RTX 3090", _A, 24, consumer=True),
    Model(r"RTX 30[5678]0", _A, consumer=True),
    Model(r"RTX 20[678]0", Generation.TURING, consumer=True),
    Model(r"Quadro RTX 8000", Generation.TURING, 48),
    Model(r"GTX 16[56]0", Generation.TURING, consumer=True),
    Model(r"Quadro RTX|\bT4\b|Titan RTX", Generation.TURING),
    Model(r"V100|Titan V", Generation.VOLTA),
    Model(r"P100|P40|P4\b|GTX 10\d0|Titan X", Generation.PASCAL),
    Model(r"M40|M60|GTX 9\d0", Generation.MAXWELL),
)

DEVICE_NAMES: Final = {
    0x2BB1: "RTX PRO 6000 Blackwell Workstation Edition",
    0x2BB4: "RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    0x2BB5: "RTX PRO 6000 Blackwell Server Edition",
    0x2B85: "GeForce RTX 5090",
    0x2901: "B200",
    0x3182: "B300",
    0x2684: "GeForce RTX 4090",
    0x26B1: "RTX 6000 Ada Generation",
    0x26B5: "L40",
    0x26B9: "L40S",
    0x2330: "H100 SXM5 80GB",
    0x2331: "H100 PCIe",
    0x2335: "H200 SXM 141GB",
    0x20B2: "A100-SXM4-80GB",
    0x20B0: "A100-SXM4-40GB",
    0x20B5: "A100 80GB PCIe",
    0x2204: "GeForce RTX 3090",
    0x2230: "RTX A6000",
    0x2235: "A40",
}

# Ranges of device ids by chip, from the PCI ID list: first, last, generation.
_RANGES: Final = (
    (0x1340, 0x15EF, Generation.MAXWELL),
    (0x15F0, 0x1D7F, Generation.PASCAL),
    (0x1D80, 0x1DFF, Generation.VOLTA),
    (0x1E00, 0x1FFF, Generation.TURING),
    (0x2000, 0x20FF, Generation.AMPERE),
    (0x2180, 0x21FF, Generation.TURING),
    (0x2200, 0x22FF, Generation.AMPERE),
    (0x2300, 0x23FF, Generation.HOPPER),
    (0x2400, 0x25FF, Generation.AMPERE),
    (0x2600, 0x28FF, Generation.ADA),
    (0x2900, 0x2FFF, Generation.BLACKWELL),
    (0x3180, 0x32FF, Generation.BLACKWELL),
)


def model_of(name: str | None) -> Model | None:
    """The table's entry for a printed product name."""
    if not name:
        return None
    return next((m for m in MODELS if re.search(m.pattern, name, re.IGNORECASE)), None)


def generation_of(
    architecture: str | None = None, name: str | None = None, device_id: int | None = None
) -> Generation | None:
    """The family, from what the driver says, else the name, else the PCI device id."""
    if architecture:
        for generation in Generation:
            if architecture.lower().startswith(generation.value.lower().split()[0]):
                return generation
    model = model_of(name) or model_of(DEVICE_NAMES.get(device_id or -1))
    if model:
        return model.generation
    if device_id is not None:
        for first, last, generation in _RANGES:
            if first <= device_id <= last:
                return generation
    return None
