"""Kernel and boot line: release, command line, IOMMU, clock source, huge pages, bindings."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from backends.tuning import numbers
from backends.tuning.context import Kind
from backends.tuning.fixes import Fix, Risk, kernel_flags, manual, sysfs, udev
from backends.tuning.pci_devices import Role
from backends.tuning.rules.base import (
    Judgements,
    Scene,
    collect,
    failed,
    info,
    passed,
    rule,
    unknown,
    warned,
)
from backends.tuning.rules.devices import (
    devices,
    endpoints,
    gpu_path,
    iommu_mode,
)
from backends.tuning.rules.kernel_events import bar_failures, iommu_faults, lockups

MITIGATION_OFF: Final = re.compile(
    r"(?:mitigations|pti|spectre_v2|spectre_v2_user|spec_store_bypass_disable|l1tf|mds|retbleed|"
    r"tsx_async_abort|srbds|mmio_stale_data|gather_data_sampling|spec_rstack_overflow)=off|"
    r"nopti|nospectre_v[12]|nospec_store_bypass_disable"
)
_UNSTABLE: Final = re.compile(r"[Mm]arking (?:TSC|clocksource 'tsc[\w-]*' as) unstable")


@rule("kernel.iommu")
def iommu(scene: Scene) -> Judgements:
    view = scene.view
    mode = iommu_mode(view)
    many = scene.context.gpu_count is None or scene.context.gpu_count > 1
    faults = {} if scene.context.guest else iommu_faults(view.peek_items("log/kernel"))
    known = devices(scene)
    for bdf, times in faults.items():
        if bdf not in known or known[bdf].role is Role.GPU:
            view.items("log/kernel")
            yield failed(
                f"{times} accesses of {bdf.removeprefix('0000:')} were stopped by the IOMMU",
                fix=kernel_flags("iommu=pt"),
            )
            return
    if mode is None:
        on = [w for w in view.boot_flags() or [] if re.fullmatch(r"(?:amd|intel)_iommu=\S+", w)]
        if on and not scene.context.guest:
            yield unknown(
                f"{' '.join(on)} without iommu=pt: translated or not was not read",
                hint="cat /sys/kernel/iommu_groups/0/type",
            )
        return
    if scene.context.kind is Kind.VM:
        yield info(f"{mode} inside the virtual machine; what counts is the host's")
    elif scene.context.vm_host:
        if mode == "off":
            yield failed(
                "off, and devices are handed to virtual machines",
                fix=kernel_flags("iommu=pt", remove=("amd_iommu", "intel_iommu")),
            )
        else:
            yield passed(mode)
    elif mode == "identity":
        yield passed("passthrough (identity)")
    elif mode == "translated":
        if many:
            yield failed(
                "translated: peer-to-peer between GPUs is not supported so",
                fix=kernel_flags("iommu=pt"),
            )
        else:
            yield info("translated, with one GPU")
    elif scene.context.cpus is not None and scene.context.cpus < 256:
        yield passed(f"off, with {scene.context.cpus} CPUs and no virtual machines")
    else:
        count = f"{scene.context.cpus} CPUs" if scene.context.cpus else "256 CPUs or more"
        yield warned(
            f"off: with {count} x2APIC is not available, and nothing can be passed through",
            fix=kernel_flags("iommu=pt", remove=("amd_iommu", "intel_iommu")),
        )


@rule("kernel.mitigations")
def mitigations(scene: Scene) -> Judgements:
    view = scene.view
    states = view.each("/sys/devices/system/cpu/vulnerabilities/*")
    words = view.boot_flags() or []
    off = [w for w in words if MITIGATION_OFF.fullmatch(w)]
    if off:
        names = tuple(dict.fromkeys(w.partition("=")[0] for w in off))
        made = failed if scene.use == "shared" else warned
        yield made(
            f"{' '.join(off)[:160]}: a trade that the owner must accept",
            fix=kernel_flags(remove=names),
        )
        return
    open_ = [r.name for r in states if (r.text or "").startswith("Vulnerable")]
    if open_:
        yield info(f"vulnerable: {', '.join(open_)}")
    elif not states and scene.view.boot_flags():
        yield passed("no flag on the kernel command line switches them off")
    elif states and all((r.text or "").startswith(("Not affected", "Mitigation")) for r in states):
        yield passed("default mitigations")
    elif states:
        yield unknown("some states were not understood")


@rule("kernel.pcie_port_pm")
def pcie_port_pm(scene: Scene) -> Judgements:
    view = scene.view
    if "pcie_port_pm=off" in (view.boot_flags() or []):
        yield passed("pcie_port_pm=off")
        return
    found = devices(scene)
    for bdf in sorted(gpu_path(found)):
        path = f"/sys/bus/pci/devices/{bdf}/power/control"
        control = view.text(path)
        if control == "on":
            yield passed("power/control is on", found[bdf].label)
        elif control == "auto":
            affected = any(re.search(r"RTX PRO|RTX 50", g.name or "") for g in scene.gpus)
            now = sysfs((path,), "on", summary=f"keep the port {bdf} awake")
            fix = replace(now, persistent=(udev(bdf, "pci", "power/control", "on"),))
            if affected:
                yield warned("power/control is auto", found[bdf].label, fix=fix)
            else:
                yield info("power/control is auto", found[bdf].label, fix=fix)


@rule("kernel.pci_alloc")
def pci_alloc(scene: Scene) -> Judgements:
    view = scene.view
    lines = view.items("log/kernel")
    failures = bar_failures(lines or [])
    gpu = [f for f in failures if f.gpu]
    if gpu:
        for failure in {f.device: f for f in reversed(gpu)}.values():
            yield failed(
                failure.line[:160],
                failure.device.removeprefix("0000:"),
                fix=manual("firmware: Above 4G Decoding on, a larger MMIO window", reboot=True),
            )
        return
    for id_, label in endpoints(scene):
        text = view.text(f"/sys/bus/pci/devices/{id_}/resource")
        if text is None:
            continue
        first = [row.split() for row in text.splitlines()[:6]]
        sized = [r for r in first if len(r) == 3 and r[2].startswith("0x")]
        if len(sized) < 2:
            yield unknown("resource file not understood", label)
        elif any(
            int(r[0], 16) == 0 and int(r[2], 16) & 0x200 for r in sized if _hex(r[0]) and _hex(r[2])
        ):
            yield failed(
                "a BAR has no address",
                label,
                fix=manual("firmware: Above 4G Decoding on", reboot=True),
            )
        elif all(_hex(r[0]) for r in sized) and any(int(r[0], 16) for r in sized):
            yield passed("every BAR is placed", label)
        else:
            yield unknown("resource file not understood", label)
    if failures:
        yield info(f"{len(failures)} bridge windows were not placed at first")


def _hex(word: str) -> bool:
    return bool(re.fullmatch(r"0x[0-9a-fA-F]{1,16}", word))


@rule("kernel.clocksource")
def clocksource(scene: Scene) -> Judgements:
    base = "/sys/devices/system/clocksource/clocksource0"
    now = scene.view.text(f"{base}/current_clocksource")
    if now in ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"):
        yield passed(now)
    elif now in ("hpet", "acpi_pm", "jiffies", "refined-jiffies"):
        listed = scene.view.peek(f"{base}/available_clocksource") or ""
        why = next(
            (line for line in scene.view.peek_items("log/kernel") if "TSC unstable" in line), ""
        )
        fix = None
        if "tsc" in listed.split():
            fix = sysfs(
                (f"{base}/current_clocksource",), "tsc", summary="use the TSC", risk=Risk.MEDIUM
            )
        yield warned(
            f"{now}: each reading of the clock is slow. {why}".strip(),
            fix=fix or manual("the kernel does not offer the TSC: see firmware"),
        )
    elif now is None and (lines := scene.view.items("log/kernel")):
        bad = next((line for line in lines if _UNSTABLE.search(line)), "")
        if bad:
            yield warned(
                f"the TSC was given up: {bad[:120]}",
                fix=manual("see firmware; the clock source now was not read"),
            )


@rule("kernel.thp")
def thp(scene: Scene) -> Judgements:
    base = "/sys/kernel/mm/transparent_hugepage"
    enabled = numbers.choice(scene.view.text(f"{base}/enabled"))
    defrag = numbers.choice(scene.view.text(f"{base}/defrag"))
    if defrag == "always":
        yield warned(
            "defrag is always: allocations stall in direct reclaim",
            fix=sysfs(
                (f"{base}/defrag",),
                "madvise",
                summary="defragment huge pages on request only",
                persist_glob=f"{base}/defrag",
            ),
        )
    elif enabled in ("always", "madvise"):
        yield passed(f"enabled: {enabled}")
    elif enabled == "never":
        yield info(
            "enabled: never",
            experiment=True,
            fix=sysfs(
                (f"{base}/enabled",),
                "madvise",
                summary="huge pages on request",
                persist_glob=f"{base}/enabled",
            ),
        )


@rule("kernel.watchdog")
def watchdog(scene: Scene) -> Judgements:
    view = scene.view
    lines = view.items("log/kernel")
    hung = lockups(lines or [])
    on = view.integer("/proc/sys/kernel/watchdog", 0, 1)
    if hung:
        yield failed(
            f"{len(hung)} lock-ups or hung tasks: {hung[0][:120]}",
            fix=manual("find what hangs: storage, driver or firmware"),
        )
    elif on == 0:
        yield info("the watchdog is off")
    elif on == 1:
        if lines is not None and view.flag("log/complete"):
            yield passed("on, and no lock-up since boot")
        else:
            yield unknown("on; the kernel's log was not read")


@rule("kernel.isolation")
def isolation(scene: Scene) -> Judgements:
    view = scene.view
    path = "/sys/devices/system/cpu/isolated"
    isolated = view.cpus(path, may_be_empty=True)
    if isolated is None:
        flags = [w for w in view.boot_flags() or [] if w.startswith(("isolcpus=", "nohz_full="))]
        if flags:
            yield info(f"{' '.join(flags)[:120]}; where the engine runs was not read")
        return
    if not isolated:
        yield passed("no isolated CPUs")
        return
    told = f"isolated: {numbers.show_cpus(isolated)}"
    inside = [
        r.name
        for r in view.each("engine/*/cpus_allowed")
        if (allowed := numbers.cpu_list(r.text)) and allowed <= isolated
    ]
    if inside:
        yield warned(
            f"{told}; engine process {inside[0]} runs there without load balancing",
            fix=kernel_flags(remove=("isolcpus", "nohz_full", "rcu_nocbs")),
        )
    else:
        yield info(told)


@rule("kernel.init_on_alloc")
def init_on_alloc(scene: Scene) -> Judgements:
    view = scene.view
    words = view.boot_flags() or []
    flag = re.search(r"(?:^|\s)init_on_alloc=([01])(?:\s|$)", " ".join(words))
    logged = view.text("log/init_on_alloc")
    state = ("on" if flag[1] == "1" else "off") if flag else logged
    if state not in ("on", "off"):
        return
    wanted = scene.expected.get("kernel.init_on_alloc")
    if wanted and wanted != state:
        yield warned(
            f"heap zeroing is {state}, expected {wanted}",
            fix=kernel_flags(f"init_on_alloc={int(wanted == 'on')}"),
        )
    elif wanted:
        yield passed(f"heap zeroing is {state}, as expected")
    elif state == "on" and scene.use == "dedicated":
        yield warned(
            "heap zeroing is on, on a host for one trusted tenant",
            fix=kernel_flags("init_on_alloc=0"),
        )
    else:
        yield info(f"heap zeroing is {state}")


@rule("kernel.gpu_binding")
def gpu_binding(scene: Scene) -> Judgements:
    view = scene.view
    for reading in view.each("gpu_binding/*"):
        if reading.text:
            yield failed(f"{reading.name}: {reading.text}", reading.name, fix=_blacklist())
    for device in devices(scene).values():
        if device.role is not Role.GPU:
            continue
        key = device.key("driver")
        if view.flag(device.key("all_ones")):
            yield unknown("it answers all ones: gone from the bus, see gpu.count", device.label)
            continue
        driver = view.text(key)
        wanted = {"nvidia", "amdgpu"} | ({"vfio-pci"} if scene.context.vm_host else set())
        if driver in wanted:
            yield passed(f"bound to {driver}", device.label)
        elif driver == "vfio-pci":
            yield info("bound to vfio-pci", device.label)
        elif driver is not None:
            yield failed(f"bound to {driver[:40]}", device.label, fix=_blacklist())
        elif view.absent(key):
            yield failed("bound to no driver", device.label)


def _blacklist() -> Fix:
    return manual(
        "blacklist nouveau, nova and nova_core in /etc/modprobe.d, rebuild the initramfs",
        reboot=True,
    )


RULES = collect(globals())
