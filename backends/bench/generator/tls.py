"""Encrypted connections. A module of its own, so that the others do without OpenSSL's memory."""

from __future__ import annotations

import socket
import ssl

from .connection import READ_BYTES, Connection


class TlsConnection(Connection):
    """A connection under TLS: what arrives is stamped when it is read, not by the kernel."""

    __slots__ = ("_context", "_name")

    # What OpenSSL holds decrypted, the event loop cannot see: a read must go on until it is empty.
    buffers = True

    def __init__(
        self, family: int, address: tuple[object, ...], context: ssl.SSLContext, name: str
    ) -> None:
        self._context = context
        self._name = name
        super().__init__(family, address)

    def _prepare(self, sock: socket.socket) -> socket.socket:
        return sock

    def _shake_hands(self) -> bool:
        sock = self.sock
        if not isinstance(sock, ssl.SSLSocket):
            # Only now that it is connected; it keeps its descriptor.
            sock = self._context.wrap_socket(
                sock, server_hostname=self._name, do_handshake_on_connect=False
            )
            self.sock = sock
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            self.waits_to_write = True
            return False
        return True

    def _send(self, data: memoryview) -> int:
        try:
            return self.sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def _receive(self) -> bytes:
        try:
            return self.sock.recv(READ_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error
        except ssl.SSLZeroReturnError:
            return b""


def context(verify: bool) -> ssl.SSLContext:
    """TLS as a client; without `verify` any certificate is taken."""
    made = ssl.create_default_context()
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made
