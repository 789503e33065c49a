"""From raw readings to the named facts that rules ask for. Pure: text and bytes in, facts out.

An agent gathers files, command output, NVML values and PCI configuration bytes as they are; what
is pasted is command output. Both are turned into the same named facts here and in the readers.
A named fact that was gathered itself is never replaced by a derived one.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from backends.tuning import normalise_host, numbers, pci
from backends.tuning.facts import Fact, FactsDocument, Vantage
from backends.tuning.plans.cmdline import PlanError, grub_flags
from backends.tuning.raw import PCI, Raw, derive
from backends.tuning.readers.pci_address import address

_BDF: Final = r"([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_ATTRIBUTE: Final = re.compile(rf"{PCI}{_BDF}(?:/(.+))?")


def normalise(document: FactsDocument) -> FactsDocument:
    """`document` with raw command output, PCI bytes and NVML values also as named facts."""
    result: list[Fact] = []
    for vantage in Vantage:
        known = {f.key: f for f in document.facts if f.vantage is vantage}
        if not known:
            continue
        raw = Raw(known)
        derived: dict[str, Fact] = {}
        for step in STEPS:
            for fact in step(raw):
                derived.setdefault(fact.key, fact)
        result.extend(_one_name_each({**derived, **known}))
    return msgspec.structs.replace(document, facts=result, derived=True)


def _one_name_each(facts: Mapping[str, Fact]) -> Iterator[Fact]:
    """Facts of a GPU that one tool knows by index and another by address, under the address."""
    if not any(key.startswith("gpu/index-") for key in facts):
        yield from facts.values()
        return
    addresses: dict[str, str] = {}
    ordered: dict[str, str] = {}
    for key, fact in facts.items():
        if key.startswith("gpu/") and key.endswith(("/index", "/order")):
            id_ = key.split("/")[1]
            if not id_.startswith("index-"):
                places = addresses if key.endswith("/index") else ordered
                places[f"index-{fact.value}"] = id_
    attached = facts.get("gpu/attached")
    if not addresses and attached is not None and attached.value == len(ordered):
        # All GPUs are listed, and nvidia-smi lists them by index.
        addresses = ordered
    for key, fact in facts.items():
        if addresses and key.startswith("gpu/index-"):
            _, index, field = key.split("/", 2)
            other = f"gpu/{addresses.get(index, index)}/{field}"
            if other == key:
                yield fact
            elif other not in facts:
                yield msgspec.structs.replace(fact, key=other)
        else:
            yield fact


def _commands(known: Raw) -> Iterator[Fact]:
    """Output of commands, read by the readers of pasted text."""
    from backends.tuning.readers import read_excerpt
    from backends.tuning.readers.excerpt import Excerpt, Line

    for fact in known.below("cmd/"):
        if not isinstance(fact.value, str):
            continue
        command = fact.key.removeprefix("cmd/")
        lines = [Line(f"$ {command}", 0)]
        lines += [Line(t.rstrip(), n) for n, t in enumerate(fact.value.split("\n"), 1)]
        for found in read_excerpt(Excerpt(command, fact.vantage, tuple(lines))):
            yield derive(fact, found.key, found.value, found.error)
        if command.startswith(("journalctl -k", "dmesg")) and fact.value.strip():
            yield derive(fact, "log/complete", "Linux version" in fact.value[:20_000])
        elif command == "systemd-detect-virt":
            yield derive(fact, "virt/kind", fact.value.strip())
        elif command == "systemctl --failed --plain --no-legend":
            rows = [r.split()[0] for r in fact.value.split("\n") if r.split()]
            yield derive(fact, "systemd/failed", rows)
        elif command == "apt-mark showhold":
            yield derive(fact, "packages/held", fact.value.split())
        elif command == "dpkg --get-selections":
            pairs = [r.split() for r in fact.value.split("\n")]
            held = [pair[0] for pair in pairs if pair[1:] == ["hold"]]
            yield derive(fact, "packages/held", held)
        elif command == "ss -ltn":
            rows = [r.split()[3] for r in fact.value.split("\n")[1:] if len(r.split()) > 3]
            yield derive(fact, "net/listening", rows)
        elif command.startswith("timedatectl") and "NTPSynchronized=" in fact.value:
            word = fact.value.strip().rpartition("=")[2]
            yield derive(fact, "time/ntp_synchronized", word)


def _unit_states(known: Raw) -> Iterator[Fact]:
    for fact in known.below("cmd/"):
        match = re.fullmatch(r"cmd/systemctl is-(active|enabled) ([\w@.-]+)", fact.key)
        if match and isinstance(fact.value, str) and fact.value.strip():
            yield derive(fact, f"unit/{match[2]}/{match[1]}", fact.value.split()[0])


def _pci(known: Raw) -> Iterator[Fact]:
    """`pci/ADDRESS/...` from sysfs attributes and configuration bytes."""
    for fact in known.below(PCI):
        match = _ATTRIBUTE.fullmatch(fact.key)
        if not match:
            continue
        bdf, name = match[1], match[2]
        base = f"pci/{bdf}"
        if name == "config" and isinstance(fact.value, str):
            yield from _config(fact, base)
        elif name is None and isinstance(fact.value, str):
            parent = posixpath.basename(posixpath.dirname(fact.value))
            if re.fullmatch(_BDF, parent):
                yield derive(fact, f"{base}/parent", parent)
        elif name in _PCI_TEXT:
            value = fact.value
            if name in ("driver", "iommu_group") and isinstance(value, str):
                value = posixpath.basename(value)
            elif isinstance(value, str):
                value = (
                    value.strip().removeprefix("0x")
                    if name in ("vendor", "device")
                    else (value.strip())
                )
            yield derive(fact, f"{base}/{_PCI_TEXT[name]}", value, fact.error)
        elif name in ("current_link_speed", "max_link_speed") and isinstance(fact.value, str):
            if speed := re.match(r"(\d+(?:\.\d+)?) GT/s", fact.value):
                key = "speed_gts" if name.startswith("current") else "max_speed_gts"
                yield derive(fact, f"{base}/{key}", float(speed[1]))
        elif name in ("current_link_width", "max_link_width"):
            width = numbers.integer(fact.value)
            key = "width" if name.startswith("current") else "max_width"
            if width is not None and 0 < width <= 32:
                yield derive(fact, f"{base}/{key}", width)


_PCI_TEXT: Final = {
    "class": "class",
    "vendor": "vendor_id",
    "device": "device_id",
    "numa_node": "numa_node",
    "driver": "driver",
    "iommu_group": "iommu_group",
}


def _config(fact: Fact, base: str) -> Iterator[Fact]:
    assert isinstance(fact.value, str)
    text = fact.value.strip()
    if not text or len(text) > 8192:
        return
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return
    for field, value in pci.decode(data).items():
        yield derive(fact, f"{base}/{field}", value)


def _resources(known: Raw) -> Iterator[Fact]:
    """The largest memory BAR of a device, from its `resource` file."""
    for fact in known.below(PCI):
        match = _ATTRIBUTE.fullmatch(fact.key)
        if not match or match[2] != "resource" or not isinstance(fact.value, str):
            continue
        largest = 0
        for row in fact.value.split("\n")[:6]:
            parts = re.fullmatch(
                r"0x([0-9a-f]{1,16}) 0x([0-9a-f]{1,16}) 0x([0-9a-f]{1,16})", row.strip()
            )
            if parts and int(parts[3], 16) & 0x200 and int(parts[1], 16):
                largest = max(largest, int(parts[2], 16) - int(parts[1], 16) + 1)
        if largest > 0:
            yield derive(fact, f"pci/{match[1]}/bar_bytes", largest)


def _nvml(known: Raw) -> Iterator[Fact]:
    """`gpu/ADDRESS/...` from NVML's values by index."""
    ids: dict[str, str] = {}
    for fact in known.below("nvml/"):
        match = re.fullmatch(r"nvml/(\d{1,3})/pci_bus_id", fact.key)
        if match and isinstance(fact.value, str):
            ids[match[1]] = address(fact.value) or f"index-{match[1]}"
    for fact in known.below("nvml/"):
        match = re.fullmatch(r"nvml/(\d{1,3})/(\w+)", fact.key)
        if not match:
            continue
        id_ = ids.get(match[1], f"index-{match[1]}")
        name = {"arch": "architecture"}.get(match[2], match[2])
        yield derive(fact, f"gpu/{id_}/{name}", fact.value, fact.error)
        yield derive(fact, f"gpu/{id_}/index", int(match[1]))
    if (count := known.get("nvml/count")) is not None:
        yield derive(count, "gpu/complete", True)


