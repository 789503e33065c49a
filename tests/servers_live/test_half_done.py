"""A stop whose operator is gone in the middle: carried to its end, and no lock left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.agent.remote import runs
from backends.config import Config, HostConfig
from backends.errors import RoomError
from backends.servers.desk import operator, origin
from backends.servers.launchers.base import StopStep
from backends.servers.lifecycle import State
from tests.servers_live.rooms import (
    DEADLINE_S,
    OF_THIS_RUN,
    desk_of,
    is_state,
    members_alive,
    quick_profile,
)
from tests.servers_live.test_cut_off import configure, finished, gpuroom
from tests.sshd import SshLab, ssh_lab

__all__ = ["ssh_lab"]
pytestmark = [pytest.mark.real, pytest.mark.usefixtures("own_state")]
DEAF = f"deaf{OF_THIS_RUN}"


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


@pytest.mark.parametrize("words", [("stop", DEAF, "--grace", "2"), ("restart", DEAF)])
async def test_gpuroom_is_killed_in_the_middle_of_a_stop(words: tuple[str, ...]) -> None:
    profile = quick_profile(DEAF, "--deaf")
    configure(profile)
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        await until(lambda: b"listening" in Path(run.place, "server.log").read_bytes())
    process = gpuroom(*words)
    await says(process, b"SIGTERM to the main process")
    process.kill()
    await finished(process)
    # Deaf to its SIGTERM, and nobody is there any more; whoever looks is told what goes on,
    async with desk_of(profile) as desk, await desk.watch(run, profile) as watch:
        told = await watch.until(is_state(State.STOPPING), DEADLINE_S)
        assert told.why.startswith(f"asked to stop by {operator()} from {origin()} ")
        asked = f"{words[0]}, by {operator()} from {origin()}"
        assert asked in [heard.said for heard in told.testimonies]
        # the grace passes, and SIGKILL comes.
        await watch.until(is_state(State.STOPPED), DEADLINE_S)
    await until(lambda: not members_alive(run.run_id))
    async with desk_of(profile) as desk:
        assert not (await desk.find(DEAF)).adopted
        assert await desk.check(profile) == []
        again = await desk.start(profile)
        assert again.run_id != run.run_id
        assert (await desk.stop(again, grace_s=0)).complete


async def test_the_link_is_cut_in_the_middle_of_a_stop(ssh_lab: SshLab) -> None:
    server = ssh_lab.server("gpu01")
    profile = quick_profile(DEAF, "--deaf")
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
        found = await other.find(DEAF)
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


async def test_what_is_being_stopped_elsewhere_is_stopping_until_nobody_is_at_it() -> None:
    """A server that was found, too: its processes carry no record of who started them."""
    profile = quick_profile(DEAF, "--deaf")
    with subprocess.Popen(profile.command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            while b"listening" not in await asyncio.to_thread(process.stdout.readline):
                pass
            asked = asyncio.Event()
            async with desk_of() as mine, desk_of() as other:
                run = await mine.adopt(process.pid)
                stop = asyncio.create_task(mine.stop(run, lambda step: asked.set(), grace_s=600))
                await asyncio.wait_for(asked.wait(), DEADLINE_S)
                async with await other.watch(run) as watch:
                    told = await watch.until(is_state(State.STOPPING), DEADLINE_S)
                    assert f"by {operator()}" in told.why
                    stop.cancel()
                    await asyncio.gather(stop, return_exceptions=True)
                    (note,) = Path(runs.root(), ".found").glob("*.json")
                    at = json.loads(note.read_text())
                    # Whoever sees to it is killed as well: it lives on, and nobody stops it.
                    note.write_text(json.dumps({**at, "start_ticks": at["start_ticks"] + 1}))
                    await watch.until(lambda found: found.state is not State.STOPPING, DEADLINE_S)
        finally:
            process.kill()
