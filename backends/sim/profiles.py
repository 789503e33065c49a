"""The servers that the demo host is configured with, as `[[servers]]` tables."""

from __future__ import annotations

import contextlib
import socket
from functools import cache
from typing import Final

SERVER: Final = "glm-5"
"""The one that runs when the demo begins, where its scenario has load."""
MODEL: Final = "zai-org/GLM-5-NVFP4"


WANTED_PORT: Final = 30000


@cache
def port_of(host: str) -> int:
    """The port of the server of a demo host, the same for both ends of this process.

    It stays reserved while this process lives: demos that begin in the same moment get different
    ones.
    """
    for port in (WANTED_PORT, 0):
        with contextlib.suppress(OSError):
            return reserve(port)
    return WANTED_PORT


def reserve(wanted: int) -> int:
    """Hold a port of the loopback until this process ends, without listening on it; gives it.

    A server that sets SO_REUSEADDR, as servers do, can listen on it meanwhile; another `reserve`
    fails. Linux compares the option of both sockets at the time of the later `bind`.

    Raises:
        OSError: It is in use.
    """
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", wanted))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = int(holder.getsockname()[1])
        holder.detach()  # nobody closes it
    return port


def demo_tables(host: str, port: int) -> list[dict[str, object]]:
    """What can be started there: a server, and a variant that asks for too much memory.

    Args:
        host: Name of the demo host in the room.
        port: A free port of this machine's loopback.
    """
    return [
        {
            "name": SERVER,
            "host": host,
            "engine": "sglang",
            "command": list(command(port)),
            "port": port,
            "stop_grace_s": 20.0,
        },
        {
            "name": f"{SERVER}-more-kv",
            "host": host,
            "extends": SERVER,
            "arguments": {"--mem-fraction-static": 0.97},
        },
    ]


def command(port: int) -> tuple[str, ...]:
    """How the server is started."""
    return (
        "sglang", "serve", "--model-path", MODEL, "--served-model-name", "glm-5-nvfp4",
        "--tp-size", "8", "--port", str(port), "--max-running-requests", "4096",
    )  # fmt: skip