def _files(known: Raw) -> Iterator[Fact]:
    """Files whose content several facts are made of."""
    if (text := known.text("/proc/driver/nvidia/version")) is not None:
        match = re.search(r"NVRM version:\s+NVIDIA UNIX (Open )?.*?(\d{3}\.\d+(?:\.\d+)?)", text)
        fact = known.facts["/proc/driver/nvidia/version"]
        if match:
            yield derive(fact, "nvrm/version", match[2])
            yield derive(fact, "nvrm/open", bool(match[1]))
            if " for aarch64 " in text:
                yield derive(fact, "cpu/architecture", "aarch64")
    if (text := known.text("/sys/module/nvidia/version")) and (
        known.text("/proc/driver/nvidia/version") is None
    ):
        yield derive(known.facts["/sys/module/nvidia/version"], "nvrm/version", text.strip())
    if (text := known.text("/sys/fs/cgroup/memory.events")) and (
        match := re.search(r"^oom_kill (\d{1,12})$", text, re.M)
    ):
        yield derive(
            known.facts["/sys/fs/cgroup/memory.events"], "cgroup/memory/oom_kill", int(match[1])
        )
    if (text := known.text("/sys/fs/cgroup/cpu.stat")) and (
        match := re.search(r"^nr_throttled (\d{1,15})$", text, re.M)
    ):
        yield derive(
            known.facts["/sys/fs/cgroup/cpu.stat"], "cgroup/cpu/nr_throttled", int(match[1])
        )
    if (text := known.text("/proc/1/environ")) and (
        match := re.search(r"(?:^|[\0\ufffd\n])container=([a-z-]{2,20})", text)
    ):
        yield derive(known.facts["/proc/1/environ"], "virt/kind", match[1])
    listing = known.get("/proc/driver/nvidia/gpus")
    if listing is not None and isinstance(listing.value, list):
        yield derive(listing, "driver/gpu_count", len(listing.value))
    first = next((f for f in known.below(PCI) if f.key.endswith("/class")), None)
    if first is not None:
        yield derive(first, "pci/complete", True)


