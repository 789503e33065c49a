"""PCIe: cases of their rules."""

from __future__ import annotations

from collections.abc import Mapping

from tests.tuning.cases.base import (
    AER,
    BELOW_PORT,
    BELOW_SWITCH,
    GA,
    GEN5,
    GPU_PCI,
    LINK16,
    LXC,
    ONE_GPU,
    PA,
    PCI,
    PORT,
    QEMU,
    QUIET,
    SWITCH,
    VM,
    A,
    Case,
    Missing,
)

CASES: Mapping[str, Case] = {
    # PCIe
    "pcie.link_width": Case(
        LINK16, {f"{GA}/link_width": 8, f"{GA}/link_width_max": 16}, {}, none_verdict="UNKNOWN"
    ),
    "pcie.link_gen": Case(
        GEN5,
        {f"{GA}/link_gen": 2, f"{GA}/link_gen_max": 5, f"{GA}/pstate": "P0", f"{GA}/util_pct": 99},
        {},
        none_verdict="UNKNOWN",
    ),
    "pcie.link_flap": Case(
        {f"pcie_flaps/{A}/changes": 0, f"pcie_flaps/{A}/seconds": 30},
        {f"pcie_flaps/{A}/changes": 90, f"pcie_flaps/{A}/seconds": 30},
        VM,
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "pcie.path_bottleneck": Case(
        {**BELOW_SWITCH, f"pci/{SWITCH}/width": 16},
        {**BELOW_SWITCH, f"pci/{SWITCH}/width": 8},
        ONE_GPU,
    ),
    "pcie.mps": Case(
        {**GPU_PCI, f"{PA}/mps_bytes": 256, f"{PA}/mps_max_bytes": 256},
        {
            **BELOW_PORT,
            f"{PA}/mps_bytes": 256,
            f"{PA}/mps_max_bytes": 256,
            f"pci/{PORT}/mps_bytes": 128,
            f"pci/{PORT}/mps_max_bytes": 512,
        },
        {**LXC, **GPU_PCI},
        none_verdict="UNKNOWN",
    ),
    "pcie.mrrs": Case(
        {**GPU_PCI, f"{PA}/mrrs_bytes": 512},
        {**GPU_PCI, f"{PA}/mrrs_bytes": 128},
        {f"pci/{PORT}/class": "PCI bridge", f"pci/{PORT}/mrrs_bytes": 128},
        bad_verdict="WARN",
    ),
    "pcie.relaxed_ordering": Case(
        {**GPU_PCI, f"{PA}/relaxed_ordering": True},
        {**GPU_PCI, f"{PA}/relaxed_ordering": False},
        {**GPU_PCI, f"{PA}/truncated": True},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "pcie.tag10": Case(
        {**GPU_PCI, f"{PA}/tag10_requester": True, f"{PA}/tag10_enabled": True},
        {
            **GPU_PCI,
            f"{PA}/tag10_requester": True,
            f"{PA}/tag10_enabled": False,
            f"{PA}/max_speed_gts": 32.0,
        },
        {
            **GPU_PCI,
            f"{PA}/tag10_requester": False,
            f"{PA}/tag10_enabled": False,
            f"{PA}/max_speed_gts": 8.0,
        },
        bad_verdict="WARN",
    ),
    "pcie.aspm": Case(
        {**GPU_PCI, f"{PA}/aspm": "Disabled"},
        {**GPU_PCI, f"{PA}/aspm": "L1 Enabled"},
        {**GPU_PCI, f"{PA}/truncated": True},
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
    "pcie.acs": Case(
        {f"pci/{PORT}/acs_control": "SrcValid+ ReqRedir- CmpltRedir- UpstreamFwd+"},
        {
            f"pci/{PORT}/acs_control": "SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+",
            "/sys/kernel/iommu_groups/1/type": "DMA",
        },
        LXC,
        none_verdict="UNKNOWN",
    ),
    "pcie.aer": Case(
        QUIET,
        {
            **QUIET,
            f"{AER}nonfatal": "TOTAL_ERR_NONFATAL 3",
            f"pci/{A}/class": "0x030200",
            f"pci/{A}/vendor_id": "10de",
        },
        {"log/aer_owner": "firmware"},
    ),
    "pcie.replay": Case(
        {f"{GA}/replays": 0},
        {f"{GA}/replays_per_minute": 900, **LINK16, **GEN5},
        {f"{GA}/replays": Missing("NotSupported")},
    ),
    "pcie.bar1": Case(
        {f"{GA}/bar1_mib": 131072, f"{GA}/vram_mib": 97887},
        {f"{GA}/bar1_mib": 256, f"{GA}/vram_mib": 24564, "gpu/attached": 8},
        {},
        none_verdict="UNKNOWN",
    ),
    "pcie.runtime_pm": Case(
        {f"{GA}/index": 0, f"{PCI}/{A}/power/control": "on"},
        {f"{GA}/index": 0, f"{PCI}/{A}/power/control": "auto", f"{PCI}/{A}/d3cold_allowed": "1"},
        VM,
        bad_verdict="WARN",
    ),
    "pcie.reset_method": Case(
        {f"{GA}/index": 0, f"{PCI}/{A}/reset_method": "flr bus"},
        {
            f"{GA}/name": "NVIDIA RTX PRO 6000 Blackwell",
            f"{PCI}/{A}/reset_method": "flr",
            "pve/qemu/100": QEMU,
        },
        VM,
        good_verdict="INFO",
        bad_verdict="WARN",
        none_verdict="UNKNOWN",
    ),
}
