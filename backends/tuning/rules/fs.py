"""Storage of the model path: space, file system, read-ahead, rate, devices."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from backends.tuning.fixes import Fix, manual, sysfs, udev
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

GIB: Final = 1 << 30
NETWORK: Final = frozenset(
    {"nfs", "nfs4", "lustre", "ceph", "cifs", "glusterfs", "beegfs", "efs", "gpfs", "wekafs"}
)
LOCAL: Final = frozenset({"ext4", "xfs", "btrfs", "f2fs", "ext3"})
WHOLE_DISK: Final = re.compile(r"^(?:nvme\d+n\d+|sd[a-z]+|vd[a-z]+|md\d+|xvd[a-z]+)$")


@rule("fs.free")
def free(scene: Scene) -> Judgements:
    view = scene.view
    profile = scene.profile
    for reading in view.each("statvfs/*/free_pct"):
        name = reading.name
        share = view.number(reading.fact.key, 0, 100)
        inodes = view.number(f"statvfs/{name}/free_inodes_pct", 0, 100)
        room = view.integer(f"statvfs/{name}/free_bytes", 0)
        model = view.peek_integer("model/bytes") if name == "model" else None
        if share is None or inodes is None:
            yield unknown("not read", name)
        elif share < profile["fs_free_fail_pct"] or inodes < profile["fs_free_fail_pct"]:
            yield failed(f"{share:.0f} % free, {inodes:.0f} % of inodes", name, fix=_prune())
        elif share < profile["fs_free_warn_pct"]:
            yield warned(f"{share:.0f} % free", name, fix=_prune())
        elif model and room is not None and room < 1.2 * model:
            yield warned(
                f"{room / GIB:.0f} GiB free, the model takes {model / GIB:.0f}", name, fix=_prune()
            )
        elif share > profile["fs_free_good_pct"]:
            yield passed(f"{share:.0f} % free", name)
        else:
            yield info(f"{share:.0f} % free", name)


def _prune() -> Fix:
    return manual("look at what can go: old checkpoints, container images, logs")


@rule("fs.type")
def fs_type(scene: Scene) -> Judgements:
    kind, options = scene.view.text("model/fs_type"), scene.view.text("model/mount_options")
    model = scene.view.peek_integer("model/bytes")
    if kind is None:
        return
    words = set((options or "").split(","))
    if kind == "9p":
        if model is not None and model < 20 * GIB:
            yield warned("9p is slow")
        else:
            yield failed(
                "9p: far too slow for models of this size",
                fix=manual("a disk or virtiofs instead of 9p"),
            )
    elif kind == "overlay":
        yield warned(
            "weights lie in an image layer", fix=manual("mount them from the host instead")
        )
    elif "strictatime" in words:
        yield warned("strictatime: every read writes", fix=manual("mount with noatime"))
    elif kind == "zfs":
        yield info("zfs: bound the ARC, recordsize 1M")
    elif kind in LOCAL:
        if not words & {"rw", "ro"}:
            yield unknown(f"{kind}; mount options not read")
        else:
            yield passed(f"{kind}, {'noatime' if 'noatime' in words else 'relatime'}")
    elif kind in NETWORK or kind in ("virtiofs", "fuse", "tmpfs"):
        yield info(f"{kind}: see fs.loader")
    else:
        yield unknown(f"file system {kind[:40]!r}")


@rule("fs.readahead")
def readahead(scene: Scene) -> Judgements:
    view = scene.view
    wanted = view.peek("model/block_device")
    kind = view.peek("model/fs_type")
    readings = view.each("/sys/block/*/queue/read_ahead_kb")
    if kind in NETWORK:
        readings = view.each("/sys/class/bdi/*/read_ahead_kb")
        wanted = view.peek("model/bdi")
    least = scene.profile["fs_readahead_nfs_kb" if kind in NETWORK else "fs_readahead_kb"]
    slow = view.number("bench/read_share_pct", 0, 1000)
    for reading in readings:
        name = reading.name
        if wanted is not None and name != wanted:
            continue
        if wanted is None and not WHOLE_DISK.match(name):
            continue
        value = reading.integer
        now = sysfs((reading.fact.key,), "4096", summary=f"read-ahead of {name} to 4096 KiB")
        lasting = (udev(name, "block", "queue/read_ahead_kb", "4096"),)
        fix = replace(now, persistent=lasting if "/sys/block/" in reading.fact.key else ())
        if value is None or not 0 <= value <= 1 << 22:
            yield unknown("not read", name)
        elif value >= least:
            yield passed(f"{value} KiB", name)
        elif slow is not None and slow < 50:
            yield warned(f"{value} KiB, and reads reach {slow:.0f} % of the device", name, fix=fix)
        else:
            yield info(f"{value} KiB", name, fix=fix, experiment=True)


@rule("fs.read_rate")
def read_rate(scene: Scene) -> Judgements:
    view = scene.view
    if view.flag("model/none"):
        yield not_applicable("no model yet")
        return
    rate = view.number("bench/read_mb_s", 0, 1_000_000)
    if rate is None:
        return
    size = view.peek_integer("model/bytes")
    load = f"; {size / 1e6 / rate:.0f} s to load the model" if size and rate else ""
    told = f"{rate:.0f} MB/s{load}"
    if rate >= scene.profile["fs_read_good_mb_s"]:
        yield passed(told)
    elif rate < scene.profile["fs_read_fail_mb_s"]:
        yield failed(told, fix=manual("see fs.loader and fs.type"))
    elif rate < scene.profile["fs_read_warn_mb_s"]:
        yield warned(told, fix=manual("see fs.loader and fs.readahead"))
    else:
        yield info(told)


@rule("fs.loader")
def loader(scene: Scene) -> Judgements:
    kind = scene.view.text("model/fs_type")
    if kind is None:
        return
    if kind in LOCAL or kind == "tmpfs":
        yield passed(f"{kind}: the default loader fits")
    elif kind in NETWORK or kind.startswith("fuse") or kind == "virtiofs":
        mode = scene.view.text("engine/load_mode")
        if mode is None:
            yield unknown(f"{kind}; how the engine loads was not read")
        elif mode in ("mmap", "default"):
            yield warned(
                f"{kind} with {mode} loading",
                fix=manual("the engine's eager or prefetching loader, or no mmap"),
            )
        elif mode in ("eager", "prefetch", "no-mmap", "stream"):
            yield passed(f"{kind} with {mode} loading")
        else:
            yield unknown(f"load mode {mode[:40]!r}")
    else:
        yield info(f"{kind[:40]}")


@rule("fs.scheduler")
def scheduler(scene: Scene) -> Judgements:
    for reading in scene.view.each("/sys/block/*/queue/scheduler"):
        name = reading.name
        if not name.startswith("nvme"):
            continue
        match = re.search(r"\[([\w-]+)\]", reading.text or "")
        chosen = match[1] if match else reading.text
        if chosen in ("none", "mq-deadline", "kyber"):
            yield passed(chosen, name)
        elif chosen == "bfq":
            yield warned(
                "bfq",
                name,
                fix=sysfs((reading.fact.key,), "none", summary=f"no I/O scheduler on {name}"),
            )
        else:
            yield unknown(f"scheduler {str(chosen)[:40]!r}", name)


@rule("fs.nvme")
def nvme(scene: Scene) -> Judgements:
    view = scene.view
    for reading in view.each("nvme/*/critical_warning"):
        name = reading.name
        warning = reading.integer
        used = view.number(f"nvme/{name}/percentage_used", 0, 255)
        errors = view.integer(f"nvme/{name}/media_errors_delta")
        total = view.integer(f"nvme/{name}/media_errors")
        state = view.text(f"nvme/{name}/state")
        if warning is None or used is None:
            yield unknown("not read", name)
        elif warning:
            yield failed(
                f"critical warning 0x{warning:02x}",
                name,
                fix=manual("save the data and replace the drive"),
            )
        elif errors or state == "dead":
            yield failed(
                f"{errors or 0} new media errors, state {state}",
                name,
                fix=manual("save the data and replace the drive"),
            )
        elif used >= scene.profile["fs_nvme_used_pct"]:
            yield warned(
                f"{used:.0f} % of its life used",
                name,
                fix=manual("plan its replacement; save what is only there"),
            )
        elif total is None and errors is None:
            yield unknown("media errors not read", name)
        elif total and errors is None:
            yield inconclusive(
                f"{total} media errors in its life",
                name,
                hint="read again later: what counts is whether they rise",
            )
        else:
            yield passed(f"{used:.0f} % of its life used", name)
    if not view.table.match("nvme/*/critical_warning") and view.absent("/sys/class/nvme"):
        yield not_applicable("no NVMe drive")


@rule("fs.cache_fit")
def cache_fit(scene: Scene) -> Judgements:
    view = scene.view
    model = view.integer("model/bytes", 1)
    match = view.find("/proc/meminfo", r"^MemAvailable:\s+(\d{1,15}) kB")
    if model is None:
        return
    limit = view.text("/sys/fs/cgroup/memory.max")
    if limit is not None and limit != "max" and not re.fullmatch(r"\d{1,20}", limit):
        yield unknown(f"memory.max says {limit[:40]!r}")
        return
    if match is None:
        yield unknown(f"the model takes {model / GIB:.0f} GiB; free memory was not read")
        return
    room = int(match[1]) * 1024
    if limit is not None and limit.isdecimal():
        room = min(room, int(limit))
    told = f"the model takes {model / GIB:.0f} GiB, {room / GIB:.0f} GiB can cache it"
    if limit is None and scene.context.container:
        yield unknown(f"{told}; the container's limit was not read")
    elif room >= model:
        yield passed(told)
    else:
        yield info(f"{told}: each start reads the disk again")


RULES = collect(globals())
