"""A worker's connections: opened, watched, drained now and then, closed."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable

from .connection import Connection
from .poller import READABLE, WRITABLE, Poller
from .workload import PATHS

DRAIN_NS = 250_000_000
_GROUPS = 10
"""Drained connections are read in turns, so that not all of them are at once."""


class Sockets:
    """All connections of a worker, by descriptor.

    Attributes:
        head: A request's head up to the value of its content-length.
        idle: Connections of an open loop that wait for a request.
        any_drained: Whether any is read now and then only.
        next_drain_ns: When the next of those are due.
    """

    def __init__(
        self,
        target: dict[str, object],
        route: str,
        place: tuple[int, tuple[object, ...]],
        poller: Poller,
    ) -> None:
        self._connect = _connector(target, place)
        self._poller = poller
        self._by_fd: dict[int, Connection] = {}
        self.get = self._by_fd.get
        self.head = _head(target, route)
        self.idle: dict[int, Connection] = {}
        self._drained: list[set[Connection]] = [set() for _ in range(_GROUPS)]
        self._group = 0
        self._returns: list[tuple[int, int, Connection]] = []
        self.any_drained = False
        self.next_drain_ns = 0

    def all(self) -> list[Connection]:
        """Every connection."""
        return list(self._by_fd.values())

    def open(self, slot: int | None) -> Connection:
        """Begin to open one. Raises OSError."""
        connection = self._connect()
        self._by_fd[connection.fd] = connection
        connection.slot = slot
        connection.mask = READABLE | WRITABLE
        self._poller.register(connection.fd, connection.mask)
        return connection

    def watch(self, connection: Connection) -> None:
        """Wait for what it waits for."""
        mask = 0 if connection.drained else READABLE
        if connection.waits_to_write:
            mask |= WRITABLE
        if mask != connection.mask:
            connection.mask = mask
            self._poller.modify(connection.fd, mask)

    def close(self, connection: Connection) -> bool:
        """Close it at once; whether it was open."""
        if self._by_fd.pop(connection.fd, None) is None:
            return False
        self._poller.unregister(connection.fd)
        if connection.drained:
            connection.drained = False
            self._put(connection)
        connection.close()
        self.idle.pop(connection.fd, None)
        return True

    def set_drained(self, connection: Connection, drained: bool) -> None:
        """Read it now and then only, or event by event again."""
        connection.drained = drained
        self._put(connection)
        self.watch(connection)

    def watch_from(self, connection: Connection, when_ns: int) -> None:
        """Read a drained one event by event again from then on."""
        heapq.heappush(self._returns, (when_ns, connection.fd, connection))

    def to_drain(self, now_ns: int) -> list[Connection]:
        """The connections whose turn has come."""
        if now_ns < self.next_drain_ns:
            return []
        returns = self._returns
        while returns and returns[0][0] < now_ns + DRAIN_NS // _GROUPS:  # Not one turn too late.
            connection = heapq.heappop(returns)[2]
            if connection.drained:
                self.set_drained(connection, False)
        self.next_drain_ns = now_ns + DRAIN_NS // _GROUPS
        self._group = (self._group + 1) % _GROUPS
        return list(self._drained[self._group])

    def _put(self, connection: Connection) -> None:
        group = self._drained[connection.fd % _GROUPS]
        if connection.drained:
            group.add(connection)
        else:
            group.discard(connection)
        self.any_drained = any(self._drained)


def _connector(
    target: dict[str, object], place: tuple[int, tuple[object, ...]]
) -> Callable[[], Connection]:
    """What opens a connection to the server."""
    if not target.get("tls"):
        return functools.partial(Connection, *place)
    from . import tls

    context = tls.context(bool(target.get("verify", True)))
    return functools.partial(tls.TlsConnection, *place, context, str(target["host"]))


def _head(target: dict[str, object], route: str) -> bytes:
    base = str(target.get("base_path") or "").rstrip("/")
    lines = [
        "POST %s%s HTTP/1.1" % (base, PATHS[route]),
        "host: %s" % target["authority"],
        "content-type: application/json",
        "accept: text/event-stream, application/json",
        "accept-encoding: identity",
        "user-agent: gpuroom",
    ]
    headers = target.get("headers") or {}
    assert isinstance(headers, dict)
    lines.extend("%s: %s" % item for item in headers.items())
    lines.append("content-length: ")
    return "\r\n".join(lines).encode()
