"""On the checklist by keys: profiles, waivers, own checks, and what a reboot will change."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.config import Config, HostConfig, TuningConfig
from backends.tuning import waivers
from backends.tuning.profiles import load
from screens.waiver import WaiverScreen
from tests.tuning_live.test_screen import BALANCING, Opened, checklist, until, words_of
from tests.tuning_live.tree import Tree, make_host
from tui.cli.main import main

pytestmark = pytest.mark.real
OWN = f"""
[[checks]]
id = "site.map_count"
title = "Room for mappings as agreed"
reads = "/proc/sys/vm/max_map_count"
minimum = 500000
why = "The storage client maps every shard."
fix = {{ write = "500000" }}

[[checks]]
id = "site.pools"
title = "Pools as agreed"
reads = "{BALANCING}"
equals = "1"
why = "An agreement of the site."
"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_host(tmp_path / "root")


def config_with(*files: Path) -> Config:
    return Config(tuning=TuningConfig(checks=tuple(map(str, files))))


async def waiver_form(on: Opened) -> None:
    await on.pilot.press("W")
    words = "Why, and who agreed"
    await until(on.pilot, lambda: isinstance(on.app.screen, WaiverScreen) and words in on.text)


async def test_own_checks_are_judged_marked_and_mended(tree: Tree, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(OWN)
    async with checklist(tree, config=config_with(own)) as on:
        await on.go_to("site.map_count")
        assert "(own)" in on.text
        await on.pilot.press("f")
        await on.asked()
        assert "write '500000' to /proc/sys/vm/max_map_count" in on.text
        await on.yes()
        assert tree.read("/proc/sys/vm/max_map_count") == b"500000\n"
        findings = {f.check: f for f in on.screen.judged.findings}
        assert findings["site.map_count"].verdict.value == "PASS"
        assert findings["site.pools"].verdict.value == "PASS"


async def test_a_file_that_cannot_be_used_is_said_with_its_place(
    tree: Tree, tmp_path: Path
) -> None:
    own = tmp_path / "own.toml"
    own.write_text(OWN.replace("minimum = 500000\n", ""))
    async with checklist(tree, config=config_with(own), judged=False) as on:
        await until(on.pilot, lambda: "does not say what the value must be" in on.text)
        assert "own.toml:3" in on.screen.list.message


async def test_p_judges_by_another_profile(tree: Tree) -> None:
    host = HostConfig(name="gpu01", target="local", tuning=TuningConfig(profile="throughput"))
    async with checklist(tree, host) as on:
        assert "profile: throughput" in on.text
        read = on.screen.judged.gathered
        await on.pilot.press("P")
        await on.still()
        assert "profile: default" in on.text
        assert load("default").description in on.notices
        await on.pilot.press("P")
        await on.still()
        assert "profile: latency" in on.text
        assert on.screen.judged.gathered is read, "nothing is read again"
        await on.pilot.press("r")
        await on.still()
        assert "profile: latency" in on.text, "and holds for the next reading"


async def test_w_accepts_with_reason_and_end_and_takes_it_away(tree: Tree) -> None:
    async with checklist(tree) as on:
        await on.go_to("numa.balancing")
        await waiver_form(on)
        assert "Accept numa.balancing on gpu01" in on.text
        await on.pilot.press("enter", "enter")
        await on.pilot.pause()
        await until(on.pilot, lambda: "needs a reason" in on.text)
        on.app.screen.query_one("#reason").focus()
        await on.pilot.press(*"one", "space", *"tenant", "enter")
        day = on.app.screen.query_one("#until")
        day.value = "2001-01-01"
        await on.pilot.press("enter")
        await on.pilot.pause()
        await until(on.pilot, lambda: "is past" in on.text)
        day.value = "2099-01-31"
        await on.pilot.press("enter")
        await on.still()
        assert "numa.balancing" not in [str(key) for key in on.screen.list.keys()]  # noqa: SIM118
        assert "1 waived" in on.text
        (kept,) = waivers.load()
        assert (kept.host, kept.check, kept.reason) == ("gpu01", "numa.balancing", "one tenant")
        on.screen.list.choose("waived")
        await on.pilot.pause()
        assert [str(key) for key in on.screen.list.keys()] == ["numa.balancing"]  # noqa: SIM118
        await on.pilot.press("enter")
        await until(on.pilot, lambda: "one tenant (until 2099-01-31" in on.text)
        await on.pilot.press("escape")
        await on.still()
        await waiver_form(on)
        assert "An empty reason takes it away" in words_of(on.text)
        on.app.screen.query_one("#reason").value = ""
        await on.pilot.press("enter")
        await on.still()
        assert waivers.load() == ()
        on.screen.list.choose("wrong")
        await on.go_to("numa.balancing")


async def test_what_is_waived_by_a_file_is_changed_there(tree: Tree, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[[waivers]]\ncheck = "numa.balancing"\nreason = "ours"\nuntil = 2099-01-31\n')
    async with checklist(tree, config=config_with(own)) as on:
        on.screen.list.choose("waived")
        await on.go_to("numa.balancing")
        await on.pilot.press("W")
        await on.still()
        assert "waived in a file" in on.notices


async def test_b_says_what_a_reboot_will_change(tree: Tree) -> None:
    tree.put(BALANCING, "0\n")
    tree.put("/etc/sysctl.d/10-site.conf", "vm.overcommit_memory = 0\n")
    async with checklist(tree, size=(80, 24)) as on:
        await on.pilot.press("B")
        await on.asked()
        words = words_of(on.text)
        assert "What a reboot of gpu01 will change" in words
        assert "major of nvidia-uvm: 509 -> given out anew (may)" in words
        assert "kernel.numa_balancing: 0 -> 1" in words
        assert "Nothing is rebooted here" in words
        await on.pilot.press("ctrl+y")
        await on.pilot.press("escape")
        await on.still()


def test_and_so_does_the_command(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.put(BALANCING, "0\n")
    tree.put("/etc/sysctl.d/10-site.conf", "vm.overcommit_memory = 0\n")
    assert main(["tuning", "local", "reboot-preview", "--root", str(tree.folder)]) == 0
    assert "kernel.numa_balancing: 0 -> 1" in capsys.readouterr().out
