"""What Linux prints of itself: files as `path: value`, sysctl, /proc/devices, limits, nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from backends.tuning.facts import Fact
from backends.tuning.readers.excerpt import PROMPT, Excerpt, Line, continued

_ERRORS: Final = {
    "No such file or directory": "ENOENT",
    "Permission denied": "EACCES",
    "Operation not permitted": "EPERM",
    "No such device or address": "ENXIO",
    "No such device": "ENODEV",
    "Invalid argument": "EINVAL",
    "Input/output error": "EIO",
}
_DUMP: Final = re.compile(
    r"^\s*(?P<path>/(?:sys|proc)/[\w./:@+-]+?)\s*(?:::|:|=|\s->\s)\s*(?P<value>\S.*)?$"
)
_PCI_TAIL: Final = re.compile(
    r"^\s*(?P<path>/sys/bus/pci/devices/[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]/[\w/]+)"
    r"\s*[:=]\s*(?P<value>\S.*)$"
)
_CAT: Final = re.compile(
    r"(?:[$#>]\s*|^)(?:sudo\s+)?cat\s+(?P<paths>/(?:sys|proc)/\S+(?:\s+/(?:sys|proc)/\S+){0,20})\s*$"
)
_DENIED: Final = re.compile(
    r"(?:cat|ls|head|open|cannot access)\S*:?\s*(?:cannot (?:open|access|read)\s*)?'?"
    r"(?P<path>/[\w./:@+-]+)'?(?: for reading)?: (?P<error>[A-Z][A-Za-z/ ]+)$"
)
_SYSCTL: Final = re.compile(
    r"^\s*(?P<name>(?:kernel|vm|net|fs|dev|user|debug)\.[a-z][\w.-]{1,120})\s*=\s*(?P<value>\S.*)$"
)
_MAJOR: Final = re.compile(r"^\s*(\d{1,3}) (\S+)$")
_OUR_MAJOR: Final = re.compile(r"^\s*(?:/proc/devices:\s*)?(\d{1,3}) (nvidia(?:ctl|-[a-z-]+)?)$")
_NODE: Final = re.compile(
    r"^(?P<type>[cb])(?P<mode>[rwx-]{9})[.+@]?\s+\d+\s+(?P<user>\S+)\s+(?P<group>\S+)\s+"
    r"(?P<major>\d{1,4}),\s*(?P<minor>\d{1,7})\s+.*?(?P<name>(?:/dev/)?\S*nvidia\S*|\S+)$"
)
_UNKNOWN_OWNER_NODE: Final = re.compile(r"^[c?][rwx?-]{9}\s+\?\s")
_ULIMIT: Final = re.compile(
    r"^\s*(?P<name>[a-z][a-z -]+?)\s+\([^)]*-(?P<letter>[a-zA-Z])\)\s+(?P<value>\S+)$"
)
_ULIMIT_ASKED: Final = re.compile(r"(?:^|[$#>]\s*)ulimit -(?P<which>[HS]?)(?P<letter>[ln])\s*$")
_PROC_LIMIT: Final = re.compile(
    r"^Max (?P<name>locked memory|open files)\s+(?P<soft>\d+|unlimited)\s+(?P<hard>\d+|unlimited)\s"
)
_STRACE: Final = re.compile(
    r"open(?:at)?\((?:AT_FDCWD, )?\"(?P<path>/dev/nvidia[^\"]*)\",[^)]*\)\s*=\s*"
    r"(?P<rc>-?\d+)(?:\s+(?P<errno>E[A-Z]+))?"
)
_MODES: Final = {"r": 4, "w": 2, "x": 1, "-": 0}


def read_dump(excerpt: Excerpt) -> Iterator[Fact]:
    """`path: value` lines of a sysfs or procfs dump, `cat path` with its answer, refusals."""
    asked: list[str] = []
    for line in excerpt.lines:
        text = line.text
        if match := _DENIED.search(text):
            error = next(
                (e for words, e in _ERRORS.items() if match["error"].startswith(words)),
                match["error"],
            )
            yield excerpt.fact(match["path"], None, line, error)
            asked = [path for path in asked if path != match["path"]]
            continue
        if match := _CAT.search(text):
            asked = match["paths"].split()
            if len(asked) > 1 and not all(p.startswith(("/sys/", "/proc/sys/")) for p in asked):
                asked = []  # files of several lines: whose each is cannot be told
            continue
        if PROMPT.match(text):
            asked = []
            continue
        match = _PCI_TAIL.match(text) or _DUMP.match(text)
        if match and match["value"]:
            path, value = match["path"], match["value"].strip()
            error = next((e for words, e in _ERRORS.items() if value.startswith(words)), None)
            yield excerpt.fact(path, None if error else value, line, error)
            asked = []
        elif asked and text.strip() and not any("*" in path for path in asked):
            yield excerpt.fact(asked.pop(0), text.strip(), line)


def read_sysctl(excerpt: Excerpt) -> Iterator[Fact]:
    """`name = value` lines, as the files of /proc/sys that they are."""
    for line in excerpt.lines:
        if match := _SYSCTL.match(line.text):
            path = "/proc/sys/" + match["name"].replace(".", "/")
            yield excerpt.fact(path, match["value"].strip(), line)


def read_proc_devices(excerpt: Excerpt) -> Iterator[Fact]:
    """`/proc/devices`, kept as it is printed; block devices are left out."""
    kept: list[str] = []
    first: Line | None = None
    inside = False
    for line in excerpt.lines:
        if line.text.strip() == "Character devices:":
            inside, first = True, line
            kept = []
        elif line.text.strip() == "Block devices:":
            inside = False
        elif inside and (match := _MAJOR.match(line.text)):
            kept.append(f"{match[1]} {match[2]}")
        elif inside and line.text.strip():
            inside = False
    if first is None:
        # `grep nvidia /proc/devices` leaves the heading out.
        kept = []
        for line in excerpt.lines:
            if match := _OUR_MAJOR.match(line.text):
                first = first or line
                kept.append(f"{match[1]} {match[2]}")
    if first is not None and kept:
        yield excerpt.fact("/proc/devices", kept, first)


def read_nodes(excerpt: Excerpt) -> Iterator[Fact]:
    """`ls -l /dev/nvidia*`: major, minor and mode of each node."""
    folder = "/dev/"
    for line in excerpt.lines:
        text = line.text.strip()
        if match := re.match(r"(?:ls -la?h? )?(/dev/[\w./-]*):$", text):
            folder = match[1].rstrip("/") + "/"
        elif match := _NODE.match(text):
            name = match["name"] if match["name"].startswith("/") else folder + match["name"]
            if "nvidia" not in name and "/dri/" not in name:
                continue
            mode = "".join(
                str(sum(_MODES.get(bit, 0) for bit in match["mode"][i : i + 3])) for i in (0, 3, 6)
            )
            value = f"{match['major']}:{match['minor']} {mode} {match['user']} {match['group']}"
            yield excerpt.fact(f"node/{name}", value, line)
        elif match := re.search(
            r"cannot access '?(/dev/[\w./*-]+)'?: No such file or directory", text
        ):
            yield excerpt.fact(f"node/{match[1]}", None, line, "ENOENT")


def read_limits(excerpt: Excerpt) -> Iterator[Fact]:
    """`ulimit -a` of a shell and `/proc/PID/limits` of a process."""
    who = "shell"
    asked = ""
    for line in excerpt.lines:
        if match := _ULIMIT_ASKED.search(line.text):
            name = {"l": "memlock", "n": "nofile"}[match["letter"]]
            asked = f"limits/shell/{name}_{'hard' if 'H' in match['which'] else 'soft'}"
            continue
        if asked and re.fullmatch(r"\d{1,18}|unlimited", line.text.strip()):
            yield excerpt.fact(asked, line.text.strip(), line)
        asked = "" if line.text.strip() else asked
        if match := re.search(r"/proc/(\d{1,10}|self)/limits", line.text):
            who = match[1]
        elif match := _PROC_LIMIT.match(line.text.strip()):
            name = "memlock" if "locked" in match["name"] else "nofile"
            owner = who if who != "shell" else "process"
            yield excerpt.fact(f"limits/{owner}/{name}_soft", match["soft"], line)
            yield excerpt.fact(f"limits/{owner}/{name}_hard", match["hard"], line)
        elif len(line.text) < 200 and (match := _ULIMIT.match(line.text)):
            key = {"l": "memlock_soft", "n": "nofile_soft"}.get(match["letter"])
            if key:
                yield excerpt.fact(f"limits/shell/{key}", match["value"], line)


def read_opens(excerpt: Excerpt) -> Iterator[Fact]:
    """Opened device nodes, from strace, a probe's table or an error message."""
    for line in excerpt.lines:
        if match := _STRACE.search(line.text):
            ok = not match["rc"].startswith("-")
            yield excerpt.fact(
                f"open/{match['path']}", "OK" if ok else match["errno"] or "E?", line
            )
        elif match := re.search(
            r"(?:open\S*|cannot open|dd: \S+)\s+'?(/dev/nvidia[\w-]*)'?(?: for reading)?:\s+"
            r"(?:\[Errno \d+\] )?(Operation not permitted|Permission denied|"
            r"No such device or address|No such device|No such file or directory|OK)",
            line.text,
        ):
            yield excerpt.fact(f"open/{match[1]}", _ERRORS.get(match[2], match[2]), line)


