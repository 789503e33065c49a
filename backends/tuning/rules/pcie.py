"""PCIe registers: payload and read sizes, ordering, tags, ASPM, ACS, BARs, power."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from backends.tuning.findings import Judgement, Verdict
from backends.tuning.fixes import (
    Command,
    Fix,
    Risk,
    at_boot,
    commands,
    kernel_flags,
    manual,
    sysfs,
    udev,
)
from backends.tuning.pci_devices import Device, Role
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
    TRUNCATED,
    devices,
    endpoints,
    gpu_path,
    iommu_mode,
)
from backends.tuning.rules.kernel_events import bar_failures

SIZES: Final = frozenset({128, 256, 512, 1024, 2048, 4096})


def _judged(scene: Scene, *roles: Role) -> list[Device]:
    return [d for d in devices(scene).values() if d.role in roles]


@rule("pcie.mps")
def mps(scene: Scene) -> Judgements:
    view = scene.view
    for device in _judged(scene, Role.GPU, Role.NIC, Role.UNNAMED):
        if view.flag(device.key("truncated")):
            yield unknown(TRUNCATED, device.label)
            continue
        now = view.integer(device.key("mps_bytes"), 128, 4096)
        most = view.integer(device.key("mps_max_bytes"), 128, 4096)
        if now is None and most is None:
            continue
        if now not in SIZES or most not in SIZES:
            yield unknown("MaxPayload not read", device.label)
            continue
        above = view.integer(f"pci/{device.parent}/mps_bytes", 128, 4096) if device.parent else None
        if above is not None and now > above:
            yield failed(
                f"MaxPayload {now}, the port above sends {above}",
                device.label,
                fix=kernel_flags("pci=pcie_bus_perf"),
            )
            continue
        reach = most
        parent, steps = device.parent, 0
        found = devices(scene)
        while parent and steps < 32:
            limit = view.peek_integer(f"pci/{parent}/mps_max_bytes")
            reach = min(reach, limit) if limit in SIZES else reach
            parent, steps = (found[parent].parent if parent in found else None), steps + 1
        if now < reach:
            yield warned(
                f"MaxPayload {now} of {reach} bytes",
                device.label,
                fix=kernel_flags("pci=pcie_bus_perf"),
            )
        else:
            yield passed(f"MaxPayload {now} of {most} bytes", device.label)


@rule("pcie.mrrs")
def mrrs(scene: Scene) -> Judgements:
    view = scene.view
    bridges = 0
    for device in devices(scene).values():
        size = view.integer(device.key("mrrs_bytes"), 128, 4096)
        if device.role in (Role.GPU, Role.NIC) and view.flag(device.key("truncated")):
            yield unknown(TRUNCATED, device.label)
        elif size not in SIZES:
            if size is not None or (device.role is Role.GPU and view.has(device.key("mps_bytes"))):
                yield unknown("MaxReadReq not read", device.label)
        elif device.role is Role.VIRTUAL:
            continue
        elif device.role is Role.BRIDGE:
            bridges += 1
        elif device.role is Role.NIC and size < 4096:
            yield info(
                f"MaxReadReq {size}; NVIDIA sets 4096 on network cards",
                device.label,
                fix=_set_mrrs(device, 4096, size),
            )
        elif size < 256:
            yield warned(f"MaxReadReq {size} bytes", device.label, fix=_set_mrrs(device, 512, size))
        else:
            # 4096 is a rule for network cards; on a GPU it may be tried, and measured.
            trial = _set_mrrs(device, 4096, size) if size < 4096 else None
            yield Judgement(
                Verdict.PASS, f"MaxReadReq {size} bytes", device.label, trial, experiment=True
            )
    if bridges and not any(device.role is not Role.BRIDGE for device in devices(scene).values()):
        yield not_applicable("bridges issue no bulk reads")


def _set_mrrs(device: Device, wanted: int, now: int) -> Fix | None:
    if device.role is Role.UNNAMED:
        return None
    field = {size: index for index, size in enumerate(sorted(SIZES))}
    card = ("setpci", "-s", device.bdf)
    argv = (*card, f"CAP_EXP+8.w={field[wanted] << 12:04x}:7000")
    return commands(
        argv,
        summary=f"MaxReadReq of {device.bdf} to {wanted} (a reset undoes it; some ports ignore it)",
        undo_argvs=((*card, f"CAP_EXP+8.w={field[now] << 12:04x}:7000"),),
        persistent=(at_boot(*argv),),
    )


@rule("pcie.relaxed_ordering")
def relaxed_ordering(scene: Scene) -> Judgements:
    view = scene.view
    for device in _judged(scene, Role.GPU, Role.NIC, Role.UNNAMED):
        if view.flag(device.key("truncated")):
            yield unknown(TRUNCATED, device.label)
            continue
        on = view.flag(device.key("relaxed_ordering"))
        if on:
            yield passed("relaxed ordering is on", device.label)
        elif on is False:
            yield warned(
                "relaxed ordering is off",
                device.label,
                fix=ordering_fix(device) if device.role is not Role.UNNAMED else None,
            )


def ordering_fix(device: Device) -> Fix:
    """Relaxed ordering on, now and at every boot."""
    on = ("setpci", "-s", device.bdf, "CAP_EXP+8.w=0010:0010")
    return commands(
        on,
        summary=f"relaxed ordering on at {device.bdf}",
        undo_argvs=(("setpci", "-s", device.bdf, "CAP_EXP+8.w=0000:0010"),),
        persistent=(at_boot(*on),),
        risk=Risk.MEDIUM,
    )


@rule("pcie.tag10")
def tag10(scene: Scene) -> Judgements:
    view = scene.view
    for device in _judged(scene, Role.GPU, Role.NIC, Role.UNNAMED):
        if view.flag(device.key("truncated")):
            yield unknown(TRUNCATED, device.label)
            continue
        able = view.flag(device.key("tag10_requester"))
        on = view.flag(device.key("tag10_enabled"))
        speed = view.number(device.key("max_speed_gts"), 2.5, 64)
        if able is None and on is None:
            continue
        if on:
            yield passed("10-bit tags are on", device.label)
        elif speed is not None and speed < 16:
            yield not_applicable("older than Gen4", device.label)
        elif able and on is False and speed is not None:
            yield warned(
                "10-bit tags: able, off",
                device.label,
                fix=manual("10-bit tag support in firmware: Auto or Enabled", reboot=True),
            )
        elif able is False:
            yield not_applicable("the device asks for none", device.label)
        else:
            yield unknown("10-bit tags not read", device.label)


@rule("pcie.aspm")
def aspm(scene: Scene) -> Judgements:
    view = scene.view
    flag = "pcie_aspm=off" in (view.peek("/proc/cmdline") or "").split()
    found = devices(scene)
    path = gpu_path(found)
    for device in found.values():
        if device.role not in (Role.GPU, Role.UNNAMED) and device.bdf not in path:
            continue
        if device.role is Role.GPU and view.flag(device.key("truncated")):
            yield unknown(TRUNCATED, device.label)
            continue
        state = view.text(device.key("aspm"))
        if state is None:
            continue
        if state == "Disabled":
            yield passed("ASPM is off in LnkCtl", device.label)
        elif re.fullmatch(r"(?:L0s|L1|L0s L1|L0s and L1) Enabled", state):
            told = f"{state} in LnkCtl"
            if flag:
                told += "; pcie_aspm=off leaves firmware's setting in place"
            yield warned(told, device.label, fix=_aspm_off(device))
        else:
            yield unknown(f"LnkCtl says {state[:40]!r}", device.label)


def _aspm_off(device: Device) -> Fix:
    base = f"/sys/bus/pci/devices/{device.bdf}/link"
    fix = sysfs((f"{base}/l1_aspm",), "0", summary=f"ASPM off at {device.bdf}")
    lasting = kernel_flags("pcie_aspm.policy=performance")
    return Fix(fix.summary, runtime=fix.runtime, persistent=lasting.persistent)


ACS_BITS: Final = {"ReqRedir": 0x04, "CmpltRedir": 0x08, "EgressCtrl": 0x20}
"""Bits of the ACS control word that send peer traffic through the root."""


@rule("pcie.acs")
def acs(scene: Scene) -> Judgements:
    view = scene.view
    translated = iommu_mode(view) == "translated"
    view.drain()
    found = devices(scene)
    path = gpu_path(found)
    for device in found.values():
        port = view.peek(device.key("port_type")) or ""
        if device.role in (Role.GPU, Role.NIC, Role.NVME) or port.endswith("endpoint"):
            continue  # a card's own word says nothing of the ports above it
        if path and device.role is Role.BRIDGE and device.bdf not in path:
            continue
        control = view.text(device.key("acs_control"))
        if control is None:
            if device.role is Role.BRIDGE and view.flag(device.key("truncated")):
                yield unknown(TRUNCATED, device.label)
            continue
        flags = dict(re.findall(r"([A-Za-z]+)([+-])", control))
        redirect = [name for name in ACS_BITS if flags.get(name) == "+"]
        if scene.context.vm_host:
            if redirect:
                yield passed("redirects, as virtual machines need", device.label)
            else:
                yield warned("no redirect: virtual machines are not isolated", device.label)
        elif redirect:
            fix = _acs_fix(device, redirect)
            told = f"{', '.join(redirect)} on"
            if translated:
                yield failed(f"{told}, and the IOMMU translates", device.label, fix=fix)
            else:
                yield warned(f"{told}: peer traffic goes through the root", device.label, fix=fix)
        elif {"ReqRedir", "CmpltRedir"} <= set(flags):
            yield passed("no redirect", device.label)
        else:
            yield unknown(f"ACS control not understood: {control[:60]}", device.label)


def _acs_fix(device: Device, redirect: Sequence[str]) -> Fix:
    if ":" not in device.bdf:
        return manual(
            "switch ReqRedir, CmpltRedir and EgressCtrl off on the GPUs' ports, or set "
            "pci=disable_acs_redir=<port> on the kernel command line"
        )
    old = sum(ACS_BITS[name] for name in redirect)
    return Fix(
        f"ACS redirect off at {device.bdf}",
        runtime=(
            Command(
                ("setpci", "-s", device.bdf, "ECAP_ACS+6.w=0000:002c"),
                ("setpci", "-s", device.bdf, f"ECAP_ACS+6.w={old:04x}:002c"),
            ),
        ),
        persistent=kernel_flags(f"pci=disable_acs_redir={device.bdf}").persistent,
        risk=Risk.MEDIUM,
        undo="the old control word is written back with setpci; the flag is removed",
    )


@rule("pcie.bar1")
def bar1(scene: Scene) -> Judgements:
    view = scene.view
    lone = scene.context.gpu_count == 1
    placed_wrong = {f.device for f in bar_failures(view.items("log/kernel") or []) if f.gpu}
    for device in sorted(placed_wrong):
        yield failed("its BAR was not placed", device.removeprefix("0000:"), fix=_above_4g())
    for id_, label in endpoints(scene):
        if id_ in placed_wrong:
            continue
        bar_mib = view.integer(f"gpu/{id_}/bar1_mib", 1, 1 << 30)
        vram_mib = view.integer(f"gpu/{id_}/vram_mib", 1, 1 << 30)
        if bar_mib is None:
            size = view.integer(f"pci/{id_}/bar_bytes", 1, 1 << 50)
            bar_mib = size >> 20 if size is not None else None
        if vram_mib is None:
            model = next((g.model for g in scene.gpus if g.id == id_), None) or _model(scene, id_)
            vram_mib = (
                model * 1024
                if isinstance(model, int)
                else (model.vram_gib * 1024 if model and model.vram_gib else None)
            )
        if view.flag(f"pci/{id_}/bar_unassigned"):
            yield failed("a BAR has no address", label, fix=_above_4g())
            continue
        if bar_mib is None:
            if view.error(f"gpu/{id_}/bar1_mib"):
                yield unknown("BAR1 not read", label)
            continue
        if bar_mib <= 256 or (vram_mib is not None and bar_mib < vram_mib * 0.98):
            room = f" of {vram_mib} MiB" if vram_mib else ""
            made = warned if lone else failed
            yield made(f"BAR1 {bar_mib} MiB{room}", label, fix=_above_4g())
        elif vram_mib is not None:
            yield passed(f"BAR1 {bar_mib} MiB covers {vram_mib} MiB", label)
        else:
            most = view.integer(f"pci/{id_}/rebar_max_bytes", 1, 1 << 60)
            if most is not None and bar_mib << 20 >= most:
                yield passed(f"BAR1 {bar_mib} MiB, the largest it offers", label)
            else:
                yield unknown(f"BAR1 {bar_mib} MiB; the memory's size is not known", label)


def _model(scene: Scene, id_: str) -> int | None:
    """Memory in GiB by the PCI device's id or name."""
    from backends.tuning.gpus import DEVICE_NAMES, model_of

    text = scene.view.text(f"pci/{id_}/device_id") or ""
    name = DEVICE_NAMES.get(int(text, 16)) if re.fullmatch(r"[0-9a-f]{4}", text) else None
    model = model_of(name) or model_of(scene.view.peek(f"pci/{id_}/name"))
    return model.vram_gib if model else None


