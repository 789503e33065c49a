"""Files of our own that make settings last: sysctl.d, tmpfiles.d, modprobe.d, systemd units.

Each planner takes the file's old text (empty when there is none) and gives the new one. One line
a setting; the same setting again replaces its line, so doing it twice changes nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from backends.tuning.plans.cmdline import PlanError

HEADER: Final = "# Written by gpuroom. Removing a line takes that setting back at the next boot.\n"
_NAME: Final = re.compile(r"[a-z][\w.-]{0,120}")
_VALUE: Final = re.compile(r"[\w.,:/ +-]{1,200}")
_PATH: Final = re.compile(r"/(?:sys|proc/sys)/[\w./:*-]{1,200}")
_MODULE: Final = re.compile(r"[a-z][\w-]{0,60}")
_DEVICE: Final = re.compile(r"[\w.:*-]{1,60}")
_ATTRIBUTE: Final = re.compile(r"[\w/]{1,60}")
_OPTION: Final = re.compile(r"[A-Za-z][\w.-]{0,60}=[\w.,:-]{1,100}")


def sysctl(old: str, settings: Sequence[tuple[str, str]]) -> str:
    """`/etc/sysctl.d/90-gpuroom.conf` with these settings.

    Raises:
        PlanError: A name or value that does not belong there.
    """
    lines = _lines(old)
    for name, value in settings:
        _need(_NAME, name, "sysctl name")
        _need(_VALUE, value, "sysctl value")
        wanted = rf"\s*-?{re.escape(name)}\s*="
        lines = [line for line in lines if not re.match(wanted, line)]
        lines.append(f"{name} = {value}")
    return _join(lines)


def tmpfiles(old: str, settings: Sequence[tuple[str, str]]) -> str:
    """`/etc/tmpfiles.d/gpuroom.conf` that writes these values at boot; globs are allowed.

    Raises:
        PlanError: A path outside /sys and /proc/sys, or a value with odd characters.
    """
    lines = _lines(old)
    for path, value in settings:
        _need(_PATH, path, "path")
        if ".." in path.split("/"):
            raise PlanError(f"{path[:80]!r} leaves its tree")
        _need(_VALUE, value, "value")
        lines = [line for line in lines if line.split()[1:2] != [path]]
        lines.append(f"w {path} - - - - {value}")
    return _join(lines)


def modprobe(old: str, settings: Sequence[tuple[str, str]]) -> str:
    """`/etc/modprobe.d/gpuroom.conf` with `options MODULE NAME=VALUE` lines.

    Raises:
        PlanError: No module name, or no option of the form name=value.
    """
    lines = _lines(old)
    for module, option in settings:
        _need(_MODULE, module, "module")
        _need(_OPTION, option, "module option")
        name = option.partition("=")[0]
        start = re.compile(rf"options\s+{re.escape(module)}\s+{re.escape(name)}=")
        lines = [line for line in lines if not start.match(line)]
        lines.append(f"options {module} {option}")
    return _join(lines)


def unit(
    description: str,
    argvs: Sequence[Sequence[str]],
    *,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    checks: Sequence[Sequence[str]] = (),
) -> str:
    """A oneshot unit that runs argument vectors at boot, then commands that verify them.

    The unit fails when a command or a check does, so that `systemctl --failed` shows it.

    Raises:
        PlanError: A command is not an absolute path, or a word cannot be written in a unit.
    """
    lines = [
        "# Written by gpuroom.",
        "[Unit]",
        f"Description={_plain(description)}",
        *(f"After={_plain(name)}" for name in after),
        *(f"Before={_plain(name)}" for name in before),
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
    ]
    lines += [f"ExecStart={_exec(argv)}" for argv in (*argvs, *checks)]
    lines += ["", "[Install]", "WantedBy=multi-user.target", ""]
    return "\n".join(lines)


def tune_unit(old: str, argvs: Sequence[str]) -> str:
    """Our oneshot unit with these commands besides the ones it has.

    A command for the same device and register replaces its earlier form.

    Args:
        old: The unit's text now, empty when there is none.
        argvs: Argument vectors, each quoted as `shlex.join` does.

    Raises:
        PlanError: The old text is not our unit, or a command cannot be written in one.
    """
    if old.strip() and "# Written by gpuroom." not in old:
        raise PlanError("the unit is not ours", old[:80], "rename it first")
    kept = [
        line.removeprefix("ExecStart=") for line in old.split("\n") if line.startswith("ExecStart=")
    ]
    for quoted in argvs:
        try:
            argv = shlex.split(quoted)
        except ValueError as error:
            raise PlanError(f"{quoted[:60]!r} is no command") from error
        line = _exec(argv)
        if line not in kept:
            kept = [k for k in kept if _sets(k) != _sets(line)]
            kept.append(line)
    lines = [
        "# Written by gpuroom.",
        "[Unit]",
        "Description=Settings that a boot resets",
        "After=nvidia-persistenced.service",
        "Before=pve-guests.service docker.service",
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        *(f"ExecStart={line}" for line in kept),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
        "",
    ]
    return "\n".join(lines)


def _sets(line: str) -> str:
    """What a command sets, without the value: everything before `=`, or before the last word."""
    head, equals, _ = line.partition("=")
    return head if equals else line.rpartition(" ")[0] or line


def udev(old: str, settings: Sequence[tuple[str, str]]) -> str:
    """`/etc/udev/rules.d/90-gpuroom.rules` that writes attributes when a device appears.

    Args:
        old: The file's text now.
        settings: (`SUBSYSTEM:KERNEL`, `ATTRIBUTE=VALUE`) pairs.

    Raises:
        PlanError: A name or value that does not belong there.
    """
    lines = _lines(old)
    for device, setting in settings:
        subsystem, _, kernel = device.partition(":")
        attribute, _, value = setting.partition("=")
        _need(_MODULE, subsystem, "subsystem")
        _need(_DEVICE, kernel, "device")
        _need(_ATTRIBUTE, attribute, "attribute")
        _need(_VALUE, value, "value")
        match = f'ACTION=="add", SUBSYSTEM=="{subsystem}", KERNEL=="{kernel}", ATTR{{{attribute}}}='
        lines = [line for line in lines if not line.startswith(match)]
        lines.append(f'{match}"{value}"')
    return _join(lines)


def uvm_unit(*, proxmox: bool) -> str:
    """The unit that makes /dev/nvidia-uvm before containers start."""
    return unit(
        "NVIDIA device nodes before containers",
        [("/usr/bin/nvidia-modprobe", "-c0", "-u")],
        before=("pve-guests.service",) if proxmox else ("docker.service",),
        after=("systemd-modules-load.service",),
        checks=[("/usr/bin/test", "-c", "/dev/nvidia-uvm")],
    )


def _exec(argv: Sequence[str]) -> str:
    if not argv or not re.fullmatch(r"(?:/[\w./-]+|[\w.-]+)", argv[0]):
        raise PlanError(f"{' '.join(argv)[:60]!r} does not begin with a program")
    return " ".join(_word(word) for word in argv)


def _word(word: str) -> str:
    if not word.isprintable():
        raise PlanError(f"{word[:40]!r} cannot stand in a unit")
    # systemd.service(5): percent signs are specifiers, dollar signs variables.
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if re.search(r"[\s\"';\\]", word) or not word else escaped


def _plain(text: str) -> str:
    if not text.isprintable():
        raise PlanError(f"{text[:40]!r} cannot stand in a unit")
    return text


def _need(pattern: re.Pattern[str], text: str, what: str) -> None:
    if not pattern.fullmatch(text):
        raise PlanError(f"{text[:80]!r} is no {what}")


def _lines(old: str) -> list[str]:
    return [line for line in old.split("\n") if line.strip() and line + "\n" != HEADER]


def _join(lines: Sequence[str]) -> str:
    return HEADER + "\n".join(lines) + "\n"