_BOOTS: Final = re.compile(
    r"\s*(?:/proc/cmdline\s*[:=]\s*)?(?:BOOT_IMAGE=|initrd=|root=(?:UUID|ZFS|/dev|LABEL)\S*\s)"
)
_FLAGS: Final = re.compile(r"[a-z][\w.-]*=\S+(?: [a-zA-Z][\w.-]*(?:=\S*)?){2,200}")
"""A command line that begins with something else: a console, a module's parameter."""


def read_cmdline(excerpt: Excerpt) -> Iterator[Fact]:
    """`/proc/cmdline`, known by the words that every boot loader puts there."""
    for line in continued(excerpt.lines, _BOOTS.match):
        text = line.text.strip()
        text = re.sub(r"^/proc/cmdline\s*[:=]\s*", "", text)
        if (_BOOTS.match(text) and ("root=" in text)) or (
            _FLAGS.fullmatch(text) and re.search(r" root=\S+", text)
        ):
            yield excerpt.fact("/proc/cmdline", text, line)


def read_identity(excerpt: Excerpt) -> Iterator[Fact]:
    """`uname -a`, `uname -r`, `systemd-detect-virt`, `/proc/driver/nvidia/version`."""
    for line in excerpt.lines:
        text = line.text.strip()
        if match := re.match(r"Linux (\S+) (\d+\.\d+\S*) #\d", text):
            yield excerpt.fact("/proc/sys/kernel/osrelease", match[2], line)
            if built_for := re.search(r" (x86_64|aarch64|ppc64le)(?= |$)", text):
                yield excerpt.fact("cpu/architecture", built_for[1], line)
        elif match := re.match(r"(?:\S+[$#] )?uname -r\s*[:=]?\s*(\d+\.\d+\S*)$", text):
            yield excerpt.fact("/proc/sys/kernel/osrelease", match[1], line)
        elif match := re.match(
            r"(?:\S+[$#] )?systemd-detect-virt\S*\s*[:=]?\s*([a-z][\w-]*)$", text
        ):
            yield excerpt.fact("virt/kind", match[1], line)
        elif match := re.match(
            r"NVRM version:\s+NVIDIA UNIX (Open )?.*?(\d{3}\.\d+(?:\.\d+)?)", text
        ):
            yield excerpt.fact("nvrm/version", match[2], line)
            yield excerpt.fact("nvrm/open", bool(match[1]), line)
            if " for aarch64 " in text:
                yield excerpt.fact("cpu/architecture", "aarch64", line)
        elif match := re.match(
            r"(always|madvise|never|\[\w+\])( (?:always|madvise|never|\[\w+\])){2}$", text
        ):
            if "[" in text and "thp" in excerpt.name.lower():
                yield excerpt.fact("/sys/kernel/mm/transparent_hugepage/enabled", text, line)
        elif match := re.search(r" is configured with: (uefi|grub)\b", text):
            loader = "systemd-boot" if match[1] == "uefi" else "grub"
            yield excerpt.fact("boot/loader", loader, line)
        elif match := re.match(r"pve-manager/(\d[\w.-]*)", text):
            yield excerpt.fact("pve/version", match[1], line)
        elif match := re.match(r"EnableGpuFirmware:\s*(\d+)", text):
            yield excerpt.fact("nvrm/enable_gpu_firmware", int(match[1][:9]), line)
        elif match := re.match(
            r"(?:tmpfs|shm)\s+(\d+[KMGT]?)\s+\S+\s+\S+\s+\d+%\s+/dev/shm$", text
        ):
            yield excerpt.fact("statvfs//dev/shm/size", match[1], line)
        elif match := re.match(
            r"(?:tmpfs|shm) on /dev/shm type tmpfs \(.*?\bsize=(\d{1,15}[kKmMgG]?)\b", text
        ):
            yield excerpt.fact("statvfs//dev/shm/size", match[1].upper(), line)


