"""Servers inside tmux sessions that profiles name: found and adopted, never started."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from backends.errors import RoomError
from backends.servers.host import Host, MemberFacts, run_command
from backends.servers.launchers.base import Run, RunLook
from backends.servers.launchers.found import FoundLauncher
from backends.servers.launchers.inspected import inspect
from backends.servers.profiles import LauncherKind, Profile
from backends.servers.recognise import recognise

ASKED_BY: Final = "servers"
SHELLS: Final = frozenset({"sh", "bash", "zsh", "fish", "dash", "ksh", "tcsh", "csh", "ash"})


class TmuxLauncher(FoundLauncher):
    """Sessions of one host; `unit` of a profile names its session, else its own name does.

    Args:
        host: The host.
        profiles: Those whose server runs inside tmux.
    """

    kind: LauncherKind = "tmux"

    def __init__(self, host: Host, profiles: Sequence[Profile]) -> None:
        super().__init__(host)
        self._profiles = [p for p in profiles if p.launcher == "tmux"]

    async def runs(self) -> list[Run]:
        """The server in each session that is there, under the name of its profile."""
        found: list[Run] = []
        for profile in self._profiles:
            for pane in await self._panes(profile.unit or profile.name):
                with contextlib.suppress(RoomError):  # it may end while it is looked at
                    look = await inspect(
                        self._host, f"session of {profile.name}", pane, port=profile.port
                    )
                    pid = server_in(profile, look, pane)
                    if pid is not None:
                        run = await self.run_of(pid, profile.engine)
                        port = profile.port or run.port
                        found.append(replace(run, profile=profile.name, launcher="tmux", port=port))
                        break
        return found

    async def _panes(self, session: str) -> list[int]:
        """The first process of each pane of a session."""
        argv = ["tmux", "list-panes", "-s", "-t", f"={session}", "-F", "#{pane_pid}"]
        told = await run_command(self._host, argv, asked_by=ASKED_BY, what="look for tmux panes")
        return [int(line) for line in told.out.split() if line.isdigit()] if told.ok else []


def server_in(profile: Profile, look: RunLook, pane: int) -> int | None:
    """The server's main process among those of a pane; None where only a shell waits there.

    It is whoever the profile's engine is known by, else who has its port, else the first process
    that is no shell.
    """
    for member in look.members:
        known = recognise(member.command.split())
        if known is not None and known.id is profile.engine.id:
            return member.pid
    members = {member.pid for member in look.members}
    for owner in look.port.owners if look.port is not None else ():
        if owner.pid in members:
            return owner.pid
    programs = [member.pid for member in look.members if not _is_shell(member)]
    return pane if pane in programs else min(programs, default=None)


def _is_shell(member: MemberFacts) -> bool:
    name = member.command.split(" ")[0].rpartition("/")[2].lstrip("-")
    return name in SHELLS
