"""Memory management and limits: sysctls, shared memory, limits of the engine's process."""

from __future__ import annotations

import re
from typing import Final

from backends.tuning import numbers
from backends.tuning.fixes import Command, Fix, Target, manual, sysctl
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
from backends.tuning.rules.kernel_events import out_of_memory

GIB: Final = 1 << 30
VM: Final = "/proc/sys/vm"
LIMIT: Final = re.compile(r"unlimited|\d{1,20}")


def _meminfo(scene: Scene, field: str) -> int | None:
    """A field of /proc/meminfo, in bytes."""
    match = scene.view.find("/proc/meminfo", rf"^{field}:\s+(\d{{1,15}}) kB")
    return int(match[1]) * 1024 if match else None


@rule("vm.swappiness")
def swappiness(scene: Scene) -> Judgements:
    value = scene.view.integer(f"{VM}/swappiness", 0, 200)
    if value is None:
        return
    if _meminfo(scene, "SwapTotal") == 0:
        yield not_applicable("no swap")
        return
    limit = int(scene.profile["vm_swappiness"])
    fix = sysctl("vm.swappiness", str(limit))
    if value <= limit:
        yield passed(f"vm.swappiness = {value}")
        return
    swapped = sum(r.integer or 0 for r in scene.view.each("engine/*/swap_kib"))
    if swapped:
        yield warned(
            f"vm.swappiness = {value}, and the engine has {swapped // 1024} MiB swapped", fix=fix
        )
    else:
        yield info(f"vm.swappiness = {value}", fix=fix)


@rule("vm.engine_swap")
def engine_swap(scene: Scene) -> Judgements:
    view = scene.view
    killed = view.integer("cgroup/memory/oom_kill")
    logged = out_of_memory(view.items("log/kernel") or [])
    swapping = view.integer("vmstat/pswpin_delta")
    swaps = view.each("engine/*/swap_kib")
    limit = scene.profile["vm_engine_swap_mib"] * 1024
    if killed:
        yield failed(f"{killed} processes killed for want of memory in this cgroup", fix=_more())
    elif logged:
        yield failed(logged[0][:160], fix=_more())
    elif swapping:
        yield warned(f"{swapping} pages swapped in while it was watched", fix=_more())
    elif swaps:
        most = [r.integer for r in swaps]
        if any(value is None or value < 0 for value in most):
            yield unknown("swap of an engine process not read")
        elif max(value or 0 for value in most) >= limit:
            yield warned(
                f"{max(value or 0 for value in most) // 1024} MiB of the engine swapped",
                fix=_more(),
            )
        elif killed is None:
            yield unknown("no swap in use; whether processes were killed was not read")
        else:
            yield passed("nothing swapped, nothing killed")


def _more() -> Fix:
    return manual("give the guest or the engine more memory")


@rule("vm.overcommit")
def overcommit(scene: Scene) -> Judgements:
    mode = scene.view.integer(f"{VM}/overcommit_memory", 0, 2)
    if mode in (0, 1):
        yield passed(f"vm.overcommit_memory = {mode}")
    elif mode == 2:
        limit = _meminfo(scene, "CommitLimit")
        model = scene.view.integer("model/bytes", 1)
        fix = sysctl("vm.overcommit_memory", "0")
        if limit is not None and model is not None and limit < model:
            yield failed(f"strict, and the limit {limit // GIB} GiB is below the model", fix=fix)
        else:
            yield warned("strict (2): CUDA reserves far more than it touches", fix=fix)


@rule("vm.max_map_count")
def max_map_count(scene: Scene) -> Judgements:
    view = scene.view
    most = view.integer(f"{VM}/max_map_count", 1, 1 << 31)
    if most is None:
        return
    maps = max((r.integer or 0 for r in view.each("engine/*/maps")), default=0)
    share = 100 * maps / most
    fix = sysctl("vm.max_map_count", "1048576")
    if share > scene.profile["vm_maps_fail_pct"]:
        yield failed(f"{maps} of {most} mappings in use", fix=fix)
    elif share > scene.profile["vm_maps_warn_pct"]:
        yield warned(f"{maps} of {most} mappings in use", fix=fix)
    elif most >= scene.profile["vm_map_count"]:
        yield passed(f"vm.max_map_count = {most}")
    else:
        yield info(f"vm.max_map_count = {most}", fix=fix)


