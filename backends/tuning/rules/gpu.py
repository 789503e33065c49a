"""GPU and driver: count, versions, persistence, power, clocks, modes."""

from __future__ import annotations

import re
from typing import Final

from backends.tuning import numbers
from backends.tuning.context import Gpu, Kind
from backends.tuning.findings import Columns, Judgement
from backends.tuning.fixes import Command, Fix, Risk, at_boot, commands, manual, module_option
from backends.tuning.gpus import Generation, at_least
from backends.tuning.pci_devices import Role
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
from backends.tuning.rules.devices import (
    devices,
)

VERSION: Final = re.compile(r"(\d{3})\.\d+(?:\.\d+)?")
CUDA_FLOORS: Final = ((13, 580), (12, 525), (11, 450))
"""CUDA major and the oldest driver branch for it (NVIDIA's minor-version table)."""
BLACKWELL_FLOOR: Final = 570
NO_LIBRARY: Final = "NVML Shared Library Not Found"
NO_DRIVER: Final = frozenset({"Driver Not Loaded", "No devices were found", NO_LIBRARY})
"""NVML's words where there is no driver to talk to."""
GSP_TROUBLE: Final = (
    r"Xid .*: (?:119|120),|(?:\bGSP\b|_kgsp|gspRm).*(?:[Tt]imeout|TIMEOUT|failed|FAILED|halt|crash)"
)
ACTIVE: Final = frozenset({"active", "activating"})


def branch(version: str | None) -> int | None:
    """The branch of a driver version: 580 of `580.159.04`."""
    match = VERSION.fullmatch(version or "")
    return int(match[1]) if match else None


@rule("gpu.count")
def count(scene: Scene) -> Judgements:
    view = scene.view
    cards = [d for d in devices(scene).values() if d.role is Role.GPU]
    on_bus = len(cards)
    complete = view.flag("pci/complete")
    counts: dict[str, int] = {}
    if complete and on_bus:
        counts["bus"] = on_bus
    for name, key in (("driver", "driver/gpu_count"), ("NVML", "nvml/count")):
        value = view.integer(key, 0, 1024)
        if value is not None:
            counts[name] = value
    if "NVML" not in counts:
        attached = view.integer("gpu/attached", 0, 1024)
        if attached is not None:
            counts["NVML"] = attached
    expected = numbers.integer(scene.expected.get("gpu.count"))
    told = ", ".join(f"{name} {value}" for name, value in counts.items())
    lost = [d.label for d in cards if view.flag(d.key("all_ones"))]
    fix = commands(
        ("tee", "/sys/bus/pci/rescan"), summary="rescan the PCI bus (host idle)", risk=Risk.MEDIUM
    )
    refusal = view.text("nvml/error") or ""
    handed_on = bool(cards) and all(view.peek(d.key("driver")) == "vfio-pci" for d in cards)
    if refusal in NO_DRIVER and not handed_on and (on_bus or refusal != NO_LIBRARY):
        yield failed(
            f"NVML: {refusal}" + (f"; {told}" if told else ""),
            fix=manual("load the driver's module; the kernel's log says why it did not start"),
        )
    elif lost:
        yield failed(f"{', '.join(lost)} answers all ones: gone from the bus", fix=fix)
    elif expected is not None and counts and set(counts.values()) != {expected}:
        yield failed(f"{told}; expected {expected}", fix=fix)
    elif len(set(counts.values())) > 1:
        yield failed(told, fix=fix, hint="the kernel's log says why a probe failed")
    elif expected is not None and counts:
        yield passed(f"{told}, as expected")
    elif len(counts) >= 2:
        yield passed(told)
    elif counts:
        yield unknown(
            f"{told}; nothing to compare it with",
            hint='set the expected number: [expected] "gpu.count" = "8"',
        )


