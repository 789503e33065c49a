"""Results on disk as they come: one JSON line each, so that a crash loses nothing before it.

Beside a run's records lies its document as far as it is (`draft_file`), anew after each step. Both
go when the run has come into the history; the records are locked as long as it goes on, so what
nobody has locked was left by a gpuroom that was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
import time
from pathlib import Path
from typing import Final

SYNC_S: Final = 1.0


def record_file(folder: Path, run_id: str) -> Path:
    """Where the records of a run are."""
    return folder / f"{run_id}.jsonl"


def draft_file(records: Path) -> Path:
    """Where the document of a run is while it goes on."""
    return records.with_suffix(".json")


def goes_on(records: Path) -> bool:
    """Whether somebody is writing these records."""
    try:
        with records.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


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
            return
        with contextlib.suppress(OSError):  # where there are no locks, age has to tell
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

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
        """Finish the file; one that nothing came into goes, unless it stands for its document."""
        if self._fd is not None:
            about = os.fstat(self._fd)
            empty = stat.S_ISREG(about.st_mode) and not about.st_size
            if empty and not draft_file(self._path).exists():
                self._path.unlink(missing_ok=True)
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