@rule("vm.dirty")
def dirty(scene: Scene) -> Judgements:
    view = scene.view
    in_bytes = view.integer(f"{VM}/dirty_bytes", 0, 1 << 50)
    ratio = view.integer(f"{VM}/dirty_ratio", 0, 100)
    memory = _meminfo(scene, "MemTotal")
    if in_bytes is None and ratio is None:
        return
    if in_bytes:
        allowed = in_bytes
    elif ratio is not None and ratio > 0 and memory is not None:
        allowed = memory * ratio // 100
    else:
        yield unknown("how much may be dirty was not read")
        return
    told = f"up to {allowed / GIB:.0f} GiB may wait to be written"
    if allowed > scene.profile["vm_dirty_gib"] * GIB:
        yield warned(told, fix=_bound_dirty(in_bytes, ratio))
    else:
        yield passed(told)


def _bound_dirty(in_bytes: int | None, ratio: int | None) -> Fix:
    """4 GiB, of which the kernel starts to write at half; the old one of ratio and bytes back."""
    fix = sysctl("vm.dirty_bytes", "4294967296")
    more = sysctl("vm.dirty_background_bytes", "1073741824")
    old = f"vm.dirty_bytes={in_bytes}" if in_bytes else f"vm.dirty_ratio={ratio}"
    return Fix(
        "bound the dirty pages to 4 GiB",
        # No write: the kernel takes no 0 for bytes, so a ratio comes back by its own name.
        runtime=(Command(("sysctl", "-w", "vm.dirty_bytes=4294967296"), ("sysctl", "-w", old)),),
        persistent=fix.persistent + more.persistent,
        undo=f"sysctl -w {old}; our lines are removed",
    )


@rule("vm.min_free")
def min_free(scene: Scene) -> Judgements:
    value = scene.view.integer(f"{VM}/min_free_kbytes", 1, 1 << 40)
    lines = scene.view.items("log/kernel") or []
    failures = [line for line in lines if "page allocation failure" in line]
    if failures:
        yield warned(
            f"{len(failures)} allocation failures logged",
            fix=sysctl("vm.min_free_kbytes", "1048576"),
        )
    elif value is not None:
        yield info(f"vm.min_free_kbytes = {value}")


@rule("vm.hugepages")
def hugepages(scene: Scene) -> Judgements:
    view = scene.view
    total = _meminfo(scene, "MemTotal")
    wanted = any(
        re.match(r"hugepages:", line)
        for reading in view.each("pve/qemu/*")
        for line in (reading.items or ())
    )
    reserved = free = 0
    pools = view.each("/sys/kernel/mm/hugepages/hugepages-*kB/nr_hugepages")
    for pool in pools:
        size = numbers.integer(pool.name)
        count = pool.integer
        unused = view.integer(f"/sys/kernel/mm/hugepages/hugepages-{pool.name}kB/free_hugepages")
        if size is None or count is None or unused is None or count < 0:
            yield unknown("a pool was not read", f"{pool.name}kB")
            return
        reserved += size * 1024 * count
        free += size * 1024 * unused
    if not pools:
        return
    if wanted and not free:
        yield failed(
            "a virtual machine asks for huge pages and none are free",
            fix=manual("reserve them at boot: hugepagesz=1G hugepages=N", reboot=True),
        )
    elif not reserved:
        yield passed("none reserved")
    elif total is not None and 100 * free / total > scene.profile["vm_hugepages_unused_pct"]:
        yield warned(
            f"{free / GIB:.0f} GiB reserved and unused", fix=sysctl("vm.nr_hugepages", "0")
        )
    elif total is not None:
        yield passed(f"{(reserved - free) / GIB:.1f} of {reserved / GIB:.1f} GiB in use")
    else:
        yield unknown("how much memory the host has was not read")


@rule("vm.shm")
def shm(scene: Scene) -> Judgements:
    view = scene.view
    missing = view.integer("nccl/shm_error")
    size = numbers.size_bytes(view.text("statvfs//dev/shm/size"))
    fix = Fix(
        "a larger /dev/shm: --shm-size or --ipc=host for containers, a mount entry for LXC",
        restarts="the container",
        target=Target.GUEST,
        manual=True,
    )
    if missing is not None:
        yield failed(f"NCCL found no space in /dev/shm (it wanted {missing >> 20} MiB)", fix=fix)
        return
    if size is None:
        return
    gpus = scene.context.gpu_count
    mib = size >> 20
    if gpus == 1:
        yield info(f"{mib} MiB, with one GPU")
    elif size >= scene.profile["vm_shm_enough_gib"] * GIB or (
        gpus is not None and size >= gpus * scene.profile["vm_shm_per_gpu_gib"] * GIB
    ):
        yield passed(f"{size / GIB:.0f} GiB")
    elif mib <= scene.profile["vm_shm_tiny_mib"]:
        yield failed(f"{mib} MiB: Docker's default, too small for NCCL", fix=fix)
    else:
        yield warned(f"{mib} MiB for {gpus or 'several'} GPUs", fix=fix)