@rule("gpu.driver_floor")
def driver_floor(scene: Scene) -> Judgements:
    view = scene.view
    version = view.text("driver/version") or view.text("nvrm/version")
    now = branch(version)
    if version is None:
        return
    if now is None:
        yield unknown(f"driver version {version[:40]!r}")
        return
    need = 0
    why = ""
    newest = max(BLACKWELL_FLOOR, *(floor for _, floor in CUDA_FLOORS))
    if Generation.BLACKWELL in scene.context.generations:
        need, why = BLACKWELL_FLOOR, "Blackwell"
    toolkit = numbers.release(view.text("engine/cuda") or "")
    for major, floor in CUDA_FLOORS:
        if toolkit and toolkit[0] == major and floor > need:
            need, why = floor, f"CUDA {major}"
    if now < need:
        yield failed(
            f"driver {version}; {why} needs {need} or newer",
            fix=manual(f"install a driver of branch {need} or newer", reboot=True),
        )
    elif need:
        yield passed(f"driver {version}; {why} needs {need}")
    elif now >= newest:
        yield passed(f"driver {version}: at or above every floor known ({newest})")
    elif scene.context.generations:
        yield passed(f"driver {version}")
    else:
        yield unknown(f"driver {version}; neither GPU nor CUDA version is known")


@rule("gpu.driver_match", kinds=())
def driver_match(scene: Scene) -> Judgements:
    view = scene.view
    module = view.text("nvrm/version")
    if view.text("nvml/error") == "Driver/library version mismatch":
        yield failed("NVML: driver/library version mismatch", fix=_same_version())
        return
    libraries = {
        "libcuda": view.text("library/libcuda"),
        "libnvidia-ml": view.text("library/libnvidia-ml") or view.text("nvml/library_version"),
    }
    known = {name: v for name, v in libraries.items() if v is not None}
    if module is None and scene.other is not None and scene.context.container:
        module = scene.other.peek("nvrm/version")
    if not known:
        return
    if module is None or not VERSION.fullmatch(module):
        yield unknown("the module's version was not read")
    elif any(v != module for v in known.values()):
        told = ", ".join(f"{name} {v}" for name, v in known.items())
        yield failed(
            f"module {module}, {told}",
            fix=_same_version(),
            columns=Columns(running=module, configured=told),
        )
    elif "libcuda" in known:
        yield passed(f"module and libraries {module}")
    else:
        yield unknown("libcuda's version was not read")


def _same_version() -> Fix:
    return manual(
        "install user-space libraries of the module's version (in a container with "
        "--no-kernel-module), or reboot the host to load the new module",
        reboot=True,
    )


@rule("gpu.open_module")
def open_module(scene: Scene) -> Judgements:
    view = scene.view
    is_open = view.flag("nvrm/open")
    version = view.text("nvrm/version")
    if is_open is None:
        return
    if version is None or not VERSION.fullmatch(version):
        yield unknown("the module's version was not read")
        return
    generations = scene.context.generations
    if Generation.BLACKWELL in generations and not is_open:
        yield failed(
            f"{version}, proprietary: Blackwell needs the open modules",
            fix=manual("install the open kernel modules", reboot=True),
        )
    elif is_open and any(not at_least(g, Generation.TURING) for g in generations):
        yield failed(
            f"{version}, open: this GPU needs the proprietary modules",
            fix=manual("install the proprietary kernel modules", reboot=True),
        )
    elif is_open and (Generation.BLACKWELL in generations or not generations):
        yield passed(f"{version}, open")
    elif generations:
        yield info(f"{version}, {'open' if is_open else 'proprietary'}: either serves")
    else:
        yield unknown(f"{version}, proprietary; the GPU is not known")


@rule("gpu.gsp")
def gsp(scene: Scene) -> Judgements:
    view = scene.view
    log = view.items("log/kernel") or []
    told = (line for line in log if "GSP" in line or "gsp" in line or "Xid" in line)
    timeouts = [line for line in told if re.search(GSP_TROUBLE, line)]
    if timeouts:
        yield failed(f"GSP: {timeouts[0][:140]}", fix=manual("update the driver; reset the GPU"))
        return
    is_open = view.flag("nvrm/open")
    for gpu in scene.gpus:
        key = gpu.key("gsp_version")
        version = view.text(key)
        if version and VERSION.fullmatch(version):
            yield passed(f"GSP firmware {version}", gpu.label)
        elif view.error(key) == "NotSupported":
            if is_open or gpu.generation is Generation.BLACKWELL:
                why = "with the open module" if is_open else "on Blackwell, which runs on it alone"
                yield failed(
                    f"no GSP firmware, {why}",
                    gpu.label,
                    fix=manual("reinstall the driver's firmware"),
                )
            else:
                yield info("no GSP firmware", gpu.label)
        elif view.has(key):
            yield unknown("GSP firmware version not understood", gpu.label)


