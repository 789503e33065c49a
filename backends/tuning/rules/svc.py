"""Services, time, hygiene: who turns the knobs, clocks, upgrades, failed units, pollers."""

from __future__ import annotations

import re
from typing import Final

from backends.tuning import numbers
from backends.tuning.fixes import Command, Fix, Write, commands, manual
from backends.tuning.rules.base import (
    Judgements,
    Scene,
    collect,
    failed,
    inconclusive,
    info,
    not_applicable,
    passed,
    rule,
    unknown,
    warned,
)

FAST: Final = frozenset(
    {
        "throughput-performance",
        "latency-performance",
        "accelerator-performance",
        "network-latency",
        "network-throughput",
        "hpc-compute",
    }
)
SLOW: Final = frozenset({"balanced", "powersave", "balanced-battery", "desktop"})
STATES: Final = frozenset(
    {"active", "inactive", "failed", "activating", "deactivating", "unknown", "not-found", "dead"}
)
POWER_DAEMONS: Final = (
    "power-profiles-daemon",
    "tlp",
    "auto-cpufreq",
    "thermald",
    "laptop-mode",
    "cpupower",
)
WRITERS: Final = frozenset({"power-profiles-daemon", "tlp", "auto-cpufreq", "laptop-mode", "tuned"})


@rule("svc.tuned")
def tuned(scene: Scene) -> Judgements:
    view = scene.view
    state = view.text("unit/tuned/active")
    profile = view.text("/etc/tuned/active_profile")
    if state in ("inactive", "not-found", "unknown", "dead"):
        yield passed("tuned is not running: nobody rewrites what is set")
    elif state == "active":
        name = (profile or "").split()[0] if (profile or "").split() else None
        if name is None:
            yield unknown("tuned is active; its profile was not read")
        elif name in SLOW:
            yield warned(
                f"profile {name}",
                fix=commands(
                    ("tuned-adm", "profile", "throughput-performance"),
                    summary="tuned profile throughput-performance",
                    undo_argvs=(("tuned-adm", "profile", name),),
                ),
            )
        elif name in FAST or name.startswith(("nvidia-", "gpuroom")):
            yield passed(f"profile {name}: our settings go into a child of it")
        else:
            yield info(f"profile {name[:60]}")
    elif state is not None:
        yield unknown(f"tuned is {state[:30]}")


@rule("svc.ppd")
def power_daemons(scene: Scene) -> Judgements:
    view = scene.view
    states = {name: view.text(f"unit/{name}/active") for name in POWER_DAEMONS}
    known = {name: state for name, state in states.items() if state is not None}
    if not known:
        return
    if not set(known.values()) <= STATES:
        yield unknown("a unit's state was not understood")
        return
    running = [name for name, state in known.items() if state == "active"]
    if view.peek("unit/tuned/active") == "active":
        running.append("tuned")
    writers = [name for name in running if name in WRITERS]
    saver = view.text("ppd/profile")
    if len(writers) > 1:
        yield warned(
            f"{' and '.join(writers)} write the same settings",
            fix=commands(
                ("systemctl", "disable", "--now", writers[0]),
                summary=f"disable {writers[0]}",
                undo_argvs=(("systemctl", "enable", "--now", writers[0]),),
            ),
        )
    elif saver == "power-saver":
        yield warned(
            "power-profiles-daemon is in power-saver",
            fix=commands(
                ("powerprofilesctl", "set", "performance"),
                summary="performance profile",
                undo_argvs=(("powerprofilesctl", "set", "power-saver"),),
            ),
        )
    elif len(known) < len(POWER_DAEMONS):
        yield unknown(f"{len(known)} of {len(POWER_DAEMONS)} daemons were asked")
    else:
        yield passed(f"{writers[0]} alone" if writers else "none")


@rule("svc.irqbalance")
def irqbalance(scene: Scene) -> Judgements:
    view = scene.view
    state = view.text("unit/irqbalance/active")
    grace = any(re.search(r"GB[23]00|GH200", g.name or "") for g in scene.gpus)
    if state is not None and state not in STATES:
        yield unknown(f"irqbalance is {state[:30]!r}")
        return
    if grace and state == "active":
        yield warned(
            "irqbalance is active on a Grace host",
            fix=commands(
                ("systemctl", "disable", "--now", "irqbalance"),
                summary="disable irqbalance",
                undo_argvs=(("systemctl", "enable", "--now", "irqbalance"),),
            ),
        )
        return
    remote: list[str] = []
    judged = 0
    on_zero = 0
    for reading in view.each("irq/*/effective_affinity_list"):
        cpus = numbers.cpu_list(reading.text)
        local = view.cpus(f"irq/{reading.name}/local_cpus")
        if not cpus or not local:
            yield unknown("affinity or local CPUs not read", reading.name)
            return
        judged += 1
        on_zero += cpus == frozenset({0})
        if not cpus & local:
            remote.append(reading.name)
    if judged > 1 and on_zero == judged:
        yield warned(
            f"all {judged} interrupts of GPUs, network and drives are on CPU 0",
            fix=manual("spread them: irqbalance, or smp_affinity_list by hand"),
        )
    elif remote:
        yield warned(
            f"{len(remote)} of {judged} interrupts are far from their device",
            fix=manual("write the local CPUs to /proc/irq/N/smp_affinity_list"),
        )
    elif judged and state is not None:
        yield passed(f"{judged} interrupts near their devices, irqbalance {state}")
    elif judged:
        yield unknown("irqbalance's state was not read")
    elif state is not None:
        yield info(f"irqbalance is {state}; interrupts were not read")


