"""Standard output, written by a thread of its own: a slow reader never holds up the run."""

from __future__ import annotations

import os
import queue
import threading


class Output:
    """Takes lines and writes them in order.

    Attributes:
        error: Why nothing is written any more, or None.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._queue: queue.Queue[bytes | None] = queue.Queue()
        self.error: OSError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def line(self, data: bytes) -> None:
        """Queue one line."""
        if self.error is None:
            self._queue.put(data)

    def _run(self) -> None:
        while True:
            data = self._queue.get()
            if data is None:
                return
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError as error:
                self.error = error
                return

    def close(self, timeout_s: float) -> None:
        """Wait until all is written, or until nobody reads."""
        self._queue.put(None)
        self._thread.join(timeout_s)
