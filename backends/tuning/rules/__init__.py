"""The rules, one module a group."""

from __future__ import annotations

from functools import lru_cache

from backends.tuning.rules import (
    cpu,
    cuda,
    gpu,
    gpu_fabric,
    gpu_health,
    kernel,
    numa,
    pcie,
    virt,
    vm,
)
from backends.tuning.rules.base import Rule

_MODULES = (cpu, numa, kernel, vm, pcie, gpu, gpu_health, gpu_fabric, cuda, virt)


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the catalogue's groups."""
    return tuple(rule for module in _MODULES for rule in module.RULES)
