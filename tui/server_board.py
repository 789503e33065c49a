"""Makes the board of servers of a room. Imports the engines: after the first frame."""

from __future__ import annotations

from collections.abc import Sequence

from backends.servers.board import ServerBoard
from backends.servers.configured import profiles_of
from backends.servers.profiles import Profile
from tui.shell import Shell


def board_of(shell: Shell) -> ServerBoard:
    """A board that knows the profiles of the configuration and tells the room's alerts."""

    def profiles(host: str) -> Sequence[Profile]:
        return profiles_of(shell.config, shell.host_config(host))

    return ServerBoard(profiles, shell.alerts.append, clock=shell.clock)
