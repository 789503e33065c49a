from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from backends.errors import LinkError
from backends.link.local import LocalTransport


async def test_streams_status_and_end_of_input() -> None:
    transport = LocalTransport()
    await transport.connect()
    code = (
        "import sys; print(sys.stdin.read()); print('\\x1b[31mred', file=sys.stderr); sys.exit(3)"
    )
    channel = await transport.open([sys.executable, "-c", code])
    await channel.write(b"hello")
    await channel.close()
    assert await channel.read() == b"hello\n"
    assert await channel.wait(5) == 3
    assert await channel.stderr_tail() == "red"
    await transport.close()


async def test_what_cannot_be_started_ends_as_in_a_shell(tmp_path: Path) -> None:
    transport = LocalTransport()
    channel = await transport.open(["no-such-program-here"])
    assert (await channel.read(), await channel.wait(1)) == (b"", 127)
    with pytest.raises(LinkError):
        await channel.write(b"x")
    file = tmp_path / "file"
    file.write_text("")
    channel = await transport.open([str(file)])
    assert await channel.wait(1) == 126


async def test_a_program_that_ignores_everything_is_killed() -> None:
    transport = LocalTransport()
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(3600)"
    channel = await transport.open([sys.executable, "-c", code])
    pid = int(await channel.read())
    async with asyncio.timeout(10):
        await transport.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(LinkError):
        await transport.open([sys.executable, "-c", "pass"])


async def test_ctrl_c_here_does_not_reach_it() -> None:
    transport = LocalTransport()
    code = "import os; print(os.getsid(0) == os.getpid(), flush=True)"
    channel = await transport.open([sys.executable, "-c", code])
    assert await channel.wait(10) == 0
    assert (await channel.read()).strip() == b"True"
    await transport.close()
