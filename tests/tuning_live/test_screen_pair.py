"""A guest and its hypervisor by keys alone: both behind a real sshd, on a terminal of 80x24."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from backends.config import Config, HostConfig, with_hypervisors
from backends.tuning.findings import Verdict
from backends.tuning.gather import Reading
from backends.tuning.snapshot import Outcome
from screens.finding import FindingScreen
from screens.tuning import TuningScreen
from tests.sshd import SshLab
from tests.tuning_live.test_pair import CONF, GUEST, OLD_CONF, PVE, guest
from tests.tuning_live.test_screen import Opened, until, words_of
from tests.tuning_live.tree import Tree, make_host
from tests.ui.fakes import ready
from tui.app import RoomApp
from tui.hub_maker import HubFromConfig
from tui.shell import Shell
from tui.themes import make_look

__all__ = ["guest"]
pytestmark = pytest.mark.real
MAJORS = "virt.lxc_majors"


@asynccontextmanager
async def pair(
    ssh_lab: SshLab, guest: Tree, below: Tree, *configured: HostConfig
) -> AsyncIterator[Opened]:
    """The checklist of the guest, as `gpuroom vllm` opens it: its hypervisor comes along."""
    for name in ("vllm", "pve"):
        ssh_lab.server(name)
    config = Config(hosts=configured, ssh=ssh_lab.settings())
    hosts = with_hypervisors(config, configured[:1])
    shell = Shell(make_look("dark", ascii_set=False), hosts, config=config)
    app = RoomApp(shell, HubFromConfig(config, hosts))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        reading = Reading(root=str(guest.folder), below=str(below.folder))
        screen = TuningScreen(app.shell, reading)
        await app.push_screen(screen)
        await until(pilot, lambda: screen.judged is not None and not screen.busy)
        yield Opened(pilot, app, screen)


@pytest.fixture
def below(tmp_path: Path) -> Tree:
    tree = make_host(tmp_path / "pve")
    tree.put(CONF, OLD_CONF)
    return tree


async def test_stale_majors_found_once_mended_below_and_taken_back(
    ssh_lab: SshLab, guest: Tree, below: Tree
) -> None:
    production = replace(GUEST, production=True)
    async with pair(ssh_lab, guest, below, production, PVE) as on:
        keys = [str(key) for key in on.screen.list.keys()]  # noqa: SIM118
        assert keys.count(MAJORS) == 1
        assert "virt.lxc_devn" not in keys, "a symptom, not a finding of its own"
        await on.go_to(MAJORS)
        assert "restart container 129 on pve" in words_of(on.text), "where it is mended"
        # What it is, in full.
        await on.pilot.press("enter")
        await until(on.pilot, lambda: isinstance(on.app.screen, FindingScreen))
        await until(on.pilot, lambda: "nvidia-uvm is 509 today" in words_of(on.text))
        await on.pilot.press("escape")
        await on.still()
        # A production guest is unlocked first, by its name.
        await on.pilot.press("space", "f")
        await on.asked()
        assert "vllm is read-only: U unlocks it" in words_of(on.text)
        await on.pilot.press("escape")
        await on.still()
        await on.pilot.press("U")
        await on.asked()
        await on.pilot.press(*"vllm", "enter")
        await until(on.pilot, lambda: not on.app.shell.host_read_only())
        await on.still()
        # Exactly what will be written, and where; the name of that machine is typed.
        await on.pilot.press("f")
        await on.asked()
        assert "Change settings on pve" in words_of(on.text)
        assert "Type pve and press Enter" in words_of(on.text)
        assert below.read(CONF).decode() == OLD_CONF
        await on.pilot.press(*"pve", "enter")
        await on.still()
        assert on.outcomes()[MAJORS] in (Outcome.APPLIED, Outcome.NEEDS_RESTART)
        assert "dev0: /dev/nvidia0" in below.read(CONF).decode()
        findings = {f.check: f for f in on.screen.judged.findings}
        assert findings[MAJORS].verdict is Verdict.PASS, "read again, and right"
        # And back.
        await on.pilot.press("u")
        await on.asked()
        assert f"put back {CONF} on pve" in words_of(on.text)
        await on.pilot.press(*"vllm", "enter")
        await on.still()
        assert below.read(CONF).decode() == OLD_CONF
        assert {f.check: f for f in on.screen.judged.findings}[MAJORS].verdict is Verdict.FAIL


async def test_a_locked_hypervisor_is_named(ssh_lab: SshLab, guest: Tree, below: Tree) -> None:
    async with pair(ssh_lab, guest, below, GUEST, replace(PVE, production=True)) as on:
        await on.go_to(MAJORS)
        await on.pilot.press("f")
        await on.asked()
        assert "pve is read-only: U unlocks it once it is looked at" in words_of(on.text)
        await on.pilot.press("escape")
        await on.still()
        assert below.read(CONF).decode() == OLD_CONF


def test_the_hypervisor_of_a_guest_comes_along() -> None:
    config = Config(hosts=(PVE, GUEST, HostConfig(name="gpu02")))
    assert [h.name for h in with_hypervisors(config, [GUEST])] == ["vllm", "pve"]
    assert [h.name for h in with_hypervisors(config, [PVE, GUEST])] == ["pve", "vllm"]
    assert [h.name for h in with_hypervisors(config, [config.hosts[2]])] == ["gpu02"]
