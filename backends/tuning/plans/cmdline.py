"""Kernel command lines: parsing, comparing, and editing the files of three boot loaders.

Sources: the kernel's own rules for quotes and `--` (admin-guide/kernel-parameters), GRUB's manual
for `/etc/default/grub`, and Proxmox VE's for `/etc/kernel/cmdline`, which is one line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from backends.errors import RoomError

LOADER_WORDS: Final = (
    "BOOT_IMAGE",
    "initrd",
    "root",
    "boot",
    "ro",
    "rw",
    "resume",
    "rootflags",
    "rootfstype",
    "rootdelay",
    "splash",
    "quiet",
    "vt.handoff",
    "crashkernel",
)
"""Words that the loader or installer puts there: no drift when they differ."""
LIST_FLAGS: Final = frozenset(
    {"pci", "module_blacklist", "nvme_core", "console", "earlycon", "modprobe.blacklist"}
)
"""Flags that may stand more than once, each time adding to the last."""
_GRUB: Final = re.compile(
    r"^(?P<lead>\s*(?:export\s+)?)(?P<name>GRUB_CMDLINE_LINUX(?:_DEFAULT)?)=(?P<value>.*)$"
)


class PlanError(RoomError):
    """A file is not of the form that may be edited; nothing is written."""


def parse_flags(text: str) -> list[str]:
    """The flags of a command line, in order, quotes kept together; `--` ends them."""
    flags: list[str] = []
    word, quoted = "", False
    for char in text.strip():
        if char == '"':
            quoted = not quoted
            word += char
        elif char.isspace() and not quoted:
            if word:
                flags.append(word)
            word = ""
        else:
            word += char
    if word:
        flags.append(word)
    return flags[: flags.index("--")] if "--" in flags else flags


def name_of(flag: str) -> str:
    """A flag's name: `iommu` of `iommu=pt`; dashes and underscores are the same to the kernel."""
    return flag.partition("=")[0].replace("-", "_")


