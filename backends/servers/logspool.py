"""What was printed once and can't be read again: its newest bytes, in a file without a name."""

from __future__ import annotations

import os
import tempfile
from typing import IO, Final

MAX_BYTES: Final = 256 * 1024 * 1024


class LogSpool:
    """A ring of bytes by their offset.

    Args:
        max_bytes: How many of the newest are kept.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._file: IO[bytes] | None = None
        self._begin = self._end = 0

    def add(self, offset: int, data: bytes) -> None:
        """Keep what follows, or what begins anew; a full disk only shortens what is kept."""
        if offset != self._end:
            self._begin = self._end = offset
        self._end += len(data)
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - kept until `close`
            while data:
                at = offset % self._max_bytes
                piece = data[: self._max_bytes - at]
                os.pwrite(self._file.fileno(), piece, at)
                offset += len(piece)
                data = data[len(piece) :]
        except OSError:
            self._begin = self._end
        self._begin = max(self._begin, self._end - self._max_bytes)

    def read(self, offset: int, size: int) -> bytes | None:
        """Those bytes; None where they are not kept (any more)."""
        if self._file is None or offset < self._begin or offset + size > self._end:
            return None
        pieces = []
        try:
            while size > 0:
                at = offset % self._max_bytes
                piece = os.pread(self._file.fileno(), min(size, self._max_bytes - at), at)
                if not piece:
                    return None
                pieces.append(piece)
                offset += len(piece)
                size -= len(piece)
        except OSError:
            return None
        return b"".join(pieces)

    def close(self) -> None:
        """Let go of it."""
        if self._file is not None:
            self._file.close()
            self._file = None
