"""Who has a port: asked often, and still never out of date."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from backends.agent.remote import ports

LISTEN = """
import socket, sys, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen(); print("up", flush=True); time.sleep(600)
"""


def pids(port: int) -> list[int]:
    return [who["pid"] for who in ports.owner(port, likely=[os.getpid()])["owners"]]


def test_the_owner_is_remembered_only_as_long_as_it_is_true() -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        port: int = own.getsockname()[1]
        assert pids(port) == [os.getpid()]
        assert pids(port) == [os.getpid()], "by memory"
    assert ports.owner(port, likely=[os.getpid()])["free"]
    child = subprocess.Popen([sys.executable, "-c", LISTEN, str(port)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert pids(port) == [child.pid]
    finally:
        child.kill()
        child.communicate()
