"""PCI addresses in the many forms that tools print them, in the one form of sysfs."""

from __future__ import annotations

import re
from typing import Final

_ADDRESS: Final = re.compile(
    r"(?:(?P<domain>[0-9A-Fa-f]{4,8}):)?(?P<bus>[0-9A-Fa-f]{2}):(?P<device>[0-9A-Fa-f]{2})"
    r"(?:\.(?P<function>[0-7]))?"
)


def address(text: str) -> str | None:
    """`00000000:06:00.0`, `06:00.0`, `PCI:0000:06:00` as `0000:06:00.0`; None for others."""
    match = _ADDRESS.fullmatch(text.strip().removeprefix("PCI:"))
    if not match:
        return None
    domain = int(match["domain"] or "0", 16)
    function = match["function"] or "0"
    return f"{domain:04x}:{match['bus'].lower()}:{match['device'].lower()}.{function}"


def domain_as_printed(text: str) -> str:
    """The domain as its source writes it: nvidia-smi pads to eight, which is left out."""
    domain = text.strip().removeprefix("PCI:").partition(":")[0]
    return domain.lstrip("0") or "0" if len(domain) > 4 else domain
