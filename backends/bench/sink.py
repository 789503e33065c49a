"""Results on disk as they come: one JSON line each, so that a crash loses nothing before it."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from pathlib import Path
from typing import Final

SYNC_S: Final = 1.0


class Sink:
    """Appends lines to a file; a disk that is full is remembered, and the run goes on.

    Attributes:
        error: Why nothing is written any more, or None.
        lost: Lines that were not written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._synced_s = time.monotonic()
        self.error: str | None = None
        self.lost = 0
        try:
            if not path.is_char_device():
                path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._fail(error)

    @property
    def path(self) -> Path:
        """Where the lines go."""
        return self._path

    def write(self, lines: bytes) -> None:
        """Append whole lines."""
        if self._fd is None:
            self.lost += lines.count(b"\n")
            return
        try:
            left = memoryview(lines)
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            self.lost += lines.count(b"\n")
            self._fail(error)

    async def sync(self) -> None:
        """Put what was written on the disk, at most once a second, in a thread."""
        if self._fd is None or time.monotonic() - self._synced_s < SYNC_S:
            return
        self._synced_s = time.monotonic()
        await asyncio.to_thread(self._sync)

    def close(self) -> None:
        """Finish the file."""
        if self._fd is not None:
            self._sync()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _sync(self) -> None:
        fd = self._fd
        if fd is None:
            return
        try:
            os.fdatasync(fd)
        except OSError as error:
            # Devices and pipes cannot be synced; a full disk says so here at the latest.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.error = f"{self._path}: {error.strerror}"
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
