"""Runs of a room, with a real agent on this machine and the server with a known schedule."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from backends.bench.compare import Word
from backends.bench.desk import BenchDesk, Live
from backends.bench.job import STUB
from backends.bench.weigh_run import weighed
from backends.errors import UsageError
from backends.hub import HostSession
from backends.storage.history import History
from tests.bench.conftest import Scheduled, closed, plan_of
from tests.bench_data.runs import run
from tests.bench_live.conftest import DEADLINE_S


async def until(test: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not test():  # noqa: ASYNC110 - desks are polled
            await asyncio.sleep(0.02)


def begin(desk: BenchDesk, here: HostSession, scheduled: Scheduled, requests: int) -> Live:
    plan = closed(4, requests, tokens=20)
    return desk.start(here, here.config.python, scheduled.endpoint("vllm"), plan)


async def test_a_run_is_seen_while_it_goes_on_and_kept(
    here: HostSession, scheduled: Scheduled
) -> None:
    desk = BenchDesk("test")
    live = begin(desk, here, scheduled, 40)
    assert desk.live("here") is live
    with pytest.raises(UsageError, match="measured already"):
        begin(desk, here, scheduled, 4)
    await until(lambda: live.progress is not None)
    await until(lambda: not live.going)
    assert (live.state, live.error) == ("over", "")
    (step,) = live.steps
    assert step.succeeded == 40
    assert len(live.e2e_s) == 40
    # Every request takes 50 ms to its first token and 10 ms for each further one.
    assert sorted(live.ttft_s)[20] == pytest.approx(0.05, abs=0.04)
    assert sorted(live.tpot_s)[20] == pytest.approx(0.01, abs=0.005)
    with History.at_home() as history:
        result = history.load(live.run_id)
    assert result.client.where == "host"
    assert result.environment.host == "here"
    assert "scheduled_server.py" in " ".join(result.environment.server_argv)
    await until(lambda: bool(live.possible_absent))
    await desk.close()


async def test_each_load_has_its_word_as_it_ends(here: HostSession, scheduled: Scheduled) -> None:
    plan = plan_of(
        "route = 'chat'\nparts = [{ input = 32, output = 20 }]\n"
        "[[steps]]\nload = 'closed'\nconcurrency = 2\nrequests = 12\n"
        "[[steps]]\nload = 'closed'\nconcurrency = 4\nrequests = 60\n"
    )
    plan = msgspec.structs.replace(plan, warm_up=None)
    desk = BenchDesk("test")

    def start() -> Live:
        return desk.start(here, here.config.python, scheduled.endpoint("vllm"), plan)

    first = start()
    await until(lambda: bool(first.possible_absent or first.error))
    assert (first.state, first.words) == ("over", {})
    with History.at_home() as history:
        history.pin(first.run_id)
    second = start()
    await until(lambda: bool(second.words) or not second.going)
    assert second.going, "the word came only when the run was over"
    assert list(second.words) == ["2 streams"]
    word = second.words["2 streams"]
    # On a machine that others load the client may not keep up: then that is why.
    assert word.word is not Word.NOT_COMPARABLE or "client kept up" in word.why, word
    desk.stop("here")
    await until(lambda: not second.going)
    await desk.close()


@pytest.mark.parametrize("after_s", [0.0, 0.4, 2.0])
async def test_stopped_at_any_moment_nothing_stays(
    here: HostSession, scheduled: Scheduled, after_s: float
) -> None:
    desk = BenchDesk("test")
    live = begin(desk, here, scheduled, 1_000_000)
    await asyncio.sleep(after_s)
    desk.stop("here")
    await until(lambda: not live.going)
    await until(lambda: not generators())
    await desk.close()


async def test_the_end_of_the_room_ends_the_run_and_keeps_it(
    here: HostSession, scheduled: Scheduled
) -> None:
    desk = BenchDesk("test")
    live = begin(desk, here, scheduled, 1_000_000)
    await until(lambda: len(live.e2e_s) >= 4)
    await desk.close()
    assert live.state == "over"
    assert not generators()
    with History.at_home() as history:
        assert history.load(live.run_id).status == "stopped"


async def test_a_generator_killed_on_the_host_leaves_what_it_told(
    here: HostSession, scheduled: Scheduled
) -> None:
    desk = BenchDesk("test")
    live = begin(desk, here, scheduled, 1_000_000)
    await until(lambda: len(live.e2e_s) >= 8)
    running = generators()
    assert running
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not live.going)
    assert "died" in live.error
    with History.at_home() as history:
        result = history.load(live.run_id)
        assert result.status == "broken"
        assert sum(step.succeeded for step in result.steps) >= 8
        assert history.samples_of(live.run_id).exists()
    await desk.close()


async def test_a_model_that_cannot_be_read_is_weighed_by_its_name(here: HostSession) -> None:
    measured = run(1)
    config = {"model_path": "/nowhere/GLM-5-NVFP4", "tp_size": "8"}
    environment = msgspec.structs.replace(measured.environment, effective_config=config)
    measured = msgspec.structs.replace(measured, environment=environment)
    found = await weighed(here, measured, None)
    assert found.possible_absent is None
    assert found.possible is not None
    assert found.possible.model == "GLM-5-NVFP4"
    assert found.possible.step("64 streams") is not None
    unknown = await weighed(here, measured, "/nowhere/some-model-of-ours")
    assert unknown.possible is None
    assert "some-model-of-ours" in (unknown.possible_absent or "")


async def test_a_server_that_is_down_is_said(here: HostSession, scheduled: Scheduled) -> None:
    from backends.bench.endpoint import parse_url

    desk = BenchDesk("test")
    live = desk.start(here, here.config.python, parse_url("http://127.0.0.1:9"), closed(1, 1))
    await until(lambda: not live.going)
    assert live.state == "failed"
    assert "127.0.0.1:9" in live.error
    await desk.close()


def generators() -> list[int]:
    """Load generators below this process."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            status = (entry / "stat").read_text()
        except OSError:
            continue
        parent = int(status.rpartition(")")[2].split()[1])
        if parent == os.getpid() and STUB.encode() in words:
            found.append(int(entry.name))
    return found
