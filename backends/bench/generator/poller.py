"""epoll, or poll(2) on systems without it."""

from __future__ import annotations

import select

READABLE, WRITABLE = 1, 4
"""EPOLLIN and EPOLLOUT, which poll(2) numbers alike."""


class Poller:
    """Waits for descriptors. The methods are the system object's own: each call counts here."""

    def __init__(self) -> None:
        epoll = hasattr(select, "epoll")
        self._poll = select.epoll() if epoll else select.poll()
        self._units_per_s = 1.0 if epoll else 1000.0
        self.register = self._poll.register
        self.modify = self._poll.modify
        self.unregister = self._poll.unregister

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        """Descriptors with their events; waits at most `timeout_s`."""
        return self._poll.poll(timeout_s * self._units_per_s)
