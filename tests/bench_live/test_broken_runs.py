"""Runs over a real sshd that go wrong: what was measured stays, and nothing goes on over there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from backends.bench.agent_channel import AgentChannel
from backends.bench.place import Place, beside
from backends.bench.results import RunResult, RunStatus
from backends.bench.run_events import Event, RequestEnded
from backends.bench.runner import Run, prepare_run
from backends.bench.samples import read_records
from backends.errors import AgentError, NoSession
from backends.model import LinkState
from tests.bench.conftest import Scheduled, closed
from tests.bench_live.conftest import DEADLINE_S
from tests.bench_live.test_origins import room, until
from tests.sshd import SshLab, SshServer, ssh_lab

__all__ = ["ssh_lab"]
ENOUGH = 8
"""Requests that have succeeded before something happens."""


@dataclass
class Under:
    """A run that is under way, without an end of its own."""

    run: Run
    task: asyncio.Task[RunResult]
    server: SshServer
    scheduled: Scheduled

    def programs(self) -> list[int]:
        """The generator's processes on the host."""
        return [pid for pid in self.server.family() if _is_generator(pid)]

    async def result(self) -> RunResult:
        async with asyncio.timeout(DEADLINE_S):
            return await asyncio.shield(self.task)


def _is_generator(pid: int) -> bool:
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"-I" in words and any(b"zlib.decompress" in word for word in words)


@contextlib.asynccontextmanager
async def under_way(
    lab: SshLab, scheduled: Scheduled, folder: Path, *options: str
) -> AsyncIterator[Under]:
    """A run from the host, once some requests have succeeded."""
    server = lab.server(options=options)
    ended = 0

    def listen(event: Event) -> None:
        nonlocal ended
        ended += isinstance(event, RequestEnded)

    async with room(lab) as hub:
        session = hub.session("gpu01")
        await until(lambda: session.snapshot.sampled_s is not None)
        there: Place = beside(session, scheduled.endpoint(), "t", sys.executable)
        plan = closed(4, 1_000_000, tokens=20)
        prepared = await prepare_run(plan, there.endpoint, there.fetch, room=there.room)
        run = Run(prepared, there.generator, there.fetch, listener=listen, folder=folder)
        task = asyncio.create_task(run.execute())
        try:
            await until(lambda: ended >= ENOUGH or task.done())
            assert not task.done(), task.result().error
            yield Under(run, task, server, scheduled)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def gone(pids: list[int], scheduled: Scheduled) -> None:
    """Wait until no process of them and no request is left."""
    async with asyncio.timeout(DEADLINE_S):
        while any(_is_generator(pid) for pid in pids):  # noqa: ASYNC110 - others' processes
            await asyncio.sleep(0.05)
        while await asyncio.to_thread(scheduled.open):  # noqa: ASYNC110 - another process tells
            await asyncio.sleep(0.05)


def assert_kept(result: RunResult, folder: Path) -> None:
    assert sum(step.succeeded for step in result.steps) >= ENOUGH
    assert len(list(read_records(result.run_id, folder))) >= ENOUGH


def connections(server: SshServer) -> list[int]:
    """The processes of sshd itself, not what runs under them."""
    return [
        pid
        for pid in server.family()[1:]
        if Path("/proc", str(pid), "comm").read_text().startswith("sshd")
    ]


async def test_a_cut_link_keeps_what_came_and_the_generator_ends_by_itself(
    ssh_lab: SshLab, scheduled: Scheduled, tmp_path: Path
) -> None:
    async with under_way(ssh_lab, scheduled, tmp_path) as it:
        pids = it.programs()
        assert pids
        for pid in connections(it.server):
            os.kill(pid, signal.SIGKILL)
        result = await it.result()
        await gone(pids, scheduled)
    assert result.status is RunStatus.BROKEN
    assert "link to gpu01" in (result.error or "")
    assert_kept(result, tmp_path)


async def test_a_host_that_hangs_ends_the_run(
    ssh_lab: SshLab, scheduled: Scheduled, tmp_path: Path
) -> None:
    async with under_way(ssh_lab, scheduled, tmp_path) as it:
        it.server.freeze()
        try:
            result = await it.result()
        finally:
            it.server.thaw()
    assert result.status is RunStatus.BROKEN
    assert "gpu01" in (result.error or "")
    assert_kept(result, tmp_path)


