"""Files on this host: look, read a piece, follow through rotation, truncation and deletion.

A place in a file is (device, inode, offset), so that a reader that comes back goes on exactly where
it stopped, also when the file was renamed meanwhile. Data travels compressed, in pieces that are
acknowledged: a slow link slows the reading, and nothing piles up.
"""

from __future__ import annotations

import base64
import os
import re
import stat
import time
import zlib
from typing import Any, BinaryIO, Dict, List, NamedTuple, Optional

from . import rpc

PIECE = 256 * 1024
MAX_READ = 4 * 1024 * 1024
POLL_S = 0.1
QUIET_AFTER_S = 5.0
QUIET_POLL_S = 0.25
"""Between two looks at a file into which nobody has written for `QUIET_AFTER_S`."""
TAIL = 64
"""Bytes before our place that must be unchanged: they tell a file that was cut and grew again."""
MIN_TAIL = 16
"""With fewer of them a copy of a file is not recognised."""
MAX_ENTRIES = 20000
ROTATED = re.compile(r"[._-](?:(?P<number>\d{1,4})|\d[\dT:._-]*|old|prev(?:ious)?)$")
"""What a rotation puts behind the name: a number, a date, `old`."""

Params = Dict[str, Any]


def register(agent: Any) -> None:
    """Add the methods."""
    agent.methods.add("files.stat", lambda params: describe(str(params["path"])))
    agent.methods.add("files.read", read, threaded=True)
    agent.methods.add_stream("files.follow", follow)


def describe(path: str) -> Dict[str, Any]:
    """Device, inode, size and time of change of a regular file; `missing` where there is none."""
    try:
        info = os.stat(os.path.expanduser(path))
    except FileNotFoundError:
        return {"missing": True}
    except OSError as error:
        raise rpc.RpcError("%s: %s" % (path, error.strerror)) from None
    if not stat.S_ISREG(info.st_mode):
        raise rpc.RpcError("%s is not a regular file" % path)
    return {"device": info.st_dev, "inode": info.st_ino, "size": info.st_size,
            "modified": info.st_mtime}  # fmt: skip


def read(params: Params) -> Dict[str, Any]:
    """A piece of a file: `path`, `offset`, `size`; with `inode`, of that file alone.

    A file that was renamed by a rotation is found beside `path` by its inode.
    """
    size = max(0, min(MAX_READ, int(params["size"])))
    path = os.path.expanduser(str(params["path"]))
    try:
        with _open_inode(path, params.get("inode")) as file:
            info = os.fstat(file.fileno())
            data = os.pread(file.fileno(), size, max(0, int(params["offset"])))
    except OSError as error:
        raise rpc.RpcError("%s: %s" % (params["path"], error.strerror)) from None
    return {"z": pack(data), "size": info.st_size, "inode": info.st_ino, "device": info.st_dev}


def _open_inode(path: str, inode: Optional[int]) -> BinaryIO:
    if inode is None:
        file = open(path, "rb", buffering=0)
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
        raise rpc.RpcError("%s is not a regular file" % path)
    for candidate in [path, *_named(path, int(inode))]:
        try:
            file = open(candidate, "rb", buffering=0)
        except OSError:
            continue
        info = os.fstat(file.fileno())
        if stat.S_ISREG(info.st_mode) and info.st_ino == int(inode):
            return file
        file.close()
    raise rpc.RpcError("the file was replaced", data={"replaced": True})


def pack(data: bytes) -> str:
    """Bytes as they travel."""
    return base64.b64encode(zlib.compress(data, 1)).decode("ascii")


def follow(params: Params, stream: rpc.Stream) -> None:
    """Send a file from a place on, and what is appended to it, until cancelled.

    Args:
        params: `path`; and a place: `offset` (negative: that many bytes before the end, but not
            before `least`) with `inode` and `tail` (base64 of the bytes before it) where it is
            known from before.
        stream: Gets pieces `{"o": offset, "i": inode, "d": device, "z": data}` and events
            `{"event": "rotated" | "truncated" | "deleted" | "missing" | "resumed" | "lost"}`.
            `lost` says that bytes between the last place and this one are gone for good.
    """
    Follower(os.path.expanduser(str(params["path"])), stream).run(params)


