"""What kind of machine the facts come from: decides which rules apply."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.tuning import numbers
from backends.tuning.facts import Vantage
from backends.tuning.gpus import DEVICE_NAMES, Generation, Model, generation_of, model_of
from backends.tuning.pci_devices import Device, Role, find_devices
from backends.tuning.view import View


class Kind(StrEnum):
    """What the machine is, as far as the facts say."""

    BARE_METAL = "bare metal"
    VM = "virtual machine"
    LXC = "LXC container"
    CONTAINER = "container"
    UNKNOWN = "not known"


_LXC = frozenset({"lxc", "lxc-libvirt"})
_CONTAINERS = frozenset(
    {"docker", "podman", "container", "container-other", "systemd-nspawn", "rkt", "openvz", "pod"}
)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of the facts.

    Attributes:
        id: PCI address, or `index-N` when only nvidia-smi's index is known.
        label: Short name for findings.
    """

    id: str
    label: str
    name: str | None
    generation: Generation | None
    model: Model | None

    def key(self, field: str) -> str:
        """The fact's key of one field."""
        return f"gpu/{self.id}/{field}"


@dataclass(frozen=True, slots=True)
class Context:
    """Everything rules are selected by. None is not known."""

    kind: Kind
    vantage: Vantage
    cpu_vendor: str | None
    cpu_family: int | None
    nodes: int | None
    sockets: int | None
    cpus: int | None
    kernel: str | None
    gpus: tuple[Gpu, ...]
    devices: Mapping[str, Device]
    gpu_count: int | None
    proxmox: bool
    rdma: bool | None
    nvswitch: bool | None
    vm_host: bool
    """Whether this host hands devices to virtual machines."""

    no_gpu: bool = False
    """Whether the whole bus was read and no GPU is on it."""

    @property
    def container(self) -> bool:
        """Whether this is a container of any sort, which shares its host's kernel."""
        return self.kind in (Kind.LXC, Kind.CONTAINER)

    @property
    def guest(self) -> bool:
        """Whether another machine lies below this one."""
        return self.container or self.kind is Kind.VM

    @property
    def generations(self) -> frozenset[Generation]:
        """The GPU families that are known here."""
        return frozenset(gpu.generation for gpu in self.gpus if gpu.generation)


def build(view: View) -> Context:
    """Read the context out of one vantage's facts."""
    gpus = _gpus(view)
    found = find_devices(view)
    return Context(
        kind=_kind(view),
        vantage=view.vantage,
        cpu_vendor=_vendor(view),
        cpu_family=view.peek_integer("cpu/family"),
        nodes=_count(view, "/sys/devices/system/node/online"),
        sockets=view.peek_integer("cpu/sockets"),
        cpus=_cpus(view),
        kernel=kernel_release(view),
        gpus=gpus,
        devices=found,
        no_gpu=_no_gpu(view, gpus, found),
        gpu_count=_gpu_count(view, gpus),
        proxmox=_proxmox(view),
        rdma=_rdma(view),
        nvswitch=_nvswitch(view, gpus),
        vm_host=bool(view.peek_each("pve/qemu/*")) or view.peek("host/use") == "vm_passthrough",
    )


def _no_gpu(view: View, gpus: tuple[Gpu, ...], found: Mapping[str, Device]) -> bool:
    bus = view.table.get("pci/complete")
    return (
        bus is not None
        and bus.value is True
        and not gpus
        and not any(device.role is Role.GPU for device in found.values())
        and not view.peek_integer("nvml/count")
    )


def _kind(view: View) -> Kind:
    said = (view.peek("virt/kind") or "").lower()
    if said in _LXC:
        return Kind.LXC
    if said in _CONTAINERS:
        return Kind.CONTAINER
    if said == "none":
        return Kind.BARE_METAL
    if said and re.fullmatch(r"[a-z0-9-]{2,20}", said):
        return Kind.VM
    if view.vantage is Vantage.GUEST:
        # Nobody said which sort: a container sees least, so nothing is claimed by mistake.
        return Kind.CONTAINER
    return Kind.UNKNOWN


ARM_KERNELS: Final = re.compile(r"[.-](?:aarch64|arm64|64k|tegra|raspi|oracle-64k)(?:[.+-]|$)")
"""How releases end that are built for ARM alone."""


def _vendor(view: View) -> str | None:
    built_for = view.peek("cpu/architecture") or ""
    if built_for in ("aarch64", "arm64") or ARM_KERNELS.search(kernel_release(view) or ""):
        return "arm"
    text = (view.peek("cpu/vendor") or view.peek("cpu/model_name") or "").lower()
    for vendor, words in (
        ("amd", ("authenticamd", "amd", "epyc", "ryzen")),
        ("intel", ("genuineintel", "intel", "xeon")),
        ("arm", ("arm", "nvidia", "ampere", "neoverse", "grace", "cortex", "graviton")),
    ):
        if any(word in text for word in words):
            return vendor
    driver = view.peek("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver") or ""
    idle = view.peek("/sys/devices/system/cpu/cpuidle/current_driver") or ""
    if driver.startswith("amd"):
        return "amd"
    if driver.startswith("intel") or idle == "intel_idle":
        return "intel"
    # intel_idle alone names its states C1E, C6 and above, or C1_ACPI; acpi_idle knows C1 to C3.
    names = {
        reading.text
        for reading in view.peek_each("/sys/devices/system/cpu/cpu*/cpuidle/state*/name")
    }
    if any(name and re.fullmatch(r"C1E|C[6-9]\w*|C10|C\d_ACPI", name) for name in names):
        return "intel"
    return None


