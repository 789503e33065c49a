"""Who listens on a TCP port of this host, as /proc tells."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any, Dict, List

from . import processes

LISTEN = "0A"


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


def owners(inodes: List[str], root: str = "/proc") -> Dict[str, List[int]]:
    """Socket inode -> pids that hold it, as far as they can be seen from here."""
    wanted = {"socket:[%s]" % inode: inode for inode in inodes}
    found: Dict[str, List[int]] = {}
    for entry in os.listdir(root):
        if not entry.isdigit():
            continue
        place = "%s/%s/fd" % (root, entry)
        try:
            descriptors = os.listdir(place)
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                inode = wanted.get(os.readlink("%s/%s" % (place, descriptor)))
            except OSError:
                continue
            if inode is not None and int(entry) not in found.setdefault(inode, []):
                found[inode].append(int(entry))
    return found


def owner(port: int, root: str = "/proc") -> Dict[str, Any]:
    """Who has a port.

    Returns:
        `free`, `bound` (somebody holds it without listening) and `owners`: a list of `pid`,
        `start_ticks`, `command`, `user`, `started`. Nobody in it although it is not free means
        that the owner is not visible from here.
    """
    inodes = [inode for inode, who in listeners(root).items() if who["port"] == port]
    pids = sorted({pid for found in owners(inodes, root).values() for pid in found})
    bound = not inodes and not _can_bind(port)
    described = [who for who in (describe(pid, root) for pid in pids) if who is not None]
    return {"port": port, "free": not inodes and not bound, "bound": bound, "owners": described}


def describe(pid: int, root: str = "/proc") -> Any:
    """Who a process is, in a few words; None where it is gone."""
    stat = processes.read_stat(root, pid)
    if stat is None:
        return None
    ticks, _, name = stat
    boot = processes.boot_time(root)
    from . import mask

    argv = mask.argv(processes.read_argv(root, pid))
    started = boot + ticks / float(os.sysconf("SC_CLK_TCK")) if boot is not None else None
    return {
        "pid": pid,
        "start_ticks": ticks,
        "command": " ".join(argv)[:2000] or "[%s]" % name,
        "user": processes.user_of(root, pid),
        "started": started,
    }


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
