"""The whole way, by keys: the room of this machine, a real llama.cpp, from start to stop."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from backends.config import Config, HostConfig
from screens.log import LogScreen
from screens.server import ServerScreen
from screens.server_keys import ServerKeys
from tests.servers_live.rooms import LLAMA, members_alive, quick_profile
from tests.servers_live.test_containers import FAKE
from tests.servers_real import tiny_gguf
from tests.sshd import free_port
from tests.ui.fakes import screen_text
from tui.app import RoomApp
from tui.hub_maker import HubFromConfig
from tui.shell import Shell
from tui.themes import make_look

pytestmark = pytest.mark.real
WAIT_S = 50.0
NAME = f"tiny-{os.getpid()}"
"""Of this run alone: what others start on this machine under a name would be found under it."""


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    yield
    for record in (tmp_path / "state").glob("gpuroom/servers/*/*/id.json"):
        for pid in members_alive(record.parent.name):  # what a failed test has left
            os.kill(pid, signal.SIGKILL)


def room_of(model: Path) -> RoomApp:
    port = free_port()
    command = [sys.executable, LLAMA, "--model", str(model), "--port", str(port)]
    table: dict[str, object] = {
        "name": NAME, "host": "here", "engine": "llamacpp", "command": command, "port": port,
    }  # fmt: skip
    return room_with(table)


def room_with(table: dict[str, object]) -> RoomApp:
    host = HostConfig(name="here", target="local", python=sys.executable)
    config = Config(hosts=(host,), servers=(table,))
    shell = Shell(make_look("dark", ascii_set=False), [host], config=config)
    return RoomApp(shell, HubFromConfig(config, [host]))


class Seen:
    """The room, waited for."""

    def __init__(self, pilot: Pilot[int]) -> None:
        self.pilot = pilot
        app = pilot.app
        assert isinstance(app, RoomApp)
        self.app = app

    async def until(self, test: Callable[[], object], what: str) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                while not test():
                    await self.pilot.pause(0.1)
        except TimeoutError:
            notes = [note.message for note in self.app._notifications]
            raise AssertionError(f"{what} never came:\n{screen_text(self.app)}\n{notes}") from None

    async def sees(self, words: str) -> None:
        await self.until(lambda: words in screen_text(self.app), words)

    async def listed(self) -> None:
        """Wait until the host has told its servers; others of this machine may be among them."""
        await self.until(
            lambda: (board := self.app.shell.servers) is not None and board.listed("here"),
            "the servers",
        )
        # The keys on the pane, the configured server is the first of what is there.
        await self.pilot.press("2")
        await self.sees(NAME)

    @property
    def word(self) -> str:
        """The state that the screen has taken in: its keys go by that and not by the board's."""
        screen = self.app.screen
        view = screen.chosen_server() if isinstance(screen, ServerKeys) else None
        return view.word if view is not None and view.name == NAME else ""

    @property
    def run_id(self) -> str:
        board = self.app.shell.servers
        assert board is not None
        view = board.view("here", NAME)
        assert view is not None
        assert view.run is not None
        return view.run.run_id


async def test_a_real_server_is_started_watched_read_and_stopped_by_keys(tmp_path: Path) -> None:
    app = room_of(tiny_gguf(tmp_path / "tiny.gguf"))
    async with app.run_test(size=(120, 40)) as pilot:
        room = Seen(pilot)
        await room.listed()
        await pilot.press("s")
        await room.sees(f"Start {NAME} on here")
        await room.sees("tiny.gguf")
        await pilot.press("ctrl+y")
        await room.until(lambda: room.word in ("ready", "serving"), "ready")
        await room.sees("● ready")
        run_id = room.run_id
        assert members_alive(run_id)
        await pilot.press("enter")
        await room.until(lambda: isinstance(app.screen, ServerScreen), "its screen")
        await room.sees("/health 200")
        await room.sees("started by")
        await pilot.press("l")
        await room.until(lambda: isinstance(app.screen, LogScreen), "its log")
        await room.sees("init: model loaded")
        await pilot.press("escape", "x")
        await room.sees(f"Stop {NAME} on here")
        await pilot.press("ctrl+y")
        await room.until(lambda: room.word == "stopped", "stopped")
        assert members_alive(run_id) == []
        await room.sees("stopped as asked")
        journal = app.shell.hub.journal if app.shell.hub is not None else ()
        changes = [(entry.what, entry.asked_by) for entry in journal if entry.changes_host]
        assert changes == [(f"start {NAME}", "servers.start"), (f"stop {NAME}", "servers.stop")]


