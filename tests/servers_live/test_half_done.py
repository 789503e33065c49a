"""A stop whose operator is gone in the middle: carried to its end, and no lock left."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.config import Config, HostConfig
from backends.errors import RoomError
from backends.servers.launchers.base import StopStep
from tests.servers_live.rooms import DEADLINE_S, desk_of, members_alive, quick_profile
from tests.servers_live.test_cut_off import configure, finished, gpuroom
from tests.sshd import SshLab, ssh_lab

__all__ = ["ssh_lab"]
pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


async def until(test: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not test():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def says(process: subprocess.Popen[bytes], words: bytes) -> None:
    """Read what it says up to these words."""
    assert process.stderr is not None
    said = b""
    while words not in said:
        line = await asyncio.to_thread(process.stderr.readline)
        assert line, said
        said += line


@pytest.mark.parametrize("words", [("stop", "deaf", "--grace", "0.1"), ("restart", "deaf")])
async def test_gpuroom_is_killed_in_the_middle_of_a_stop(words: tuple[str, ...]) -> None:
    profile = quick_profile("deaf", "--deaf")
    configure(profile)
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        await until(lambda: b"listening" in Path(run.place, "server.log").read_bytes())
    process = gpuroom(*words)
    await says(process, b"SIGTERM to the main process")
    process.kill()
    await finished(process)
    # Deaf to its SIGTERM, and nobody is there any more: the grace passes, and SIGKILL comes.
    await until(lambda: not members_alive(run.run_id))
    async with desk_of(profile) as desk:
        assert not (await desk.find("deaf")).adopted
        assert await desk.check(profile) == []
        again = await desk.start(profile)
        assert again.run_id != run.run_id
        assert (await desk.stop(again, grace_s=0)).complete


async def test_the_link_is_cut_in_the_middle_of_a_stop(ssh_lab: SshLab) -> None:
    server = ssh_lab.server("gpu01")
    profile = quick_profile("deaf", "--deaf")
    host = HostConfig(name="here", target="gpu01", python=sys.executable)
    config = Config(ssh=ssh_lab.settings())
    asked = asyncio.Event()

    def told(step: StopStep) -> None:
        asked.set()

    async with desk_of(profile, host=host, config=config) as desk:
        run = await desk.start(profile)
        await until(lambda: b"listening" in Path(run.place, "server.log").read_bytes())
        stopping = asyncio.create_task(desk.stop(run, told, grace_s=600))
        await asyncio.wait_for(asked.wait(), DEADLINE_S)
        server.cut()
        with contextlib.suppress(RoomError):
            await stopping
    assert members_alive(run.run_id), "its grace is not over"
    # The stop that goes on there holds nobody up: whoever comes next may be less patient.
    async with desk_of(profile) as other:
        found = await other.find("deaf")
        assert found.run_id == run.run_id
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    stopped = await other.stop(found, grace_s=0)
                    break
                except RoomError:  # until the far end has seen that nobody is there
                    await asyncio.sleep(0.1)
        assert stopped.complete
        assert members_alive(run.run_id) == []
