"""A stop is complete when the GPU memory is given back, and says where it is not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backends.servers.desk import ServerDesk
from backends.servers.launchers.base import Run, StopStep
from backends.servers.lifecycle import ANSWERING, Policy
from backends.servers.profiles import Profile
from backends.servers.report import stop_lines
from tests.servers_live import gpus
from tests.servers_live.gpus import GIB, Gpus
from tests.servers_live.rooms import DEADLINE_S, desk_of, is_state, quick_profile

WAITING = "waiting for the GPU memory to be given back"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = gpus.install(tmp_path / "gpus.json", monkeypatch)
    found.now(memory=[GIB, GIB], processes=[])
    return found


async def started(desk: ServerDesk, profile: Profile, driver: Gpus, held: int) -> Run:
    """Running, with memory on the second GPU."""
    await gpus.seen(desk)
    run = await desk.start(profile)
    driver.now(memory=[GIB, GIB + held], processes=[[1, run.pid, held]])
    await sampled(desk, GIB + held)
    return run


async def sampled(desk: ServerDesk, used: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while desk.host.snapshot.gpus[1].readings.memory_used_bytes != used:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def listed(desk: ServerDesk, *pids: int) -> None:
    """Until the driver's list of processes has come."""
    async with asyncio.timeout(DEADLINE_S):
        while {each.pid for each in desk.host.snapshot.processes} != set(pids):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_stop_waits_until_the_memory_is_given_back(driver: Gpus) -> None:
    profile = quick_profile("held")
    async with desk_of(profile) as desk:
        run = await started(desk, profile, driver, 40 * GIB)
        steps: list[str] = []

        def on_step(step: StopStep) -> None:
            steps.append(step.words)
            if step.words == WAITING:
                driver.now(memory=[GIB, GIB], processes=[])

        result = await desk.stop(run, on_step)
        assert result.complete
        assert steps[-1] == WAITING


async def test_what_is_not_given_back_is_named(driver: Gpus) -> None:
    profile = quick_profile("held")
    async with desk_of(profile, policy=Policy(memory_back_s=1.0)) as desk:
        result = await desk.stop(await started(desk, profile, driver, 40 * GIB))
        assert result.left == ()
        assert result.gpu_memory_held == ("GPU 1",)
        assert not result.complete
        assert stop_lines(result) == ["the memory of GPU 1 is not given back"]


async def test_behind_a_wall_that_hides_processes_the_level_tells(driver: Gpus) -> None:
    profile = quick_profile("held")
    async with desk_of(profile, policy=Policy(memory_back_s=1.0)) as desk:
        run = await started(desk, profile, driver, 40 * GIB)
        await listed(desk, run.pid)  # else this list may come after the empty one
        driver.now(processes=[])
        await listed(desk)
        result = await desk.stop(run)
        assert result.gpu_memory_held == ("GPU 1 (40.0 GiB more than before the start)",)
        run = await desk.start(profile)
        driver.now(memory=[GIB, 80 * GIB])
        await sampled(desk, 80 * GIB)
        # By now a visible stranger accounts for what is in use.
        driver.now(processes=[[1, 1, 79 * GIB]])
        await listed(desk, 1)
        assert (await desk.stop(run)).complete


async def test_gpu_memory_that_moves_is_a_sign_of_life(driver: Gpus) -> None:
    profile = quick_profile("moving")
    async with desk_of(profile) as desk:
        run = await started(desk, profile, driver, GIB)
        async with await desk.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
            for step in range(2, 400):
                driver.now(processes=[[1, run.pid, step * GIB]])
                activity = watch.witnesses.activity
                if activity is not None and activity.gpu_memory_at_s is not None:
                    break
                await asyncio.sleep(0.1)
            assert watch.witnesses.activity is not None
            assert watch.witnesses.activity.gpu_memory_at_s is not None
            assert watch.witnesses.activity.gpu_busy_at_s is not None
        driver.now(memory=[GIB, GIB], processes=[])
        assert (await desk.stop(run)).complete
