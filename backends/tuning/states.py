"""Running, configured and effective: the three states of a setting that persists. Pure.

A setting that runs and is configured nowhere is lost at the next boot; one that is configured
and does not run waits for a boot, or stands in a file that nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from backends.tuning.findings import Columns
from backends.tuning.plans.cmdline import name_of, parse_flags
from backends.tuning.view import View

NOT_SET: Final = "not set"
FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "cpu.scaling_driver": ("amd_pstate", "intel_pstate"),
    "cpu.cstates": ("processor.max_cstate", "intel_idle.max_cstate"),
    "kernel.iommu": ("iommu", "amd_iommu", "intel_iommu"),
    "kernel.mitigations": ("mitigations",),
    "kernel.init_on_alloc": ("init_on_alloc",),
    "kernel.pcie_port_pm": ("pcie_port_pm",),
    "kernel.isolation": ("isolcpus", "nohz_full", "rcu_nocbs"),
    "pcie.aspm": ("pcie_aspm", "pcie_aspm.policy"),
}
"""Checks whose setting is a flag of the kernel's command line, and the flags' names."""


def columns(rule: str, view: View, used: Iterable[str], effect: str) -> Columns | None:
    """The three states behind a finding; None when it is about nothing that persists.

    Args:
        rule: Id of the check.
        view: The facts it was judged on.
        used: Keys of the facts that carried the verdict.
        effect: What the rule found in effect, in words.
    """
    if rule in FLAGS:
        return _flags(view, FLAGS[rule], effect)
    for key in used:
        if key.startswith("/proc/sys/"):
            name = key.removeprefix("/proc/sys/").replace("/", ".")
            return _of(view, key, sysctl(view, name))
        if key.startswith("/sys/module/") and "/parameters/" in key:
            return _of(view, key, module_option(view, key))
        if key.startswith(("/sys/devices/system/cpu/", "/sys/kernel/mm/", "/sys/block/")):
            return _of(view, key, boot_write(view, key))
    return None


def _of(view: View, key: str, configured: str | None) -> Columns:
    now = view.peek(key)
    return Columns(running=now, configured=configured, effective=now)


def _flags(view: View, names: tuple[str, ...], effect: str) -> Columns | None:
    wanted = frozenset(name_of(name) for name in names)
    running = view.peek("/proc/cmdline")
    configured = configured_command_line(view)
    if running is None and configured is None:
        return None
    return Columns(_chosen(running, wanted), _chosen(configured, wanted), effect[:120])


@lru_cache(maxsize=64)
def _chosen(line: str | None, names: frozenset[str]) -> str | None:
    if line is None:
        return None
    return " ".join(f for f in parse_flags(line) if name_of(f) in names) or NOT_SET


def configured_command_line(view: View) -> str | None:
    """What the boot loader in use has in its file; None when loader or file were not read."""
    loader = view.peek("boot/loader")
    if loader == "systemd-boot":
        return view.peek("/etc/kernel/cmdline")
    return view.peek("boot/grub_cmdline") if loader == "grub" else None


def sysctl(view: View, name: str) -> str | None:
    """The value that the files of sysctl.d set; `not set`, or None when they were not read."""
    value = view.peek(f"sysctl/configured/{name}")
    if value is not None:
        return value
    return NOT_SET if view.table.below("sysctl") else None


def module_option(view: View, key: str) -> str | None:
    """The value that modprobe.d sets for a parameter of a module."""
    options = view.table.get("modprobe/options")
    if options is None or not isinstance(options.value, list):
        return None
    module, _, name = key.removeprefix("/sys/module/").partition("/parameters/")
    found = NOT_SET
    for entry in options.value:
        owner, _, option = entry.partition(" ")
        option_name, _, value = option.partition("=")
        if owner.replace("-", "_") == module and option_name == name:
            found = value
    return found


def boot_write(view: View, path: str) -> str | None:
    """The value that tmpfiles.d writes into a file below /sys at boot."""
    writes = view.table.get("tmpfiles/writes")
    if writes is None or not isinstance(writes.value, list):
        return None
    found = NOT_SET
    for entry in writes.value:
        pattern, _, value = entry.partition(" ")
        if fnmatchcase(path, pattern):
            found = value
    return found
