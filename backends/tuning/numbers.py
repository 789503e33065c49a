"""Reading numbers, sets and sizes out of kernel and tool text; None for what is none."""

from __future__ import annotations

import re
from typing import Final

_INTEGER: Final = re.compile(r"[+-]?\d{1,20}")
_NUMBER: Final = re.compile(
    r"([+-]?\d{1,18}(?:\.\d{1,9})?)(?:\s?(?:W|C|MHz|MiB|GiB|%|s|ms|us|[GM]B/s))?"
)
_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d+)?)\s*([KMGTPE]?)i?B?", re.IGNORECASE)
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_TRUE: Final = frozenset({"1", "y", "yes", "on", "true", "enabled", "active"})
_FALSE: Final = frozenset({"0", "n", "no", "off", "false", "disabled", "inactive", "not active"})
MAX_CPU: Final = 65_536
"""Larger numbers in a CPU list are not believed."""


def integer(value: object) -> int | None:
    """A whole number: an int, or a string that is nothing else."""
    if isinstance(value, str):
        text = value.strip()
        if (text.isascii() and text.isdecimal() and len(text) <= 20) or _INTEGER.fullmatch(text):
            return int(text)
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: object) -> float | None:
    """A number, with or without a unit behind it (`600.00 W`, `35 C`)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        result = float(value)
        return result if result == result and abs(result) != float("inf") else None
    if isinstance(value, str) and (match := _NUMBER.fullmatch(value.strip())):
        return float(match[1])
    return None


def flag(value: object) -> bool | None:
    """A switch as the kernel and the tools print it: Y/N, 1/0, on/off, Enabled/Disabled."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | str):
        word = str(value).strip().lower()
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
    return None


def size_bytes(text: object) -> int | None:
    """A size with a binary unit (`128G`, `256M`, `97887 MiB`, `64 KB`), in bytes."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    if not isinstance(text, str) or not (match := _SIZE.fullmatch(text.strip())):
        return None
    return int(float(match[1]) * 1024 ** _POWERS[match[2].upper()])


def cpu_list(text: object) -> frozenset[int] | None:
    """A CPU or node list (`0-3,8`), as the kernel prints it; empty text is the empty set."""
    if not isinstance(text, str):
        return None
    result: set[int] = set()
    text = text.strip()
    if not text:
        return frozenset()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first + last) > 12:
            return None
        low = int(first)
        high = int(last) if dash else low
        if high < low or high > MAX_CPU:
            return None
        result.update(range(low, high + 1))
    return frozenset(result)


def show_cpus(cpus: frozenset[int] | set[int]) -> str:
    """The set back as a list with ranges."""
    parts: list[str] = []
    ordered = sorted(cpus)
    start = previous = None
    for cpu in [*ordered, None]:
        if previous is not None and cpu == previous + 1:
            previous = cpu
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = cpu
    return ",".join(parts)


def release(text: object) -> tuple[int, ...] | None:
    """The numbers a kernel release or version begins with: `6.17.13-6-pve` is (6, 17, 13, 6)."""
    if not isinstance(text, str):
        return None
    match = re.match(r"\s*v?(\d+)\.(\d+)(?:\.(\d+))?(?:-(\d+))?", text)
    if not match:
        return None
    return tuple(int(part) for part in match.groups() if part is not None)


def choice(text: object) -> str | None:
    """The chosen word of a kernel switch that lists all (`always [madvise] never`)."""
    if not isinstance(text, str):
        return None
    match = re.search(r"\[([\w-]+)\]", text)
    if match:
        return match[1]
    words = text.split()
    return words[0] if len(words) == 1 else None