@rule("gpu.persistence")
def persistence(scene: Scene) -> Judgements:
    view = scene.view
    daemon = view.text("unit/nvidia-persistenced/active")
    fix = commands(
        ("systemctl", "enable", "--now", "nvidia-persistenced"),
        summary="enable nvidia-persistenced",
        undo="systemctl disable --now nvidia-persistenced",
        persistent=(Command(("systemctl", "enable", "nvidia-persistenced")),),
    )
    view.drain()
    for gpu in scene.gpus:
        mode = view.flag(gpu.key("persistence"))
        if mode:
            yield passed("persistence is on", gpu.label)
        elif mode is False and daemon in ACTIVE:
            view.text("unit/nvidia-persistenced/active")
            yield passed("nvidia-persistenced is active", gpu.label)
        elif mode is False and view.flag("engine/resident"):
            yield info("off, with an engine that never leaves", gpu.label, fix=fix)
        elif mode is False:
            yield warned("persistence is off", gpu.label, fix=fix)
        elif view.has(gpu.key("persistence")):
            yield unknown("persistence not read", gpu.label)


@rule("gpu.power_limit")
def power_limit(scene: Scene) -> Judgements:
    view = scene.view
    for gpu in scene.gpus:
        enforced = view.number(gpu.key("power_enforced_w"), 1, 20_000)
        limit = view.number(gpu.key("power_limit_w"), 1, 20_000)
        requested = view.number(gpu.key("power_requested_w"), 1, 20_000)
        default = view.number(gpu.key("power_default_w"), 1, 20_000)
        most = view.number(gpu.key("power_max_w"), 1, 20_000)
        now = enforced if enforced is not None else limit
        asked = requested if requested is not None else limit
        if now is None:
            if view.error(gpu.key("power_limit_w")) == "NotSupported":
                yield not_applicable("no power limit", gpu.label)
            elif view.has(gpu.key("power_limit_w")):
                yield unknown("power limit not read", gpu.label)
            continue
        plan = numbers.number(scene.expected.get("gpu.power_limit"))
        columns = Columns(f"{now:g} W", f"{asked:g} W" if asked else None)
        if asked is not None and now < asked - 1:
            yield warned(
                f"{now:g} W in force, {asked:g} W asked for: chassis or BMC caps it",
                gpu.label,
                columns=columns,
                fix=manual("look at the BMC's power cap"),
            )
        elif plan is not None:
            if abs(now - plan) <= 1:
                yield passed(f"{now:g} W as planned", gpu.label, columns=columns)
            else:
                yield warned(
                    f"{now:g} W, planned {plan:g} W",
                    gpu.label,
                    columns=columns,
                    fix=_set_power(gpu, plan, now),
                )
        elif default is None:
            if most is None:
                continue
            if now < most - 1:
                yield unknown(
                    f"{now:g} W of {most:g} W at most; the default was not read", gpu.label
                )
            else:
                yield passed(f"{now:g} W, the most the card takes", gpu.label, columns=columns)
        elif now < default - 1:
            yield warned(
                f"{now:g} W of {default:g} W by default, and no plan says so",
                gpu.label,
                columns=columns,
                fix=_set_power(gpu, default, now),
            )
        elif most is not None and now > most + 1:
            yield unknown(f"{now:g} W above the most of {most:g} W: not believed", gpu.label)
        else:
            yield passed(f"{now:g} W", gpu.label, columns=columns)


def _set_power(gpu: Gpu, wanted_w: float, now_w: float) -> Fix:
    card = ("nvidia-smi", "-i", gpu.id if ":" in gpu.id else gpu.label, "-pl")
    return commands(
        (*card, f"{wanted_w:.0f}"),
        summary=f"power limit of GPU {gpu.label} to {wanted_w:.0f} W (a driver reload resets it)",
        undo_argvs=((*card, f"{now_w:.0f}"),),
        persistent=(at_boot(*card, f"{wanted_w:.0f}"),),
    )


