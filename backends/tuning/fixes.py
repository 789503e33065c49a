"""Fixes as data: what would be written or run, on which host, and how it is undone.

Nothing here touches a host. A fix is shown, confirmed, applied and verified elsewhere.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Final, TypeAlias


class Target(StrEnum):
    """Where a fix must be carried out."""

    HOST = "host"
    """The machine itself, or the hypervisor of a guest."""
    GUEST = "guest"


class Risk(StrEnum):
    """What carrying it out may cost."""

    LOW = "low"
    MEDIUM = "medium"
    """Interrupts something, or trades something away: confirmed with the host's name."""
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Write:
    """One value into one file of the kernel, read back afterwards."""

    path: str
    value: str


@dataclass(frozen=True, slots=True)
class Command:
    """One argument vector; never passed through a shell."""

    argv: tuple[str, ...]
    undo: tuple[str, ...] = ()
    """Argument vector that takes it back; empty when the snapshot's values do, or nothing can."""


@dataclass(frozen=True, slots=True)
class InstallFile:
    """A file of our own, written whole; undone by removing it or putting the old bytes back."""

    path: str
    content: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class EditFile:
    """An edit whose new text is computed from the old by a named planner.

    Attributes:
        path: File to edit.
        planner: Name of a function in `backends.tuning.plans`, which is pure: text in, text out.
        arguments: What it is told besides the old text.
    """

    path: str
    planner: str
    arguments: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A file of our own that goes; undone by putting its bytes back.

    Attributes:
        path: Which.
        after: Argument vectors that make its absence count.
    """

    path: str
    after: tuple[tuple[str, ...], ...] = ()


Step: TypeAlias = Write | Command | InstallFile | EditFile | RemoveFile


@dataclass(frozen=True, slots=True)
class Fix:
    """What puts one finding right.

    Attributes:
        summary: One line that says it.
        runtime: Steps that take effect at once and are lost at reboot.
        persistent: Steps that last.
        reboot: Whether the persistent form needs one before it acts.
        restarts: What must be restarted for it (a container, the engine), empty for nothing.
        risk: See `Risk`.
        undo: How it is taken back, in words; runtime writes go back to the snapshot's bytes.
        target: This host or its hypervisor.
        manual: Set when no program can do it (firmware, cabling): instructions only.
    """

    summary: str
    runtime: tuple[Step, ...] = ()
    persistent: tuple[Step, ...] = ()
    reboot: bool = False
    restarts: str = ""
    risk: Risk = Risk.LOW
    undo: str = "the snapshot's values are written back and our own files removed"
    target: Target = Target.HOST
    manual: bool = False

    @property
    def applicable(self) -> bool:
        """Whether there is anything to carry out."""
        return bool(self.runtime or self.persistent) and not self.manual


IRREVERSIBLE: Final = "nothing takes it back"
SYSCTL_FILE: Final = "/etc/sysctl.d/90-gpuroom.conf"
TMPFILES_FILE: Final = "/etc/tmpfiles.d/gpuroom.conf"
MODPROBE_FILE: Final = "/etc/modprobe.d/gpuroom.conf"
UDEV_FILE: Final = "/etc/udev/rules.d/90-gpuroom.rules"
UNIT_FILE: Final = "/etc/systemd/system/gpuroom-tune.service"
UVM_UNIT_FILE: Final = "/etc/systemd/system/gpuroom-uvm.service"


def sysctl(name: str, value: str, *, summary: str = "") -> Fix:
    """Set a sysctl now and at every boot."""
    path = "/proc/sys/" + name.replace(".", "/")
    return Fix(
        summary or f"sysctl -w {name}={value}",
        runtime=(Write(path, value),),
        persistent=(EditFile(SYSCTL_FILE, "sysctl", ((name, value),)),),
    )


def sysfs(
    paths: tuple[str, ...],
    value: str,
    *,
    summary: str,
    persist_glob: str = "",
    risk: Risk = Risk.LOW,
) -> Fix:
    """Write `value` to files below /sys now, and through tmpfiles.d at every boot."""
    lasting: tuple[Step, ...] = ()
    if persist_glob:
        lasting = (EditFile(TMPFILES_FILE, "tmpfiles", ((persist_glob, value),)),)
    return Fix(
        summary,
        runtime=tuple(Write(path, value) for path in paths),
        persistent=lasting,
        risk=risk,
    )


def kernel_flags(*flags: str, remove: tuple[str, ...] = (), summary: str = "") -> Fix:
    """Add `name=value` flags to the kernel command line, through this host's boot loader."""
    arguments = tuple(("add", flag) for flag in flags) + tuple(("remove", flag) for flag in remove)
    said = [f"add {' '.join(flags)}"] if flags else []
    said += [f"remove {', '.join(remove)}"] if remove else []
    return Fix(
        summary or f"kernel command line: {'; '.join(said)}",
        persistent=(EditFile("", "kernel_command_line", arguments),),
        reboot=True,
        risk=Risk.MEDIUM,
        undo="the old command line comes back from the backup; reboot",
    )


def module_option(module: str, option: str, *, summary: str) -> Fix:
    """Set a module's option at its next load."""
    return Fix(
        summary,
        persistent=(
            EditFile(MODPROBE_FILE, "modprobe", ((module, option),)),
            Command(("update-initramfs", "-u", "-k", "all")),
        ),
        reboot=True,
        risk=Risk.MEDIUM,
        undo="our line is removed from modprobe.d and the initramfs built again",
    )


def at_boot(*argv: str) -> EditFile:
    """Run an argument vector at every boot, from our own oneshot unit."""
    return EditFile(UNIT_FILE, "tune_unit", (("exec", shlex.join(argv)),))


def udev(kernel: str, subsystem: str, attribute: str, value: str) -> EditFile:
    """Write an attribute whenever the device appears; it cannot verify, so only for plain ones."""
    return EditFile(UDEV_FILE, "udev", ((f"{subsystem}:{kernel}", f"{attribute}={value}"),))


def commands(
    *argvs: tuple[str, ...],
    summary: str,
    undo: str = "",
    undo_argvs: tuple[tuple[str, ...], ...] = (),
    risk: Risk = Risk.LOW,
    restarts: str = "",
    target: Target = Target.HOST,
    persistent: tuple[Step, ...] = (),
) -> Fix:
    """Run argument vectors, each with the one that takes it back where there is one.

    Where there is none, `undo` says why: it begins with "nothing".
    """
    pairs = zip_longest(argvs, undo_argvs[: len(argvs)], fillvalue=())
    undo = undo or "; ".join(shlex.join(argv) for argv in undo_argvs)
    return Fix(
        summary,
        runtime=tuple(Command(argv, back) for argv, back in pairs),
        persistent=persistent,
        risk=risk,
        restarts=restarts,
        target=target,
        undo=undo or IRREVERSIBLE,
    )


def manual(summary: str, *, reboot: bool = False, target: Target = Target.HOST) -> Fix:
    """Something only a person can do."""
    return Fix(
        summary,
        reboot=reboot,
        risk=Risk.MEDIUM,
        undo="nothing is written",
        target=target,
        manual=True,
    )
