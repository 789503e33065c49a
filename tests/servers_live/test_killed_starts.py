"""Whoever began a start is killed in the middle of it: the server is whole, and is found again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backends.agent.remote import members, runs, servers, supervisor
from tests.servers_live.conftest import DEADLINE_S, Host

pytestmark = pytest.mark.real
SLEEP = "import time; time.sleep(600)"


async def test_a_supervisor_that_nobody_listens_to_stays_and_writes_the_end_down(
    host: Host,
) -> None:
    """The agent is killed before the supervisor has said that the server is started."""
    home = Path(runs.root()) / "unheard"
    place = home / "unheard-1"
    home.mkdir(parents=True)
    spec = {
        "argv": [sys.executable, "-c", SLEEP],
        "env": {members.MARKER: "unheard-1"},
        "cwd": None, "dir": str(place), "log": str(place / "server.log"),
        "lock": str(home / "lock"), "run_id": "unheard-1", "cgroup_parents": [],
        "holder": {"by": "me", "run_id": "unheard-1"},
        "record": {"profile": "unheard", "boot_id": members.boot_id(), "by": "me"},
    }  # fmt: skip
    source = Path(supervisor.__file__).read_text()
    child = subprocess.Popen(
        [sys.executable, "-c", servers.STUB, runs.TITLE, str(place), str(len(source))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True, cwd="/",
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.close()
    child.stdin.write(source.encode() + json.dumps(spec).encode())
    child.stdin.close()
    await asyncio.to_thread(child.wait, DEADLINE_S)
    state = None
    async with asyncio.timeout(DEADLINE_S):
        while state is None:
            await asyncio.sleep(0.02)
            state = runs.state(str(place))
    os.kill(state["record"]["pid"], signal.SIGKILL)
    state = await host.until(str(place), lambda state: not state["alive"])
    state = await host.until(str(place), lambda state: not state["supervised"])
    assert state["exit"]["signal"] == signal.SIGKILL
