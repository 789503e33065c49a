"""CUDA initialisation: what only a real cuInit and the opening of the device nodes prove."""

from __future__ import annotations

import re
from typing import Final

from backends.tuning.fixes import Fix, Target, manual
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
from backends.tuning.rules.gpu_driver import VERSION
from backends.tuning.rules.majors import majors

CODES: Final = {
    3: "not initialised",
    35: "the driver is older than the CUDA runtime",
    100: "no device",
    101: "invalid device",
    304: "operating system call failed",
    802: "system not ready (fabric manager)",
    803: "driver and library differ",
    804: "forward compatibility is not supported on this card",
    999: "unknown error: mostly the nvidia-uvm node",
}
ERRNO: Final = {
    "EPERM": "the cgroup's device rules forbid it",
    "ENXIO": "stale major, or the module is not loaded",
    "ENODEV": "stale major, or the module is not loaded",
    "ENOENT": "the node is missing",
    "EACCES": "mode or id mapping forbids it",
    "EIO": "the driver refuses: the GPU may be lost",
}


@rule("cuda.init")
def init(scene: Scene) -> Judgements:
    view = scene.view
    code = view.integer("cuda/init", 0, 9999)
    if code == 0:
        yield passed("cuInit returns 0")
    elif code is not None:
        yield failed(
            f"cuInit returns {code}: {CODES.get(code, 'see the CUDA driver API')}",
            fix=_by_code(code),
        )
    elif error := view.error("cuda/init"):
        if "libcuda" in error or error == "ENOENT":
            yield failed(
                f"libcuda.so.1: {error}", fix=manual("install the driver's user-space libraries")
            )
        else:
            yield unknown(f"cuInit: {error}")


def _by_code(code: int) -> Fix:
    words = {
        802: "start the fabric manager",
        35: "install a driver of the runtime's CUDA version, or an older runtime",
        803: "install libraries of the module's version, or reboot",
        804: "take the compat library out of LD_LIBRARY_PATH",
        100: "look at CUDA_VISIBLE_DEVICES and the device nodes",
    }
    return manual(words.get(code, "see the opening of the device nodes (cuda.uvm_node)"))


@rule("cuda.uvm_node")
def uvm_node(scene: Scene) -> Judgements:
    view = scene.view
    seen = {r.fact.key.removeprefix("open//dev/"): r for r in view.each("open//dev/*")}
    for name, reading in seen.items():
        answer = reading.text or reading.fact.error or ""
        if answer == "OK":
            yield passed("opens", name)
        elif answer in ERRNO:
            yield failed(f"{answer}: {ERRNO[answer]}", name, fix=_open_fix(answer, scene))
        else:
            yield unknown(f"open says {answer[:40]!r}", name)
    if seen and "nvidia-uvm" not in seen and all((r.text or "") == "OK" for r in seen.values()):
        yield unknown("its opening was not tried", "nvidia-uvm")
    if not seen and (why := _broken_node(scene)):
        yield failed(why, "nvidia-uvm", fix=_open_fix("ENOENT", scene))


def _broken_node(scene: Scene) -> str:
    """What a listing of the nodes shows without opening them; empty for nothing wrong."""
    listed = scene.view.each_asked("node//dev/*")
    names = {r.name: r for r in listed}
    uvm = names.get("nvidia-uvm")
    if uvm is not None and uvm.fact.error == "ENOENT":
        return "ENOENT: the node is missing"
    if uvm is None:
        # Whoever listed the control node listed all of /dev/nvidia*.
        return (
            "ENOENT: the node is missing"
            if "nvidiactl" in names and names["nvidiactl"].text
            else ""
        )
    major = re.match(r"(\d+):", uvm.text or "")
    table = majors(scene.view)
    today = table.get("nvidia-uvm")
    if major and table and today is None:
        return "ENXIO: nvidia-uvm has no major today, the module is not loaded"
    if major and today is not None and int(major[1]) != today:
        return f"ENXIO: the node has major {major[1]}, nvidia-uvm has {today} today"
    return ""


def _open_fix(errno: str, scene: Scene) -> Fix:
    words = {
        "EPERM": "allow today's major in the container's configuration, best with devN entries",
        "ENXIO": "nvidia-modprobe -c0 -u on the host, then restart the container",
        "ENODEV": "nvidia-modprobe -c0 -u on the host, then restart the container",
        "ENOENT": "nvidia-modprobe -c0 -u on the host, then restart the container",
        "EACCES": "mode=0666 on the devN entry, or the right uid and gid",
        "EIO": "look at the kernel's log; reset the GPU",
    }
    target = Target.GUEST if errno == "EACCES" and not scene.context.container else Target.HOST
    return manual(words[errno], target=target)


@rule("cuda.count")
def count(scene: Scene) -> Judgements:
    view = scene.view
    cuda = view.integer("cuda/count", 0, 1024)
    nvml = view.integer("nvml/count", 0, 1024)
    if cuda is None:
        return
    if nvml is None:
        yield unknown(f"CUDA sees {cuda}; NVML was not asked")
        return
    hidden = view.peek("env/CUDA_VISIBLE_DEVICES")
    if cuda == nvml:
        yield passed(f"{cuda} in CUDA and NVML")
    elif cuda < nvml and hidden is not None:
        yield info(f"CUDA sees {cuda} of {nvml}: CUDA_VISIBLE_DEVICES={hidden[:60]}")
    else:
        yield failed(
            f"CUDA sees {cuda}, NVML {nvml}",
            fix=manual("look at CUDA_VISIBLE_DEVICES, MIG mode and device nodes"),
        )


@rule("cuda.compat_lib")
def compat_lib(scene: Scene) -> Judgements:
    view = scene.view
    paths = view.items("cuda/libraries")
    if paths is None:
        return
    module = view.text("nvrm/version")
    if not paths:
        yield not_applicable("no libcuda at all: see cuda.init")
        return
    first = paths[0]
    suffixes = {m[1] for p in paths if (m := re.search(r"libcuda\.so\.(\d{3}\.[\d.]+)$", p))}
    if "/stubs/" in first:
        yield failed(f"the loader finds the stub {first}", fix=_drop(first))
    elif "/compat/" in first:
        yield warned(f"the loader finds {first} first", fix=_drop(first))
    elif module is None or not VERSION.fullmatch(module):
        yield unknown("the module's version was not read")
    elif suffixes == {module}:
        yield passed(f"one libcuda, {module}")
    elif not suffixes:
        yield unknown("the version of libcuda was not read")
    else:
        yield warned(f"several: {', '.join(sorted(suffixes))}; module {module}", fix=_drop(first))


def _drop(path: str) -> Fix:
    return manual(
        f"take {path.rpartition('/')[0]} out of LD_LIBRARY_PATH and the loader's cache",
        target=Target.GUEST,
    )


RULES = collect(globals())
