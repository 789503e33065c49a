"""Starts are written down with their phases, and the next one has an honest time left."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.servers.engines import Phase
from backends.servers.lifecycle import ANSWERING, State
from backends.storage.starts import Start, StartHistory
from tests.servers_live.rooms import DEADLINE_S, Play, desk_of, is_state

LOADING_S = 3.0


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartHistory]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = StartHistory.at_home()
    yield found
    found.close()


async def one_start(play: Play, starts: StartHistory) -> tuple[Start, list[tuple[float, float]]]:
    """Start, load for a while, be ready; what was kept, and (age, time left) on the way."""
    play.now(say=["loading model"], answers={})
    profile = play.profile("custom", ready={"path": "/health"})
    told: list[tuple[float, float]] = []
    async with desk_of(profile, starts=starts) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run, profile) as watch:
            await watch.until(lambda found: found.phase is Phase.LOADING, DEADLINE_S)
            for _ in range(6):
                left_s = watch.assessment.left_s
                if left_s is not None:
                    told.append((watch.age_s, left_s))
                await asyncio.sleep(LOADING_S / 6)
            play.now(answers={"/health": 200})
            found = await watch.until(is_state(*ANSWERING), DEADLINE_S)
            await desk.record(watch, found)
        await desk.stop(run)
    return starts.starts("here", "played")[0], told


async def test_the_second_start_knows_how_long_it_takes(
    tmp_path: Path, starts: StartHistory
) -> None:
    play = Play(tmp_path)
    first, told = await one_start(play, starts)
    assert told == [], "no earlier start, no estimate"
    assert first.outcome == "ready"
    assert first.phases[Phase.LOADING.value] >= LOADING_S
    assert sum(first.phases.values()) == pytest.approx(first.took_s, abs=1.0)

    second, told = await one_start(play, starts)
    assert second.run_id != first.run_id
    assert len(told) == 6
    for (age_s, left_s), (later_s, still_left_s) in itertools.pairwise(told):
        assert 0 <= left_s <= first.took_s
        assert still_left_s <= max(0.0, left_s - (later_s - age_s)) + 0.5, "it counts down"


async def test_one_who_comes_later_is_told_what_is_left_by_then(
    tmp_path: Path, starts: StartHistory
) -> None:
    play = Play(tmp_path)
    first, _ = await one_start(play, starts)
    play.now(say=["loading model"], answers={})
    profile = play.profile("custom", ready={"path": "/health"})
    async with desk_of(profile, starts=starts) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run, profile) as watch:
            await watch.until(lambda found: found.phase is Phase.LOADING, DEADLINE_S)
            await asyncio.sleep(2.0)
        found_again = await desk.find("played")
        assert found_again.age_s is not None
        assert found_again.age_s >= 2.0
        async with await desk.watch(found_again, profile) as watch:
            found = await watch.until(lambda found: found.phase is Phase.LOADING, DEADLINE_S)
            assert found.left_s is not None
            assert found.left_s <= max(0.0, first.took_s - 2.0) + 0.5
        await desk.stop(run)


async def test_a_start_that_fails_is_kept_and_teaches_nothing(
    tmp_path: Path, starts: StartHistory
) -> None:
    play = Play(tmp_path)
    play.now(say=["loading model", "RuntimeError: boom"])
    profile = play.profile("custom", ready={"path": "/health"})
    async with desk_of(profile, starts=starts) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run, profile) as watch:
            await watch.until(lambda found: found.phase is Phase.LOADING, DEADLINE_S)
            assert run.pid is not None
            os.kill(run.pid, signal.SIGKILL)
            found = await watch.until(is_state(State.CRASHED), DEADLINE_S)
            await desk.record(watch, found)
    (kept,) = starts.starts("here", "played")
    assert kept.outcome == "crashed"
    assert starts.phase_durations("here", "played") == {}