def _above_4g() -> Fix:
    return manual(
        "firmware: Above 4G Decoding and Re-Size BAR on, a larger MMIO window", reboot=True
    )


@rule("pcie.runtime_pm")
def runtime_pm(scene: Scene) -> Judgements:
    view = scene.view
    for id_, label in endpoints(scene):
        base = f"/sys/bus/pci/devices/{id_}"
        control = view.text(f"{base}/power/control")
        cold = view.integer(f"{base}/d3cold_allowed", 0, 1)
        name = next((g.name or "" for g in scene.gpus if g.id == id_), "")
        if control and "Laptop" in name:
            yield not_applicable("a laptop's card is meant to sleep", label)
        elif control == "on":
            yield passed("power/control is on", label)
        elif control == "auto" and cold == 1:
            yield warned(
                "power/control is auto and D3cold is allowed",
                label,
                fix=Fix(
                    f"keep {id_} awake",
                    runtime=(
                        *sysfs((f"{base}/power/control",), "on", summary="").runtime,
                        *sysfs((f"{base}/d3cold_allowed",), "0", summary="").runtime,
                    ),
                    persistent=(
                        udev(id_, "pci", "power/control", "on"),
                        udev(id_, "pci", "d3cold_allowed", "0"),
                    ),
                ),
            )
        elif control == "auto" and cold == 0:
            yield passed("power/control is auto, D3cold is not allowed", label)
        elif control is not None:
            yield unknown("d3cold_allowed not read", label)


