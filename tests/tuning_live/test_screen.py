"""The checklist on screen: a real agent on this machine, below a folder that looks like a host."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TypeAlias

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot
from textual.widgets import Input

from backends.config import Config, HostConfig
from backends.hub import RoomHub as RealHub
from backends.link.base import Prompter
from backends.storage.tuning_tables import TuningHistory
from backends.tuning import desk as desks
from backends.tuning.changed import RootNeeded
from backends.tuning.desk import Desk
from backends.tuning.gather import Reading
from backends.tuning.measurements import experiment
from backends.tuning.measurements.desk import Wishes
from backends.tuning.measurements.parts import chosen
from backends.tuning.measurements.run import Measured
from backends.tuning.snapshot import Outcome, decode_results, encode
from screens.auth import AuthScreen
from screens.confirm import ConfirmScreen
from screens.finding import FindingScreen
from screens.own_files import OwnFilesScreen
from screens.tuning import TuningScreen
from screens.tuning_list import FELL_BACK
from tests.measure.conftest import FakeGpus
from tests.tuning_live.tree import BOOT_B, Tree, make_host
from tests.ui.fakes import ready, screen_text
from tui.app import RoomApp
from tui.room import RoomHub
from tui.shell import Shell
from tui.themes import make_look

pytestmark = pytest.mark.real
SIZE = (120, 40)
FRAMED = re.compile("│(.*)│")
Told: TypeAlias = Callable[[str], None]
BALANCING = "/proc/sys/kernel/numa_balancing"
SYSCTL = "/etc/sysctl.d/90-gpuroom.conf"
HOST = HostConfig(name="gpu01", target="local")


class Maker:
    """Makes a real hub of one local host."""

    def __init__(self, host: HostConfig = HOST) -> None:
        self.host = host

    def prepare(self) -> None:
        """Nothing to import."""

    def __call__(self, prompter: Prompter) -> RoomHub:
        return RealHub([self.host], Config(), prompter)


def words_of(text: str) -> str:
    """The words of a dialog, without its frame and what still shows beside it."""
    inside = (FRAMED.search(line) for line in text.splitlines())
    return " ".join(" ".join(found[1] for found in inside if found).split()) or text


async def until(pilot: Pilot[int], test: Callable[[], bool]) -> None:
    """Wait for a condition, for a minute at most."""
    for _ in range(1200):
        if test():
            return
        await pilot.pause(0.05)
    raise AssertionError(screen_text(pilot.app))


class Opened:
    """The checklist of a host that was judged once."""

    def __init__(self, pilot: Pilot[int], app: RoomApp, screen: TuningScreen) -> None:
        self.pilot, self.app, self.screen = pilot, app, screen

    async def still(self) -> None:
        """Wait till nothing is at work."""
        await until(self.pilot, lambda: self.app.screen is self.screen and not self.screen.busy)

    async def go_to(self, check: str) -> None:
        """Put the cursor on a finding."""
        self.screen.list.move_to([str(key) for key in self.screen.list.keys()].index(check))  # noqa: SIM118
        await self.pilot.pause()

    async def asked(self) -> ConfirmScreen:
        """Wait for the question."""
        await until(
            self.pilot,
            lambda: (
                isinstance(self.app.screen, ConfirmScreen) and "Esc leaves" in words_of(self.text)
            ),
        )
        assert isinstance(self.app.screen, ConfirmScreen)
        return self.app.screen

    async def sees(self, words: str) -> None:
        """Wait for words: what stands in a dialog is laid out a while after its frame."""
        await until(self.pilot, lambda: words in self.text)

    async def yes(self) -> None:
        """Say yes, and wait for the end."""
        await self.asked()
        await self.pilot.press("ctrl+y")
        await self.still()

    def outcomes(self) -> dict[str, Outcome]:
        return {r.check: r.outcome for r in self.screen.results.results}

    @property
    def notices(self) -> str:
        """What was said in passing."""
        return "\n".join(notice.message for notice in self.app._notifications)

    @property
    def text(self) -> str:
        return screen_text(self.app)


@asynccontextmanager
async def checklist(  # type: ignore[no-untyped-def]
    tree: Tree,
    host: HostConfig = HOST,
    size: tuple[int, int] = SIZE,
    config: Config | None = None,
    judged: bool = True,
):
    """Open it and wait for the first run, where one is to be had."""
    shell = Shell(make_look("dark", ascii_set=False), [host], config=config or Config())
    app = RoomApp(shell, Maker(host))
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        screen = TuningScreen(app.shell, Reading(root=str(tree.folder)))
        await app.push_screen(screen)
        await until(pilot, lambda: (screen.judged is not None and not screen.busy) or not judged)
        yield Opened(pilot, app, screen)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_host(tmp_path / "root")


async def test_judged_marked_changed_and_taken_back(tree: Tree) -> None:
    async with checklist(tree) as on:
        assert "kernel.numa_balancing = 1" in on.text
        await on.go_to("numa.balancing")
        await on.pilot.press("space")
        assert on.screen.list.marked == {"numa.balancing"}
        await on.pilot.press("f")
        await on.asked()
        assert f"write '0' to {BALANCING} (now '1')" in on.text
        await on.pilot.press("escape")
        await on.still()
        assert tree.read(BALANCING) == b"1\n"
        await on.pilot.press("F")
        await on.yes()
        assert on.outcomes() == {"numa.balancing": Outcome.APPLIED}
        assert tree.read(BALANCING) == b"0\n"
        assert "PASS: kernel.numa_balancing = 0" in on.text
        assert "1 applied" in on.text
        # As if gpuroom had been killed in the middle of it: the next look offers the way back.
        with closing(TuningHistory.at_home()) as history:
            (made,) = history.snapshots("gpu01")
            begun = [replace(r, outcome=Outcome.BEGUN) for r in decode_results(made.results)]
            history.set_results(made.snapshot_id, encode(tuple(begun)))
        await on.pilot.press("r")
        words = "it was cut, or is still at work: numa.balancing was begun; u takes it back"
        await until(on.pilot, lambda: words in on.notices)
        await on.still()
        await on.pilot.press("u")
        await on.asked()
        assert f"put back '1' into {BALANCING} on gpu01" in on.text
        await on.yes()
        assert tree.read(BALANCING) == b"1\n"
        assert "as before, read again" in on.text
        assert "1 put back" in on.text
        await on.pilot.press("f")
        await until(on.pilot, lambda: "Esc leads back to the checklist" in on.notices)
        await on.pilot.press("escape")
        assert not on.screen.results.display
        await on.pilot.press("o")
        assert on.screen.list.choice == "open"
        while on.app.screen is on.screen:
            await on.pilot.press("escape")
            await on.pilot.pause()
        await until(on.pilot, lambda: "WARN" in on.text)
        assert "numa.balancing" in on.text, "the room's pane says the worst"


async def test_the_form_is_chosen_and_shown_as_differences(tree: Tree) -> None:
    async with checklist(tree) as on:
        await on.go_to("numa.balancing")
        await on.pilot.press("w")
        await on.pilot.press("f")
        await on.asked()
        assert "(persistent)" in on.text
        assert "+kernel.numa_balancing = 0" in on.text
        assert f"write '0' to {BALANCING}" not in on.text
        await on.pilot.press("escape")
        await on.still()
        await on.pilot.press("w")
        await on.pilot.press("f")
        await on.asked()
        assert "(both)" in on.text
        assert f"write '0' to {BALANCING}" in on.text
        assert f"new file {SYSCTL}" in on.text
        await on.yes()
        assert b"kernel.numa_balancing = 0" in tree.read(SYSCTL)
        assert tree.read(BALANCING) == b"0\n"
        # What lasts is listed, and removed by keys alone.
        await on.pilot.press("escape")
        await on.pilot.press("e")
        await until(on.pilot, lambda: isinstance(on.app.screen, OwnFilesScreen))
        await on.pilot.pause()
        assert "kernel.numa_balancing = 0" in on.text
        await on.pilot.press("space")
        await on.pilot.press("x")
        await on.asked()
        assert f"remove {SYSCTL}" in on.text
        await on.yes()
        assert not tree.at(SYSCTL).exists()
        assert tree.read(BALANCING) == b"0\n", "the running value stays till the next boot"


async def test_each_fix_is_watched_and_one_that_is_refused_stops_no_other(tree: Tree) -> None:
    seen: list[list[tuple[str, Outcome]]] = []
    async with checklist(tree) as on:
        put = on.screen.results.put

        def watched(result) -> None:  # type: ignore[no-untyped-def]
            put(result)
            seen.append([(r.check, r.outcome) for r in on.screen.results.results])

        on.screen.results.put = watched
        for check in ("numa.balancing", "numa.zone_reclaim", "cpu.governor"):
            await on.go_to(check)
            await on.pilot.press("space")
        await on.pilot.press("f")
        await on.asked()
        tree.put("/proc/sys/vm/zone_reclaim_mode", "7\n")  # somebody else is at it
        await on.yes()
        assert [row[-1][1] for row in seen].count(Outcome.BEGUN) == 3
        assert on.outcomes()["numa.zone_reclaim"] is Outcome.REFUSED
        assert on.outcomes()["numa.balancing"] is Outcome.APPLIED
        assert "2 applied" in on.text
        assert "1 refused" in on.text


async def test_enter_shows_all_of_a_finding(tree: Tree) -> None:
    async with checklist(tree) as on:
        await on.go_to("numa.balancing")
        await on.pilot.press("enter")
        await until(on.pilot, lambda: isinstance(on.app.screen, FindingScreen))
        await on.pilot.pause()
        for word in (
            "should be", "running", "configured", "effective", "https://", "way back",
            f"{BALANCING} = 1", "at once", "to last",
        ):  # fmt: skip
            assert word in on.text, word
        await on.pilot.press("f")
        await on.yes()
        assert tree.read(BALANCING) == b"0\n", "f puts it right from there, too"


async def test_filter_and_groups(tree: Tree) -> None:
    async with checklist(tree) as on:
        await on.pilot.press("slash", *"governor", "enter")
        assert [str(key) for key in on.screen.list.keys()] == ["cpu.governor"]  # noqa: SIM118
        await on.pilot.press("escape")
        await on.pilot.press("v")
        keys = [str(key) for key in on.screen.list.keys()]  # noqa: SIM118
        assert keys[0] == "group cpu"
        assert "CPU frequency and power" in on.text
        on.screen.list.move_to(0)
        await on.pilot.press("enter")
        folded = [str(key) for key in on.screen.list.keys()]  # noqa: SIM118
        assert len(folded) < len(keys)
        assert not any(key.startswith("cpu.") for key in folded)


async def test_after_a_boot_what_fell_back_is_shown_by_itself(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with checklist(tree) as on:
        await on.go_to("numa.balancing")
        await on.pilot.press("f")
        await on.yes()
        await on.pilot.press("escape")
        tree.boot(BOOT_B)
        # The agent here is of this machine, which was not booted: play that it says another id.
        on.screen._boot = "of the boot before"
        await until(on.pilot, lambda: on.screen.list.choice == FELL_BACK)
        await on.still()
        assert "was PASS" in on.text
        assert [str(key) for key in on.screen.list.keys()] == ["numa.balancing"]  # noqa: SIM118
        await on.pilot.press("f")
        await on.yes()
        assert tree.read(BALANCING) == b"0\n", "and is put right again from there"


async def test_nothing_is_applied_under_another_boot(tree: Tree) -> None:
    async with checklist(tree) as on:
        await on.go_to("numa.balancing")
        await on.pilot.press("f")
        await on.asked()
        tree.boot(BOOT_B)
        await on.yes()
        assert on.outcomes() == {"numa.balancing": Outcome.REFUSED}
        assert "another boot" in on.text
        assert tree.read(BALANCING) == b"1\n"


async def test_a_production_host_is_looked_at_unlocked_and_named(tree: Tree) -> None:
    host = HostConfig(name="gpu01", target="local", production=True)
    async with checklist(tree, host) as on:
        await on.go_to("numa.balancing")
        await on.pilot.press("f")
        dialog = await on.asked()
        assert "read-only: U unlocks it" in on.text
        await on.pilot.press("ctrl+y")
        await on.pilot.pause()
        assert on.app.screen is dialog, "there is no yes on a locked host"
        await on.pilot.press("escape")
        await on.still()
        session = on.app.shell.session()
        session.unlock()
        await on.pilot.press("f")
        await on.asked()
        await on.pilot.press("ctrl+y")
        await on.pilot.press(*"gpu02", "enter")
        await on.pilot.pause()
        assert isinstance(on.app.screen, ConfirmScreen), "only the name in full counts"
        assert tree.read(BALANCING) == b"1\n"
        on.app.screen.query_one(Input).value = ""
        await on.pilot.press(*"gpu01", "enter")
        await on.still()
        assert on.outcomes() == {"numa.balancing": Outcome.APPLIED}


async def test_a_password_is_asked_once_and_kept_in_memory_alone(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sudo wants one at the first try; it is not asked for again, and no store has it."""
    given: list[str | None] = []
    real = desks.prepare.prepare_tasks

    async def wants_password(*arguments, reading, **more):  # type: ignore[no-untyped-def]
        given.append(reading.password)
        if reading.password != "open sesame":
            raise RootNeeded("not allowed as root on gpu01", "sudo: a password is required")
        return await real(*arguments, reading=reading, **more)

    monkeypatch.setattr("backends.tuning.prepare.prepare_tasks", wants_password)
    async with checklist(tree) as on:
        await on.go_to("numa.balancing")
        await on.pilot.press("f")
        await until(on.pilot, lambda: isinstance(on.app.screen, AuthScreen))
        assert "held in memory" in on.text
        await on.pilot.press(*"guess", "enter")
        await until(on.pilot, lambda: "Try 2" in on.text)
        await on.pilot.press(*"open", "space", *"sesame", "enter")
        await on.asked()
        await on.pilot.press("escape")
        await on.still()
        await on.pilot.press("f")
        await on.yes()
        assert given == [None, "guess", "open sesame", "open sesame"]
        assert "open sesame" not in repr(on.app.shell)
        assert "open sesame" not in "".join(e.request for e in on.app.shell.journal)
        await asyncio.sleep(0)


