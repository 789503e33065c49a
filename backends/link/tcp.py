"""A TCP connection, with the name looked up in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from backends.link.threads import in_thread

NEXT_ADDRESS_S: Final = 2.5
"""After this long the next address of the name is tried."""


async def open_tcp(
    host: str, port: int, family: int = socket.AF_UNSPEC, bind_address: str | None = None
) -> socket.socket:
    """Connect to the first address of `host` that answers.

    Raises:
        OSError: None did (`socket.gaierror`, `ConnectionRefusedError`, ...): the last one's error.
    """
    found = await in_thread(
        lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM), name="gpuroom-dns"
    )
    last_error: OSError = OSError(f"{host} has no address")
    for number, (kind, type_, protocol, _, address) in enumerate(found, 1):
        limit_s = NEXT_ADDRESS_S if number < len(found) else None
        try:
            async with asyncio.timeout(limit_s):
                return await _open_one(kind, type_, protocol, address, bind_address)
        except OSError as error:
            last_error = error
    raise last_error


async def _open_one(
    kind: int, type_: int, protocol: int, address: tuple[object, ...], bind_address: str | None
) -> socket.socket:
    sock = socket.socket(kind, type_, protocol)
    try:
        sock.setblocking(False)
        if bind_address:
            sock.bind((bind_address, 0))
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
