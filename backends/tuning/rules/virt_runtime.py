"""Container runtimes: the driver's parts inside, the toolkit, and what a daemon-reload takes."""

from __future__ import annotations

import re

from backends.tuning.context import Kind
from backends.tuning.fixes import commands, manual
from backends.tuning.rules.base import (
    Judgements,
    Scene,
    collect,
    failed,
    not_applicable,
    passed,
    rule,
    unknown,
    warned,
)
from backends.tuning.rules.gpu_driver import VERSION


@rule("virt.module_order", kinds=(Kind.LXC, Kind.CONTAINER))
def module_order(scene: Scene) -> Judgements:
    dkms = scene.view.text("packages/nvidia_dkms")
    if dkms is None:
        return
    if dkms == "none":
        yield passed("no kernel module package inside")
    else:
        yield warned(
            f"{dkms[:80]} builds a kernel module inside the container",
            fix=manual("install the driver inside with --no-kernel-module"),
        )


@rule("virt.container_toolkit")
def container_toolkit(scene: Scene) -> Judgements:
    view = scene.view
    docker = view.flag("docker/present")
    runtime = view.flag("docker/nvidia_runtime")
    cdi = view.text("cdi/driver_version")
    driver = view.text("nvrm/version") or view.text("driver/version")
    fix = commands(
        ("nvidia-ctk", "cdi", "generate", "--output=/etc/cdi/nvidia.yaml"),
        summary="write the CDI specification again, restart the runtime",
        undo="nothing to take back: the old one names libraries of another driver",
    )
    if docker is None and cdi is None:
        return
    if cdi is not None:
        if driver is None or not VERSION.fullmatch(driver):
            yield unknown("the driver's version was not read")
        elif cdi != driver:
            yield failed(f"CDI was written for driver {cdi[:30]}, now {driver}", fix=fix)
        else:
            yield passed(f"CDI of driver {driver}")
    elif docker is False:
        yield not_applicable("no container runtime")
    elif runtime:
        yield passed("the NVIDIA runtime is configured")
    elif runtime is False:
        yield failed(
            "Docker without the NVIDIA runtime",
            fix=commands(
                ("nvidia-ctk", "runtime", "configure", "--runtime=docker"),
                summary="configure Docker's NVIDIA runtime",
                undo="nothing takes it back: remove the runtime from /etc/docker/daemon.json",
            ),
        )
    else:
        yield unknown("Docker's configuration was not read")


@rule("virt.container_cgroup")
def container_cgroup(scene: Scene) -> Judgements:
    view = scene.view
    rules = view.items("cgroup/devices_list")
    fix = manual(
        "give the nodes with --device or CDI, or make /dev/char links; restart the container"
    )
    if rules is not None:
        gpu = [r for r in rules if re.search(r"\b195:", r)]
        readable = [r for r in gpu if "r" in r.split()[-1]]
        if any(r.split()[0] == "a" and "r" in r.split()[-1] for r in rules if r.split()):
            yield warned("every device is allowed", fix=fix)
        elif not readable:
            lost = " any more" if view.has("cgroup/devices_list_before") else ""
            yield failed(
                f"no GPU may be opened{lost}: a daemon-reload wrote the rules again", fix=fix
            )
        else:
            yield passed(f"{len(readable)} rules allow GPUs")
        return
    inside = view.text("nvml/error")
    driver = view.text("docker/cgroup_driver")
    explicit = view.flag("docker/explicit_devices")
    links = view.flag("docker/char_links")
    if inside == "Unknown Error":
        yield failed("NVML says Unknown Error inside", fix=fix)
    elif driver == "cgroupfs" or explicit or (driver == "systemd" and links):
        yield passed(f"{driver or 'explicit devices'}: survives a daemon-reload")
    elif driver == "systemd" and links is False and explicit is False:
        yield warned("systemd driver, no explicit devices, no /dev/char links", fix=fix)
    elif driver is not None:
        yield unknown("how devices are given was not read")


RULES = collect(globals())