class Follower:
    """One reader that follows one path."""

    def __init__(self, path: str, stream: rpc.Stream) -> None:
        self._path = path
        self._stream = stream
        self._file: Optional[BinaryIO] = None
        self._inode = 0
        self._device = 0
        self._offset = 0
        self._tail = b""
        self._gone = False

    def run(self, params: Params) -> None:
        """Follow until the stream is cancelled."""
        try:
            self._begin(params)
            moved = time.monotonic()
            while not self._stream.closed:
                if self._advance():
                    moved = time.monotonic()
                    continue
                quiet = time.monotonic() - moved > QUIET_AFTER_S
                if self._stream.wait_closed(QUIET_POLL_S if quiet else POLL_S):
                    return
        finally:
            self._close()

    def _begin(self, params: Params) -> None:
        offset = int(params.get("offset", 0))
        if params.get("inode") is not None:
            self._resume(int(params["inode"]), offset, base64.b64decode(params.get("tail") or ""))
            return
        if not self._open(self._path):
            self._stream.send({"event": "missing"})
            self._gone = True
            return
        if offset < 0:
            least = int(params.get("least") or 0)
            offset = max(least if least <= self._size() else 0, self._size() + offset)
        self._seek(min(offset, self._size()))

    def _resume(self, inode: int, offset: int, tail: bytes) -> None:
        """Find the file again by inode, be it renamed; else say that something was lost."""
        for path in [self._path, *_named(self._path, inode)]:
            if self._open(path, inode) and self._holds(offset, tail):
                self._seek(offset)
                self._stream.send({"event": "resumed"})
                return
        self._close()
        self._inode, self._offset, self._tail = inode, offset, tail
        self._stream.send({"event": "truncated" if self._send_rest_of_copy() else "lost"})
        if self._open(self._path):
            self._begin_anew()
        else:
            self._gone = True

    def _advance(self) -> bool:
        """Send what is new; False where nothing was."""
        if self._file is None:
            if not self._open(self._path):
                return False
            self._seek(0)
            self._gone = False
        assert self._file is not None
        if self._was_cut():
            self._send_rest_of_copy()
            self._stream.send({"event": "truncated"})
            self._begin_anew()
        data = os.pread(self._file.fileno(), PIECE, self._offset)
        if data:
            self._send(data)
            return True
        return self._next_file()

    def _begin_anew(self) -> None:
        """From the first byte that was written.

        A writer that did not notice that its file was emptied goes on far behind the beginning, and
        leaves a hole.
        """
        assert self._file is not None
        begin = 0
        if self._size() and os.pread(self._file.fileno(), 1, 0) == b"\0":
            try:
                begin = os.lseek(self._file.fileno(), 0, os.SEEK_DATA)
            except OSError:
                begin = 0
        self._seek(begin)

    def _send_rest_of_copy(self) -> bool:
        """What was copied aside before the file was emptied, and not read by then."""
        if len(self._tail) < MIN_TAIL:
            return False
        for other in reversed(_rotated(self._path)):
            if (other.device, other.inode) == (self._device, self._inode):
                continue
            try:
                with open(other.path, "rb", buffering=0) as file:
                    begin = self._offset - len(self._tail)
                    if os.pread(file.fileno(), len(self._tail), begin) != self._tail:
                        continue
                    while True:
                        data = os.pread(file.fileno(), PIECE, self._offset)
                        if not data:
                            return True
                        self._send(data)
            except OSError:
                continue
        return False

    def _next_file(self) -> bool:
        """At the end of what is open: is the path another file by now?"""
        assert self._file is not None
        try:
            info = os.stat(self._path)
        except OSError:
            if not self._gone:
                self._gone = True
                self._stream.send({"event": "deleted"})
            return False
        self._gone = False
        if (info.st_dev, info.st_ino) == (self._device, self._inode):
            return False
        following = self._following()
        if following is None:
            # The writer may go on in the old file until it opens the new one: wait for its word.
            return False
        data = os.pread(self._file.fileno(), PIECE, self._offset)
        if data:
            self._send(data)
            return True
        if not self._open(following.path, following.inode):
            return True  # it was renamed meanwhile: look again
        self._seek(0)
        self._stream.send({"event": "rotated"})
        return True

    def _following(self) -> "Optional[_Named]":
        """The file that comes after the open one; several rotations may have happened."""
        chain = _rotated(self._path)
        places = [(other.device, other.inode) for other in chain]
        mine = (self._device, self._inode)
        later = chain[places.index(mine) + 1 :] if mine in places else []
        newest = _named_file(self._path)
        if newest is not None:
            later = [other for other in later if other.inode != newest.inode] + [newest]
        return next((other for other in later if other.size), None)

    def _was_cut(self) -> bool:
        size = self._size()
        return size < self._offset or (size > self._offset and not self._tail_is(
            self._offset, self._tail))  # fmt: skip

    def _holds(self, offset: int, tail: bytes) -> bool:
        return self._size() >= offset and self._tail_is(offset, tail)

    def _tail_is(self, offset: int, tail: bytes) -> bool:
        assert self._file is not None
        return (
            os.pread(self._file.fileno(), len(tail), offset - len(tail)) == tail if tail else True
        )

    def _send(self, data: bytes) -> None:
        self._stream.send({"o": self._offset, "i": self._inode, "d": self._device, "z": pack(data)})
        self._offset += len(data)
        self._tail = (self._tail + data)[-TAIL:]

    def _seek(self, offset: int) -> None:
        assert self._file is not None
        self._offset = offset
        self._tail = os.pread(self._file.fileno(), min(TAIL, offset), max(0, offset - TAIL))

    def _size(self) -> int:
        assert self._file is not None
        return os.fstat(self._file.fileno()).st_size

    def _open(self, path: str, inode: Optional[int] = None) -> bool:
        """Have `path` open in place of what was; only if it is that inode, where one is given."""
        try:
            file = open(path, "rb", buffering=0)
        except OSError:
            return False
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            file.close()
            raise rpc.RpcError("%s is not a regular file" % path)
        if inode is not None and info.st_ino != inode:
            file.close()
            return False
        self._close()
        self._file = file
        self._inode, self._device = info.st_ino, info.st_dev
        return True

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _Named(NamedTuple):
    modified_ns: int
    number: int
    """Minus the number that a rotation gave it: of two as old, the higher number is older."""
    path: str
    device: int
    inode: int
    size: int