def _count(view: View, key: str) -> int | None:
    members = view.peek_cpus(key)
    return len(members) if members else None


def _cpus(view: View) -> int | None:
    return (
        view.peek_integer("cpu/count")
        or _count(view, "/sys/devices/system/cpu/present")
        or _count(view, "/sys/devices/system/cpu/possible")
        or _count(view, "/sys/devices/system/cpu/online")
    )


def kernel_release(view: View) -> str | None:
    """`uname -r`, from wherever it was seen."""
    said = view.peek("/proc/sys/kernel/osrelease")
    if said:
        return said
    for key in ("/proc/version", "/proc/cmdline"):
        match = re.search(
            r"(?:version |vmlinuz-|/boot/vmlinuz-)(\d+\.\d+\S*)", view.peek(key) or ""
        )
        if match:
            return match[1]
    return None


def _gpus(view: View) -> tuple[Gpu, ...]:
    ids: dict[str, None] = {}
    for key in view.table.below("gpu"):
        parts = key.split("/")
        if len(parts) >= 3 and parts[1]:
            ids[parts[1]] = None
    labels = _labels(view, list(ids))
    result = []
    for id_ in ids:
        name = view.peek(f"gpu/{id_}/name")
        device = _device_id(view, id_)
        name = name or DEVICE_NAMES.get(device or -1)
        generation = generation_of(view.peek(f"gpu/{id_}/architecture"), name, device)
        result.append(Gpu(id_, labels[id_], name, generation, model_of(name)))
    return tuple(result)


def _device_id(view: View, id_: str) -> int | None:
    for key in (f"gpu/{id_}/device_id", f"pci/{id_}/device_id"):
        text = view.peek(key)
        if text and re.fullmatch(r"(?:0x)?[0-9a-fA-F]{4}", text):
            return int(text, 16)
    return None


def _labels(view: View, ids: list[str]) -> dict[str, str]:
    """The shortest name that tells each GPU from the others, in the words that printed it."""
    if len({i.split(":")[0] for i in ids}) == len(ids) > 1 and all(i.count(":") == 2 for i in ids):
        # One GPU per PCI domain: the domain is what differs.
        return {i: view.peek(f"gpu/{i}/printed_domain") or i.split(":")[0] for i in ids}
    result = {}
    for id_ in ids:
        index = view.peek_integer(f"gpu/{id_}/index")
        if index is not None:
            result[id_] = str(index)
        elif id_.startswith("index-"):
            result[id_] = id_.removeprefix("index-")
        else:
            result[id_] = id_.removeprefix("0000:")
    twice = {label for label, count in Counter(result.values()).items() if count > 1}
    return {id_: id_ if label in twice else label for id_, label in result.items()}


def _gpu_count(view: View, gpus: tuple[Gpu, ...]) -> int | None:
    known = [view.peek_integer(key) for key in ("gpu/attached", "nvml/count", "host/gpu_count")]
    counts = [count for count in known if count]
    matrix = {n for r in view.peek_each("topo/link/*/*") for n in r.names}
    matrix |= {n for r in view.peek_each("p2p/*/*/*") for n in r.names[1:]}
    counts.extend(len(found) for found in (gpus, matrix) if found)
    best = max(counts, default=0)
    if best > 1 or any(known):
        return best or None
    # One GPU in a pasted extract says nothing about how many there are.
    return 1 if best == 1 and view.peek("gpu/complete") else None


def _proxmox(view: View) -> bool:
    release = kernel_release(view) or ""
    return bool(
        view.peek("pve/version")
        or view.peek_each("pve/lxc/*")
        or view.peek_each("pve/qemu/*")
        or release.endswith("-pve")
    )


def _rdma(view: View) -> bool | None:
    if view.peek_each("/sys/class/infiniband/*/ports/*/state"):
        return True
    listed = view.table.get("/sys/class/infiniband")
    if listed is None:
        return None
    return bool(listed.value)


def _nvswitch(view: View, gpus: tuple[Gpu, ...]) -> bool | None:
    told = view.peek("nvswitch/present")
    if told is not None:
        return numbers.flag(told)
    if any("NVSwitch" in (r.text or "") for r in view.peek_each("pci/*/name")):
        return True
    models = [gpu.model for gpu in gpus] or [model_of(view.peek("host/gpu_name"))]
    if any(model is not None and model.nvswitch for model in models) and not gpus:
        return True
    if models and all(model is not None and not model.nvswitch for model in models):
        return False
    return None