async def test_m_measures_what_the_finding_under_the_cursor_asks_for(tree: Tree) -> None:
    async with checklist(tree) as on:
        on.screen.list.choose("all")
        await on.go_to("cpu.cstates")
        await on.pilot.press("m")
        await on.asked()
        assert "wakeup: wake-up latency of a CPU" in on.text
        await on.yes()
        assert on.screen.judged is not None
        facts = on.screen.judged.gathered.document.facts
        assert any(fact.key.startswith("bench/wakeup") for fact in facts)


async def test_x_tries_a_fix_and_takes_it_back(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpus").mkdir()
    gpus = FakeGpus(tmp_path / "gpus")
    gpus.set(copy_by=str(tree.at(BALANCING)), copy_gb_s={"1": 41.0, "0": 53.0})
    asked = experiment.ask

    async def ask(desk: Desk, parts: object, wishes: object, told: Told) -> Measured:
        """As the screen asks, of GPUs whose copies take no time."""
        return await asked(desk, chosen(["copies"]), Wishes(python=gpus.python), told)

    monkeypatch.setattr(experiment, "ask", ask)
    async with checklist(tree) as on:
        await on.go_to("numa.balancing")
        await on.pilot.press("x")
        await on.asked()
        await on.sees("measure again")
        await on.sees(f"write '0' to {BALANCING}")
        await on.pilot.press("ctrl+y")
        await on.sees("What numa.balancing did")
        await on.sees("Taken back: applied")
        await on.sees("host to GPU 0 better (+29")
        assert tree.read(BALANCING) == b"1\n"
        await on.pilot.press("escape")
        await on.still()