def read_units(excerpt: Excerpt) -> Iterator[Fact]:
    """`systemctl is-active` and `is-enabled` answers, and the Active line of a status."""
    unit = ""
    for line in excerpt.lines:
        text = line.text.strip()
        if match := re.search(
            r"systemctl (is-active|is-enabled) ([\w@.-]+?)(?:\.service)?"
            r"\s*(?:[:=>-]+\s*([\w-]+))?$",
            text,
        ):
            unit = f"unit/{match[2]}/{'active' if match[1] == 'is-active' else 'enabled'}"
            if match[3]:
                yield excerpt.fact(unit, match[3], line)
                unit = ""
        elif unit and re.fullmatch(r"[a-z-]{4,12}", text):
            yield excerpt.fact(unit, text, line)
            unit = ""
        elif match := re.match(r"[^\w\s]?\s*([\w@.-]+)\.service - ", text):
            unit = f"unit/{match[1]}"
        elif unit.count("/") == 1 and (match := re.match(r"Active: (\w+)", text)):
            yield excerpt.fact(f"{unit}/active", match[1], line)
        elif unit.count("/") == 1 and (match := re.match(r"Loaded: loaded \(\S+; (\w+)", text)):
            yield excerpt.fact(f"{unit}/enabled", match[1], line)
