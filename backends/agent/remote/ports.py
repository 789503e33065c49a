"""Who listens on a TCP port of this host, as /proc tells."""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import processes

LISTEN = "0A"
KNOWN_S = 5.0
MAX_KNOWN = 256
BOOT_KNOWN_S = 60.0
"""The kernel gives that time by its own clock, which may be set."""


def listeners(root: str = "/proc") -> Dict[str, Dict[str, Any]]:
    """Socket inode -> `port`, `address` of every listening TCP socket of this network namespace."""
    found: Dict[str, Dict[str, Any]] = {}
    for name in ("tcp", "tcp6"):
        try:
            with open("%s/net/%s" % (root, name)) as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) > 9 and words[3] == LISTEN:
                address, _, port = words[1].rpartition(":")
                found[words[9]] = {"port": int(port, 16), "address": _address(address)}
    return found


def owners(
    inodes: List[str], root: str = "/proc", likely: Sequence[int] = ()
) -> Dict[str, List[int]]:
    """Socket inode -> pids that hold it, as far as they can be seen from here.

    Args:
        inodes: Of sockets.
        root: Where the processes are listed.
        likely: Pids to look at first. Where these hold all of them nobody else is looked at: the
            descriptors of a whole host take their time.
    """
    wanted = {"socket:[%s]" % inode: inode for inode in inodes}
    found: Dict[str, List[int]] = {}
    if not wanted:
        return found
    for pid in likely:
        _note_sockets(root, pid, wanted, found)
    if likely and len(found) == len(wanted):
        return found
    for entry in os.listdir(root):
        if entry.isdigit() and int(entry) not in likely:
            _note_sockets(root, int(entry), wanted, found)
    return found


def _note_sockets(root: str, pid: int, wanted: Dict[str, str], found: Dict[str, List[int]]) -> None:
    """Enter a process at each of the wanted sockets that it holds."""
    place = "%s/%d/fd" % (root, pid)
    try:
        descriptors = os.listdir(place)
    except OSError:
        return
    for descriptor in descriptors:
        try:
            inode = wanted.get(os.readlink("%s/%s" % (place, descriptor)))
        except OSError:
            continue
        if inode is not None and pid not in found.setdefault(inode, []):
            found[inode].append(pid)


def owner(port: int, root: str = "/proc", likely: Sequence[int] = ()) -> Dict[str, Any]:
    """Who has a port; `likely` is looked at first.

    Returns:
        `free`, `bound` (somebody holds it without listening) and `owners`: a list of `pid`,
        `start_ticks`, `command`, `user`, `started`. Nobody in it although it is not free means
        that the owner is not visible from here.
    """
    held = _still_held(port, root, likely)
    if held is None:
        inodes = [inode for inode, who in listeners(root).items() if who["port"] == port]
        held = owners(inodes, root, likely)
        _remember(port, inodes)
    else:
        inodes = list(held)
    pids = sorted({pid for found in held.values() for pid in found})
    bound = not inodes and not _can_bind(port)
    described = [who for who in (describe(pid, root) for pid in pids) if who is not None]
    return {"port": port, "free": not inodes and not bound, "bound": bound, "owners": described}


_known: Dict[int, Tuple[float, List[str]]] = {}
"""Port -> when its listening sockets were read, and which: the kernel walks large tables for it."""


def _remember(port: int, inodes: List[str]) -> None:
    if len(_known) >= MAX_KNOWN:
        _known.clear()
    _known[port] = (time.monotonic(), inodes)


def _still_held(port: int, root: str, likely: Sequence[int]) -> Optional[Dict[str, List[int]]]:
    """The sockets that listened a moment ago, where `likely` have all of them open still."""
    at, inodes = _known.get(port, (0.0, []))
    if not inodes or not likely or time.monotonic() - at > KNOWN_S:
        return None
    held: Dict[str, List[int]] = {}
    for pid in likely:
        _note_sockets(root, pid, {"socket:[%s]" % inode: inode for inode in inodes}, held)
    return held if len(held) == len(inodes) else None


def describe(pid: int, root: str = "/proc") -> Any:
    """Who a process is, in a few words; None where it is gone."""
    stat = processes.read_stat(root, pid)
    if stat is None:
        return None
    ticks, _, name = stat
    boot = _boot_time(root)
    from . import mask

    command = mask.line(processes.read_argv(root, pid))
    started = boot + ticks / float(os.sysconf("SC_CLK_TCK")) if boot is not None else None
    return {
        "pid": pid,
        "start_ticks": ticks,
        "command": command[:2000] or "[%s]" % name,
        "user": processes.user_of(root, pid),
        "started": started,
    }


_boots: Dict[str, Tuple[float, Optional[float]]] = {}
"""Where processes are listed -> when the time of the boot was read, and that time.

The kernel counts every interrupt of every CPU for whoever opens that file.
"""


def _boot_time(root: str) -> Optional[float]:
    now = time.monotonic()
    if root not in _boots or now - _boots[root][0] > BOOT_KNOWN_S:
        _boots[root] = (now, processes.boot_time(root))
    return _boots[root][1]


def _can_bind(port: int) -> bool:
    for family, address in ((socket.AF_INET, ""), (socket.AF_INET6, "::")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        try:
            # As servers do: connections that linger from the last one do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((address, port))
        except PermissionError:
            continue
        except OSError as error:
            if error.errno in (98, 48):  # EADDRINUSE
                return False
        finally:
            probe.close()
    return True


def _address(text: str) -> str:
    if len(text) == 8:
        return socket.inet_ntoa(struct.pack("<I", int(text, 16)))
    words = [int(text[i : i + 8], 16) for i in range(0, 32, 8)]
    return socket.inet_ntop(socket.AF_INET6, struct.pack("<4I", *words))