def differences(configured: Sequence[str], running: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is configured and does not run, and what runs without being configured."""
    skip = {name_of(word) for word in LOADER_WORDS}
    missing = [f for f in configured if f not in running and name_of(f) not in skip]
    extra = [f for f in running if f not in configured and name_of(f) not in skip]
    return missing, extra


def change(flags: Sequence[str], add: Sequence[str], remove: Sequence[str]) -> list[str]:
    """`flags` without those named in `remove`, with those of `add` in place of their namesakes."""
    gone = {name_of(name) for name in remove}
    result = [flag for flag in flags if name_of(flag) not in gone]
    for flag in add:
        _check(flag)
        if flag in result:
            continue
        name = name_of(flag)
        places = [i for i, old in enumerate(result) if name_of(old) == name]
        if places and name not in LIST_FLAGS:
            result[places[0]] = flag
            for index in reversed(places[1:]):
                del result[index]
        else:
            result.append(flag)
    return result


def _check(flag: str) -> None:
    if (
        not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:=[A-Za-z0-9_.,:;@/=%+*-]*)?", flag)
        or len(flag) > 200
    ):
        raise PlanError(f"{flag[:60]!r} is no kernel flag", hint="letters, digits and _.,:;@/=%+*-")


def edit_systemd_boot(text: str, add: Sequence[str], remove: Sequence[str] = ()) -> str:
    """The new `/etc/kernel/cmdline`: one line.

    Raises:
        PlanError: The file holds more than one line, or names no root.
    """
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) != 1:
        raise PlanError(
            f"/etc/kernel/cmdline has {len(lines)} lines",
            "it must be one: everything after the first is ignored at boot",
            "join the lines by hand first",
        )
    _balanced(lines[0], "/etc/kernel/cmdline")
    old = parse_flags(lines[0])
    if not any(name_of(flag) == "root" for flag in old):
        raise PlanError("/etc/kernel/cmdline names no root=", lines[0][:120])
    if lines[0].lstrip().startswith("#") or "--" in lines[0].split():
        raise PlanError("/etc/kernel/cmdline is not a plain list of flags", lines[0][:120])
    new = change(old, add, remove)
    result = text if new == old else " ".join(new) + "\n"
    if not any(name_of(flag) == "root" for flag in parse_flags(result)):
        raise PlanError("the new command line would name no root=", result[:120])
    return result


def edit_loader_entry(text: str, add: Sequence[str], remove: Sequence[str] = ()) -> str:
    """The new loader entry (`loader/entries/*.conf`): its `options` line changed, nothing else.

    Raises:
        PlanError: It has no `options` line or several, or they name no root.
    """
    lines = text.split("\n")
    places = [index for index, line in enumerate(lines) if re.match(r"\s*options(\s|$)", line)]
    if len(places) != 1:
        raise PlanError(
            f"a loader entry has {len(places)} options lines",
            text.strip()[:120],
            "one can be edited: join them by hand first",
        )
    match = re.match(r"(\s*options\s+)(.*)$", lines[places[0]])
    if match is None:
        raise PlanError("a loader entry has an empty options line", text.strip()[:120])
    _balanced(match[2], "the options line")
    if "--" in match[2].split():
        raise PlanError("the options line is not a plain list of flags", match[2][:120])
    old = parse_flags(match[2])
    new = change(old, add, remove)
    if not any(name_of(flag) == "root" for flag in new):
        raise PlanError("the options line names no root=", match[2][:120])
    if new != old:
        lines[places[0]] = match[1] + " ".join(new)
    return "\n".join(lines)


def edit_grub(text: str, add: Sequence[str], remove: Sequence[str] = ()) -> str:
    """The new `/etc/default/grub`, with `GRUB_CMDLINE_LINUX_DEFAULT` changed and nothing else.

    Raises:
        PlanError: The variable is missing, set twice, spread over lines, or not plainly quoted.
    """
    lines = text.split("\n")
    places = [(index, match) for index, line in enumerate(lines) if (match := _GRUB.match(line))]
    default = [p for p in places if p[1]["name"].endswith("_DEFAULT")]
    if len(default) > 1:
        raise PlanError(
            "GRUB_CMDLINE_LINUX_DEFAULT is set more than once",
            "/etc/default/grub",
            "only the last counts: remove the others by hand",
        )
    if not default and not places:
        raise PlanError(
            "no GRUB_CMDLINE_LINUX_DEFAULT",
            "/etc/default/grub",
            "this does not look like GRUB's file",
        )
    index, match = (default or places)[0]
    value, tail = _unquote(match["value"])
    new = change(parse_flags(value), add, remove)
    if new != parse_flags(value):
        lines[index] = f'{match["lead"]}{match["name"]}="{" ".join(new)}"{tail}'
    for other, found in places:
        if other == index or not remove:
            continue
        kept, rest = _unquote(found["value"])
        cut = change(parse_flags(kept), (), remove)
        if cut != parse_flags(kept):
            lines[other] = f'{found["lead"]}{found["name"]}="{" ".join(cut)}"{rest}'
    result = "\n".join(lines)
    grub_flags(result)
    return result


def grub_dropin(flags: Sequence[str]) -> str:
    """The content of a file of our own in `/etc/default/grub.d/`, which adds flags.

    Deleting the file takes it back.
    """
    for flag in flags:
        _check(flag)
    joined = " ".join(dict.fromkeys(flags))
    return (
        "# Written by gpuroom; remove the file and run update-grub to take it back.\n"
        f'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {joined}"\n'
    )


def grub_flags(text: str, dropins: Sequence[str] = ()) -> list[str]:
    """What GRUB's files put on the command line, `LINUX` before `LINUX_DEFAULT`.

    Raises:
        PlanError: A value is not plainly quoted.
    """
    values = {"GRUB_CMDLINE_LINUX": "", "GRUB_CMDLINE_LINUX_DEFAULT": ""}
    for part in (text, *dropins):
        for line in part.split("\n"):
            if match := _GRUB.match(line):
                value, _ = _unquote(match["value"])
                for name, old in values.items():
                    value = re.sub(rf"\$(?:{name}\b(?!_)|\{{{name}\}})", lambda _: old, value)  # noqa: B023
                values[match["name"]] = value
    return parse_flags(" ".join(values.values()))


def _unquote(raw: str) -> tuple[str, str]:
    """The value of a shell assignment and what follows it (a comment, a blank)."""
    match = re.match(
        r"""(?:"((?:[^"\\`]|\\.)*)"|'([^']*)'|([^\s"'`$;&|<>()\\]*))(\s*(?:#.*)?)$""", raw
    )
    if not match or "$(" in match[1 if match[1] is not None else 0]:
        raise PlanError(
            "a GRUB variable is not plainly quoted",
            raw[:120],
            "put the whole value between one pair of double quotes",
        )
    value = next((group for group in match.groups()[:3] if group is not None), "")
    try:
        shlex.split(value)
    except ValueError as error:
        raise PlanError("a GRUB variable has an unbalanced quote", raw[:120]) from error
    return value, match[4]


def _balanced(text: str, where: str) -> None:
    if text.count('"') % 2:
        raise PlanError(f"{where} has an unbalanced quote", text[:120])
