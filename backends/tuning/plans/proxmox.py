"""Proxmox VE container and machine configurations: reading, and moving to devN entries.

Only the part before the first snapshot header is ever looked at or changed. Sources: the
`pct.conf` and `qm.conf` manual pages; pve-container stats a devN node at each start and writes
the rule with the major it has then (Proxmox VE 8.2 and newer).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backends.tuning import numbers
from backends.tuning.plans.cmdline import PlanError

_PAIR: Final = re.compile(r"^\s*([A-Za-z][\w.-]*)\s*[:=]\s*(.*?)\s*$")
_RULE: Final = re.compile(r"^([cb])\s+(\d+|\*):(\d+|\*)\s+[rwm]+$")
_SNAPSHOT: Final = re.compile(r"^\[[^\]]+\]\s*$")
CUDA_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm")
"""Without either of them cuInit fails, though nvidia-smi may still answer."""
_GPU_NODE: Final = re.compile(r"(?:^|/)(?:nvidia|dri/|kfd$)")


@dataclass(frozen=True, slots=True)
class Allow:
    """One device rule; `major` is None when it allows all."""

    major: int | None
    minor: int | None
    v1: bool


@dataclass(frozen=True, slots=True)
class Lxc:
    """What of a container's configuration matters here."""

    allows: tuple[Allow, ...]
    mounts: tuple[str, ...]
    """Nodes bound in by `lxc.mount.entry`, as host paths."""
    devn: tuple[str, ...]
    unprivileged: bool | None
    nesting: bool
    docker: bool
    cores: int | None
    cpulimit: float | None
    memory_mib: int | None
    swap_mib: int | None
    cpuset: frozenset[int] | None
    features: str = ""
    """As it is written: `nesting=1,keyctl=1`."""
    whole: bool = False
    """Whether root disk and architecture are there, so that what is left out has its default."""

    @property
    def uses_gpu(self) -> bool:
        """Whether GPU nodes or their majors are handed in."""
        named = [*self.mounts, *self.devn]
        return bool(
            any(_GPU_NODE.search(n) for n in named)
            or any(a.major in (195, 226) for a in self.allows)
        )

    @property
    def raw_gpu(self) -> bool:
        """Whether GPU access rests on written-down rules."""
        return bool(self.allows or any(_GPU_NODE.search(n) for n in self.mounts))

    @property
    def nodes(self) -> tuple[str, ...]:
        """GPU nodes that the container gets today, by either way."""
        return tuple(dict.fromkeys(n for n in (*self.devn, *self.mounts) if _GPU_NODE.search(n)))

    @property
    def missing(self) -> tuple[str, ...]:
        """Nodes that CUDA needs beside the NVIDIA ones that are handed in."""
        nvidia = any(re.fullmatch(r"/dev/nvidia(?:\d+|ctl)", n) for n in self.nodes)
        return tuple(n for n in CUDA_NODES if nvidia and n not in self.nodes)


def live_part(lines: Iterable[str]) -> list[str]:
    """Lines before the first snapshot header."""
    result = []
    for line in lines:
        if _SNAPSHOT.match(line):
            break
        result.append(line)
    return result


def parse_lxc(lines: Iterable[str]) -> Lxc:
    """Read a container's configuration."""
    allows: list[Allow] = []
    mounts: list[str] = []
    devn: list[str] = []
    values: dict[str, str] = {}
    for line in live_part(lines):
        match = _PAIR.match(line)
        if not match or line.lstrip().startswith("#"):
            continue
        name, value = match[1], match[2]
        if re.fullmatch(r"lxc\.cgroup2?\.devices\.allow", name):
            allows.extend(_allow(value, v1=name.startswith("lxc.cgroup.")))
        elif name == "lxc.mount.entry":
            source = value.split()[0] if value.split() else ""
            if source.startswith("/dev/"):
                mounts.append(source)
        elif re.fullmatch(r"dev\d{1,3}", name):
            first = value.split(",")[0].removeprefix("path=")
            devn.append(first)
        else:
            values.setdefault(name, value)
    features = values.get("features", "")
    tags = values.get("tags", "") + values.get("hostname", "")
    return Lxc(
        tuple(allows),
        tuple(mounts),
        tuple(devn),
        numbers.flag(values.get("unprivileged", "")),
        "nesting=1" in features,
        "docker" in tags,
        numbers.integer(values.get("cores")),
        numbers.number(values.get("cpulimit")) or None,
        numbers.integer(values.get("memory")),
        numbers.integer(values.get("swap")),
        numbers.cpu_list(values.get("lxc.cgroup2.cpuset.cpus")),
        features=features,
        whole={"rootfs", "arch"} <= values.keys(),
    )


