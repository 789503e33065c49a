"""The servers that the demo host is configured with, as `[[servers]]` tables."""

from __future__ import annotations

import contextlib
import socket
from functools import lru_cache
from typing import Final

SERVER: Final = "glm-5"
"""The one that runs when the demo begins, where its scenario has load."""
MODEL: Final = "zai-org/GLM-5-NVFP4"


@lru_cache(maxsize=64)
def port_of(host: str) -> int:
    """The port that the server of a demo host has, the same for both ends of this process."""
    return free_port(30000)


def free_port(wanted: int) -> int:
    """The port wanted, or another where it is taken on this machine."""
    for port in (wanted, 0):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)) as server:
            return int(server.getsockname()[1])
    return wanted


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
