"""Containers: device majors, nodes, Proxmox configurations, runtimes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from backends.tuning import numbers
from backends.tuning.context import Kind
from backends.tuning.fixes import EditFile, Fix, Risk, commands, manual
from backends.tuning.plans.proxmox import Lxc, parse_lxc
from backends.tuning.rules.base import (
    Judgements,
    Scene,
    collect,
    failed,
    info,
    not_applicable,
    passed,
    rule,
    unknown,
    warned,
)
from backends.tuning.rules.majors import FIXED_MAJORS, driver_of, majors, majors_of_nodes

NAMES: Final = {"lxc": "container", "qemu": "virtual machine"}
DEVN_SINCE = (8, 2)
"""The first Proxmox VE whose containers take devN entries (pve-container 5.1)."""


def containers(scene: Scene) -> Iterable[tuple[str, Lxc]]:
    """Proxmox container configurations that are at hand, by id."""
    for reading in scene.view.each("pve/lxc/*"):
        lines = reading.items
        if lines is not None:
            yield reading.name, parse_lxc(lines)


def none_here(scene: Scene, of: str) -> Judgements:
    """Not applicable where a host was asked and has none of Proxmox's guests of a kind.

    Args:
        scene: What is judged.
        of: `lxc` or `qemu`.
    """
    view = scene.view
    if scene.context.kind is not Kind.BARE_METAL or view.peek_each(f"pve/{of}/*"):
        return
    if not scene.context.proxmox and view.error("cmd/pveversion") == "ENOENT":
        yield not_applicable("no Proxmox VE here")
    elif view.peek("cmd/pveversion") and view.peek_each("pve/*/*"):
        # Its configurations are one folder, and readable.
        yield not_applicable(f"no {NAMES[of]} of Proxmox VE here")


@rule("virt.kind")
def kind(scene: Scene) -> Judgements:
    said = scene.view.text("virt/kind")
    if said is None:
        return
    known = scene.context.kind
    pve = ", Proxmox VE" if scene.context.proxmox and known is Kind.BARE_METAL else ""
    yield info(f"{known.value} ({said}){pve}" if known is not Kind.UNKNOWN else said[:40])


@rule("parse.devices")
def device_majors(scene: Scene) -> Judgements:
    ours = {n: m for n, m in majors(scene.view).items() if "nvidia" in n}
    if ours:
        yield info(", ".join(f"{name}={major}" for name, major in ours.items()))


@rule("virt.lxc_majors")
def lxc_majors(scene: Scene) -> Judgements:
    yield from none_here(scene, "lxc")
    table = majors(scene.view) or majors_of_nodes(scene.view)
    release = numbers.release(scene.view.peek("pve/version") or "")
    for id_, config in containers(scene):
        label = id_
        if not config.uses_gpu:
            yield not_applicable("no GPU handed in", label)
            continue
        fix = devn_fix(id_, config)
        if release is not None and release < DEVN_SINCE:
            fix = majors_fix(id_, config, table)
        raw = [n for n in config.mounts if n not in config.devn]
        if not config.allows and not raw:
            yield passed("devN entries alone: today's majors at every start", label)
            continue
        if any(a.major is None and not a.v1 for a in config.allows):
            yield warned("every device is allowed", label, fix=fix)
            continue
        if config.allows and all(a.v1 for a in config.allows):
            yield warned("lxc.cgroup.devices is ignored under cgroup v2", label, fix=fix)
            continue
        if not table:
            hard = sorted(
                {
                    a.major
                    for a in config.allows
                    if a.major not in FIXED_MAJORS and a.major is not None
                }
            )
            told = (
                f"majors {', '.join(str(m) for m in hard)} are written down"
                if hard
                else ("raw device rules")
            )
            yield unknown(
                f"{told}; the host's /proc/devices is not at hand",
                label,
                hint="cat /proc/devices on the host",
            )
            continue
        refused = _refused(config, raw, table)
        foreign = _foreign(config, table)
        if refused:
            told = ", ".join(f"{name} is {major} today" for name, major in refused.items())
            more = f"; instead allowed: {foreign}" if foreign else ""
            yield failed(f"not allowed: {told}{more}", label, fix=fix)
        elif foreign:
            yield warned(f"allows more than GPUs: {foreign}", label, fix=fix)
        elif not raw:
            yield unknown("rules without mounted nodes", label)
        elif any(driver_of("/dev/" + n.removeprefix("/dev/"), table) is None for n in raw):
            yield unknown("a mounted node's driver is not in /proc/devices", label)
        else:
            yield passed("every mounted node's major is allowed today", label)


def _refused(config: Lxc, raw: Iterable[str], table: Mapping[str, int]) -> dict[str, int]:
    """Drivers of mounted nodes whose major today is not allowed."""
    allowed = {a.major for a in config.allows if not a.v1}
    refused: dict[str, int] = {}
    if None in allowed:
        return refused
    for node in raw:
        owner = driver_of("/dev/" + node.removeprefix("/dev/"), table)
        if owner and owner[1] not in allowed:
            refused[owner[0]] = owner[1]
    return refused


def _foreign(config: Lxc, table: Mapping[str, int]) -> str:
    """Allowed majors that belong to something else today, or to nothing."""
    by_major: dict[int, list[str]] = defaultdict(list)
    for name, major in table.items():
        by_major[major].append(name)
    told = []
    for major in sorted({a.major for a in config.allows if a.major is not None}):
        names = by_major.get(major, [])
        ours = major in FIXED_MAJORS or any(n.startswith("nvidia") or n == "drm" for n in names)
        if not ours:
            told.append(f"{major} ({'/'.join(names) or 'nobody'})")
    return ", ".join(told)


def devn_fix(id_: str, config: Lxc, summary: str = "") -> Fix:
    """Replace written-down majors by devN entries, which take today's at every start."""
    path = f"/etc/pve/lxc/{id_}.conf"
    nodes = (*config.nodes, *config.missing)
    if not id_.isdecimal():
        return manual(
            "pct set ID -dev0 ... for "
            f"{', '.join(nodes) or 'each GPU node'} instead of written-down majors "
            "(Proxmox VE 8.2+), then restart the container"
        )
    return Fix(
        summary
        or f"devN entries for container {id_} instead of written-down majors (Proxmox VE 8.2+)",
        persistent=(EditFile(path, "lxc_devn", (("nodes", ",".join(nodes)),)),),
        restarts=f"container {id_}",
        risk=Risk.MEDIUM,
        undo="the configuration comes back from its copy; restart the container",
    )


