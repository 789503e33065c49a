"""The demo host's servers: started, watched and stopped by the real agent; the cards follow."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from backends.agent.remote import ports
from backends.config import Config, HostConfig
from backends.hub import RoomHub
from backends.servers.board import ServerBoard
from backends.servers.catalogue import load_catalogue
from backends.servers.configuration import Standing
from backends.servers.configured import profiles_of
from backends.servers.desk import ServerDesk
from backends.servers.view import ServerView
from backends.session import HostSession
from backends.sim.profiles import SERVER, port_of
from backends.storage.database import Database
from backends.storage.starts import SERVER_TABLES, StartHistory
from backends.tuning.gather import reached

pytestmark = pytest.mark.real
WAIT_S = 90.0
MORE = f"{SERVER}-more-kv"


class Demo:
    """A demo host and its board."""

    def __init__(self, session: HostSession, board: ServerBoard) -> None:
        self.session = session
        self.board = board

    def view(self, key: str = SERVER) -> ServerView:
        view = self.board.view("demo", key)
        assert view is not None
        return view

    @property
    def used_gib(self) -> float:
        used = [gpu.readings.memory_used_bytes or 0 for gpu in self.session.snapshot.gpus]
        return sum(used) / 2**30

    async def until(self, test: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not test():  # noqa: ASYNC110 - the board is polled, as by the screen
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def demo(tmp_path: Path, scenario: str) -> AsyncIterator[Demo]:
    host = HostConfig(name="demo", target=f"demo:{scenario}")
    starts = StartHistory(Database(tmp_path / "history.db", [SERVER_TABLES]))
    board = ServerBoard(lambda name: profiles_of(Config(), host), open_starts=lambda: starts)
    async with RoomHub([host], Config()) as hub:
        session = hub.sessions[0]
        board.look_at(session)
        found = Demo(session, board)
        try:
            await found.until(lambda: board.listed("demo"))
            yield found
        finally:
            await board.close()


async def test_a_server_runs_from_the_start_and_gives_the_cards_back(tmp_path: Path) -> None:
    async with demo(tmp_path, "healthy") as here:
        await here.until(lambda: here.view().answers)
        view = here.view()
        assert view.run is not None
        assert (view.run.by, view.run.origin) == ("anna", "jumpbox")
        assert view.up_s is not None
        assert view.up_s > 3600
        await here.until(lambda: here.used_gib > 600)
        await here.until(lambda: here.view().configuration)
        unasked = {c.name for c in here.view().configuration if c.standing is Standing.UNASKED}
        assert "ep_size" in unasked
        assert (await here.board.roster("demo").stop(SERVER)).complete
        await here.until(lambda: here.view().word == "stopped")
        await here.until(lambda: here.used_gib < 8)


async def test_a_start_is_seen_from_phase_to_phase_while_the_cards_fill(tmp_path: Path) -> None:
    async with demo(tmp_path, "idle") as here:
        assert here.view().word == "stopped"
        assert not await here.board.roster("demo").check(SERVER)
        await here.board.roster("demo").start(SERVER)
        phases, shares, filled = [], [], []

        def ready() -> bool:
            found = here.view().found
            if found is not None and found.phase is not None and here.view().starts:
                phases.append(found.phase.value)
                if found.progress is not None and found.progress.fraction is not None:
                    shares.append(found.progress.fraction)
                filled.append(here.used_gib)
            return here.view().answers

        await here.until(ready)
        seen = list(dict.fromkeys(phases))
        assert seen[:3] == ["launching", "distributed", "loading-weights"]
        assert "capturing-graphs" in seen
        assert any(0.2 < share < 0.8 for share in shares)
        assert any(20 < gib < 400 for gib in filled)
        took = {phase.phase.value: phase.took_s for phase in here.view().phases}
        assert (took["loading-weights"] or 0) > 3
        await here.until(lambda: here.view().earlier)
        assert here.view().earlier[0].outcome == "ready"


async def test_too_much_memory_is_a_crash_with_its_cause(tmp_path: Path) -> None:
    async with demo(tmp_path, "idle") as here:
        await here.board.roster("demo").start(MORE)
        await here.until(lambda: here.view(MORE).word == "crashed")

        def cause() -> str | None:
            found = here.view(MORE).found
            return found.cause if found is not None else None

        await here.until(lambda: cause() == "cuda-oom-late")
        verdict = here.view(MORE).verdict
        assert verdict is not None
        assert verdict.remedies
        await here.until(lambda: here.used_gib < 8)


async def test_nothing_of_the_demo_is_left(tmp_path: Path) -> None:
    async with demo(tmp_path, "healthy") as here:
        await here.until(lambda: here.view().answers)

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port_of("demo"))) == 0

    async with asyncio.timeout(WAIT_S):
        while answers():  # noqa: ASYNC110 - a killed process takes a moment
            await asyncio.sleep(0.05)


RESERVE = """
import sys
from backends.sim.profiles import port_of
print(port_of("demo"), flush=True)
sys.stdin.read()
"""


def test_demos_that_begin_in_the_same_moment_have_ports_of_their_own() -> None:
    demos = [
        subprocess.Popen(
            [sys.executable, "-c", RESERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2], text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    try:
        reserved = [int(each.stdout.readline()) for each in demos if each.stdout is not None]
        assert len(set(reserved)) == len(demos)
        for port in reserved:
            assert ports.owner(port)["free"], "the check before a start must not find it taken"
            with http.server.HTTPServer(("127.0.0.1", port), http.server.BaseHTTPRequestHandler):
                assert ports.owner(port)["owners"][0]["pid"] == os.getpid()
    finally:
        for each in demos:
            each.communicate()


async def test_the_demos_servers_are_none_of_this_machines(tmp_path: Path) -> None:
    async with demo(tmp_path, "healthy") as found:
        await found.until(lambda: found.board.listed("demo") and found.view().run)
        run = found.view().run
        assert run is not None
        assert [view.name for view in found.board.views("demo") if view.run is not None] == [SERVER]
        here = HostConfig(name="here", target="local", python=sys.executable)
        async with RoomHub([here], Config()) as hub:
            await reached(hub.sessions[0], WAIT_S)
            runs = await ServerDesk(hub.sessions[0], [], load_catalogue()).runs()
        assert run.pid not in [other.pid for other in runs]
        assert run.run_id not in [other.run_id for other in runs if other.by == run.by]
