"""NUMA and memory layout: balancing, nodes, affinity, memory modules."""

from __future__ import annotations

import re
from typing import Final

from backends.tuning import numbers
from backends.tuning.fixes import manual, sysctl
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
from backends.tuning.rules.kernel_events import memory_errors

NODE: Final = "/sys/devices/system/node"
SAME_SOCKET_BELOW: Final = 16
"""ACPI SLIT distances: 10 is local, 11 to 13 a node of the same socket, 20 and more another."""


@rule("numa.balancing", min_nodes=2)
def balancing(scene: Scene) -> Judgements:
    view = scene.view
    value = view.integer("/proc/sys/kernel/numa_balancing", 0, 3)
    fix = sysctl("kernel.numa_balancing", "0")
    cost = view.integer("trace/task_numa_work_total_ms")
    if value == 0:
        yield passed("kernel.numa_balancing = 0")
    elif value is not None:
        yield warned(f"kernel.numa_balancing = {value}", fix=fix)
    elif cost:
        slow = view.peek("trace/task_numa_work_slowest")
        over = view.peek_integer("trace/task_numa_work_seconds")
        span = f" in {over} s" if over else ""
        tail = f", slowest {slow} ms" if slow else ""
        yield warned(f"task_numa_work took {cost} ms{span}{tail}", fix=fix)
    elif view.flag("log/numa_balancing_enabled"):
        yield warned(
            "switched on at boot, as the kernel log says",
            fix=fix,
            hint="sysctl kernel.numa_balancing",
        )


def _without_cpus(scene: Scene) -> frozenset[str]:
    """Names of the nodes that hold memory alone: of a GPU (Grace), of a CXL card."""
    lists = scene.view.each(f"{NODE}/node*/cpulist")
    return frozenset(row.name for row in lists if numbers.cpu_list(row.fact.value) == frozenset())


def _sockets(scene: Scene, without: frozenset[str]) -> int | None:
    """Sockets, from topology, or from node distances as far as these tell."""
    view = scene.view
    packages = view.each("/sys/devices/system/cpu/cpu*/topology/physical_package_id")
    ids = {r.integer for r in packages}
    if ids and None not in ids:
        return len(ids)
    sockets = view.integer("cpu/sockets", 1, 64)
    if sockets is not None:
        return sockets
    rows = view.each(f"{NODE}/node*/distance")
    groups: list[set[int]] = []
    for row in rows:
        if row.name in without:
            continue
        distances = [numbers.integer(word) for word in (row.text or "").split()]
        if not distances or None in distances or len(distances) != len(rows):
            return None
        near = {i for i, d in enumerate(distances) if d is not None and d < SAME_SOCKET_BELOW}
        if near not in groups:
            groups.append(near)
    return len(groups) or None


@rule("numa.nps")
def nps(scene: Scene) -> Judgements:
    view = scene.view
    nodes = view.cpus(f"{NODE}/online")
    if not nodes:
        return
    without = _without_cpus(scene)
    nodes = frozenset(node for node in nodes if str(node) not in without)
    more = f"; {len(without)} more hold memory alone" if without else ""
    sockets = _sockets(scene, without)
    if sockets is None:
        yield unknown(f"{len(nodes)} nodes, sockets not known{more}")
    elif len(nodes) <= sockets:
        yield passed(f"nodes: {len(nodes)}, sockets: {sockets}, one node a socket{more}")
    else:
        least = scene.profile["numa_node_min_cpus"]
        small = []
        for node in sorted(nodes):
            cpus = view.cpus(f"{NODE}/node{node}/cpulist")
            if cpus is not None and len(cpus) < least:
                small.append(node)
        told = f"{len(nodes)} nodes on {sockets} sockets{more}"
        if small:
            names = ", ".join(str(node) for node in small)
            yield warned(
                f"{told}; node {names} has fewer than {least:g} CPUs",
                fix=manual("set NPS to 1 (or Auto) in firmware", reboot=True),
            )
        else:
            yield info(told)