async def test_a_restart_shows_both_ways_and_is_one_wish_in_the_journal(tmp_path: Path) -> None:
    inner = quick_profile(NAME)
    app = room_with({
        "name": NAME, "host": "here", "engine": "custom", "command": list(inner.command),
        "port": inner.port, "ready": {"path": "/health"},
    })  # fmt: skip
    async with app.run_test(size=(120, 40)) as pilot:
        room = Seen(pilot)
        await room.listed()
        await pilot.press("s")
        await room.sees(f"Start {NAME} on here")
        await pilot.press("ctrl+y")
        await room.until(lambda: room.word in ("ready", "serving"), "ready")
        before = room.run_id
        await pilot.press("R")
        await room.sees(f"Restart {NAME} on here")
        await room.sees("SIGTERM to pid")
        await room.sees("then, once nothing of it is left:")
        await pilot.press("ctrl+y")
        await room.until(lambda: room.run_id != before, "another run")
        await room.until(lambda: room.word in ("ready", "serving"), "ready again")
        assert members_alive(before) == []
        await pilot.press("x")
        await room.sees(f"Stop {NAME} on here")
        await pilot.press("ctrl+y")
        await room.until(lambda: room.word == "stopped", "stopped")
        journal = app.shell.hub.journal if app.shell.hub is not None else ()
        changes = [(entry.what, entry.asked_by) for entry in journal if entry.changes_host]
        assert changes == [
            (f"start {NAME}", "servers.start"),
            (f"stop {NAME}", "servers.restart"),
            (f"start {NAME}", "servers.restart"),
            (f"restart {NAME}", "servers.restart"),
            (f"stop {NAME}", "servers.stop"),
        ]


async def test_a_container_is_started_as_shown_and_its_log_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DOCKER", str(tmp_path))
    inner = quick_profile(NAME)
    command = ["docker", "run", "--network=host", "image", *inner.command]
    table: dict[str, object] = {
        "name": NAME, "host": "here", "engine": "custom", "command": command,
        "port": inner.port, "launcher": "docker", "unit": "box", "ready": {"path": "/health"},
    }  # fmt: skip
    app = room_with(table)
    async with app.run_test(size=(120, 40)) as pilot:
        room = Seen(pilot)
        await room.listed()
        await pilot.press("s")
        await room.sees("docker run --detach --name=box --network=host image")
        await room.sees("by docker, as container box")
        await pilot.press("ctrl+y")
        await room.until(lambda: room.word in ("ready", "serving"), "ready")
        row = re.compile(rf"{NAME} +● ready")
        await room.until(lambda: row.search(screen_text(app)), "ready on screen")
        await pilot.press("l")
        await room.until(lambda: isinstance(app.screen, LogScreen), "its log")
        await room.sees("listening")
        await pilot.press("escape", "x")
        await room.sees("docker stop --time=30 box")
        await pilot.press("ctrl+y")
        await room.until(lambda: room.word == "stopped", "stopped")


async def test_what_was_started_outlives_the_room_and_is_found_by_the_next(tmp_path: Path) -> None:
    model = tiny_gguf(tmp_path / "tiny.gguf")
    first = room_of(model)
    async with first.run_test(size=(80, 24)) as pilot:
        room = Seen(pilot)
        await room.listed()
        await pilot.press("s")
        await room.sees(f"Start {NAME} on here")
        await pilot.press("ctrl+y")
        await room.until(
            lambda: room.word not in ("", "stopped", "starting", "checking"), "a start"
        )
        run_id = room.run_id
    assert members_alive(run_id)
    async with room_of(model).run_test(size=(80, 24)) as pilot:
        room = Seen(pilot)
        await room.listed()
        await room.until(lambda: room.word in ("ready", "serving"), "ready")
        assert room.run_id == run_id
        row = re.compile(rf"{NAME} +● ready")
        await room.until(lambda: row.search(screen_text(room.app)), "ready on screen")
        await pilot.press("x")
        await room.sees(f"Stop {NAME} on here")
        await pilot.press("ctrl+y")
        await room.until(lambda: room.word == "stopped", "stopped")
    assert members_alive(run_id) == []


async def test_a_broken_model_is_a_crash_with_words_to_act_on(tmp_path: Path) -> None:
    model = tmp_path / "broken.gguf"
    model.write_bytes(b"GGUF" + bytes(64))
    app = room_of(model)
    async with app.run_test(size=(120, 40)) as pilot:
        room = Seen(pilot)
        await room.listed()
        await pilot.press("s")
        await room.sees(f"Start {NAME} on here")
        await pilot.press("ctrl+y")
        await room.until(lambda: room.word == "crashed", "the crash")
        await pilot.press("enter")
        await room.sees("what failed")
        await room.sees("try:")
