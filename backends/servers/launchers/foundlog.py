"""Where a process that nobody here started writes its log: a file, a pane, a journal, a container.

What its standard output is says it: a file is the log; a terminal may be a tmux pane; a socket
leads to the journal of its unit, a pipe to whoever keeps the output of its container.
"""

from __future__ import annotations

import re
from typing import Final

from backends.servers.host import Host, run_command
from backends.servers.launchers.base import LogKind, LogPlace
from backends.servers.launchers.inspected import Described

ASKED_BY: Final = "servers"
_INVOCATION: Final = re.compile(r"[0-9a-f]{32}")
_CONTAINER: Final = re.compile(r"(docker|podman) ([0-9a-f]{12,64})")
_UNIT: Final = re.compile(r"(systemd|systemd user) ([\w@.:\\-]+)")


async def log_of(host: Host, told: Described) -> LogPlace | None:
    """The log of a process; None where its output can't be read from outside."""
    outputs = [name for name in (told.stdout, told.stderr) if name]
    for target in outputs:
        if target.startswith("/") and not target.startswith(("/dev/", "/proc/")):
            return LogPlace(LogKind.FILE, target.removesuffix(" (deleted)"))
    container = _CONTAINER.fullmatch(told.container or "")
    if container is not None:
        return LogPlace(LogKind.COMMAND, argv=(container[1], "logs", "--follow", container[2]))
    unit = _UNIT.fullmatch(told.container or "")
    if unit is not None and any(target.startswith("socket:") for target in outputs):
        return _journal(unit[2], told, user=unit[1] != "systemd")
    for target in outputs:
        if target.startswith("/dev/pts/"):
            return await _pane(host, target)
    return None


def _journal(name: str, told: Described, *, user: bool) -> LogPlace:
    unit = f"{name}.service"
    argv = ["journalctl", "--follow", "--lines=all", "--boot", "--no-pager", "--quiet"]
    argv.append("--output=cat")
    argv.append(f"--user-unit={unit}" if user else f"--unit={unit}")
    invocation = (told.env or {}).get("INVOCATION_ID", "")
    if _INVOCATION.fullmatch(invocation):
        argv.append(f"_SYSTEMD_INVOCATION_ID={invocation}")
    return LogPlace(LogKind.COMMAND, argv=tuple(argv))


async def _pane(host: Host, terminal: str) -> LogPlace | None:
    """The tmux pane on a terminal, if it is one."""
    argv = ["tmux", "list-panes", "-a", "-F", "#{pane_tty} #{pane_id}"]
    listed = await run_command(host, argv, asked_by=ASKED_BY, what="look for tmux panes")
    for line in listed.out.splitlines() if listed.ok else ():
        tty, _, pane = line.partition(" ")
        if tty == terminal and re.fullmatch(r"%\d+", pane):
            capture = ("tmux", "capture-pane", "-p", "-J", "-S", "-", "-t", pane)
            return LogPlace(LogKind.SCREEN, argv=capture)
    return None
