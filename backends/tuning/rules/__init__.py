"""The rules, one module a group."""

from __future__ import annotations

from functools import lru_cache

from backends.tuning.catalogue import entries
from backends.tuning.rules import (
    bench,
    cpu,
    cpu_idle,
    cuda,
    fs,
    gpu,
    gpu_driver,
    gpu_fabric,
    gpu_health,
    gpu_xid,
    kernel,
    kernel_boot,
    net,
    numa,
    pcie,
    pcie_links,
    svc,
    virt,
    virt_runtime,
    virt_vm,
    vm,
)
from backends.tuning.rules.base import Rule

_MODULES = (
    cpu,
    cpu_idle,
    numa,
    kernel,
    kernel_boot,
    vm,
    pcie,
    pcie_links,
    gpu,
    gpu_driver,
    gpu_health,
    gpu_xid,
    gpu_fabric,
    cuda,
    virt,
    virt_runtime,
    virt_vm,
    net,
    fs,
    svc,
    bench,
)


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the catalogue's groups."""
    order = {id_: place for place, id_ in enumerate(entries())}
    rules = (rule for module in _MODULES for rule in module.RULES)
    return tuple(sorted(rules, key=lambda rule: order[rule.id]))