def _configurations(known: Raw) -> Iterator[Fact]:
    """Proxmox configurations by id."""
    for fact in known.below("/etc/pve/"):
        match = re.fullmatch(r"/etc/pve/(lxc|qemu-server)/(\d{1,9})\.conf", fact.key)
        if match and isinstance(fact.value, str):
            kind = "lxc" if match[1] == "lxc" else "qemu"
            lines = []
            for line in fact.value.split("\n"):
                if re.match(r"\[[^\]]+\]", line):
                    break
                if line.strip() and not line.startswith("#"):
                    lines.append(line)
            yield derive(fact, f"pve/{kind}/{match[2]}", lines)


def _boot(known: Raw) -> Iterator[Fact]:
    """Which loader boots, and what GRUB's files put on the command line."""
    grub = known.get("/etc/default/grub")
    if grub is not None and isinstance(grub.value, str):
        dropins = sorted(known.below("/etc/default/grub.d/"), key=lambda f: f.key)
        extra = [f.value for f in dropins if f.key.endswith(".cfg") and isinstance(f.value, str)]
        try:
            yield derive(grub, "boot/grub_cmdline", " ".join(grub_flags(grub.value, extra)))
        except PlanError as error:
            yield derive(grub, "boot/grub_cmdline", None, error.title)
    status = known.get("cmd/proxmox-boot-tool status")
    if status is not None and isinstance(status.value, str):
        if "is configured with: uefi" in status.value:
            yield derive(status, "boot/loader", "systemd-boot")
        elif "is configured with: grub" in status.value:
            yield derive(status, "boot/loader", "grub")
    elif name := _loader(known):
        yield derive(name[0], "boot/loader", name[1])


LOADER_INFO: Final = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
"""Which boot loader started this boot, in its own words (Boot Loader Interface): 4 bytes of
attributes, then UTF-16."""


def _loader(known: Raw) -> tuple[Fact, str] | None:
    """By the firmware's word, else by which files are there; None where they say both."""
    told = known.get(LOADER_INFO)
    if told is not None and isinstance(told.value, str):
        try:
            words = bytes.fromhex(told.value)[4:].decode("utf-16-le", "replace").lower()
        except ValueError:
            words = ""
        for mark, name in (("systemd-boot", "systemd-boot"), ("grub", "grub")):
            if words.startswith(mark):
                return told, name
    grub, one_line = known.get("/etc/default/grub"), known.get("/etc/kernel/cmdline")
    if grub is not None and grub.value and (one_line is None or not one_line.value):
        return grub, "grub"
    if grub is None or grub.error != "ENOENT":
        return None  # not read is not the same as not there
    if one_line is not None and one_line.value:
        return one_line, "systemd-boot"
    folders = ("/boot/loader/", "/boot/efi/loader/", "/efi/loader/")
    entries = [fact for folder in folders for fact in known.below(folder)]
    if one_line is not None and one_line.error == "ENOENT":
        return next(((fact, "systemd-boot") for fact in entries if fact.value), None)
    return None


