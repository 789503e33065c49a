"""For each rule: facts on which it is right, on which it is wrong, and where it is none."""

from __future__ import annotations

from collections.abc import Mapping

from tests.tuning.cases import bench, cpu, gpu, kernel, pcie, services, virt
from tests.tuning.cases.base import (
    CPU,
    GA,
    GB,
    GEN5,
    LINK16,
    LOG,
    LXC_BASE,
    MOUNTS,
    NO_RDMA,
    NODE,
    ONLINE,
    STALE,
    SWITCH,
    TWO_NODES,
    A,
    B,
    Case,
    Facts,
    Guest,
    Missing,
    document,
    every_cpu,
    idle,
    meminfo,
)

__all__ = [
    "CASES",
    "CPU",
    "GA",
    "GB",
    "GEN5",
    "LINK16",
    "LOG",
    "LXC_BASE",
    "MOUNTS",
    "NODE",
    "NO_RDMA",
    "ONLINE",
    "STALE",
    "SWITCH",
    "TWO_NODES",
    "A",
    "B",
    "Case",
    "Facts",
    "Guest",
    "Missing",
    "document",
    "every_cpu",
    "idle",
    "meminfo",
]
CASES: Mapping[str, Case] = {
    **cpu.CASES,
    **kernel.CASES,
    **pcie.CASES,
    **gpu.CASES,
    **virt.CASES,
    **services.CASES,
    **bench.CASES,
}