@rule("gpu.clocks")
def clocks(scene: Scene) -> Judgements:
    view = scene.view
    for gpu in scene.gpus:
        memory = view.number(gpu.key("clock_mem_mhz"), 1, 100_000)
        most = view.number(gpu.key("clock_mem_max_mhz"), 1, 100_000)
        pstate = view.text(gpu.key("pstate"))
        busy = view.number(gpu.key("util_pct"), 0, 100)
        locked = view.number(gpu.key("app_clock_sm_mhz"), 1, 100_000)
        top = view.number(gpu.key("clock_sm_max_mhz"), 1, 100_000)
        if (
            locked is not None
            and top
            and 100 * locked / top < scene.profile["gpu_sm_clock_lock_pct"]
        ):
            yield info(f"SM clock set to {locked:g} of {top:g} MHz", gpu.label, fix=_free(gpu))
            continue
        if memory is None or most is None:
            if memory is not None or most is not None:
                yield unknown("clocks not read", gpu.label)
            continue
        share = 100 * memory / most
        told = f"memory clock {memory:g} of {most:g} MHz ({share:.0f} % of the bandwidth)"
        if share >= scene.profile["gpu_mem_clock_pct"] and share <= 110:
            yield passed(told, gpu.label)
        elif view.flag(gpu.key("under_load")) or (
            pstate in ("P0", "P1", "P2") and busy is not None and busy >= 50
        ):
            yield warned(told, gpu.label, fix=_free(gpu))
        elif pstate is not None:
            yield _at_rest(told, gpu.label)
        else:
            yield unknown(told + "; state not known", gpu.label)


def _at_rest(told: str, label: str) -> Judgement:
    return inconclusive(f"{told}, at rest", label, hint="read again under load")


def _free(gpu: Gpu) -> Fix:
    id_ = gpu.id if ":" in gpu.id else gpu.label
    return commands(
        ("nvidia-smi", "-i", id_, "-rgc"),
        ("nvidia-smi", "-i", id_, "-rmc"),
        ("nvidia-smi", "-i", id_, "-rac"),
        summary=f"unlock the clocks of GPU {gpu.label}",
        undo="the locked clocks are set again from the snapshot",
    )


@rule("gpu.ecc_mode")
def ecc_mode(scene: Scene) -> Judgements:
    view = scene.view
    for gpu in scene.gpus:
        now = view.flag(gpu.key("ecc_current"))
        next_ = view.flag(gpu.key("ecc_pending"))
        if now is None:
            if view.error(gpu.key("ecc_current")) == "NotSupported":
                yield not_applicable("no ECC", gpu.label)
            elif view.has(gpu.key("ecc_current")):
                yield unknown("ECC mode not read", gpu.label)
            continue
        words = "on" if now else "off"
        if next_ is None:
            if view.has(gpu.key("ecc_pending")) or not now:
                yield unknown(f"ECC {words}; the pending mode was not read", gpu.label)
        elif now != next_:
            yield warned(
                f"ECC {words}, {'on' if next_ else 'off'} after the next reset",
                gpu.label,
                columns=Columns(words, "on" if next_ else "off"),
                fix=manual("reset the GPU at the next drain, or reboot"),
            )
        elif not now:
            yield info("ECC off", gpu.label)
        else:
            yield passed("ECC on", gpu.label)


@rule("gpu.compute_mode")
def compute_mode(scene: Scene) -> Judgements:
    view = scene.view
    for gpu in scene.gpus:
        mode = view.text(gpu.key("compute_mode"))
        if mode is None:
            continue
        fix = commands(
            ("nvidia-smi", "-i", gpu.id if ":" in gpu.id else gpu.label, "-c", "0"),
            summary="compute mode to Default",
        )
        if mode in ("Default", "0"):
            yield passed("Default", gpu.label)
        elif mode in ("Prohibited", "2"):
            yield failed("Prohibited: no CUDA context can be made", gpu.label, fix=fix)
        elif mode in ("Exclusive_Process", "3"):
            yield warned("Exclusive_Process: one process only", gpu.label, fix=fix)
        else:
            yield unknown(f"compute mode {mode[:40]!r}", gpu.label)