@rule("svc.persistenced")
def persistenced(scene: Scene) -> Judgements:
    enabled = scene.view.text("unit/nvidia-persistenced/enabled")
    if enabled in ("enabled", "static", "enabled-runtime", "generated"):
        if scene.view.text("unit/nvidia-persistenced/active") == "failed":
            yield warned(f"{enabled} at boot, and it failed", fix=manual("read the unit's log"))
        elif enabled == "enabled":
            yield passed("enabled at boot")
        else:
            yield info(f"{enabled}: another unit starts it, or nobody")
    elif enabled in ("disabled", "masked", "not-found", "linked", "indirect"):
        yield warned(
            f"{enabled}",
            fix=Fix(
                "enable nvidia-persistenced at boot",
                persistent=(
                    Command(
                        ("systemctl", "enable", "nvidia-persistenced"),
                        ("systemctl", "disable", "nvidia-persistenced"),
                    ),
                ),
            ),
        )
    elif enabled is not None:
        yield unknown(f"is-enabled says {enabled[:30]!r}")


@rule("svc.time_sync")
def time_sync(scene: Scene) -> Judgements:
    view = scene.view
    if scene.context.container:
        yield not_applicable("a container has its host's clock")
        return
    synced = view.flag("time/ntp_synchronized")
    offset = view.number("time/offset_s", -1e9, 1e9)
    fix = commands(
        ("systemctl", "enable", "--now", "chrony"),
        summary="enable chrony",
        undo_argvs=(("systemctl", "disable", "--now", "chrony"),),
    )
    if synced is False:
        yield failed("the clock is not synchronised", fix=fix)
    elif synced and offset is None:
        yield unknown("synchronised; the offset was not read")
    elif offset is not None and abs(offset) > scene.profile["svc_time_fail_s"]:
        yield failed(f"{offset:+.3f} s off", fix=fix)
    elif offset is not None and abs(offset) >= scene.profile["svc_time_good_s"]:
        yield warned(f"{offset:+.3f} s off", fix=fix)
    elif synced and offset is not None:
        yield passed(f"synchronised, {offset:+.3f} s off")


@rule("svc.auto_upgrade")
def auto_upgrade(scene: Scene) -> Judgements:
    view = scene.view
    on = view.flag("packages/unattended_upgrades")
    held = view.items("packages/held")
    since = view.items("packages/driver_upgraded_since_boot")
    if on is None:
        return
    fix = commands(
        ("apt-mark", "hold", "nvidia-driver"),
        summary="hold the driver's packages",
        undo_argvs=(("apt-mark", "unhold", "nvidia-driver"),),
    )
    if since:
        yield failed(
            f"upgraded since boot: {', '.join(since[:3])}",
            fix=manual("reboot, or install the loaded version again", reboot=True),
        )
    elif on and held is None:
        yield unknown("unattended upgrades are on; held packages were not read")
    elif on and not any(re.search(r"nvidia|linux-image|pve-kernel", name) for name in held or []):
        yield warned("unattended upgrades are on, and the driver is not held", fix=fix)
    elif since is None:
        yield unknown("whether the driver was upgraded since boot was not read")
    elif on:
        yield passed(f"held: {', '.join((held or [])[:3])}")
    else:
        yield passed("no unattended upgrades")


OF_A_CONTAINER: Final = ("net.", "fs.mqueue.", "kernel.shm", "kernel.msg", "kernel.sem", "user.")
"""Settings that a container has of its own."""


