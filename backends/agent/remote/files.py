"""Files on this host: look, read a piece, follow through rotation, truncation and deletion.

A place in a file is (device, inode, offset), so that a reader that comes back goes on exactly where
it stopped, also when the file was renamed meanwhile. Data travels compressed, in pieces that are
acknowledged: a slow link slows the reading, and nothing piles up.
"""

from __future__ import annotations

import base64
import os
import stat
import zlib
from typing import Any, BinaryIO, Dict, Iterator, List, Optional

from . import rpc

PIECE = 256 * 1024
MAX_READ = 4 * 1024 * 1024
POLL_S = 0.1
TAIL = 64
"""Bytes before our place that must be unchanged: they tell a file that was cut and grew again."""

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
    for candidate in [path] if inode is None else [path, *_siblings(path)]:
        try:
            file = open(candidate, "rb", buffering=0)
        except OSError:
            if inode is None:
                raise
            continue
        info = os.fstat(file.fileno())
        if stat.S_ISREG(info.st_mode) and (inode is None or info.st_ino == int(inode)):
            return file
        file.close()
        if inode is None:
            raise rpc.RpcError("%s is not a regular file" % path)
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
            while not self._stream.closed:
                if not self._advance() and self._stream.wait_closed(POLL_S):
                    return
        finally:
            if self._file is not None:
                self._file.close()

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
        for path in [self._path, *_siblings(self._path)]:
            if not self._open(path):
                continue
            assert self._file is not None
            if self._inode == inode and self._size() >= offset and self._tail_is(offset, tail):
                self._seek(offset)
                self._stream.send({"event": "resumed"})
                return
        self._stream.send({"event": "lost"})
        if self._open(self._path):
            self._seek(0)
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
            self._stream.send({"event": "truncated"})
            self._seek(0)
        data = os.pread(self._file.fileno(), PIECE, self._offset)
        if data:
            self._send(data)
            return True
        return self._next_file()

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
        if (info.st_dev, info.st_ino) == (self._device, self._inode):
            self._gone = False
            return False
        # The writer may still have the old one open: once more, now that the new one is there.
        data = os.pread(self._file.fileno(), PIECE, self._offset)
        if data:
            self._send(data)
            return True
        for path in _rotated_since(self._path, self._device, self._inode):
            if self._open(path):
                self._gone = False
                self._seek(0)
                self._stream.send({"event": "rotated"})
                return True
        return False

    def _was_cut(self) -> bool:
        size = self._size()
        return size < self._offset or (size > self._offset and not self._tail_is(
            self._offset, self._tail))  # fmt: skip

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

    def _open(self, path: str) -> bool:
        try:
            file = open(path, "rb", buffering=0)
        except OSError:
            return False
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            file.close()
            raise rpc.RpcError("%s is not a regular file" % path)
        if self._file is not None:
            self._file.close()
        self._file = file
        self._inode, self._device = info.st_ino, info.st_dev
        return True


def _siblings(path: str) -> List[str]:
    """Files beside `path` whose names begin with its own (`server.log.1`), oldest first."""
    folder, name = os.path.split(os.path.abspath(path))
    try:
        found = [
            (entry.stat().st_mtime_ns, entry.path)
            for entry in os.scandir(folder)
            if entry.name.startswith(name) and entry.name != name and entry.is_file()
        ]
    except OSError:
        return []
    return [sibling for _, sibling in sorted(found)]


def _rotated_since(path: str, device: int, inode: int) -> Iterator[str]:
    """The files to read after that one, the oldest first: several rotations may have happened."""
    chain = _siblings(path)
    inodes = []
    for sibling in chain:
        try:
            info = os.stat(sibling)
            inodes.append((info.st_dev, info.st_ino))
        except OSError:
            inodes.append((0, 0))
    if (device, inode) in inodes:
        yield from chain[inodes.index((device, inode)) + 1 :]
    yield path