@rule("numa.gpu_affinity", min_nodes=2)
def gpu_affinity(scene: Scene) -> Judgements:
    view = scene.view
    seen = False
    for gpu in scene.gpus:
        path = f"/sys/bus/pci/devices/{gpu.id}/numa_node"
        node = view.integer(path, -1, 4096)
        if node is None:
            node = view.integer(f"pci/{gpu.id}/numa_node", -1, 4096)
        if node is None:
            continue
        seen = True
        if node >= 0:
            yield passed(f"node {node}", gpu.label)
        else:
            yield warned(
                "no NUMA node (-1)",
                gpu.label,
                fix=manual("firmware gives no affinity: set it in the BIOS (ACPI SLIT)"),
            )
    if seen:
        return
    for reading in view.each("/sys/bus/pci/devices/*/numa_node"):
        # Without class or name of any device: whoever pasted these lines means their GPUs.
        known = view.peek(f"pci/{reading.name}/class") or view.peek(f"pci/{reading.name}/name")
        if known or reading.integer is None:
            continue
        label = reading.name.removeprefix("0000:")
        if reading.integer >= 0:
            yield passed(f"node {reading.integer}", label)
        else:
            yield warned(
                "no NUMA node (-1)",
                label,
                fix=manual("firmware gives no affinity: set it in the BIOS (ACPI SLIT)"),
            )
    for reading in view.each("topo/numa/*"):
        nodes = numbers.cpu_list(reading.text)
        if nodes:
            yield passed(f"node {reading.text}", reading.name)
        elif reading.text in ("N/A", "-1", ""):
            if scene.context.nodes is None:
                yield unknown(
                    "no NUMA affinity; how many nodes there are was not read", reading.name
                )
            else:
                yield warned("no NUMA affinity", reading.name)


@rule("numa.rank_binding", min_nodes=2)
def rank_binding(scene: Scene) -> Judgements:
    view = scene.view
    limit = scene.profile["numa_remote_pages_pct"]
    for reading in view.each("engine/*/cpus_allowed"):
        pid = reading.name
        allowed = numbers.cpu_list(reading.text)
        local = view.cpus(f"engine/{pid}/gpu_cpus")
        remote = view.number(f"engine/{pid}/remote_pages_pct", 0, 100)
        if allowed is None or not allowed or local is None or not local:
            yield unknown("allowed or local CPUs not read", pid)
        elif remote is not None and remote > limit:
            yield warned(
                f"{remote:.0f} % of its pages lie on another node",
                pid,
                fix=manual("bind the rank: numactl --cpunodebind --membind"),
            )
        elif allowed <= local:
            yield passed(f"CPUs {numbers.show_cpus(allowed)} are local to its GPU", pid)
        else:
            yield info(
                "may run away from its GPU's node",
                pid,
                experiment=True,
                hint="binding helps often and hurts sometimes: compare",
            )


@rule("numa.zone_reclaim", min_nodes=2)
def zone_reclaim(scene: Scene) -> Judgements:
    value = scene.view.integer("/proc/sys/vm/zone_reclaim_mode", 0, 7)
    if value == 0:
        yield passed("vm.zone_reclaim_mode = 0")
    elif value is not None:
        yield warned(f"vm.zone_reclaim_mode = {value}", fix=sysctl("vm.zone_reclaim_mode", "0"))


def _kib(text: str | None, field: str) -> int | None:
    match = re.search(rf"{field}:\s+(\d{{1,15}})\s*kB", text or "")
    return int(match[1]) if match else None