@rule("svc.sysctl_drift")
def sysctl_drift(scene: Scene) -> Judgements:
    view = scene.view
    configured = view.each("sysctl/configured/*")
    if scene.context.container:
        # The rest of /proc/sys is its host's, whatever files lie here.
        configured = [r for r in configured if r.name.startswith(OF_A_CONTAINER)]
        if not configured:
            yield not_applicable("a container has its host's kernel settings")
            return
    dead: list[str] = []
    differ: list[str] = []
    writes: list[tuple[str, str]] = []
    unread = 0
    for reading in configured:
        name = reading.name
        path = "/proc/sys/" + name.replace(".", "/")
        live = view.text(path)
        if live is None:
            if view.absent(path):
                dead.append(name)
            else:
                unread += 1
        elif reading.text is None:
            unread += 1
        elif live.split() != reading.text.split():
            source = view.peek(f"sysctl/source/{name}") or ""
            writes.append((path, reading.text))
            differ.append(f"{name} is {live[:30]}, {source or 'a file'} sets {reading.text[:30]}")
    if not configured:
        return
    if differ:
        yield warned(
            differ[0] + (f" and {len(differ) - 1} more" if len(differ) > 1 else ""),
            fix=Fix("set what the files say", runtime=tuple(Write(*write) for write in writes)),
        )
    elif dead:
        yield warned(
            f"no effect on this kernel: {', '.join(dead[:5])}", fix=manual("delete the dead lines")
        )
    elif unread:
        yield unknown(f"{unread} of {len(configured)} live values were not read")
    else:
        yield passed(f"{len(configured)} settings as configured")


@rule("svc.failed_units")
def failed_units(scene: Scene) -> Judgements:
    view = scene.view
    units = view.items("systemd/failed")
    limit = scene.profile["svc_restarts_per_h"]
    loops = []
    for reading in view.each("unit/*/restarts_per_h"):
        rate = view.number(reading.fact.key, 0, 1e6)
        if rate is None:
            yield unknown("restart count not read", reading.name)
            return
        if rate > limit:
            loops.append(f"{reading.name} restarts {rate:.0f} times an hour")
    if loops:
        yield failed(loops[0], fix=manual("read the unit's log: it dies again and again"))
    elif units:
        yield info(f"failed: {', '.join(u.split()[0] for u in units[:5] if u.split())}")
    elif units is not None and view.table.get("systemd/failed") is not None:
        value = view.table.get("systemd/failed")
        if value is not None and value.value == []:
            yield passed("none")
        else:
            yield unknown("the answer was not understood")


@rule("svc.journal")
def journal(scene: Scene) -> Judgements:
    view = scene.view
    if view.absent("/var/log/journal"):
        yield warned(
            "the journal is kept in memory only",
            fix=Fix(
                "keep the journal on disk",
                persistent=(
                    Command(("mkdir", "-p", "/var/log/journal")),
                    Command(("systemd-tmpfiles", "--create", "--prefix", "/var/log/journal")),
                ),
                undo="nothing takes it back: the log that was kept stays; remove the folder",
            ),
        )
    elif view.items("/var/log/journal") or view.text("/var/log/journal") == "directory":
        boots = view.integer("journal/boots", 0, 100_000)
        if boots is None:
            yield unknown("the folder is there; how many boots it holds was not read")
        elif boots > 1:
            yield passed(f"{boots} boots on disk")
        else:
            yield inconclusive("the folder is there, with this boot alone")


@rule("svc.monitors")
def monitors(scene: Scene) -> Judgements:
    view = scene.view
    pollers = view.items("gpu/pollers")
    if pollers is None:
        return
    parsed = [re.fullmatch(r"([\w.@-]+)\|(\d+(?:\.\d+)?)", p.strip()) for p in pollers]
    if any(match is None for match in parsed):
        yield unknown("the list was not understood")
        return
    found = [(m[1], float(m[2])) for m in parsed if m]
    profiling = view.items("gpu/profilers") or []
    if len(profiling) > 1:
        yield failed(
            f"{' and '.join(profiling[:3])} want the same counters",
            fix=manual("let one of them go: the counters have one owner at a time"),
        )
    elif len(found) > scene.profile["svc_pollers"]:
        yield warned(
            f"{len(found)} pollers: {', '.join(n for n, _ in found[:5])}",
            fix=manual("stop the extra ones"),
        )
    elif any(
        name == "nvidia-smi" and period <= 1 for name, period in found
    ) and not _all_persistent(scene):
        yield warned(
            "nvidia-smi is started every second, without persistence",
            fix=manual("nvidia-persistenced, or one long-running poller"),
        )
    elif all(period >= 1 for _, period in found):
        yield passed(f"{len(found)} pollers, at most one reading a second")
    else:
        yield info(", ".join(f"{name} every {period:g} s" for name, period in found))


def _all_persistent(scene: Scene) -> bool:
    return bool(scene.gpus) and all(
        numbers.flag(scene.view.peek(g.key("persistence"))) for g in scene.gpus
    )


RULES = collect(globals())
