"""Named facts of a host's software: what boots next, libraries, containers, packages, engines."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from backends.tuning import numbers
from backends.tuning.facts import Fact
from backends.tuning.raw import PCI, Raw, derive

_RELEASE: Final = re.compile(r"vmlinuz-(\d+\.\d+\S*)")
_VERSION: Final = r"\d{3}\.\d+(?:\.\d+)?"
_MIN_HOURS: Final = 1.0
_SLOT_FREE: Final = "No Module Installed"


def next_boot(known: Raw) -> Iterator[Fact]:
    """`boot/default_kernel`: pinned or newest on Proxmox VE, what grubby or a link says else."""
    listed = known.get("cmd/proxmox-boot-tool kernel list")
    if listed is not None and isinstance(listed.value, str):
        pinned = re.search(r"Pinned kernel:\s*\n\s*(\d\S+)", listed.value)
        rows = re.findall(r"^\s*(\d+\.\d+\S+)\s*$", listed.value, re.M)
        chosen = pinned[1] if pinned else max(rows, key=_order, default=None)
        if chosen:
            yield derive(listed, "boot/default_kernel", chosen)
            return
    if grubby := known.find("cmd/grubby --default-kernel", _RELEASE.pattern):
        yield derive(grubby[0], "boot/default_kernel", grubby[1][1].strip())
        return
    menu = known.find("/etc/default/grub", r"^\s*GRUB_DEFAULT=[\"']?([^\"'\n]*)")
    if menu and menu[1][1].strip() not in ("0", ""):
        return  # another entry of the menu: its name says no release that can be relied on
    if link := known.find("/boot/vmlinuz", _RELEASE.pattern):
        yield derive(link[0], "boot/default_kernel", link[1][1])
        return
    folder = known.get("/boot")
    if folder is not None and isinstance(folder.value, list):
        found = [m[1] for name in folder.value if (m := _RELEASE.fullmatch(name))]
        found = [name for name in found if not name.endswith((".old", ".rescue"))]
        if found:
            yield derive(folder, "boot/default_kernel", max(found, key=_order))


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,9}", release)[:6])


def libraries(known: Raw) -> Iterator[Fact]:
    """Versions of the installed module and of the user-space libraries."""
    for key, name, pattern in (
        ("cmd/modinfo -F version nvidia", "module/nvidia/version", rf"^({_VERSION})\s*$"),
        ("cmd/nv-fabricmanager --version", "fabric_manager/version", rf"\b({_VERSION})\b"),
        ("cmd/nvidia-imex-ctl -q", "imex/state", r"(\w+)\s*\Z"),
        ("cmd/powerprofilesctl get", "ppd/profile", r"^([\w-]+)\s*$"),
    ):
        if found := known.find(key, pattern):
            yield derive(found[0], name, found[1][1])
    for fact in known.below("/usr/lib/"):
        name = posixpath.basename(fact.key).removesuffix(".so.1")
        match = re.search(rf"\.so\.({_VERSION})", str(fact.value or ""))
        if name in ("libcuda", "libnvidia-ml") and match:
            yield derive(fact, f"library/{name}", match[1])


def runtimes(known: Raw) -> Iterator[Fact]:
    """Container runtimes: Docker's configuration, CDI, device links, cgroup v1's device list."""
    for prefix in ("/etc/cdi/", "/run/cdi/"):
        for fact in known.below(prefix):
            match = re.search(r"libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)", str(fact.value or ""))
            if match:
                yield derive(fact, "cdi/driver_version", match[1])
    info = known.get("cmd/docker info --format {{.CgroupDriver}}")
    daemon = known.get("/etc/docker/daemon.json")
    if info is not None:
        if info.error == "ENOENT":
            yield derive(info, "docker/present", False)
        else:
            yield derive(info, "docker/present", True)
            if isinstance(info.value, str) and info.value.strip():
                yield derive(info, "docker/cgroup_driver", info.value.split()[0])
            if daemon is not None and (daemon.value is not None or daemon.error == "ENOENT"):
                named = "nvidia-container-runtime" in str(daemon.value or "")
                yield derive(daemon, "docker/nvidia_runtime", named)
    chars = known.get("/dev/char")
    if chars is not None and isinstance(chars.value, list):
        linked = any(name.startswith("195:") for name in chars.value)
        yield derive(chars, "docker/char_links", linked)
    rules = known.get("/sys/fs/cgroup/devices/devices.list")
    if rules is not None and isinstance(rules.value, str):
        rows = [row.strip() for row in rules.value.split("\n") if row.strip()]
        yield derive(rules, "cgroup/devices_list", rows)
    units = known.get("/etc/systemd/system")
    if units is not None and isinstance(units.value, list):
        made = "no"
        for fact in [*known.below("/etc/systemd/system/"), *known.below("/usr/lib/")]:
            text = fact.value if isinstance(fact.value, str) else ""
            if "nvidia-modprobe" in text and re.search(r"^Before=.*(?:guests|docker)", text, re.M):
                made = posixpath.basename(fact.key)
        yield derive(units, "boot/uvm_before_guests", made)


def packages(known: Raw) -> Iterator[Fact]:
    """What is installed, held and upgraded by itself."""
    upgrades = known.get("/etc/apt/apt.conf.d/20auto-upgrades")
    dpkg = known.get("cmd/dpkg --get-selections")
    if upgrades is not None and upgrades.value is not None:
        on = re.search(r'Unattended-Upgrade\s+"([^"0]+|\d*[1-9]\d*)"', str(upgrades.value))
        yield derive(upgrades, "packages/unattended_upgrades", bool(on))
    if dpkg is not None and isinstance(dpkg.value, str):
        if upgrades is not None and upgrades.error == "ENOENT":
            yield derive(dpkg, "packages/unattended_upgrades", False)
        names = re.findall(
            r"^(nvidia-dkms\S*|nvidia-kernel(?:-open)?-dkms\S*)\s+install$", dpkg.value, re.M
        )
        yield derive(dpkg, "packages/nvidia_dkms", ", ".join(names) or "none")
    disk = known.get("cmd/modinfo -F version nvidia")
    loaded = re.search(
        r"NVRM version:.*?(\d{3}\.\d+(?:\.\d+)?)", known.text("/proc/driver/nvidia/version") or ""
    )
    if disk is not None and isinstance(disk.value, str) and loaded and disk.value.strip():
        moved = [] if disk.value.strip() == loaded[1] else [f"nvidia {disk.value.strip()}"]
        yield derive(disk, "packages/driver_upgraded_since_boot", moved)


def network(known: Raw) -> Iterator[Fact]:
    """Interfaces that are up, loopback left out."""
    up = [
        fact
        for fact in known.below("/sys/class/net/")
        if fact.key.endswith("/operstate") and str(fact.value).strip() in ("up", "unknown")
    ]
    if up:
        names = [fact.key.split("/")[4] for fact in up]
        yield derive(up[0], "net/interfaces_up", [name for name in names if name != "lo"])


def drives(known: Raw) -> Iterator[Fact]:
    """`nvme/NAME/state`, and what `dmidecode` says of memory slots."""
    for fact in known.below("/sys/class/nvme/"):
        if fact.key.endswith("/state") and isinstance(fact.value, str):
            yield derive(fact, f"nvme/{fact.key.split('/')[4]}/state", fact.value.strip())
    slots = known.get("cmd/dmidecode -t 17")
    if slots is None or not isinstance(slots.value, str):
        return
    devices = slots.value.split("Memory Device")[1:]
    if not devices:
        return
    yield derive(slots, "dmi/empty_slots", sum(_SLOT_FREE in one for one in devices))
    slow = set()
    for one in devices:
        rated = re.search(r"^\s*Speed: (\d+) M[TH]", one, re.M)
        runs = re.search(r"^\s*Configured (?:Memory|Clock) Speed: (\d+) M[TH]", one, re.M)
        if rated and runs and int(runs[1][:6]) < int(rated[1][:6]):
            slow.add(f"{runs[1]} of {rated[1]} MT/s")
    yield derive(slots, "dmi/below_rated_speed", ", ".join(sorted(slow)) or "no")


def restarts(known: Raw) -> Iterator[Fact]:
    """`unit/NAME/restarts_per_h` of services that systemd started again, since boot."""
    shown = known.get("cmd/systemctl show *.service --property=Id,NRestarts")
    if shown is None or not isinstance(shown.value, str):
        return
    uptime_s = numbers.number((known.text("/proc/uptime") or "").partition(" ")[0])
    hours = max(_MIN_HOURS, (uptime_s or 0) / 3600)
    for block in shown.value.split("\n\n"):
        name = re.search(r"^Id=([\w@.-]+)\.service$", block, re.M)
        count = re.search(r"^NRestarts=(\d{1,9})$", block, re.M)
        if name and count and int(count[1]):
            rate = round(int(count[1]) / hours, 2)
            yield derive(shown, f"unit/{name[1]}/restarts_per_h", rate)


def engines(known: Raw) -> Iterator[Fact]:
    """What the first engine process is told by its environment; CPUs near each one's GPUs."""
    pcis: dict[str, str] = {}
    for fact in known.below("nvml/"):
        if fact.key.endswith("/pci_bus_id") and isinstance(fact.value, str):
            pcis[fact.key.split("/")[1]] = fact.value.lower().removeprefix("0000")
    for fact in known.below("engine/"):
        parts = fact.key.split("/")
        if len(parts) == 4 and parts[2] == "env":
            yield derive(fact, f"env/{parts[3]}", fact.value)
        elif len(parts) == 3 and parts[2] == "cuda":
            yield derive(fact, "engine/cuda", fact.value)
        elif len(parts) == 3 and parts[2] == "gpus" and isinstance(fact.value, str):
            near: set[int] = set()
            for index in fact.value.split(","):
                bdf = pcis.get(index, "")
                found = numbers.cpu_list(known.text(f"{PCI}{bdf}/local_cpulist"))
                near |= found or set()
            if near:
                yield derive(fact, f"engine/{parts[1]}/gpu_cpus", numbers.show_cpus(near))


