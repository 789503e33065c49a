"""Witnesses that contradict each other, dead workers, stalls: on processes that really do it."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backends.servers.engines import Phase
from backends.servers.lifecycle import ANSWERING, Policy, State
from backends.servers.watch import ServerWatch
from backends.storage.starts import Start, StartHistory
from tests.servers_live.rooms import DEADLINE_S, Play, is_state, watching

STARTED = "Application startup complete."


pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


async def test_ready_by_http_while_the_log_lags(play: Play) -> None:
    play.now(answers={"/health": 200}, say=["Load weight begin. avail mem=93.4 GB"])
    async with watching(play.profile("sglang")) as watch:
        found = await watch.until(
            lambda found: "ready by HTTP, while the log has not said so" in found.disagreements,
            DEADLINE_S,
        )
        assert found.state not in ANSWERING
        assert "the log's readiness line" in found.why
        play.now(say=["Load weight begin.", "The server is fired up and ready to roll!"])
        found = await watch.until(is_state(*ANSWERING), DEADLINE_S)
        assert found.disagreements == ()


async def test_a_log_that_says_ready_while_requests_fail(play: Play) -> None:
    play.now(answers={"/health": 500}, say=[STARTED])
    async with watching(play.profile("vllm")) as watch:
        found = await watch.until(
            lambda found: "the log says ready, while /health says 500" in found.disagreements,
            DEADLINE_S,
        )
        assert found.state is State.WARMING
        play.now(answers={"/health": 200})
        await watch.until(is_state(*ANSWERING), DEADLINE_S)
        play.now(answers={"/health": 500})
        found = await watch.until(is_state(State.DEGRADED), DEADLINE_S)
        assert found.disagreements


async def test_one_that_answers_nothing_any_more_is_unresponsive_and_comes_back(play: Play) -> None:
    play.now(answers={"/health": 200}, say=[STARTED])
    policy = Policy(unresponsive_s=2.0, fresh_s=2.0)
    async with watching(play.profile("vllm"), policy=policy) as watch:
        await watch.until(is_state(*ANSWERING), DEADLINE_S)
        pid = watch.watched.run.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            await watch.until(is_state(State.UNRESPONSIVE), DEADLINE_S)
        finally:
            os.kill(pid, signal.SIGCONT)
        await watch.until(is_state(*ANSWERING), DEADLINE_S)


async def test_a_dead_worker_under_a_living_parent_is_a_crash(play: Play) -> None:
    play.now(answers={"/health": 200}, say=[STARTED])
    profile = play.profile("vllm", workers=["VLLM::EngineCore", "VLLM::Worker_TP1"])
    async with watching(profile) as watch:
        await watch.until(is_state(*ANSWERING), DEADLINE_S)
        assert watch.last_look is not None
        (worker,) = [m.pid for m in watch.last_look.members if m.command.startswith("VLLM::W")]
        os.kill(worker, signal.SIGKILL)
        found = await watch.until(is_state(State.CRASHED), DEADLINE_S)
        assert found.cause == "worker-died"
        assert "VLLM::Worker_TP1" in found.why
        assert "the main process lives, while workers are dead" in found.disagreements
        assert watch.witnesses.process is not None
        assert watch.witnesses.process.alive


async def test_a_stall_is_told_from_slowness(play: Play) -> None:
    policy = Policy(least_quiet_s=1.0, unknown_quiet_s=3.0)
    play.now(busy=True, say=["loading model"])
    async with watching(play.profile("custom", ready={"path": "/health"}), policy=policy) as watch:
        await quiet_log(watch, 5.0)
        assert watch.assessment.stall is None, "a quiet log alone is no stall: the CPU works"
        play.now(busy=False)
        found = await watch.until(lambda found: found.stall is not None, DEADLINE_S)
        assert found.stall is not None
        assert found.stall.limit_s == 3.0
        assert found.stall.last == "CPU time"
        play.now(busy=True)
        await watch.until(lambda found: found.stall is None, DEADLINE_S)


async def test_how_long_silence_may_last_is_learned_from_earlier_starts(play: Play) -> None:
    starts = StartHistory.at_home()
    for number, took_s in enumerate((1.0, 1.5, 30.0)):
        starts.save(
            Start(
                run_id=f"old-{number}", host="here", profile="played", engine="custom",
                version=None, started=datetime.now(UTC) - timedelta(days=number + 1),
                outcome="ready", cause=None, took_s=took_s,
                phases={Phase.LOADING.value: took_s},
            )
        )  # fmt: skip
    play.now(say=["loading model"])
    policy = Policy(least_quiet_s=1.0, unknown_quiet_s=60.0)
    profile = play.profile("custom", ready={"path": "/health"})
    async with watching(profile, policy=policy, starts=starts) as watch:
        found = await watch.until(lambda found: found.stall is not None, DEADLINE_S)
        assert found.phase is Phase.LOADING
        assert found.stall is not None
        assert found.stall.limit_s == pytest.approx(4.5), "three times the median"
    starts.close()


async def quiet_log(watch: ServerWatch, quiet_s: float) -> None:
    """Until the log has been quiet for so long."""

    def quiet(found: object) -> bool:
        log = watch.witnesses.log
        return log is not None and watch.age_s - quiet_s >= log.at_s - (
            watch.witnesses.started_at_s or 0.0
        )

    await watch.until(quiet, DEADLINE_S)
