"""What a reboot will change on a host, said before it happens. Pure.

The next outage is mostly prepared by the last upgrade: another kernel, another driver on disk,
device majors given out anew, settings that nobody made lasting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from backends.tuning import context, numbers, states
from backends.tuning.context import Context
from backends.tuning.facts import FactsDocument, Vantage
from backends.tuning.normalise import normalise
from backends.tuning.plans.cmdline import differences, parse_flags
from backends.tuning.plans.proxmox import parse_lxc
from backends.tuning.rules.majors import FIXED_MAJORS, driver_of, majors
from backends.tuning.view import FactTable, View

CPU: Final = "/sys/devices/system/cpu"
DEFAULTS: Final = {
    "kernel.numa_balancing": "1",
    "vm.swappiness": "60",
    "vm.zone_reclaim_mode": "0",
    "vm.overcommit_memory": "0",
    "vm.dirty_bytes": "0",
    "net.core.somaxconn": "4096",
    "net.core.rmem_max": "212992",
}
"""What the kernel sets by itself, where that does not depend on the machine or distribution."""
VOLATILE: Final = (
    f"{CPU}/cpu0/cpufreq/scaling_governor",
    f"{CPU}/cpu0/cpufreq/energy_performance_preference",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/defrag",
)
"""Files below /sys that fall back to the kernel's choice unless something writes them at boot."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that will not be the same after a reboot.

    Attributes:
        what: The setting or version.
        now: Its value now.
        after: What it will be, or `given out anew` where nobody can know.
        certain: Whether the facts say so, or only that it may change.
        note: What depends on it.
    """

    what: str
    now: str
    after: str
    certain: bool = True
    note: str = ""

    @property
    def line(self) -> str:
        """In one line."""
        may = "" if self.certain else " (may)"
        note = f"  [{self.note}]" if self.note else ""
        return f"{self.what}: {self.now} -> {self.after}{may}{note}"


def preview(document: FactsDocument) -> list[Change]:
    """What a reboot of the host will change, as far as its facts tell."""
    facts = normalise(document).facts if not document.derived else document.facts
    view = View(FactTable(f for f in facts if f.vantage is Vantage.HOST), Vantage.HOST)
    ctx = context.build(view)
    return [
        *_versions(view),
        *_command_line(view),
        *_majors(view),
        *_sysctls(view),
        *_sysfs(view),
        *_idle_states(view),
        *_gpus(view, ctx),
    ]


def _versions(view: View) -> Iterator[Change]:
    for what, now_key, after_key in (
        ("kernel", "/proc/sys/kernel/osrelease", "boot/default_kernel"),
        ("NVIDIA module", "nvrm/version", "module/nvidia/version"),
    ):
        now, after = view.peek(now_key), view.peek(after_key)
        if now and after and now != after:
            note = "user-space libraries of containers must match" if "NVIDIA" in what else ""
            yield Change(what, now, after, note=note)


def _command_line(view: View) -> Iterator[Change]:
    running, configured = view.peek("/proc/cmdline"), states.configured_command_line(view)
    if running is None or configured is None:
        return
    missing, extra = differences(parse_flags(configured), parse_flags(running))
    for flag in missing:
        yield Change("kernel flag", states.NOT_SET, flag)
    for flag in extra:
        yield Change("kernel flag", flag, states.NOT_SET)


def _majors(view: View) -> Iterator[Change]:
    table = majors(view)
    written: dict[int, list[str]] = {}
    for reading in view.peek_each("pve/lxc/*"):
        config = parse_lxc(reading.items or ())
        for allow in config.allows:
            if allow.major is not None and config.uses_gpu:
                written.setdefault(allow.major, []).append(reading.name)
    for name, major in table.items():
        if "nvidia" not in name or major in FIXED_MAJORS:
            continue
        ids = sorted(set(written.get(major, ())))
        note = f"written down for container {', '.join(ids)}: devN entries first" if ids else ""
        yield Change(f"major of {name}", str(major), "given out anew", certain=False, note=note)
    for reading in view.peek_each("node//dev/*"):
        path = reading.fact.key.removeprefix("node/")
        owner = driver_of(path, table)
        match = re.match(r"(\d+):", reading.text or "")
        if owner and match and int(match[1]) != owner[1]:
            yield Change(path, match[1], str(owner[1]), note="the node is stale already")


def _sysctls(view: View) -> Iterator[Change]:
    for name, default in DEFAULTS.items():
        now = view.peek("/proc/sys/" + name.replace(".", "/"))
        configured = states.sysctl(view, name)
        if now is None or configured is None:
            continue
        after = default if configured == states.NOT_SET else configured
        if name == "kernel.numa_balancing" and configured == states.NOT_SET:
            nodes = view.peek_cpus("/sys/devices/system/node/online")
            if nodes is None or len(nodes) < 2:
                continue
        if now.split() != after.split():
            note = "" if configured != states.NOT_SET else "no file sets it"
            yield Change(name, now, after, note=note)


def _sysfs(view: View) -> Iterator[Change]:
    if view.peek("unit/tuned/active") == "active":
        return  # tuned sets these again at boot.
    for path in VOLATILE:
        now = view.peek(path)
        configured = states.boot_write(view, path)
        if now is None or configured is None:
            continue
        chosen = numbers.choice(now) or now
        if configured == states.NOT_SET:
            yield Change(
                path,
                chosen,
                "the kernel's choice",
                certain=False,
                note="no tmpfiles.d line writes it",
            )
        elif configured != chosen:
            yield Change(path, chosen, configured)


def _idle_states(view: View) -> Iterator[Change]:
    switched_off: dict[str, str] = {}
    for reading in view.peek_each(f"{CPU}/cpu*/cpuidle/state*/disable"):
        if reading.integer:
            switched_off.setdefault(reading.names[1], reading.fact.key)
    for state, path in switched_off.items():
        if states.boot_write(view, path) == states.NOT_SET:
            name = view.peek(f"{CPU}/cpu0/cpuidle/state{state}/name") or f"state {state}"
            yield Change(f"idle state {name}", "off", "on", note="no tmpfiles.d line writes it")


def _gpus(view: View, ctx: Context) -> Iterator[Change]:
    lasting = view.peek("unit/gpuroom-tune/enabled") == "enabled"
    daemon = view.peek("unit/nvidia-persistenced/enabled")
    for gpu in ctx.gpus:
        limit = view.peek_number(gpu.key("power_limit_w"))
        default = view.peek_number(gpu.key("power_default_w"))
        if limit is not None and default is not None and limit != default and not lasting:
            yield Change(
                f"power limit of GPU {gpu.label}",
                f"{limit:g} W",
                f"{default:g} W",
                certain=False,
                note="unless a unit sets it again",
            )
        on = numbers.flag(view.peek(gpu.key("persistence")))
        if on and daemon in ("disabled", "masked"):
            yield Change(
                f"persistence of GPU {gpu.label}",
                "on",
                "off",
                note="nvidia-persistenced is not enabled",
            )
        for field, what in (("ecc", "ECC"), ("mig", "MIG")):
            now = numbers.flag(view.peek(gpu.key(f"{field}_current")))
            after = numbers.flag(view.peek(gpu.key(f"{field}_pending")))
            if now is not None and after is not None and now != after:
                words = ("off", "on")
                yield Change(f"{what} of GPU {gpu.label}", words[now], words[after])