def groups(known: Raw) -> Iterator[Fact]:
    """`pci/ADDRESS/iommu_group_devices`, and NVSwitches on the bus or as a node."""
    members: dict[str, list[str]] = defaultdict(list)
    at: dict[str, Fact] = {}
    for fact in known.below(PCI):
        bdf, _, name = fact.key.removeprefix(PCI).partition("/")
        if name == "iommu_group" and isinstance(fact.value, str):
            members[posixpath.basename(fact.value)].append(bdf)
            at[bdf] = fact
        elif name == "class" and str(fact.value).startswith("0x0680"):
            vendor = (known.text(f"{PCI}{bdf}/vendor") or "").strip()
            if vendor == "0x10de":
                yield derive(fact, "nvswitch/present", True)
    for group in members.values():
        for bdf in group:
            yield derive(at[bdf], f"pci/{bdf}/iommu_group_devices", sorted(group))
    control = known.get("node//dev/nvidia-nvswitchctl")
    if control is not None and control.value:
        yield derive(control, "nvswitch/present", True)


Step: TypeAlias = Callable[[Raw], Iterator[Fact]]
STEPS: Final[tuple[Step, ...]] = (
    next_boot,
    libraries,
    runtimes,
    packages,
    network,
    drives,
    restarts,
    engines,
    groups,
)
"""In any order: no two give the same fact, but for what stands first in a file."""