@rule("pcie.reset_method")
def reset_method(scene: Scene) -> Judgements:
    for id_, label in endpoints(scene):
        path = f"/sys/bus/pci/devices/{id_}/reset_method"
        text = scene.view.text(path)
        if text is None:
            continue
        methods = text.split()
        known = {"flr", "bus", "pm", "acpi", "device_specific", "cxl_bus", "af_flr"}
        if not methods or not set(methods) <= known:
            yield unknown(f"reset_method says {text[:40]!r}", label)
        elif scene.context.vm_host and methods == ["flr"] and _reset_bug(scene, id_):
            yield warned(
                "only flr, and this card may stay dead after it",
                label,
                fix=manual("known fault of this card in virtual machines: keep D3cold off"),
            )
        else:
            fix = None
            if "bus" in methods and methods[0] != "bus":
                fix = sysfs((path,), "bus", summary=f"reset {id_} by bus", risk=Risk.HIGH)
            yield info(", ".join(methods), label, fix=fix)


def _reset_bug(scene: Scene, id_: str) -> bool:
    gpu = next((g for g in scene.gpus if g.id == id_), None)
    name = gpu.name if gpu else scene.view.peek(f"pci/{id_}/name")
    return bool(re.search(r"RTX PRO 6000|RTX 5090|2bb[1-5]|2b85", name or ""))


RULES = collect(globals())
