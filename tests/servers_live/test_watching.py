"""What a watch must not miss: cut links, two operators, workers, strangers, many cycles."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backends.servers.launchers.base import ProfileBusy, Run
from backends.servers.lifecycle import ANSWERING, State
from backends.servers.profiles import Profile
from backends.servers.witnesses import PortOwner
from tests.servers_live.rooms import (
    DEADLINE_S,
    QUICK,
    desk_of,
    is_state,
    members_alive,
    quick_profile,
)

CYCLES = 200
SIDE_BY_SIDE = 8
STARTER = """
import asyncio, sys
from tests.servers_live.rooms import desk_of, profile_of
async def main():
    command = sys.argv[2:]
    profile = profile_of("left", command=command, port=int(sys.argv[1]), ready={"path": "/health"})
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run, profile):
            print(run.run_id, flush=True)
            await asyncio.sleep(600)
asyncio.run(main())
"""


pytestmark = pytest.mark.usefixtures("own_state")


@pytest.mark.timeout(400)
async def test_two_hundred_starts_and_stops_leave_nothing() -> None:
    profiles = [quick_profile(f"cycle{number}", "--workers", "1") for number in range(SIDE_BY_SIDE)]
    async with desk_of(*profiles) as desk:
        runs: list[str] = []

        async def cycle(profile: Profile) -> None:
            for _ in range(CYCLES // SIDE_BY_SIDE):
                run = await desk.start(profile)
                runs.append(run.run_id)
                assert (await desk.stop(run, grace_s=0.1)).complete

        await asyncio.gather(*(cycle(profile) for profile in profiles))
        assert len(set(runs)) == CYCLES
        assert members_alive(*runs) == []


async def test_two_operators_at_once() -> None:
    profile = quick_profile("both", "--deaf")
    async with desk_of(profile) as one, desk_of(profile) as other:
        begun = await asyncio.gather(
            one.start(profile), other.start(profile), return_exceptions=True
        )
        (run,) = [each for each in begun if isinstance(each, Run)]
        (busy,) = [each for each in begun if isinstance(each, ProfileBusy)]
        assert "started by" in busy.detail
        stops = await asyncio.gather(
            one.stop(run, grace_s=2), other.stop(run, grace_s=2), return_exceptions=True
        )
        assert len([each for each in stops if isinstance(each, ProfileBusy)]) == 1
        assert members_alive(run.run_id) == []


async def test_a_killed_watcher_takes_nothing_with_it() -> None:
    profile = quick_profile("left", "--delay", "2")
    child = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(profile.port), *profile.command],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    run_id = (await asyncio.to_thread(child.stdout.readline)).decode().strip()
    child.kill()
    child.wait()
    child.stdout.close()
    async with desk_of(profile) as desk:
        run = await desk.find("left")
        assert run.run_id == run_id
        async with await desk.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
        assert (await desk.stop(run)).complete


async def test_another_process_that_answers_on_the_port_makes_nothing_ready() -> None:
    profile = quick_profile("mine", "--delay", "30")
    command = [sys.executable, QUICK, "--port", str(profile.port)]
    stranger = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        async with desk_of(profile) as desk:
            run = await desk.start(profile)
            async with await desk.watch(run, profile) as watch:
                found = await watch.until(
                    lambda now: (
                        watch.witnesses.port is not None
                        and watch.witnesses.port.owner is PortOwner.STRANGER
                        and watch.witnesses.http is not None
                        and watch.witnesses.http.good
                    ),
                    DEADLINE_S,
                )
                assert found.state not in ANSWERING
                assert found.disagreements
            result = await desk.stop(run)
            assert result.left == ()
            assert stranger.poll() is None, "a stranger is never touched"
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_found_server_is_stopped_with_its_workers_and_nobody_else() -> None:
    profile = quick_profile("found", "--workers", "2")
    server = subprocess.Popen(list(profile.command), stdout=subprocess.DEVNULL)
    neighbour = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        async with desk_of(profile) as desk:
            run = await desk.adopt(server.pid)
            async with await desk.watch(run, profile) as watch:
                await watch.until(is_state(*ANSWERING), DEADLINE_S)
                assert watch.last_look is not None
                pids = [member.pid for member in watch.last_look.members]
            assert len(pids) == 3
            assert (await desk.stop(run, grace_s=0.5)).complete
            assert [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()] == []
            assert neighbour.poll() is None
            with pytest.raises(Exception, match="carries this very connection"):
                await desk.stop(await desk.adopt(os.getpid()))
    finally:
        for process in (server, neighbour):
            process.kill()
            process.wait()


async def test_a_stop_is_no_crash() -> None:
    profile = quick_profile("calm")
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
            watch.stop_asked()
            await desk.stop(run)
            await watch.until(is_state(State.STOPPED), DEADLINE_S)
