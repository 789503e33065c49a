"""Restarts that are cut, or meet each other: one wins, nothing is half held, and all is told."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from backends.agent.remote import processes
from backends.servers.launchers.base import ProfileBusy
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
from tests.servers_live.test_cut_sessions import heard
from tests.servers_live.test_half_done import until

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("own_state")]


def below(pid: int) -> list[int]:
    """Its children."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [child for child in pids if processes.parent_of("/proc", child) == pid]


async def test_a_restart_is_killed_between_its_stop_and_its_start() -> None:
    profile = quick_profile(f"anew{OF_THIS_RUN}")
    configure(profile)
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        await until(lambda: b"listening" in Path(run.place, "server.log").read_bytes())
        assert run.pid is not None
        os.kill(run.pid, signal.SIGSTOP)  # its end waits until gpuroom can't go on
        restart = gpuroom("restart", profile.name)
        await heard(restart, b"SIGTERM to the main process")
        os.kill(restart.pid, signal.SIGSTOP)
        os.kill(run.pid, signal.SIGCONT)
        await until(lambda: not members_alive(run.run_id))
        with pytest.raises(ProfileBusy, match="in other hands") as busy:
            await desk.stop(run)
        assert "is restarting it already (from " in busy.value.detail
        agents = below(restart.pid)
        assert agents
        restart.kill()
        await finished(restart)
        await until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in agents))
        found = await desk.find(profile.name)
        assert found.run_id == run.run_id, "nothing was started"
        async with await desk.watch(found, profile) as watch:
            told = await watch.until(is_state(State.STOPPED), DEADLINE_S)
            assert told.why.startswith("stopped for a restart by ")
            assert told.why.endswith("; not started again so far")
        again = await desk.start(profile)
        assert again.run_id != run.run_id
        assert (await desk.stop(again)).complete


async def test_two_who_restart_at_once_one_wins_and_the_other_is_told_who() -> None:
    profile = quick_profile(f"both{OF_THIS_RUN}")
    async with desk_of(profile) as one, desk_of(profile) as other:
        run = await one.start(profile)
        async with one.restarting(run):
            with pytest.raises(ProfileBusy) as busy:
                async with other.restarting(run):
                    pass
            assert "is restarting it already (from " in busy.value.detail
            assert (await one.stop(run, grace_s=1)).complete
            again = await one.start(profile)
        assert members_alive(run.run_id) == []
        async with other.restarting(again):
            assert (await other.stop(again, grace_s=1)).complete
        assert members_alive(again.run_id) == []


async def test_a_start_while_another_stops_is_told_who_and_comes_after() -> None:
    profile = quick_profile(f"crossed{OF_THIS_RUN}")
    asked = asyncio.Event()
    async with desk_of(profile) as one, desk_of(profile) as other:
        run = await one.start(profile)
        await until(lambda: b"listening" in Path(run.place, "server.log").read_bytes())
        assert run.pid is not None
        os.kill(run.pid, signal.SIGSTOP)  # it can't end yet
        stopping = asyncio.create_task(one.stop(run, lambda step: asked.set(), grace_s=60))
        try:
            await asyncio.wait_for(asked.wait(), DEADLINE_S)
            with pytest.raises(ProfileBusy, match="running already") as busy:
                await other.start(profile)
            assert "started by" in busy.value.detail
            with pytest.raises(ProfileBusy, match="in other hands") as busy:
                await other.stop(run, grace_s=0)
            assert "is stopping it already (from " in busy.value.detail
        finally:
            os.kill(run.pid, signal.SIGCONT)
        assert (await stopping).complete
        again = await other.start(profile)
        assert again.run_id != run.run_id
        assert (await other.stop(again, grace_s=1)).complete
        assert members_alive(run.run_id, again.run_id) == []
