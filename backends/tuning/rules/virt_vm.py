"""Virtual machines that are handed GPUs: type, peer access, memory, binding, reset."""

from __future__ import annotations

import re

from backends.tuning.fixes import Fix, Risk, commands, kernel_flags, manual
from backends.tuning.pci_devices import Role
from backends.tuning.plans.proxmox import parse_qemu
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
from backends.tuning.rules.devices import (
    devices,
)
from backends.tuning.rules.virt import none_here


@rule("virt.vm_machine")
def vm_machine(scene: Scene) -> Judgements:
    yield from none_here(scene, "qemu")
    for reading in scene.view.each("pve/qemu/*"):
        lines = reading.items
        if lines is None:
            continue
        config = parse_qemu(lines)
        id_ = reading.name
        if not config.hostpci:
            yield not_applicable("nothing passed through", id_)
        elif config.cpu.startswith(("kvm64", "qemu64")) or not config.cpu:
            yield failed(
                f"cpu {config.cpu or 'kvm64 by default'}: too few address bits for large BARs",
                id_,
                fix=_qm(id_, "cpu", "host", config.values.get("cpu", "")),
            )
        elif not config.machine.startswith(("q35", "pc-q35")):
            yield warned(
                f"machine {config.machine or 'i440fx by default'}: no PCIe",
                id_,
                fix=_qm(id_, "machine", "q35", config.values.get("machine", "")),
            )
        elif not all("pcie=1" in h for h in config.hostpci):
            yield warned(
                "hostpci without pcie=1", id_, fix=manual("pcie=1 on each hostpci line, q35")
            )
        elif config.bios != "ovmf":
            yield warned(
                f"bios {config.bios or 'seabios by default'}",
                id_,
                fix=manual("ovmf with an EFI disk; the guest must be installed for UEFI"),
            )
        else:
            yield passed("q35, ovmf, pcie=1, cpu " + config.cpu, id_)


def _qm(id_: str, option: str, value: str, old: str) -> Fix:
    """One option of a machine; `old` is empty where it stands at its default."""
    back = (f"--{option}", old) if old else ("--delete", option)
    return commands(
        ("qm", "set", id_, f"--{option}", value),
        summary=f"qm set {id_} --{option} {value}",
        undo_argvs=(("qm", "set", id_, *back),),
        risk=Risk.MEDIUM,
        restarts=f"machine {id_}",
    )


@rule("virt.vm_p2p", min_gpus=2)
def vm_p2p(scene: Scene) -> Judgements:
    yield from none_here(scene, "qemu")
    for reading in scene.view.each("pve/qemu/*"):
        lines = reading.items
        config = parse_qemu(lines) if lines is not None else None
        if config is None or len(config.hostpci) < 2:
            continue
        guest = scene.other or scene.view
        statuses = {r.text for r in guest.peek_each("p2p/r/*/*")}
        clique = "x-nv-gpudirect-clique" in config.args
        if "hidden=1" in config.cpu or "kvm=off" in config.args:
            shown = ",".join(
                part
                for part in config.values.get("cpu", "").split(",")
                if part.strip() != "hidden=1"
            )
            yield failed(
                "hidden=1: the driver refuses peer access",
                reading.name,
                fix=_qm(reading.name, "cpu", shown, config.values["cpu"])
                if shown and "hidden=1" in config.cpu
                else manual("take kvm=off out of args"),
            )
        elif statuses & {"CNS", "TNS"} and not clique:
            yield warned(
                "no peer access, and no clique in args",
                reading.name,
                fix=manual("x-nv-gpudirect-clique on each device, with the .0 function named"),
            )
        elif statuses == {"OK"} and clique:
            yield passed("peer access OK, clique set", reading.name)
        else:
            yield unknown(
                "peer access inside was not read",
                reading.name,
                hint="nvidia-smi topo -p2p r in the machine",
            )


@rule("virt.vm_memory")
def vm_memory(scene: Scene) -> Judgements:
    yield from none_here(scene, "qemu")
    for reading in scene.view.each("pve/qemu/*"):
        lines = reading.items
        config = parse_qemu(lines) if lines is not None else None
        if config is None or not config.hostpci:
            continue
        if config.balloon != 0:
            yield warned(
                "ballooning is on; with passed-through devices it cannot work",
                reading.name,
                fix=_qm(reading.name, "balloon", "0", config.values.get("balloon", "")),
            )
        elif (scene.context.sockets or 1) > 1 and not config.numa:
            yield warned(
                "no NUMA map on a host of several sockets",
                reading.name,
                fix=_qm(reading.name, "numa", "1", config.values.get("numa", "")),
            )
        else:
            yield passed("balloon 0", reading.name)


@rule("virt.vm_binding")
def vm_binding(scene: Scene) -> Judgements:
    view = scene.view
    override = any(w.startswith("pcie_acs_override=") for w in view.boot_flags() or ())
    if override and not any(d.role is Role.GPU for d in devices(scene).values()):
        yield warned("pcie_acs_override makes IOMMU groups look isolated", fix=_no_override())
        return
    if not scene.context.vm_host:
        yield from none_here(scene, "qemu")
        return
    for device in devices(scene).values():
        if device.role is not Role.GPU:
            continue
        driver = view.text(device.key("driver"))
        group = view.items(device.key("iommu_group_devices"))
        others = [d for d in group or [] if d[:10] != device.bdf[:10]]
        if driver is None:
            yield unknown("driver not read", device.label)
        elif driver != "vfio-pci":
            yield info(f"bound to {driver[:40]}", device.label)
        elif others:
            yield failed(
                f"shares its IOMMU group with {others[0]}",
                device.label,
                fix=manual(
                    "another slot, or ACS on in firmware; hand in the whole group otherwise",
                    reboot=True,
                ),
            )
        elif override:
            yield warned(
                "pcie_acs_override makes groups look isolated", device.label, fix=_no_override()
            )
        elif group:
            yield passed("vfio-pci, alone in its group", device.label)
        else:
            yield unknown("IOMMU group not read", device.label)


def _no_override() -> Fix:
    return kernel_flags(remove=("pcie_acs_override",))


@rule("virt.vm_reset")
def vm_reset(scene: Scene) -> Judgements:
    view = scene.view
    log = view.items("log/kernel") or []
    dead = [line for line in log if re.search(r"not ready \d+ms after (?:FLR|bus reset)", line)]
    if dead:
        yield failed(dead[0][-140:], fix=manual("power-cycle the host; keep D3cold off"))
        return
    if not scene.context.vm_host:
        yield from none_here(scene, "qemu")
        return
    affected = [g for g in scene.gpus if re.search(r"RTX PRO 6000|RTX 5090", g.name or "")]
    if scene.gpus and not affected and all(g.name for g in scene.gpus):
        yield not_applicable("no card with this fault")
        return
    idle = view.flag("/sys/module/vfio_pci/parameters/disable_idle_d3")
    if affected and idle:
        yield passed("disable_idle_d3 is set")
    elif affected and idle is False:
        yield warned(
            "the card may stay dead after a reset; disable_idle_d3 is not set",
            fix=manual("options vfio-pci disable_idle_d3=1 in modprobe.d", reboot=True),
        )
    elif affected:
        yield unknown("disable_idle_d3 was not read")


RULES = collect(globals())
