"""The facts of one vantage as they were gathered, and what is derived from one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from backends.tuning.facts import Fact, Value

PCI: Final = "/sys/bus/pci/devices/"
PREFIXES: Final = (
    "cmd/",
    PCI,
    "nvml/",
    "proc/",
    "engine/",
    "/etc/pve/",
    "/etc/default/grub.d/",
    "/boot/loader/",
    "/boot/efi/loader/",
    "/efi/loader/",
    "/etc/sysctl",
    "/etc/tmpfiles.d/",
    "/etc/modprobe.d/",
    "/etc/cdi/",
    "/run/cdi/",
    "/etc/systemd/system/",
    "/usr/lib/sysctl.d/",
    "/usr/lib/",
    "/sys/class/net/",
    "/sys/class/nvme/",
)
"""What raw facts begin with whose names are not known beforehand."""


class Raw:
    """The facts of one vantage as they were gathered, by key and by beginning."""

    def __init__(self, facts: Mapping[str, Fact]) -> None:
        self.facts = facts
        self._below: dict[str, list[Fact]] = {prefix: [] for prefix in PREFIXES}
        for key, fact in facts.items():
            if key.startswith(PREFIXES):
                prefix = next(p for p in PREFIXES if key.startswith(p))
                self._below[prefix].append(fact)

    def get(self, key: str) -> Fact | None:
        """The fact of that key."""
        return self.facts.get(key)

    def below(self, prefix: str) -> list[Fact]:
        """The facts that begin with one of `PREFIXES`."""
        return self._below[prefix]

    def text(self, key: str) -> str | None:
        """A fact's value where it is text."""
        fact = self.facts.get(key)
        return fact.value if fact is not None and isinstance(fact.value, str) else None

    def find(self, key: str, pattern: str) -> tuple[Fact, re.Match[str]] | None:
        """A fact and a place in its text; None where either is not there."""
        fact = self.facts.get(key)
        if fact is None or not isinstance(fact.value, str):
            return None
        match = re.search(pattern, fact.value, re.MULTILINE)
        return (fact, match) if match else None


def derive(fact: Fact, key: str, value: Value | None, error: str | None = None) -> Fact:
    """A fact that rests on another one, with its source, time and vantage."""
    return Fact(key, value, fact.source, error, fact.time, fact.vantage, fact.needs_root)