@rule("numa.memory_balance", min_nodes=2)
def memory_balance(scene: Scene) -> Judgements:
    view = scene.view
    nodes = view.cpus(f"{NODE}/online")
    totals: dict[str, int] = {}
    free_pct: dict[str, float] = {}
    empty: list[str] = []
    unreadable = False
    without = {
        names[0]
        for names, fact in view.table.match(f"{NODE}/node*/cpulist")
        if fact.value == "" and fact.error is None
    }
    for reading in view.each(f"{NODE}/node*/meminfo"):
        if reading.name in without:
            continue  # Memory of a GPU, or a slot for it (Grace): no CPU is near.
        text = reading.text
        total, free = _kib(text, "MemTotal"), _kib(text, "MemFree")
        if total is None or free is None or free > total:
            unreadable = True
            continue
        if total:
            totals[reading.name] = total
            free_pct[reading.name] = 100 * free / total
        elif view.cpus(f"{NODE}/node{reading.name}/cpulist"):
            empty.append(reading.name)
        else:
            unreadable = True  # Whether it has CPUs is not known.
    if not totals:
        return
    if empty:
        yield warned(
            f"node {', '.join(empty)} has CPUs and no memory",
            fix=manual("look for missing or failed memory modules of that socket", reboot=True),
        )
        return
    if nodes is not None and len(nodes) - len(without) == len(totals) == 1:
        yield not_applicable("one node has CPUs")
        return
    most, least = max(totals.values()), min(totals.values())
    differ = 100 * (most - least) / most
    low, high = min(free_pct.values()), max(free_pct.values())
    told = ", ".join(f"node {n} {t / 2**20:.0f} GiB" for n, t in totals.items())
    if differ > scene.profile["numa_size_difference_pct"]:
        yield warned(
            f"{told}: {differ:.0f} % apart",
            fix=manual("look for a missing or failed memory module"),
        )
    elif low < scene.profile["numa_free_low_pct"] and high > scene.profile["numa_free_high_pct"]:
        yield warned(
            f"one node has {low:.0f} % free, another {high:.0f} %",
            fix=manual("read weights with numactl --interleave=all"),
        )
    elif (
        unreadable
        or (nodes is not None and len(totals) + len(without) < len(nodes))
        or len(totals) < 2
    ):
        yield unknown(f"{told}; another node was not read")
    else:
        yield passed(f"{told}: within {differ:.0f} %")


@rule("mem.dimms")
def dimms(scene: Scene) -> Judgements:
    view = scene.view
    uncorrected = view.each("/sys/devices/system/edac/mc/mc*/ue_count")
    if uncorrected:
        bad = [r for r in uncorrected if (r.integer or 0) > 0]
        corrected = view.each("/sys/devices/system/edac/mc/mc*/ce_count")
        risen = sum(r.integer or 0 for r in corrected)
        if bad:
            yield failed(
                ", ".join(f"mc{r.name}: {r.integer} uncorrected errors" for r in bad),
                fix=manual("replace the memory module"),
            )
        elif any(r.integer is None or r.integer < 0 for r in [*uncorrected, *corrected]):
            yield unknown("error counters unreadable")
        elif len(corrected) < len(uncorrected):
            yield unknown("corrected errors not read")
        elif risen:
            yield warned(f"{risen} corrected memory errors since boot")
        else:
            yield passed(f"no errors on {len(uncorrected)} memory controllers")
    elif lines := view.items("log/kernel"):
        corrected_log, uncorrected_log = memory_errors(lines)
        if uncorrected_log:
            yield failed(uncorrected_log[0][:140], fix=manual("replace the memory module"))
        elif corrected_log:
            yield warned(f"{len(corrected_log)} reports: {corrected_log[0][:120]}")
    empty = view.integer("dmi/empty_slots")
    slow = view.text("dmi/below_rated_speed")
    if empty:
        yield info(f"{empty} memory slots are empty", "slots")
    if slow and slow not in ("0", "no"):
        yield info(f"memory runs below its rated speed: {slow}", "speed")


@rule("numa.interconnect", min_nodes=2)
def interconnect(scene: Scene) -> Judgements:
    if scene.context.sockets == 1:
        yield not_applicable("one socket")
        return
    same = scene.view.number("bench/p2p_same_node_gb_s", 0.1, 10_000)
    cross = scene.view.number("bench/p2p_cross_node_gb_s", 0, 10_000)
    if same is None or cross is None:
        if scene.view.has("bench/p2p_same_node_gb_s"):
            yield inconclusive(
                "only one of the two rates was measured",
                hint="measure peer-to-peer copies across nodes",
            )
        return
    ratio = 100 * cross / same
    told = f"across sockets {cross:.0f} GB/s of {same:.0f} GB/s within one: {ratio:.0f} %"
    if ratio < scene.profile["numa_cross_ratio_pct"]:
        yield warned(
            told,
            fix=manual(
                "firmware: xGMI link width x16, highest speed, APBDIS 1, data fabric C-states off",
                reboot=True,
            ),
        )
    else:
        yield passed(told)


RULES = collect(globals())
