"""The link is cut during a start that the room watches: what it shows meanwhile, and afterwards."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from backends.config import Config, HostConfig
from tests.servers_live.rooms import Play, members_alive
from tests.servers_room.test_live import NAME, Seen, own_places
from tests.sshd import SshLab, ssh_lab
from tests.ui.fakes import screen_text
from tui.app import RoomApp
from tui.hub_maker import HubFromConfig
from tui.shell import Shell
from tui.themes import make_look

__all__ = ["own_places", "ssh_lab"]
pytestmark = pytest.mark.real


async def test_a_start_is_lost_with_the_link_and_found_ready_when_it_is_back(
    ssh_lab: SshLab, tmp_path: Path
) -> None:
    server = ssh_lab.server("gpu01")
    play = Play(tmp_path)
    play.now(say=["one"], answers={"/health": 503})
    table: dict[str, object] = {
        "name": NAME, "host": "here", "engine": "custom", "port": play.port,
        "command": list(play.profile("custom").command), "ready": {"path": "/health"},
        "stop_grace_s": 3,
    }  # fmt: skip
    host = HostConfig(name="here", target="gpu01", python=sys.executable)
    config = Config(hosts=(host,), servers=(table,), ssh=ssh_lab.settings())
    shell = Shell(make_look("dark", ascii_set=False), [host], config=config)
    app = RoomApp(shell, HubFromConfig(config, [host]))
    async with app.run_test(size=(120, 40)) as pilot:
        room = Seen(pilot)
        await room.listed()
        await pilot.press("s")
        await room.sees(f"Start {NAME} on here")
        await pilot.press("ctrl+y")
        await room.until(lambda: room.word == "loading", "the start")
        run_id = room.run_id
        server.cut_sessions()
        await room.until(lambda: room.word == "lost", "the loss")
        await room.sees("the host is out of reach")
        assert members_alive(run_id), "the server goes on"
        play.now(answers={"/health": 200})
        await room.until(lambda: room.word in ("ready", "serving"), "ready")
        await room.until(lambda: f"{NAME} " in screen_text(app) and "● ready" in screen_text(app),
                         "ready on screen")  # fmt: skip
        assert room.run_id == run_id
        await pilot.press("x")
        await room.sees(f"Stop {NAME} on here")
        await pilot.press("ctrl+y")
        await room.until(lambda: room.word == "stopped", "stopped")
    assert members_alive(run_id) == []
