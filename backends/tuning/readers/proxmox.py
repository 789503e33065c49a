"""Proxmox VE's container and machine configurations, and cgroup device lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from backends.tuning.facts import Fact, Vantage
from backends.tuning.readers.excerpt import Excerpt, Line

_KEY: Final = re.compile(r"^\s*([a-z][\w.-]*?)\s*[:=]\s*(.*)$")
_LXC_ONLY: Final = frozenset({"arch", "unprivileged", "ostype", "rootfs", "cores", "features"})
_QEMU_ONLY: Final = (
    "machine",
    "bios",
    "scsihw",
    "efidisk0",
    "numa",
    "balloon",
    "hostpci",
    "args",
    "sockets",
    "vmgenid",
    "ostype",
    "boot",
)
_SNAPSHOT: Final = re.compile(r"^\[[\w.-]+\]\s*$")
_RULE: Final = re.compile(r"^\s*([abc])\s+(\d+|\*):(\d+|\*)\s+([rwm]+)\s*$")


def read_config(excerpt: Excerpt) -> Iterator[Fact]:
    """A configuration up to its first snapshot header, as `pve/lxc/ID` or `pve/qemu/ID`."""
    lines: list[Line] = []
    for line in excerpt.lines:
        if _SNAPSHOT.match(line.text) and lines:
            break
        if _KEY.match(line.text) and not line.text.lstrip().startswith("#"):
            lines.append(line)
    keys = {match[1] for line in lines if (match := _KEY.match(line.text))}
    id_ = (re.search(r"(?<!\d)(\d{3,9})(?!\d)", excerpt.name) or ["", "unknown"])[1]
    named = re.search(r"/etc/pve/(?:nodes/\S+/)?(lxc|qemu-server)/(\d+)\.conf", excerpt.text)
    if named:
        id_ = named[2]
    lxc = any(
        key.startswith(("lxc.cgroup", "lxc.mount", "lxc.prlimit", "lxc.idmap")) for key in keys
    )
    devn = any(
        re.fullmatch(r"dev\d+", match[1]) and "/dev/" in match[2]
        for line in lines
        if (match := _KEY.match(line.text))
    )
    if lxc or devn or len(keys & _LXC_ONLY) >= 4:
        yield from _fact(excerpt, f"pve/lxc/{id_}", lines)
    elif any(key.startswith("hostpci") for key in keys) or (
        {"machine", "memory"} <= keys and len([k for k in keys if k.startswith(_QEMU_ONLY)]) >= 3
    ):
        yield from _fact(excerpt, f"pve/qemu/{id_}", lines)


def _fact(excerpt: Excerpt, key: str, lines: list[Line]) -> Iterator[Fact]:
    wanted = re.compile(
        r"^\s*(?:arch|cores|cpulimit|cpu|features|memory|swap|unprivileged|lxc\.|dev\d|machine|bios|"
        r"hostpci|balloon|hugepages|numa|args|sockets|affinity|ostype|mp\d|rootfs)"
    )
    kept = [line.text.strip() for line in lines if wanted.match(line.text)]
    if kept:
        yield excerpt.fact(key, kept, lines[0])


def read_device_list(excerpt: Excerpt) -> Iterator[Fact]:
    """A cgroup v1 `devices.list`; of several in a row the last is the one in force."""
    blocks: list[tuple[list[str], Line]] = []
    fresh = True
    for line in excerpt.lines:
        match = _RULE.match(line.text)
        if match:
            if fresh:
                blocks.append(([], line))
            blocks[-1][0].append(line.text.strip())
            fresh = False
        elif line.text.strip():
            fresh = True
    if not blocks:
        return
    rules, first = blocks[-1]
    guest = Excerpt(excerpt.name, Vantage.GUEST, excerpt.lines, excerpt.heading)
    yield guest.fact("cgroup/devices_list", rules, first)
    if len(blocks) > 1:
        yield guest.fact("cgroup/devices_list_before", blocks[0][0], blocks[0][1])
