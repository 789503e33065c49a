"""The configuration file: typed, read only, with errors that name file, line and key."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(gt=0)]


class HostConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[hosts]]` entry, or a host named on the command line.

    Attributes:
        name: What the room calls it.
        target: An alias of ~/.ssh/config, `user@host:port`, `local`, `demo` or `demo:SCENARIO`;
            the name itself when left out.
        labels: Words to filter by.
        production: Read-only until unlocked, and its name must be typed before a change.
        hypervisor: Name of the host that this one is a guest of.
        container: Its container or VM id there.
        python: The interpreter to use there.
        interval_s: Between samples; the room's own when left out.
    """

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    target: str = ""
    labels: tuple[str, ...] = ()
    production: bool = False
    hypervisor: str | None = None
    container: int | None = None
    python: str = "python3"
    interval_s: Seconds | None = None

    @property
    def address(self) -> str:
        """Where to connect."""
        return self.target or self.name


class RefreshConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[refresh]` table."""

    interval_s: Annotated[float, Meta(ge=0.1, le=60)] = 1.0
    frames_per_second: Annotated[float, Meta(ge=1, le=10)] = 4.0
    pcie_throughput: bool = False


class ScreenConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[screen]` table."""

    theme: str = "auto"
    ascii: bool = False
    sort: Literal["index", "power", "utilization", "memory", "temperature"] = "index"
    hidden_panes: tuple[str, ...] = ()


class SshConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[ssh]` table."""

    config_file: str = "~/.ssh/config"
    connect_timeout_s: Seconds = 10.0
    keepalive_s: Seconds = 3.0
    keepalive_count: Annotated[int, Meta(ge=1, le=10)] = 2
    compression: bool = True


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    hosts: tuple[HostConfig, ...] = ()
    refresh: RefreshConfig = RefreshConfig()
    screen: ScreenConfig = ScreenConfig()
    ssh: SshConfig = SshConfig()
    keys: dict[str, str] = msgspec.field(default_factory=dict)