def _limits(scene: Scene, name: str) -> list[tuple[str, str | None, str | None]]:
    """Owner, soft and hard limit; the shell's are no evidence for an engine."""
    view = scene.view
    owners = dict.fromkeys(
        [r.name for r in view.each(f"limits/*/{name}_hard")]
        + [r.name for r in view.each(f"limits/*/{name}_soft")]
    )
    return [
        (o, view.text(f"limits/{o}/{name}_soft"), view.text(f"limits/{o}/{name}_hard"))
        for o in owners
    ]


@rule("vm.memlock")
def memlock(scene: Scene) -> Judgements:
    for owner, soft, _ in _limits(scene, "memlock"):
        whose = "the shell's, not the engine's" if owner == "shell" else ""
        if soft == "unlimited":
            if whose:
                yield info(f"unlimited ({whose})", owner)
            else:
                yield passed("unlimited", owner)
        elif soft is None or not LIMIT.fullmatch(soft):
            yield unknown("not read", owner)
        elif scene.context.rdma:
            yield failed(
                f"{soft}: RDMA cannot register its memory",
                owner,
                fix=manual(
                    "LimitMEMLOCK=infinity in the unit, --ulimit memlock=-1, lxc.prlimit.memlock"
                ),
            )
        else:
            yield info(f"{soft}, without RDMA", owner)


@rule("vm.nofile")
def nofile(scene: Scene) -> Judgements:
    view = scene.view
    least = scene.profile["vm_nofile_hard"]
    for owner, soft, hard in _limits(scene, "nofile"):
        if owner == "shell":
            yield info(f"{soft} in the shell; the engine's own limits count", owner)
            continue
        used = view.integer(f"engine/{owner}/open_files")
        if hard is None or not LIMIT.fullmatch(hard):
            yield unknown("hard limit not read", owner)
        elif soft is None or not LIMIT.fullmatch(soft):
            yield unknown("soft limit not read", owner)
        elif (
            used is not None
            and soft.isdecimal()
            and int(soft)
            and (100 * used / int(soft) > scene.profile["vm_nofile_used_pct"])
        ):
            yield failed(f"{used} of {soft} files open", owner, fix=_nofile())
        elif hard != "unlimited" and int(hard) < least:
            yield warned(f"hard limit {hard}", owner, fix=_nofile())
        else:
            yield passed(f"hard limit {hard}", owner)


def _nofile() -> Fix:
    return manual("LimitNOFILE=1048576 in the engine's unit, or lxc.prlimit.nofile")


@rule("vm.cgroup_mem")
def cgroup_mem(scene: Scene) -> Judgements:
    view = scene.view
    limit = view.text("/sys/fs/cgroup/memory.max")
    if limit is None:
        return
    pressure = view.find("/sys/fs/cgroup/memory.pressure", r"full .*?avg60=(\d+\.\d+)")
    high = view.integer("cgroup/memory/high_delta")
    if pressure and float(pressure[1]) > scene.profile["vm_psi_full_pct"]:
        yield failed(f"tasks wait for memory {pressure[1]} % of the time", fix=_cgroup())
    elif high:
        yield warned(f"reclaimed {high} times at memory.high", fix=_cgroup())
    elif limit == "max":
        yield passed("no limit")
    elif not (limit.isdecimal() and len(limit) < 20):
        yield unknown(f"memory.max says {limit[:40]!r}")
    else:
        shard = view.integer("model/largest_shard_bytes", 1)
        ranks = scene.context.gpu_count
        if shard is None or ranks is None:
            yield inconclusive(
                f"limit {int(limit) / GIB:.0f} GiB", hint="the model's largest shard is not known"
            )
        elif int(limit) < shard * ranks + 32 * GIB:
            yield warned(
                f"limit {int(limit) / GIB:.0f} GiB is tight for {ranks} ranks", fix=_cgroup()
            )
        else:
            yield passed(f"limit {int(limit) / GIB:.0f} GiB")


def _cgroup() -> Fix:
    return manual("raise the container's memory: pct set ID --memory MB")


RULES = collect(globals())