def majors_fix(id_: str, config: Lxc, table: Mapping[str, int]) -> Fix:
    """Write today's majors in the place of those of an earlier boot, where there is no devN."""
    pairs = stale_majors(config, table)
    if not id_.isdecimal() or not pairs:
        return manual(
            "write today's majors of /proc/devices into lxc.cgroup2.devices.allow, then restart "
            "the container; better, move to Proxmox VE 8.2 or newer and devN entries"
        )
    told = ", ".join(f"{old} -> {new}" for old, new in pairs)
    edit = EditFile(f"/etc/pve/lxc/{id_}.conf", "lxc_majors", pairs)
    return Fix(
        f"majors {told} of container {id_}, until they are given out anew",
        persistent=(edit,),
        restarts=f"container {id_}",
        risk=Risk.MEDIUM,
        undo="the configuration comes back from its copy; restart the container",
    )


def stale_majors(config: Lxc, table: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    """Written-down majors that belong to no GPU today, each with the nearest that lacks a rule."""
    allowed = {a.major for a in config.allows if not a.v1}
    gpu = {m for name, m in table.items() if name.startswith("nvidia") or name == "drm"}
    stale = sorted(
        m for m in allowed if m is not None and m >= 100 and m not in gpu and m not in FIXED_MAJORS
    )
    needed = {name: m for name, m in table.items() if name.startswith("nvidia")}
    missing = sorted(m for m in needed.values() if m not in allowed)
    near = sorted((abs(old - new), old, new) for old in stale for new in missing)
    pairs: dict[int, int] = {}
    for _, old, new in near:
        if old not in pairs and new not in pairs.values():
            pairs[old] = new
    return tuple((str(old), str(new)) for old, new in sorted(pairs.items()))


@rule("virt.lxc_devn")
def lxc_devn(scene: Scene) -> Judgements:
    yield from none_here(scene, "lxc")
    version = numbers.release(scene.view.peek("pve/version") or "")
    for id_, config in containers(scene):
        if not config.uses_gpu:
            yield not_applicable("no GPU handed in", id_)
        elif version is not None and version < DEVN_SINCE:
            yield not_applicable("Proxmox VE older than 8.2", id_)
        elif config.raw_gpu:
            yield warned(
                f"{len(config.mounts)} raw mounts, {len(config.allows)} raw rules",
                id_,
                fix=devn_fix(id_, config),
            )
        elif config.missing and not config.whole:
            yield unknown(f"{' and '.join(config.missing)}: not in the lines at hand", id_)
        elif config.missing:
            yield warned(
                f"no entry for {' and '.join(config.missing)}: CUDA does not start in there",
                id_,
                fix=devn_fix(id_, config, f"devN entries that container {id_} lacks"),
            )
        elif config.devn:
            yield passed(f"{len(config.devn)} devN entries", id_)
        else:
            yield unknown("no devN entry seen", id_)


@rule("virt.dev_nodes")
def dev_nodes(scene: Scene) -> Judgements:
    view = scene.view
    nodes = view.each_asked("node//dev/*") + view.each_asked("node//dev/*/*")
    table = majors(view)
    if not table and scene.other is not None:
        table = majors(scene.other, note=False)
    if not nodes:
        return
    present = {r.fact.key.removeprefix("node/"): r for r in nodes}
    fix = commands(
        ("nvidia-modprobe", "-c0", "-u"),
        summary="make the nodes on the host, then restart the container",
        undo="nothing to take back: the driver makes them at its first use anyway",
        restarts="the container",
    )
    for path, reading in present.items():
        text = reading.text
        label = path.removeprefix("/dev/")
        match = re.match(r"(\d+):(\d+) (\d{3})", text or "")
        if text is None and reading.fact.error == "ENOENT":
            if "uvm" in path or "ctl" in path:
                yield failed("missing", label, fix=fix)
            continue
        if not match:
            yield unknown("not read", label)
            continue
        owner = driver_of(path, table)
        mode = match[3]
        if owner is not None and int(match[1]) != owner[1]:
            yield failed(f"major {match[1]}, {owner[0]} has {owner[1]} today", label, fix=fix)
        elif (
            "caps" not in path
            and int(mode[2]) & 6 != 6
            and view.peek("user/uid") not in (None, "0")
        ):
            yield failed(f"mode {mode} keeps this user out", label, fix=fix)
        elif owner is None:
            yield unknown(f"{match[1]}:{match[2]}; today's majors were not read", label)
        else:
            yield passed(f"{match[1]}:{match[2]} mode {mode}", label)
    if not any("nvidia-uvm" in path for path in present) and any("nvidiactl" in p for p in present):
        yield failed("missing", "nvidia-uvm", fix=fix)


@rule("virt.uvm_boot")
def uvm_boot(scene: Scene) -> Judgements:
    view = scene.view
    before = view.text("boot/uvm_before_guests")
    missing = view.absent("node//dev/nvidia-uvm")
    fix = commands(
        ("nvidia-modprobe", "-c0", "-u"),
        summary="make the node now, and at boot",
        undo="our unit is removed; the node is made at the first use anyway",
        persistent=(EditFile("/etc/systemd/system/gpuroom-uvm.service", "uvm_unit", ()),),
    )
    if missing:
        yield failed("/dev/nvidia-uvm does not exist now", fix=fix)
    elif before is None:
        return
    elif before == "no":
        if scene.context.proxmox:
            yield warned("no unit makes /dev/nvidia-uvm before the containers start", fix=fix)
        else:
            yield info("no unit makes /dev/nvidia-uvm at boot", fix=fix)
    elif re.fullmatch(r"[\w@.-]+\.(?:service|conf)", before):
        yield passed(f"made by {before}")
    else:
        yield unknown(f"{before[:40]!r}")


@rule("virt.lxc_priv", kinds=(Kind.BARE_METAL, Kind.LXC, Kind.UNKNOWN))
def lxc_priv(scene: Scene) -> Judgements:
    yield from none_here(scene, "lxc")
    for id_, config in containers(scene):
        if not config.uses_gpu:
            yield not_applicable("no GPU handed in", id_)
        elif config.unprivileged is None and not config.whole:
            yield unknown("unprivileged: is not set in the lines at hand", id_)
        elif not config.unprivileged:
            yield warned(
                "privileged: whoever owns the container reaches the host",
                id_,
                fix=manual("make it again as unprivileged, with devN entries"),
            )
        elif config.docker and not config.nesting:
            yield failed(
                "Docker inside needs features: nesting=1",
                id_,
                fix=commands(
                    ("pct", "set", id_, "-features", _with_nesting(config.features)),
                    summary="allow nesting",
                    undo_argvs=(
                        ("pct", "set", id_, "-features", config.features)
                        if config.features
                        else ("pct", "set", id_, "--delete", "features"),
                    ),
                    restarts=f"container {id_}",
                ),
            )
        else:
            yield passed("unprivileged" + (", nesting" if config.nesting else ""), id_)


def _with_nesting(features: str) -> str:
    """The features of a container, with nesting on and the others as they are."""
    kept = [f for f in features.split(",") if f.strip() and not f.strip().startswith("nesting=")]
    return ",".join([*kept, "nesting=1"])


@rule("virt.lxc_limits")
def lxc_limits(scene: Scene) -> Judgements:
    yield from none_here(scene, "lxc")
    for id_, config in containers(scene):
        cpuset = config.cpuset
        local = frozenset[int]()
        for gpu in scene.gpus:
            found = scene.view.cpus(f"/sys/bus/pci/devices/{gpu.id}/local_cpulist")
            local |= found or frozenset()
        if cpuset is not None and local and not cpuset & local:
            yield warned(
                f"CPUs {numbers.show_cpus(cpuset)} are all far from the GPUs",
                id_,
                fix=manual("give the container CPUs of the GPUs' node"),
            )
        elif config.swap_mib and config.memory_mib and config.swap_mib > config.memory_mib:
            yield info(f"{config.swap_mib} MiB swap, {config.memory_mib} MiB memory", id_)
        elif config.memory_mib is None or config.cores is None:
            yield unknown("memory or cores not set", id_)
        elif config.cpulimit:
            yield warned(
                f"cpulimit {config.cpulimit:g}: throttles the engine",
                id_,
                fix=commands(
                    ("pct", "set", id_, "--cpulimit", "0"),
                    summary="no CPU limit",
                    undo_argvs=(("pct", "set", id_, "--cpulimit", f"{config.cpulimit:g}"),),
                ),
            )
        elif cpuset is not None and not local:
            yield unknown("the GPUs' local CPUs were not read", id_)
        else:
            yield passed(f"{config.cores} cores, {config.memory_mib} MiB", id_)


RULES = collect(globals())
