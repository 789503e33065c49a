"""GPU driver: count, floors, versions that match, the open module, GSP firmware."""

from __future__ import annotations

import re
from typing import Final

from backends.tuning import numbers
from backends.tuning.findings import Columns
from backends.tuning.fixes import Fix, manual
from backends.tuning.gpus import Generation, at_least
from backends.tuning.pci_devices import Role
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
)
from backends.tuning.rules.devices import (
    devices,
)

VERSION: Final = re.compile(r"(\d{3})\.\d+(?:\.\d+)?")
CUDA_FLOORS: Final = ((13, 580), (12, 525), (11, 450))
"""CUDA major and the oldest driver branch for it (NVIDIA's minor-version table)."""
BLACKWELL_FLOOR: Final = 570
NO_LIBRARY: Final = "NVML Shared Library Not Found"
NO_DRIVER: Final = frozenset(
    {
        "Driver Not Loaded",
        "No devices were found",
        "nvidia-smi finds no libnvidia-ml.so",
        "GPU access blocked by the operating system",
        NO_LIBRARY,
    }
)
"""NVML's words where there is no driver to talk to."""
GSP_TROUBLE: Final = (
    r"Xid .*: (?:119|120),|(?:\bGSP\b|_kgsp|gspRm).*(?:[Tt]imeout|TIMEOUT|failed|FAILED|halt|crash)"
)


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
    fix = manual("read in the kernel's log why; with the host idle, echo 1 > /sys/bus/pci/rescan")
    refusal = view.text("nvml/error") or ""
    unreached = [f"{r.name}: {r.text}" for r in view.each("nvml/unreached/*") if r.text]
    handed_on = bool(cards) and all(view.peek(d.key("driver")) == "vfio-pci" for d in cards)
    if refusal in NO_DRIVER and not handed_on and (on_bus or refusal != NO_LIBRARY):
        yield failed(
            f"NVML: {refusal}" + (f"; {told}" if told else ""),
            fix=manual("load the driver's module; the kernel's log says why it did not start"),
        )
    elif not scene.gpus and (told_by_log := _log_says(scene)):
        yield failed(told_by_log, fix=manual("load the driver's module; see the kernel's log"))
    elif unreached:
        yield failed(
            f"{len(unreached)} not answering NVML: {'; '.join(unreached[:4])}",
            fix=manual("the kernel's log says why; reset the GPU or power-cycle the host"),
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
    elif refusal and refusal != NO_LIBRARY and not handed_on:
        yield unknown(f"NVML: {refusal}; how many GPUs there are was not read")


def _log_says(scene: Scene) -> str:
    """Why the driver has no GPU, in the kernel's words; empty where it does not say."""
    view = scene.view
    if refused := view.text("log/module_refused"):
        return f"the kernel refused the module: {refused[:140]}"
    return "the driver found no GPU" if view.flag("log/no_gpu") else ""


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
    if view.flag("log/open_module_needed"):
        yield failed(
            "the driver says that this GPU needs the open modules",
            fix=manual("install the open kernel modules", reboot=True),
        )
        return
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
            elif gpu.generation is not None and not at_least(gpu.generation, Generation.TURING):
                yield not_applicable("older than Turing: no GSP", gpu.label)
            else:
                yield info("no GSP firmware", gpu.label)
        elif view.has(key):
            yield unknown("GSP firmware version not understood", gpu.label)


RULES = collect(globals())