def _sysctls(known: Raw) -> Iterator[Fact]:
    """What the files below /etc and /usr/lib set, the last of them winning."""

    def order(key: str) -> tuple[str, str]:
        name = posixpath.basename(key)
        return ("zz" if key == "/etc/sysctl.conf" else name, key)

    files = [
        f.key
        for prefix in ("/etc/sysctl", "/usr/lib/sysctl.d/")
        for f in known.below(prefix)
        if f.key.endswith(".conf")
    ]
    for key in sorted(files, key=order, reverse=True):
        for line in (known.text(key) or "").split("\n"):
            match = re.match(r"\s*-?([a-z][\w.-]*[\w])\s*=\s*(\S.*?)\s*$", line)
            if match and "*" not in match[1] and "/" not in match[1]:
                yield derive(known.facts[key], f"sysctl/configured/{match[1]}", match[2])
                yield derive(known.facts[key], f"sysctl/source/{match[1]}", key)


def _lasting(known: Raw) -> Iterator[Fact]:
    """What tmpfiles.d writes and modprobe.d sets, in the order in which files are read."""
    writes: list[str] = []
    for fact in sorted(known.below("/etc/tmpfiles.d/"), key=lambda f: f.key):
        for line in (known.text(fact.key) or "").split("\n"):
            words = line.split()
            if len(words) >= 7 and words[0].rstrip("+!-=~^") == "w":
                writes.append(f"{words[1]} {' '.join(words[6:])}")
    options: list[str] = []
    for fact in sorted(known.below("/etc/modprobe.d/"), key=lambda f: f.key):
        for line in (known.text(fact.key) or "").split("\n"):
            words = line.split()
            if len(words) >= 3 and words[0] == "options":
                options.extend(f"{words[1]} {option}" for option in words[2:])
    for prefix, key, found in (
        ("/etc/tmpfiles.d/", "tmpfiles/writes", writes),
        ("/etc/modprobe.d/", "modprobe/options", options),
    ):
        files = known.below(prefix)
        listing = known.get(prefix.rstrip("/"))
        # An empty folder that was listed says as much as files that set nothing.
        source = files[0] if files else listing
        if source is not None and (files or isinstance(source.value, list)):
            yield derive(source, key, found)


def _limits(known: Raw) -> Iterator[Fact]:
    for fact in known.below("proc/"):
        match = re.fullmatch(r"proc/(\d{1,10})/limits", fact.key)
        if not match or not isinstance(fact.value, str):
            continue
        for name, words in (("memlock", "locked memory"), ("nofile", "open files")):
            found = re.search(
                rf"^Max {words}\s+(\d+|unlimited)\s+(\d+|unlimited)", fact.value, re.M
            )
            if found:
                yield derive(fact, f"limits/{match[1]}/{name}_soft", found[1])
                yield derive(fact, f"limits/{match[1]}/{name}_hard", found[2])


def _processes(known: Raw) -> Iterator[Fact]:
    for fact in known.below("proc/"):
        match = re.fullmatch(r"proc/(\d{1,10})/status", fact.key)
        if not match or not isinstance(fact.value, str):
            continue
        if found := re.search(r"^VmSwap:\s+(\d{1,15}) kB", fact.value, re.M):
            yield derive(fact, f"engine/{match[1]}/swap_kib", int(found[1]))
        if found := re.search(r"^Cpus_allowed_list:\s+([\d,-]+)", fact.value, re.M):
            yield derive(fact, f"engine/{match[1]}/cpus_allowed", found[1])


Step: TypeAlias = Callable[[Raw], Iterator[Fact]]
STEPS: Final[tuple[Step, ...]] = (
    _nvml,
    _unit_states,
    _files,
    _pci,
    _resources,
    _commands,
    _configurations,
    _boot,
    _sysctls,
    _lasting,
    _limits,
    _processes,
    *normalise_host.STEPS,
)
"""In this order; of two that derive the same fact the first is kept."""
