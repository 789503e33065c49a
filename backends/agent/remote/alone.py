"""One change at a time on a host, whoever asks; who finds it taken is told by whom.

The lock is on the folder that is changed, so nothing is written for it. Who holds it stands in the
name of an abstract socket, which is gone with the process that bound it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
import time
from typing import List, Optional

LOCK_S = 10.0
LOOK_S = 0.05
SOCKETS = "/proc/net/unix"
LONGEST = 60


class Taken(Exception):
    """Another change holds the lock and did not end in time; the words say whose."""


class Alone:
    """The lock of a folder, held inside a `with`.

    Args:
        folder: What stands for `/`.
        by: Who wants it, in words that others may read.
        ending: When it is set, the wait is given up.

    Attributes:
        before: Who held it while we waited; empty where nobody did.
    """

    def __init__(self, folder: str, by: str = "", ending: Optional[threading.Event] = None) -> None:
        self.before = ""
        self._folder = folder or "/"
        self._by = "".join(c for c in by if c.isascii() and c.isprintable())[:LONGEST]
        self._ending = ending
        self._held: List[int] = []
        self._socket: Optional[socket.socket] = None

    def __enter__(self) -> Alone:
        """Wait for it.

        Raises:
            Taken: It was not to be had in time.
        """
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._held.append(fd)
        name = _name(fd)
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    break  # a file system without locks: what was shown is still compared
            self.before = _holder(name) or self.before or "somebody"
            if time.monotonic() > deadline or (self._ending is not None and self._ending.is_set()):
                self.__exit__()
                raise Taken(self.before)
            time.sleep(LOOK_S)
        self._say(name)
        return self

    def __exit__(self, *_: object) -> None:
        """Let the next one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        while self._held:
            os.close(self._held.pop())

    def _say(self, name: str) -> None:
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.bind("\0" + name + self._by)
        except OSError:
            pass  # words alone; the lock is held


def _name(fd: int) -> str:
    info = os.fstat(fd)
    return "gpuroom-change:%d:%d:" % (info.st_dev, info.st_ino)


def _holder(name: str) -> str:
    """Who says that he holds it; empty where nobody says so."""
    try:
        with open(SOCKETS, encoding="ascii", errors="replace") as file:
            for line in file:
                _, found, by = line.rstrip("\n").partition(" @" + name)
                if found and by:
                    return by[:LONGEST]
    except OSError:
        pass
    return ""
