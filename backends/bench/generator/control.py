"""The line between a worker and its coordinator: JSON lines both ways, never waiting."""

from __future__ import annotations

import json
import socket

MAX_HELD_BYTES = 1 << 14


class Control:
    """The worker's end.

    Attributes:
        fd: Its descriptor, for the event loop.
        lost: The coordinator is gone.
        blocked: Lines wait because the socket is full; `flush` when it is writable.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._in = bytearray()
        self._out = bytearray()
        self.fd = sock.fileno()
        self.lost = False
        self.blocked = False

    def say(self, kind: str, fields: dict[str, object]) -> None:
        """Send a message; records of requests are held until there are enough, or a tick."""
        fields["t"] = kind
        self._out += json.dumps(fields, separators=(",", ":")).encode() + b"\n"
        if kind != "request" or len(self._out) > MAX_HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what the socket takes."""
        out = self._out
        try:
            while out:
                del out[: self._sock.send(out)]
        except BlockingIOError:
            pass
        except OSError:
            self.lost = True
        self.blocked = bool(out)

    def commands(self) -> list[dict[str, object]]:
        """The commands that have come."""
        try:
            data = self._sock.recv(1 << 20)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.lost = True
            return []
        self._in += data
        *lines, rest = self._in.split(b"\n")
        self._in = rest
        return [json.loads(line) for line in lines]