async def test_a_killed_generator_is_said(
    ssh_lab: SshLab, scheduled: Scheduled, tmp_path: Path
) -> None:
    async with under_way(ssh_lab, scheduled, tmp_path) as it:
        pids = it.programs()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        result = await it.result()
        await gone(pids, scheduled)
    assert result.status is RunStatus.BROKEN
    assert "died" in (result.error or "")
    assert_kept(result, tmp_path)


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_ended_early_nothing_is_left(
    ssh_lab: SshLab, scheduled: Scheduled, tmp_path: Path, how: str
) -> None:
    async with under_way(ssh_lab, scheduled, tmp_path) as it:
        pids = it.programs()
        if how == "stop":
            it.run.stop()
            result = await it.result()
            assert (result.status, result.error) == (RunStatus.STOPPED, None)
            assert_kept(result, tmp_path)
        else:
            it.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await it.result()
            assert len(list(read_records(it.run.run_id, tmp_path))) >= ENOUGH
        await gone(pids, scheduled)


async def test_on_a_host_of_one_session_the_agent_starts_the_generator(
    ssh_lab: SshLab, scheduled: Scheduled
) -> None:
    ssh_lab.server(options=["MaxSessions 1"])
    async with room(ssh_lab) as hub:
        session = hub.session("gpu01")
        await until(lambda: session.snapshot.sampled_s is not None)
        there = beside(session, scheduled.endpoint(), "t", sys.executable)
        prepared = await prepare_run(closed(4, 40), there.endpoint, there.fetch, room=there.room)
        async with asyncio.timeout(DEADLINE_S):
            result = await Run(prepared, there.generator, there.fetch).execute()
        assert (result.status, result.error) == (RunStatus.COMPLETE, None)
        assert result.client.where == "host"
        assert result.steps[0].succeeded == 40
        # Once more, and stopped: neither generator nor request stays.
        plan = closed(4, 1_000_000)
        prepared = await prepare_run(plan, there.endpoint, there.fetch, room=there.room)
        ended: list[object] = []
        run = Run(
            prepared, beside(session, there.endpoint, "t", sys.executable).generator, there.fetch,
            listener=lambda event: ended.append(event) if isinstance(event, RequestEnded) else None,
        )  # fmt: skip
        task = asyncio.create_task(run.execute())
        await until(lambda: len(ended) >= ENOUGH)
        run.stop()
        async with asyncio.timeout(DEADLINE_S):
            result = await task
        assert result.status is RunStatus.STOPPED
        assert result.steps[0].succeeded >= ENOUGH
        await until(lambda: scheduled.open() == 0)
        assert session.snapshot.link.state is LinkState.LIVE


async def test_a_host_of_one_session_without_an_agent_says_what_to_change(
    ssh_lab: SshLab, scheduled: Scheduled, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_agent(*arguments: object, **named: object) -> NoReturn:
        raise AgentError("no agent", "")

    ssh_lab.server(options=["MaxSessions 1"])
    async with room(ssh_lab) as hub:
        session = hub.session("gpu01")
        await until(lambda: session.snapshot.sampled_s is not None)
        there = beside(session, scheduled.endpoint(), "t", sys.executable)
        prepared = await prepare_run(closed(1, 1), there.endpoint, there.fetch, room=there.room)
        monkeypatch.setattr(AgentChannel, "start", no_agent)
        with pytest.raises(NoSession, match="opens no session") as caught:
            async with asyncio.timeout(DEADLINE_S):
                await Run(prepared, there.generator, there.fetch).execute()
    assert "MaxSessions to 2" in caught.value.hint
    assert "--from jumpbox" in caught.value.hint


async def test_without_the_agent_the_run_goes_on(
    ssh_lab: SshLab, scheduled: Scheduled, tmp_path: Path
) -> None:
    async with under_way(ssh_lab, scheduled, tmp_path) as it:
        generators = it.programs()
        ours = set(connections(it.server))
        others = [pid for pid in it.server.family()[1:] if pid not in {*ours, *generators}]
        assert others
        for pid in others:
            if b"python" in Path("/proc", str(pid), "cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        before = len(list(read_records(it.run.run_id, tmp_path)))
        await until(
            lambda: (
                it.task.done()
                or len(list(read_records(it.run.run_id, tmp_path))) >= before + ENOUGH
            )
        )
        assert not it.task.done()
        it.run.stop()
        result = await it.result()
        await gone(generators, scheduled)
    assert result.status is RunStatus.STOPPED
    assert_kept(result, tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
async def test_no_room_for_the_samples_is_said_and_the_run_goes_on(
    ssh_lab: SshLab, scheduled: Scheduled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.bench.runner.record_file", lambda *_: Path("/dev/full"))
    async with under_way(ssh_lab, scheduled, tmp_path) as it:
        it.run.stop()
        result = await it.result()
    assert result.status is RunStatus.STOPPED
    assert sum(step.succeeded for step in result.steps) >= ENOUGH
    (finding,) = [finding for finding in result.findings if finding.key == "samples_lost"]
    assert "No space left" in finding.text
