"""Makes the hub of a room from the configuration, once the first frame is painted."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from msgspec.structs import replace

from backends.config import Config, HostConfig
from backends.link.base import Prompter
from tui.room import RoomHub


class HubFromConfig:
    """Callable that gives the hub; see `tui.room.HubMaker`.

    Args:
        config: The configuration.
        hosts: The hosts that were asked for.
        read_only: Refuse changes on all of them.
        interval_s: Sampling interval that was chosen for this room; wins over the configured one.
    """

    def __init__(
        self,
        config: Config,
        hosts: Sequence[HostConfig],
        *,
        read_only: bool = False,
        interval_s: float | None = None,
    ) -> None:
        self._config = config
        self._hosts = hosts
        self._read_only = read_only
        self._interval_s = interval_s

    def prepare(self) -> None:
        """Import what the hub needs; takes as long as the first frame, so it runs in a thread."""
        importlib.import_module("backends.hub")

    def __call__(self, prompter: Prompter) -> RoomHub:
        """The hub, not started."""
        from backends.hub import RoomHub as Hub

        hosts = self._hosts
        if self._interval_s is not None:
            hosts = [replace(host, interval_s=self._interval_s) for host in hosts]
        return Hub(hosts, self._config, prompter, read_only=self._read_only)
