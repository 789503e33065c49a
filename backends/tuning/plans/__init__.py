"""Planners: the new text of a file from its old text. Pure, idempotent, and refusing to guess."""

from __future__ import annotations

from backends.tuning.plans import cmdline, dropins, loaders, own, proxmox
from backends.tuning.plans.cmdline import PlanError

__all__ = ["PlanError", "plan"]


def plan(planner: str, old: str, arguments: tuple[tuple[str, str], ...], loader: str = "") -> str:
    """The new text that an `EditFile` step's planner gives.

    Args:
        planner: Name in the step.
        old: The file's text now; empty when there is none.
        arguments: The step's own.
        loader: For `kernel_command_line`: a name of `plans.loaders`.

    Raises:
        PlanError: The old text is not of the form that may be edited, or an argument is wrong.
    """
    if planner == "sysctl":
        return dropins.sysctl(old, arguments)
    if planner == "tmpfiles":
        return dropins.tmpfiles(old, arguments)
    if planner == "modprobe":
        return dropins.modprobe(old, arguments)
    if planner == "udev":
        return dropins.udev(old, arguments)
    if planner == "tune_unit":
        return dropins.tune_unit(old, [quoted for kind, quoted in arguments if kind == "exec"])
    if planner == "uvm_unit":
        return dropins.uvm_unit(proxmox=loader == "proxmox-boot-tool" or "pve" in old)
    if planner == "lxc_devn":
        nodes = dict(arguments).get("nodes", "")
        return proxmox.edit_devn(old, [node for node in nodes.split(",") if node])
    if planner == "lxc_majors":
        return proxmox.edit_majors(old, arguments)
    if planner == "drop_line":
        return own.without(old, [text for kind, text in arguments if kind == "line"])
    if planner == "kernel_command_line":
        add = [flag for kind, flag in arguments if kind == "add"]
        remove = [name for kind, name in arguments if kind == "remove"]
        if loader == "grub":
            return cmdline.edit_grub(old, add, remove)
        if loader in ("systemd-boot", "proxmox-boot-tool"):
            return cmdline.edit_systemd_boot(old, add, remove)
        if loader == loaders.ENTRIES:
            return cmdline.edit_loader_entry(old, add, remove)
        raise PlanError(f"boot loader {loader[:30]!r} is not one that can be edited")
    raise PlanError(f"no planner {planner[:40]!r}")
