"""What the room knows of the servers of a real host, while they start, serve, stop and die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from backends.errors import UsageError
from backends.servers.desk import ServerDesk
from backends.servers.roster import Roster
from backends.servers.view import ServerView, most_notable
from backends.storage.database import Database
from backends.storage.starts import SERVER_TABLES, StartHistory
from tests.servers_live.rooms import DEADLINE_S, QUICK, desk_of, profile_of, quick_profile
from tests.sshd import free_port

pytestmark = pytest.mark.real
NAME = f"quick-{os.getpid()}"


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Told:
    """What the roster said that must not be missed."""

    def __init__(self) -> None:
        self.ready: list[str] = []
        self.failed: list[str] = []


@contextlib.asynccontextmanager
async def roster_of(
    desk: ServerDesk, starts: StartHistory | None = None, told: Told | None = None
) -> AsyncIterator[Roster]:
    told = told or Told()
    roster = Roster(
        desk, starts,
        became_ready=lambda view: told.ready.append(view.name),
        failed=lambda view: told.failed.append(view.name),
    )  # fmt: skip
    task = asyncio.create_task(roster.run())
    try:
        await until(lambda: roster.listed)
        yield roster
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(test: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not test():  # noqa: ASYNC110 - the roster is polled, as by the screen
            await asyncio.sleep(0.05)


def seen(roster: Roster, key: str) -> ServerView:
    view = roster.view(key)
    assert view is not None
    return view


async def test_a_start_is_seen_through_written_down_and_stopped(tmp_path: Path) -> None:
    profile = quick_profile(NAME, "--delay", "0.5")
    told = Told()
    starts = StartHistory(Database(tmp_path / "history.db", [SERVER_TABLES]))
    with contextlib.closing(starts):
        async with desk_of(profile, starts=starts) as desk, roster_of(desk, starts, told) as roster:
            assert seen(roster, NAME).word == "stopped"
            assert seen(roster, NAME).can_start
            assert not await roster.check(NAME)
            before = roster.version
            await roster.start(NAME)
            assert roster.version > before
            assert not seen(roster, NAME).can_start
            await until(lambda: seen(roster, NAME).answers)
            view = seen(roster, NAME)
            assert view.can_stop
            assert view.members
            assert view.up_s is not None
            await until(lambda: told.ready)
            await until(lambda: seen(roster, NAME).earlier)
            assert seen(roster, NAME).earlier[0].outcome == "ready"
            result = await roster.stop(NAME)
            assert result.complete
            await until(lambda: seen(roster, NAME).word == "stopped")
            assert seen(roster, NAME).can_start
        assert told.failed == []


async def test_a_server_is_unknown_until_its_host_was_asked() -> None:
    async with desk_of(quick_profile(NAME)) as desk:
        assert seen(Roster(desk), NAME).word == "unknown"
        async with roster_of(desk) as roster:
            assert seen(roster, NAME).word == "stopped"


async def test_a_kill_from_outside_is_a_crash_that_is_told_once() -> None:
    profile = quick_profile(NAME)
    told = Told()
    async with desk_of(profile) as desk, roster_of(desk, told=told) as roster:
        run = await roster.start(NAME)
        await until(lambda: seen(roster, NAME).answers)
        assert run.pid is not None
        os.kill(run.pid, signal.SIGKILL)
        await until(lambda: told.failed)
        view = seen(roster, NAME)
        assert view.word == "crashed"
        assert view.failed
        assert view.can_start
        again = await roster.start(NAME)
        await until(lambda: seen(roster, NAME).answers)
        assert seen(roster, NAME).run == again
        await roster.stop(NAME)
        assert told.failed == [NAME]


async def test_what_ran_before_is_found_again_and_nobody_ends_it() -> None:
    profile = quick_profile(NAME)
    async with desk_of(profile) as desk:
        async with roster_of(desk) as roster:
            run = await roster.start(NAME)
            await until(lambda: seen(roster, NAME).answers)
        async with roster_of(desk) as roster:
            await until(lambda: seen(roster, NAME).answers)
            assert getattr(seen(roster, NAME).run, "run_id", "") == run.run_id
            await roster.stop(NAME)


async def test_a_stranger_is_found_and_stopped_but_not_started(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text(Path(QUICK).read_text())
    port = free_port()
    with subprocess.Popen([sys.executable, str(program), "--port", str(port)]) as child:
        try:
            async with desk_of() as desk:
                async with asyncio.timeout(DEADLINE_S):
                    while child.pid not in {run.pid for run in await desk.strangers()}:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                async with roster_of(desk) as roster:
                    key = next(v.key for v in roster.views() if v.run and v.run.pid == child.pid)
                    await until(lambda: seen(roster, key).found)
                    view = seen(roster, key)
                    assert (view.engine, view.port) == ("llamacpp", port)
                    assert view.profile is None
                    assert not view.can_start
                    assert view.can_stop
                    with pytest.raises(UsageError, match="found, not configured"):
                        await roster.start(key)
                    await roster.stop(key)
                    assert child.wait(10) is not None
                    await until(lambda: not seen(roster, key).lives)
        finally:
            child.kill()


async def test_a_stop_is_no_crash_for_whoever_looks_later_or_from_elsewhere() -> None:
    profile = quick_profile(NAME, "--deaf", stop_grace_s=0.3)
    told = Told()
    async with desk_of(profile) as desk:
        async with roster_of(desk) as roster, roster_of(desk, told=told) as other:
            await roster.start(NAME)
            await until(lambda: seen(other, NAME).answers)
            await roster.stop(NAME)
            await until(lambda: seen(other, NAME).found and not seen(other, NAME).lives)
            assert seen(other, NAME).word == "stopped"
            assert told.failed == []
        async with roster_of(desk) as roster:
            await until(lambda: seen(roster, NAME).found)
            view = seen(roster, NAME)
            assert (view.word, view.failed) == ("stopped", False)


async def test_one_thing_at_a_time() -> None:
    profile = quick_profile(NAME, "--deaf", stop_grace_s=1.0)
    async with desk_of(profile) as desk, roster_of(desk) as roster:
        await roster.start(NAME)
        await until(lambda: seen(roster, NAME).answers)
        stopping = asyncio.create_task(roster.stop(NAME))
        await until(lambda: seen(roster, NAME).word == "stopping")
        with pytest.raises(UsageError, match="stopping already"):
            await roster.stop(NAME)
        await stopping
        with pytest.raises(UsageError, match="no server 'other'"):
            await roster.start("other")


def view(name: str, **changes: object) -> ServerView:
    return ServerView(name, name, "gpu01", "sglang", **changes)  # type: ignore[arg-type]


def test_where_there_is_room_for_one_the_most_notable_is_shown() -> None:
    from backends.servers.lifecycle import Assessment, State
    from backends.servers.view import Doing

    def in_state(name: str, state: State) -> ServerView:
        return view(name, profile=profile_of(name), found=Assessment(name, state, "", 0.0))

    stopped, ready = in_state("a", State.STOPPED), in_state("b", State.READY)
    loading, crashed = in_state("c", State.LOADING), in_state("d", State.CRASHED)
    never = view("e", profile=profile_of("e"))
    assert most_notable([]) is None
    assert most_notable([never, stopped]) is stopped
    assert most_notable([never, stopped, ready]) is ready
    assert most_notable([ready, loading, stopped]) is loading
    assert most_notable([ready, crashed, loading]) is crashed
    old = view("x", found=Assessment("x", State.CRASHED, "", 0.0))
    assert most_notable([old, ready]) is ready
    busy = view("f", doing=Doing.STARTING)
    assert most_notable([crashed, busy]) is busy
