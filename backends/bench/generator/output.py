"""Standard output, written as its reader takes it: a slow reader never holds up the run."""

from __future__ import annotations

import os
import select
import time

_PIECE_BYTES = getattr(select, "PIPE_BUF", 512)
"""What a pipe takes without waiting once it is said to be writable."""


class Output:
    """Takes lines and writes them in order; never waits for their reader.

    Attributes:
        fd: Where they go, to be watched while lines are `waiting`.
        error: Why nothing is written any more, or None.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.error: OSError | None = None
        self._held = bytearray()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    @property
    def waiting(self) -> bool:
        """Whether there is something that the reader has not taken."""
        return bool(self._held)

    def line(self, data: bytes) -> None:
        """Queue one line."""
        if self.error is None:
            self._held += data

    def flush(self, wait_s: float = 0.0) -> None:
        """Write what the reader takes; `wait_s` is how long to wait for it when it takes none."""
        held = self._held
        try:
            while held and self._poll.poll(wait_s * 1000):
                del held[: os.write(self.fd, held[:_PIECE_BYTES])]
        except OSError as error:
            self.error = error
            held.clear()

    def close(self, timeout_s: float) -> None:
        """Write the rest, or give it up when nobody reads for so long."""
        deadline = time.monotonic() + timeout_s
        while self._held and time.monotonic() < deadline:
            self.flush(timeout_s)
