"""The agent through a real sshd: login shells that print, an old python, a link that is cut."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from backends.agent.client import AgentClient
from backends.link.base import NobodyToAsk
from backends.link.ssh import SshTransport
from backends.link.target import parse_ssh_target
from tests.agent.conftest import DEADLINE_S, FAKE, Told, World
from tests.agent.test_loader import old_python
from tests.sshd import SshLab, ssh_lab

__all__ = ["ssh_lab"]
pytestmark = pytest.mark.real


@asynccontextmanager
async def agent_at(
    lab: SshLab, told: Told, world: World | None = None, python: str = sys.executable
) -> AsyncIterator[AgentClient]:
    transport = SshTransport("gpu01", parse_ssh_target("gpu01"), lab.settings(), NobodyToAsk())
    settings = {"interval_s": 0.2, "control": str(world.path) if world else ""}
    client = AgentClient(
        transport, python=python, on_notification=told, settings=settings, pynvml_source=FAKE
    )
    try:
        await transport.connect()
        await client.start(DEADLINE_S)
        yield client
    finally:
        await client.close()
        await transport.close()


async def gone(pid: int) -> bool:
    """Whether a process has ended, within the deadline."""
    for _ in range(int(DEADLINE_S / 0.05)):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        await asyncio.sleep(0.05)
    return False


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish"])
async def test_every_login_shell(ssh_lab: SshLab, shell: str) -> None:
    noise = 'welcome {"jsonrpc": "2.0", "method": "hello"}'
    ssh_lab.server(shell=shell, noise=noise, banner="AUTHORISED USE ONLY\n")
    told = Told()
    async with agent_at(ssh_lab, told) as client:
        # On a busy machine a GPU may be late for the first sample.
        await told.until("fast", lambda params: len(params["g"]) == 8 and None not in params["g"])
        assert client.garbage_lines == 0
        pieces = [n async for n in client.stream("selftest.count", {"to": 100, "size": 5000})]
        assert len(pieces) == 100
    assert await gone(told.last("hello")["pid"])


async def test_a_host_whose_python_is_3_8(ssh_lab: SshLab) -> None:
    python = old_python()
    if python is None:
        pytest.skip("no python3.8 here")
    ssh_lab.server()
    told = Told()
    async with agent_at(ssh_lab, told, python=python) as client:
        slow = await told.until("slow", lambda params: len(params["g"]) == 8)
        assert None not in slow["g"]
        assert told.last("hello")["python"].startswith("3.8.")
        assert await client.request("selftest.echo", {"value": 1}) == 1


async def test_a_cut_link_leaves_no_agent_even_while_the_driver_hangs(
    ssh_lab: SshLab, world: World
) -> None:
    server = ssh_lab.server()
    told = Told()
    async with agent_at(ssh_lab, told, world) as client:
        await told.until("fast", lambda params: len(params["g"]) == 8)
        world.set(hang=["*"])
        await told.until("driver", lambda params: params["state"] == "stuck")
        children = server.family()
        agent = told.last("hello")["pid"]
        # sshd alone dies, as when the network goes: nobody tells the agent but its input.
        for pid in children:
            if b"sshd" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, 9)
        async with asyncio.timeout(DEADLINE_S):
            assert await client.closed()
        assert await gone(agent)