def _named_file(path: str, number: int = 0) -> Optional[_Named]:
    try:
        info = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(info.st_mode):
        return None
    return _Named(info.st_mtime_ns, number, path, info.st_dev, info.st_ino, info.st_size)


def _named(path: str, inode: int) -> List[str]:
    """Files in the folder of `path` that have that inode: it, renamed."""
    folder = os.path.dirname(os.path.abspath(path))
    found = [other.path for other in _rotated(path) if other.inode == inode]
    try:
        with os.scandir(folder) as entries:
            found += [e.path for e, _ in zip(entries, range(MAX_ENTRIES)) if e.inode() == inode]
    except OSError:
        pass
    return found


def _rotated(path: str) -> List[_Named]:
    """Files beside `path` whose names a rotation made of its own (`server.log.1`), oldest first.

    A listing during which something was renamed is repeated.
    """
    folder, name = os.path.split(os.path.abspath(path))
    for _ in range(5):
        found, whole = [], True
        try:
            with os.scandir(folder) as entries:
                names = [e.name for e, _ in zip(entries, range(MAX_ENTRIES))]
        except OSError:
            return []
        for other in names:
            suffix = ROTATED.match(other, len(name)) if other.startswith(name) else None
            if suffix is None:
                continue
            file = _named_file(os.path.join(folder, other), -int(suffix.group("number") or 0))
            if file is None:
                whole = False
            else:
                found.append(file)
        inodes = {(file.device, file.inode) for file in found}
        if whole and len(inodes) == len(found):
            break
    return sorted(found)
