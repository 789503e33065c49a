"""The kernel and its command line: which runs, which the next boot takes, what was configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backends.tuning import numbers
from backends.tuning.findings import Columns
from backends.tuning.fixes import Fix, Risk, commands, kernel_flags, manual
from backends.tuning.plans.cmdline import differences, parse_flags
from backends.tuning.rules.base import (
    Judgements,
    Scene,
    collect,
    failed,
    passed,
    rule,
    unknown,
    warned,
)
from backends.tuning.tables import kernel_table

RELEASE: Final = "/proc/sys/kernel/osrelease"


@rule("kernel.version")
def version(scene: Scene) -> Judgements:
    view = scene.view
    table = kernel_table()
    by_kernel: Mapping[str, str] = {r.name: r.text or "" for r in view.each("p2p_by_kernel/*/*")}
    worse = [k for k, status in by_kernel.items() if status in ("CNS", "TNS")]
    if worse and "OK" in by_kernel.values():
        good = next(k for k, status in by_kernel.items() if status == "OK")
        yield failed(f"peer-to-peer works on {good} and not on {worse[0]}", fix=_pin(good))
        return
    release = view.text(RELEASE)
    if release is None:
        return
    for bad in table.bad:
        if release == bad.release:
            yield failed(f"{release}: {bad.why}", fix=_pin(bad.instead))
            return
    now = numbers.release(release)
    if now is None:
        yield unknown(f"release {release[:40]!r} not understood")
        return
    vendor, family = scene.context.cpu_vendor, scene.context.cpu_family
    above = [f for f in table.floors if now < (numbers.release(f.floor) or (0,))]
    for floor in above:
        if (vendor, family) == (floor.vendor, floor.family):
            yield warned(
                f"{release} is older than {floor.floor}: {floor.why}",
                fix=manual(f"install and boot a kernel of {floor.floor} or newer", reboot=True),
            )
            return
    if family is None and any(vendor in (None, floor.vendor) for floor in above):
        yield unknown(f"{release}; the CPU is not known, so neither is its floor")
    else:
        yield passed(release)


def _pin(release: str) -> Fix:
    return commands(
        ("proxmox-boot-tool", "kernel", "pin", release, "--next-boot"),
        summary=f"boot {release} once, then pin it",
        undo_argvs=(("proxmox-boot-tool", "kernel", "unpin", "--next-boot"),),
        risk=Risk.MEDIUM,
    )


@rule("kernel.reboot_pending")
def reboot_pending(scene: Scene) -> Judgements:
    view = scene.view
    running = view.text(RELEASE)
    default = view.text("boot/default_kernel")
    loaded = view.text("nvrm/version")
    disk = view.text("module/nvidia/version")
    required = view.has("/run/reboot-required") and not view.error("/run/reboot-required")
    waits = []
    if running and default and running != default:
        waits.append(f"kernel {running} runs, {default} boots next")
    if loaded and disk and loaded != disk:
        waits.append(f"driver {loaded} is loaded, {disk} is installed")
    if required:
        waits.append("/run/reboot-required is there")
    columns = Columns(running=running, configured=default)
    if waits:
        moved = "; device majors may move" if loaded or scene.gpus else ""
        yield warned(
            "; ".join(waits) + moved,
            columns=columns,
            fix=manual("plan a reboot; look at what it changes before", reboot=True),
        )
    elif running and default and (loaded is None) == (disk is None):
        if loaded is None and scene.gpus:
            yield unknown("kernel as configured; the driver's versions were not read")
        else:
            yield passed(f"{running} runs and boots next", columns=columns)
    elif default or disk:
        yield unknown("only a part of what boots next was read")


@rule("kernel.cmdline_drift")
def cmdline_drift(scene: Scene) -> Judgements:
    view = scene.view
    running = view.text("/proc/cmdline")
    if running is None:
        return
    loader = view.text("boot/loader")
    grub = view.text("boot/grub_cmdline")
    systemd = view.text("/etc/kernel/cmdline")
    if loader is None:
        if grub is not None or systemd is not None:
            yield unknown(
                "which boot loader is in use was not read",
                hint="proxmox-boot-tool status, or bootctl status",
            )
        return
    used, other = (systemd, grub) if loader == "systemd-boot" else (grub, systemd)
    if loader not in ("grub", "systemd-boot"):
        yield unknown(f"boot loader {loader[:30]!r}")
        return
    if used is None:
        yield unknown(f"the configuration of {loader} was not read")
        return
    missing, extra = differences(parse_flags(used), parse_flags(running))
    columns = Columns(running=running, configured=used)
    stray = []
    if other is not None:
        wanted, _ = differences(parse_flags(other), parse_flags(running))
        stray = [flag for flag in wanted if flag not in parse_flags(used)]
    wrong_file = {"systemd-boot": "the GRUB file", "grub": "/etc/kernel/cmdline"}[loader]
    if stray:
        yield failed(
            f"{wrong_file} sets {' '.join(stray)}, and this host boots with {loader}",
            columns=columns,
            fix=kernel_flags(*stray, summary=f"move {' '.join(stray)} to {loader}'s file"),
        )
    elif missing:
        yield warned(
            f"configured, not running: {' '.join(missing)}",
            columns=columns,
            fix=manual("reboot, after the loader's files are refreshed", reboot=True),
        )
    elif extra:
        yield warned(f"running, not configured: {' '.join(extra)}", columns=columns)
    else:
        yield passed(f"as {loader} has it", columns=columns)


RULES = collect(globals())
