"""GPU to GPU: peer-to-peer, topology, NVLink, fabric manager, IMEX."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from backends.tuning.context import Kind
from backends.tuning.fixes import Fix, Risk, commands, manual
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

STATUS: Final = {
    "CNS": "chipset not supported",
    "TNS": "topology not supported",
    "DR": "disabled by a registry key",
    "GNS": "GPU not supported",
    "NS": "not supported",
    "U": "unknown",
    "NO": "CUDA grants no peer access",
}
FIXABLE: Final = frozenset({"CNS", "TNS", "DR"})
FAR: Final = frozenset({"SYS"})


@rule("gpu.p2p", min_gpus=2)
def p2p(scene: Scene) -> Judgements:
    view = scene.view
    by_kernel = {r.name: r.text for r in view.each("p2p_by_kernel/*/*")}
    if by_kernel:
        running = view.peek("/proc/sys/kernel/osrelease")
        told = ", ".join(f"{kernel}: {status}" for kernel, status in by_kernel.items())
        status = by_kernel.get(running or "")
        judged = {status} if status else set(by_kernel.values())
        if judged & FIXABLE:
            yield failed(told, fix=_p2p_fix())
        elif judged == {"OK"} and status:
            view.text("/proc/sys/kernel/osrelease")
            yield passed(told)
        elif judged == {"OK"}:
            yield unknown(f"{told}; which kernel runs was not read")
        else:
            yield warned(told)
        return
    matrices: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    pairs: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for reading in view.each("p2p/*/*/*"):
        what, a, b = reading.names
        matrices[what][reading.text or "unreadable"].append(f"{a}-{b}")
        pairs[what].add((a, b))
    if not matrices:
        return
    judged_by: list[str] = [what for what in ("r", "w", "c", "?") if what in matrices]
    judged_by = judged_by or [what for what in ("p",) if what in matrices]
    if not judged_by:
        yield unknown(
            "only NVLink or atomics were asked for", hint="nvidia-smi topo -p2p r, and -p2p w"
        )
        return
    statuses: dict[str, list[str]] = defaultdict(list)
    for what in judged_by:
        for status, found in matrices[what].items():
            statuses[status].extend(found)
    bad = [s for s in statuses if s in FIXABLE]
    limits = [s for s in statuses if s in ("GNS", "NS")]
    odd = [s for s in statuses if s not in STATUS and s != "OK"]
    if bad:
        yield failed(_told(statuses, bad[0]), fix=_p2p_fix())
    elif "NO" in statuses:
        yield warned(
            _told(statuses, "NO"),
            hint="nvidia-smi topo -p2p r, and -p2p w, say why",
            fix=_p2p_fix(),
        )
    elif limits:
        yield warned(
            _told(statuses, limits[0]) + ": a limit of the product",
            fix=manual(
                "tell the engine that there is no peer access "
                "(NCCL_P2P_DISABLE=1); a patched module is the owner's decision"
            ),
        )
    elif odd or "U" in statuses:
        yield unknown(_told(statuses, (odd or ["U"])[0]))
    elif not {"r", "w", "c"} & set(judged_by):
        what = (
            "the property matrix (p) alone"
            if set(matrices) == {"p"}
            else ("a matrix without the command that printed it")
        )
        yield inconclusive(f"OK in {what}", hint="nvidia-smi topo -p2p r, and -p2p w")
    elif _incomplete(pairs, judged_by):
        yield unknown("OK for the pairs that were read; others are missing")
    else:
        words = {"r": "read", "w": "write", "c": "CUDA's access"}
        what = " and ".join(words[w] for w in judged_by if w in words)
        yield passed(f"{what} OK for all pairs")


def _told(statuses: dict[str, list[str]], status: str) -> str:
    found = statuses[status]
    count = len({frozenset(pair.split("-")) for pair in found})
    what = STATUS.get(status, "not understood")
    return f"{status} ({what}) for {count} pair{'s' if count > 1 else ''}: {found[0]}"


def _incomplete(pairs: dict[str, set[tuple[str, str]]], asked: list[str]) -> bool:
    for what in asked:
        members = {x for pair in pairs[what] for x in pair}
        if len(pairs[what]) < len(members) * (len(members) - 1):
            return True
    return False


def _p2p_fix() -> Fix:
    return manual(
        "boot the kernel on which it works; iommu=pt; no peer-to-peer registry keys", reboot=True
    )


@rule("gpu.topology", min_gpus=2)
def topology(scene: Scene) -> Judgements:
    links: dict[str, int] = defaultdict(int)
    gpus: set[str] = set()
    for reading in scene.view.each("topo/link/*/*"):
        a, b = reading.names
        if a.isdecimal() and b.isdecimal():
            links[reading.text or "?"] += 1
            gpus |= {a, b}
    if not links:
        return
    told = ", ".join(f"{count // 2 or 1} pairs {kind}" for kind, count in sorted(links.items()))
    running = scene.view.text("engine/gpu_indices")
    group = {w for w in re.split(r"[,\s]+", running or "") if w.isdecimal()}
    if group and _spans(scene, group) and _same_node_group(scene, gpus, len(group)):
        yield warned(
            f"the running group spans sockets: {told}",
            fix=manual("choose GPUs of one node (CUDA_VISIBLE_DEVICES)"),
        )
    elif scene.context.kind is Kind.VM:
        yield info(f"{told}, as the virtual machine sees it")
    else:
        yield info(told)


def _spans(scene: Scene, group: set[str]) -> bool:
    return any(scene.view.peek(f"topo/link/{a}/{b}") in FAR for a in group for b in group if a != b)


def _same_node_group(scene: Scene, gpus: set[str], size: int) -> bool:
    for gpu in gpus:
        near = {b for b in gpus if b != gpu and scene.view.peek(f"topo/link/{gpu}/{b}") not in FAR}
        if len(near) + 1 >= size:
            return True
    return False


@rule("gpu.p2p_copy", min_gpus=2)
def p2p_copy(scene: Scene) -> Judgements:
    view = scene.view
    least = scene.profile["bench_p2p_copy_pct"]
    for reading in view.each("bench/p2p_copy/*/*/equal"):
        a, b = reading.names
        pair = f"{a}-{b}"
        equal = reading.flag
        rate = view.number(f"bench/p2p_copy/{a}/{b}/gb_s", 0, 10_000)
        link = view.number(f"bench/p2p_copy/{a}/{b}/link_gb_s", 0.1, 10_000)
        if equal is False:
            yield failed(
                "the copy differs from its source: stop all parallel work",
                pair,
                fix=manual("switch peer access off in the engine (NCCL_P2P_DISABLE=1)"),
            )
        elif equal is None or rate is None or link is None:
            yield unknown("not measured in full", pair)
        elif 100 * rate / link < least:
            yield warned(f"equal, {rate:.1f} of {link:.1f} GB/s", pair)
        else:
            yield passed(f"equal, {rate:.1f} of {link:.1f} GB/s", pair)


@rule("gpu.nvlink")
def nvlink(scene: Scene) -> Judgements:
    view = scene.view
    for gpu in scene.gpus:
        states = view.each(f"gpu/{gpu.id}/nvlink/*/state")
        if not states:
            if view.error(gpu.key("nvlink")) == "NotSupported":
                yield not_applicable("no NVLink", gpu.label)
            elif gpu.model is not None and not gpu.model.nvlinks:
                yield not_applicable("this card has no NVLink", gpu.label)
            continue
        down = [r.names[-1] for r in states if (r.text or "").lower() not in ("active", "1")]
        errors = sum(r.integer or 0 for r in view.each(f"gpu/{gpu.id}/nvlink/*/errors_delta"))
        wanted = gpu.model.nvlinks if gpu.model and gpu.model.nvlinks else None
        if down:
            yield failed(f"link {', '.join(down)} is not active", gpu.label, fix=_reseat())
        elif wanted is not None and len(states) < wanted:
            yield failed(f"{len(states)} of {wanted} links", gpu.label, fix=_reseat())
        elif errors:
            yield warned(f"{errors} link errors while it was watched", gpu.label)
        elif wanted is None:
            yield unknown(
                f"{len(states)} links active; how many there should be is not known", gpu.label
            )
        else:
            yield passed(f"{len(states)} links active", gpu.label)


def _reseat() -> Fix:
    return manual("reset the GPU; if it stays, reseat the board")


NO_FABRIC: Final = frozenset({"n/a", "[n/a]", "not supported", "not_supported", "0"})
"""`nvmlGpuFabricState_t` 0 is NOT_SUPPORTED; `nvidia-smi -q` prints N/A for it."""


@rule("gpu.fabric_manager")
def fabric_manager(scene: Scene) -> Judgements:
    view = scene.view
    unit = view.text("unit/nvidia-fabricmanager/active")
    switch = scene.context.nvswitch
    present = view.flag("nvswitch/present")
    states = [(g, view.text(g.key("fabric_state"))) for g in scene.gpus]
    # "N/A" is the driver's word for a card that is on no fabric it could join (a VM with one GPU).
    known = [(g, s) for g, s in states if s is not None and s.lower() not in NO_FABRIC]
    if states and not known and any(s is not None for _, s in states) and unit is None:
        yield not_applicable("the driver says that the GPUs are on no fabric")
        return
    if present is False or (switch is False and not known):
        if unit is not None or present is False:
            fix = None
            if unit in ("failed", "active", "activating"):
                fix = commands(
                    ("systemctl", "disable", "--now", "nvidia-fabricmanager"),
                    summary="disable the unit: there is no NVSwitch",
                    undo_argvs=(("systemctl", "enable", "nvidia-fabricmanager"),),
                )
            yield not_applicable("no NVSwitch here", fix=fix)
        return
    start = commands(
        ("systemctl", "restart", "nvidia-fabricmanager"),
        summary="restart the fabric manager (ends CUDA jobs)",
        risk=Risk.HIGH,
        undo="nothing to take back: the unit runs as it is meant to",
    )
    if scene.context.kind is Kind.VM and not known and not unit:
        return
    unfinished = [(g, s) for g, s in known if s.lower() not in ("completed", "3")]
    driver = view.text("driver/version") or view.text("nvrm/version")
    own = view.text("fabric_manager/version")
    if unit in ("failed", "inactive", "dead", "deactivating"):
        board = any(gpu.model is not None and gpu.model.nvswitch for gpu in scene.gpus)
        waits = view.peek_integer("cuda/init") == 802
        if switch or known:
            yield failed(f"the unit is {unit}", fix=start)
        elif board and (waits or (scene.context.gpu_count or 0) > 4):
            # Boards of four have no switch; those of eight do, and 802 is what CUDA says then.
            told = ", and CUDA waits for it (802)" if waits else ""
            yield failed(f"the unit is {unit}{told}", fix=start)
        else:
            yield unknown(f"the unit is {unit}; whether there is an NVSwitch is not known")
    elif unfinished:
        gpu, state = unfinished[0]
        yield failed(
            f"fabric state {state} on {len(unfinished)} GPUs, first {gpu.label}", fix=start
        )
    elif own and driver and own != driver:
        yield failed(
            f"fabric manager {own}, driver {driver}",
            fix=manual("install the fabric manager of the driver's version"),
        )
    elif unit == "active" and known and len(known) == len(states):
        yield passed(f"active, fabric completed on {len(known)} GPUs")
    elif known or unit == "active":
        yield unknown("only a part was read: unit, fabric state of every GPU")


@rule("gpu.imex")
def imex(scene: Scene) -> Judgements:
    view = scene.view
    names = [g.name or "" for g in scene.gpus]
    multi_node = any(re.search(r"GB[23]00", name) for name in names)
    state = view.text("imex/state")
    if names and all(names) and not multi_node:
        if state is not None or view.has("unit/nvidia-imex/active"):
            yield not_applicable("no multi-node NVLink")
        return
    if state is None:
        return
    if state == "READY":
        yield passed("READY")
    elif state in ("UNAVAILABLE", "DEGRADED", "DOWN", "INVALID", "CONNECTING"):
        yield failed(
            f"IMEX is {state}",
            fix=commands(
                ("systemctl", "start", "nvidia-imex"),
                summary="start nvidia-imex",
                undo_argvs=(("systemctl", "stop", "nvidia-imex"),),
            ),
        )
    else:
        yield unknown(f"IMEX says {state[:40]!r}")


RULES = collect(globals())