def _allow(value: str, *, v1: bool) -> list[Allow]:
    if value.strip() == "a":
        return [Allow(None, None, v1)]
    match = _RULE.match(value.strip())
    if not match or match[1] == "b":
        return []
    major = None if match[2] == "*" else int(match[2][:6])
    return [Allow(major, None if match[3] == "*" else int(match[3][:9]), v1)]


@dataclass(frozen=True, slots=True)
class Qemu:
    """What of a machine's configuration matters here."""

    machine: str
    bios: str
    cpu: str
    hostpci: tuple[str, ...]
    balloon: int | None
    hugepages: str
    numa: bool
    args: str
    values: Mapping[str, str]
    """Every option that is set, as it is written."""


def parse_qemu(lines: Iterable[str]) -> Qemu:
    """Read a virtual machine's configuration."""
    values: dict[str, str] = {}
    hostpci: list[str] = []
    for line in live_part(lines):
        match = _PAIR.match(line)
        if not match or line.lstrip().startswith("#"):
            continue
        if re.fullmatch(r"hostpci\d{1,2}", match[1]):
            hostpci.append(match[2])
        else:
            values.setdefault(match[1], match[2])
    return Qemu(
        values.get("machine", ""),
        values.get("bios", ""),
        values.get("cpu", "").removeprefix("cputype="),
        tuple(hostpci),
        numbers.integer(values.get("balloon")),
        values.get("hugepages", ""),
        values.get("numa") == "1",
        values.get("args", ""),
        values,
    )


def edit_devn(text: str, nodes: Sequence[str]) -> str:
    """The configuration with devN entries for `nodes` in place of raw rules and mounts.

    Other lines, comments and snapshots stay byte for byte. Doing it twice changes nothing more.

    Raises:
        PlanError: A node is no path below /dev, or the text is no container's configuration.
    """
    for node in nodes:
        if not re.fullmatch(r"/dev/[\w./-]+", node) or ".." in node:
            raise PlanError(f"{node[:60]!r} is no device node")
    lines = text.split("\n")
    live = live_part(lines)
    rest = lines[len(live) :]
    if not any(_PAIR.match(line) for line in live):
        raise PlanError("no Proxmox container configuration", text[:80])
    old = parse_lxc(live)
    majors_of_ours = _raw_majors(old)
    kept: list[str] = []
    used: set[int] = set()
    for line in live:
        match = _PAIR.match(line)
        name = match[1] if match else ""
        if re.fullmatch(r"dev\d{1,3}", name):
            used.add(int(name[3:]))
        if match and _replaced(name, match[2], nodes, majors_of_ours):
            continue
        kept.append(line)
    present = set(old.devn)
    while kept and not kept[-1].strip():
        kept.pop()
    number = 0
    for node in nodes:
        if node in present:
            continue
        while number in used:
            number += 1
        used.add(number)
        kept.append(f"dev{number}: {node},mode=0666")
    return "\n".join([*kept, "", *rest] if rest and rest != [""] else [*kept, ""])


def edit_majors(text: str, pairs: Sequence[tuple[str, str]]) -> str:
    """The configuration with written-down majors replaced, for hosts without devN (before 8.2).

    Other lines, comments and snapshots stay byte for byte. It holds until the majors are given
    out anew.

    Args:
        text: The configuration.
        pairs: Old and new majors.

    Raises:
        PlanError: A major is no number, or the text is no container's configuration.
    """
    if not all(word.isdecimal() and len(word) <= 4 for pair in pairs for word in pair):
        raise PlanError(f"{str(pairs)[:60]} are no majors")
    new = dict(pairs)
    lines = text.split("\n")
    live = live_part(lines)
    if not any(_PAIR.match(line) for line in live):
        raise PlanError("no Proxmox container configuration", text[:80])
    allow = re.compile(r"(\s*lxc\.cgroup2?\.devices\.allow\s*[:=]\s*c\s+)(\d+)(:.*)")
    have = {match[2] for line in live if (match := allow.fullmatch(line))}
    kept: list[str] = []
    for line in live:
        match = allow.fullmatch(line)
        if match and match[2] in new:
            if new[match[2]] in have:
                continue  # the right one stands there already
            line = match[1] + new[match[2]] + match[3]
        kept.append(line)
    return "\n".join([*kept, *lines[len(live) :]])


def _raw_majors(config: Lxc) -> frozenset[int]:
    return frozenset(a.major for a in config.allows if a.major is not None)


def _replaced(name: str, value: str, nodes: Sequence[str], majors: frozenset[int]) -> bool:
    """Whether devN entries make this line needless."""
    if name == "lxc.mount.entry":
        source = value.split()[0] if value.split() else ""
        return source in nodes
    if re.fullmatch(r"lxc\.cgroup2?\.devices\.allow", name):
        match = _RULE.match(value.strip())
        # Rules for majors below 100 (tty, fuse, tun) are not about GPUs and stay.
        return bool(match and match[2].isdecimal() and int(match[2][:6]) >= 100)
    return False
