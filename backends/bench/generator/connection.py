"""One non-blocking connection to the server; `tls` has the encrypted kind."""

from __future__ import annotations

import socket
import struct
import time

from .exchange import Exchange

READ_BYTES = 16384
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size) if hasattr(socket, "CMSG_SPACE") else 0
_HAS_STAMPS = hasattr(socket.socket, "recvmsg") and hasattr(socket, "SO_BINDTODEVICE")

CONNECTING, HANDSHAKE, READY = 0, 1, 2


now_ns = time.time_ns
"""The system clock: the one that the kernel stamps packets with."""


class Connection:
    """A socket and where it stands.

    What would have to wait raises BlockingIOError.

    Attributes:
        fd: Its descriptor, the key in the event loop.
        state: CONNECTING, HANDSHAKE or READY.
        exchange: The request in flight, if any.
        slot: The closed loop's stream it belongs to, if any.
        eager: Bytes are read as they come, since the end cannot be told from the last ones.
        drained: It is read four times a second and not event by event.
        used: How many requests it has carried.
        waits_to_write: Bytes are left to send, or the handshake wants to.
        opened_ns: How long opening took; None before.
        sent_ns: When the last piece was handed to the kernel. The clock is read just before the
            call: inside of it the server wakes up, and on a busy machine this process may be put
            aside for it.
    """

    buffers = False

    __slots__ = (
        "_out",
        "_stamps",
        "_started",
        "drained",
        "eager",
        "exchange",
        "fd",
        "mask",
        "opened_ns",
        "sent_ns",
        "slot",
        "sock",
        "state",
        "used",
        "waits_to_write",
    )

    def __init__(self, family: int, address: tuple[object, ...]) -> None:
        sock = socket.socket(family, socket.SOCK_STREAM)
        self._started = now_ns()
        self._stamps = False
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock = self._prepare(sock)
            try:
                sock.connect(address)
            except BlockingIOError:
                pass
        except BaseException:
            sock.close()
            raise
        self.sock = sock
        self.fd = sock.fileno()
        self.state = CONNECTING
        self.exchange: Exchange | None = None
        self.slot: int | None = None
        self.eager = True
        self.drained = False
        self.used = 0
        self.mask = 0
        self.waits_to_write = True
        self.opened_ns: int | None = None
        self.sent_ns = 0
        self._out: memoryview | None = None

    def advance(self) -> bool:
        """The socket is writable or readable: go on opening; True when ready. Raises OSError."""
        if self.state == CONNECTING:
            error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, "cannot connect")
            self.state = HANDSHAKE
        self.waits_to_write = False
        if not self._shake_hands():
            return False
        self.state = READY
        if self.opened_ns is None:
            self.opened_ns = now_ns() - self._started
        return True

    def send(self, data: bytes) -> bool:
        """Send a request; True when all of it has left, else `flush` goes on. Raises OSError."""
        self._out = memoryview(data)
        return self.flush()

    def flush(self) -> bool:
        """Send what is left; True when all has left."""
        out = self._out
        while out:
            self.sent_ns = now_ns()
            try:
                out = out[self._send(out) :]
            except BlockingIOError:
                break
        self._out = out or None
        self.waits_to_write = bool(out)
        return not out

    def read(self) -> tuple[int, bytes, bool] | None:
        """Time (ns), bytes (none at the end), and whether the kernel stamped them.

        None when there is nothing to read. Raises OSError when the connection is lost.
        """
        if self._stamps:
            try:
                data, ancillary, _, _ = self.sock.recvmsg(READ_BYTES, _ANCILLARY_BYTES)
            except BlockingIOError:
                return None
            if ancillary:
                seconds, ns = _TIMESPEC.unpack_from(ancillary[0][2])
                return seconds * 1000000000 + ns, data, True
            return now_ns(), data, False
        try:
            data = self._receive()
        except BlockingIOError:
            return None
        return now_ns(), data, False

    def _prepare(self, sock: socket.socket) -> socket.socket:
        """The socket to use; a plain one gets its packets stamped by the kernel."""
        if _HAS_STAMPS:
            try:
                sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
                self._stamps = True
            except OSError:
                pass
        return sock

    def _shake_hands(self) -> bool:
        return True

    def _send(self, data: memoryview) -> int:
        return self.sock.send(data)

    def _receive(self) -> bytes:
        return self.sock.recv(READ_BYTES)

    def close(self) -> None:
        """Close at once; the server sees it and stops."""
        try:
            self.sock.close()
        except OSError:
            pass


def switch_stamps_on() -> socket.socket | None:
    """A socket that keeps the kernel stamping packets for as long as it is open.

    Stamping is switched on for the whole system by its first user, a little later than asked;
    without this the first packets of a run would come without.
    """
    if not _HAS_STAMPS:
        return None
    keeper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        keeper.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        keeper.close()
        return None
    return keeper


def resolve(host: str, port: int, timeout_s: float) -> tuple[int, tuple[object, ...]]:
    """Family and address of the server: the first that accepts a connection. Raises OSError."""
    last = OSError("no address for %s" % host)
    for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        probe = socket.socket(family, socket.SOCK_STREAM)
        probe.settimeout(timeout_s)
        try:
            probe.connect(address)
            return family, address
        except OSError as error:
            last = error
        finally:
            probe.close()
    raise last