@rule("gpu.mig")
def mig(scene: Scene) -> Judgements:
    view = scene.view
    for gpu in scene.gpus:
        now = view.flag(gpu.key("mig_current"))
        next_ = view.flag(gpu.key("mig_pending"))
        if now is None:
            if view.error(gpu.key("mig_current")) == "NotSupported":
                yield not_applicable("no MIG", gpu.label)
            elif view.has(gpu.key("mig_current")):
                yield unknown("MIG mode not read", gpu.label)
            continue
        fix = commands(
            ("nvidia-smi", "-i", gpu.id if ":" in gpu.id else gpu.label, "-mig", "0"),
            summary="MIG off (idle GPU, then a reset)",
            risk=Risk.MEDIUM,
        )
        if next_ is None:
            yield unknown("pending MIG mode not read", gpu.label)
        elif now != next_:
            yield warned("changes at the next reset", gpu.label, fix=manual("reset the GPU"))
        elif not now:
            yield passed("MIG is off", gpu.label)
        elif scene.context.gpu_count == 1:
            yield info("MIG is on", gpu.label)
        else:
            yield failed("MIG is on: instances have no peer access", gpu.label, fix=fix)


@rule("gpu.hmm")
def hmm(scene: Scene) -> Judgements:
    view = scene.view
    path = "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"
    disabled = view.flag(path)
    if disabled:
        yield passed("uvm_disable_hmm is set")
        return
    fix = module_option("nvidia_uvm", "uvm_disable_hmm=1", summary="switch HMM off")
    seen = False
    for gpu in scene.gpus:
        mode = view.text(gpu.key("addressing_mode"))
        if mode is None:
            continue
        seen = True
        if mode in ("None", "ATS"):
            yield passed(f"addressing mode {mode}", gpu.label)
        elif mode == "HMM":
            many = scene.context.gpu_count is None or scene.context.gpu_count > 1
            card = gpu.model is None or gpu.model.consumer or not gpu.model.nvlinks
            if many and card:
                yield warned("HMM is active", gpu.label, fix=fix)
            else:
                yield info("HMM is active", gpu.label, fix=fix)
        else:
            yield unknown(f"addressing mode {mode[:40]!r}", gpu.label)
    if not seen and disabled is False:
        yield unknown(
            "HMM is not switched off; whether it is active was not read",
            hint="nvidia-smi -q shows the addressing mode",
        )
    elif not seen and view.absent(path):
        yield not_applicable("the module has no such parameter")


@rule("gpu.peermem", rdma=True)
def peermem(scene: Scene) -> Judgements:
    view = scene.view
    named = [m for m in view.peek_items("/proc/modules") if re.match(r"\w+ \d+ ", m)]
    loaded = any(m.startswith("nvidia_peermem ") for m in named) if named else None
    if named:
        view.lines("/proc/modules")
    release = view.find("/proc/sys/kernel/osrelease", r"^\d+\.\d+\S*")
    kernel = numbers.release(release[0]) if release else None
    is_open = view.flag("nvrm/open")
    gdr = view.flag("nccl/gdr")
    dma_buf = None if kernel is None or is_open is None else kernel >= (5, 12) and is_open
    if gdr:
        yield passed("NCCL says GPU Direct RDMA is enabled")
    elif dma_buf and loaded:
        yield info("DMA-BUF is available and nvidia_peermem is loaded")
    elif dma_buf or loaded:
        yield passed("DMA-BUF" if dma_buf else "nvidia_peermem is loaded")
    elif dma_buf is False and loaded is False:
        if scene.context.rdma:
            yield warned(
                "neither DMA-BUF nor nvidia_peermem",
                fix=commands(
                    ("modprobe", "nvidia_peermem"),
                    summary="load nvidia_peermem",
                    undo="modprobe -r nvidia_peermem",
                ),
            )
        else:
            yield unknown("neither DMA-BUF nor nvidia_peermem; RDMA cards were not looked for")
    elif gdr is False:
        yield warned("NCCL says GPU Direct RDMA is disabled")


@rule("gpu.reset_capable", kinds=(Kind.BARE_METAL, Kind.LXC, Kind.VM))
def reset_capable(scene: Scene) -> Judgements:
    view = scene.view
    processes = view.items("gpu/processes")
    wants = [
        g
        for g in scene.gpus
        if str(view.peek(g.key("recovery_action"))).lower() in ("1", "gpu reset", "reset")
    ]
    if processes is None and not view.flag("gpu/complete"):
        return
    if wants and processes:
        yield failed(
            f"a reset is asked for, and {len(processes)} processes hold the GPUs",
            fix=manual("stop the engine, then nvidia-smi --gpu-reset"),
        )
    else:
        yield info(f"{len(processes or [])} processes hold GPUs")


RULES = collect(globals())
