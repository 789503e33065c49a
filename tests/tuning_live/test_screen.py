"""The checklist on screen: a real agent on this machine, below a folder that looks like a host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from backends.config import Config, HostConfig
from backends.hub import RoomHub as RealHub
from backends.link.base import Prompter
from backends.tuning.gather import Reading
from backends.tuning.snapshot import Outcome
from screens.confirm import ConfirmScreen
from screens.tuning import TuningScreen
from tests.tuning_live.tree import Tree, make_host
from tests.ui.fakes import ready, screen_text
from tui.app import RoomApp
from tui.room import RoomHub
from tui.shell import Shell
from tui.themes import make_look

pytestmark = pytest.mark.real
SIZE = (120, 40)
BALANCING = "/proc/sys/kernel/numa_balancing"
HOST = HostConfig(name="gpu01", target="local")


class Maker:
    """Makes a real hub of one local host."""

    def prepare(self) -> None:
        """Nothing to import."""

    def __call__(self, prompter: Prompter) -> RoomHub:
        return RealHub([HOST], Config(), prompter)


async def until(pilot: Pilot[int], test: Callable[[], bool]) -> None:
    """Wait for a condition, for a minute at most."""
    for _ in range(1200):
        if test():
            return
        await pilot.pause(0.05)
    raise AssertionError(screen_text(pilot.app))


async def test_judged_marked_changed_and_taken_back(tmp_path: Path) -> None:
    tree: Tree = make_host(tmp_path / "root")
    app = RoomApp(Shell(make_look("dark", ascii_set=False), [HOST]), Maker())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        screen = TuningScreen(app.shell, Reading(root=str(tree.folder)))
        await app.push_screen(screen)
        await until(pilot, lambda: screen.judged is not None and not screen._busy)
        assert "kernel.numa_balancing = 1" in screen_text(app)
        keys = [str(key) for key in screen.list.keys()]  # noqa: SIM118
        screen.list.move_to(keys.index("numa.balancing"))
        await pilot.press("space")
        assert screen.list.marked == {"numa.balancing"}
        await pilot.press("F")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        assert f"write '0' to {BALANCING} (now '1')" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen and not screen._busy)
        assert tree.read(BALANCING) == b"1\n"
        await pilot.press("F")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(pilot, lambda: bool(screen.list.results) and not screen._busy)
        assert screen.list.results["numa.balancing"].outcome is Outcome.APPLIED
        assert tree.read(BALANCING) == b"0\n"
        assert "applied PASS: kernel.numa_balancing = 0" in screen_text(app)
        await pilot.press("u")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        assert f"put back {BALANCING}" in screen_text(app)
        await pilot.press("ctrl+y")
        await until(pilot, lambda: app.screen is screen and not screen._busy)
        assert tree.read(BALANCING) == b"1\n"
        await pilot.press("o")
        assert screen.list.choice == "open"
        while app.screen is screen:
            await pilot.press("escape")
            await pilot.pause()
        await until(pilot, lambda: "WARN" in screen_text(app))
        assert "numa.balancing" in screen_text(app), "the room's pane says the worst"
