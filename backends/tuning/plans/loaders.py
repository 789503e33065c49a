"""Which files hold the kernel command line, by boot loader, and what makes them count. Pure.

Sources: `kernel-install(8)` and the Boot Loader Specification (loader/entries/*.conf), Proxmox VE's
system booting chapter, GRUB's manual.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backends.tuning.facts import FactsDocument, Vantage

ENTRIES: Final = "systemd-boot entries"
"""systemd-boot where no /etc/kernel/cmdline is: the entries themselves are edited."""
FILES: Final[Mapping[str, str]] = {
    "grub": "/etc/default/grub",
    "systemd-boot": "/etc/kernel/cmdline",
    "proxmox-boot-tool": "/etc/kernel/cmdline",
}
REFRESH: Final[Mapping[str, tuple[str, ...]]] = {
    "grub": ("update-grub",),
    "systemd-boot": ("kernel-install", "add-all"),
    "proxmox-boot-tool": ("proxmox-boot-tool", "refresh"),
}
"""What makes the new command line take part in the next boot."""
_ENTRY: Final = re.compile(r"/(?:boot|efi|boot/efi)/loader/entries/[^/]+\.conf")


@dataclass(frozen=True, slots=True)
class Loader:
    """How a machine boots.

    Attributes:
        name: Empty when it is not known.
        files: What is edited.
        refresh: What is run afterwards; empty for nothing.
    """

    name: str = ""
    files: tuple[str, ...] = ()
    refresh: tuple[str, ...] = ()


def loader_of(document: FactsDocument, vantage: Vantage) -> Loader:
    """From the facts of a machine."""
    facts = {f.key: f.value for f in document.facts if f.vantage is vantage}
    name = facts.get("boot/loader")
    status = facts.get("cmd/proxmox-boot-tool status")
    if isinstance(status, str) and "is configured with: " in status:
        # It keeps the boot partitions of both loaders; GRUB's file is still GRUB's.
        if name == "systemd-boot":
            return _of("proxmox-boot-tool")
        return Loader("grub", (FILES["grub"],), REFRESH["proxmox-boot-tool"])
    if name == "systemd-boot" and facts.get(FILES["systemd-boot"]) is None:
        entries = tuple(
            sorted(
                key
                for key, value in facts.items()
                if _ENTRY.fullmatch(key) and isinstance(value, str) and "\noptions" in f"\n{value}"
            )
        )
        return Loader(ENTRIES, entries) if entries else Loader()
    return _of(name) if isinstance(name, str) and name in FILES else Loader()


def _of(name: str) -> Loader:
    return Loader(name, (FILES[name],), REFRESH[name])
