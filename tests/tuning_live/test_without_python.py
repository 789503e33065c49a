"""Changes on a host without python3, through a real sshd, by its own programs alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from backends.config import HostConfig
from backends.tuning.changes_posix import Hands
from backends.tuning.machines import Machines
from backends.tuning.snapshot import Outcome
from backends.tuning.steps import Form, Step
from tests.tuning_live.conftest import Bench, Open
from tests.tuning_live.test_apply import everything
from tests.tuning_live.tree import BOOT_A, BOOT_B, CPU, Tree

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
BARE = HostConfig(name="pve")
BALANCING = "/proc/sys/kernel/numa_balancing"
GOVERNOR = f"{CPU}/cpu2/cpufreq/scaling_governor"
TOOLS = (
    "cat", "chmod", "chown", "dd", "env", "find", "grep", "head", "id", "install", "ls", "mkdir",
    "mv", "readlink", "rm", "sh", "stat", "sync",
)  # fmt: skip


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """A folder with what every distribution has, and no python3."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return str(folder)


async def test_applied_verified_and_taken_back_to_the_byte(
    open_hosts: Open, tree: Tree, programs: str
) -> None:
    before = everything(tree)
    async with open_hosts(BARE, path=programs) as (session,):
        assert session.snapshot.link.via == "tools"
        bench = Bench(Machines(session), tree, deadline_s=30.0)
        plan = await bench.plan("numa.balancing", "cpu.governor", form=Form.BOTH)
        assert everything(tree) == before, "a plan changes nothing"
        results = await bench.carry_out(plan)
        assert {r.outcome for r in results.values()} == {Outcome.APPLIED}, results
        assert tree.read(BALANCING) == b"0\n"
        assert tree.read(GOVERNOR) == b"performance\n"
        made = tree.at("/etc/sysctl.d/90-gpuroom.conf")
        assert b"kernel.numa_balancing = 0" in made.read_bytes()
        assert made.stat().st_mode & 0o777 == 0o644
        assert not list(made.parent.glob(".*gpuroom-new"))
        back = await bench.back(plan, list(results.values()))
        assert {r.outcome for r in back} == {Outcome.APPLIED}
    assert everything(tree) == before


async def test_what_the_kernel_ignores_or_refuses_is_a_failure(
    open_hosts: Open, tree: Tree, programs: str
) -> None:
    async with open_hosts(BARE, path=programs) as (session,):
        bench = Bench(Machines(session), tree, deadline_s=30.0)
        plan = await bench.plan("numa.balancing", "vm.max_map_count")
        tree.at(BALANCING).unlink()
        tree.at(BALANCING).mkdir()
        results = await bench.carry_out(plan)
        assert results["numa.balancing"].outcome is not Outcome.APPLIED
        assert results["vm.max_map_count"].outcome is Outcome.APPLIED


async def test_nothing_is_done_under_another_boot_or_to_another_content(
    open_hosts: Open, tree: Tree, programs: str
) -> None:
    async with open_hosts(BARE, path=programs) as (session,):
        bench = Bench(Machines(session), tree, deadline_s=30.0)
        plan = await bench.plan("numa.balancing")
        tree.put(BALANCING, "2\n")
        results = await bench.carry_out(plan)
        assert results["numa.balancing"].outcome is Outcome.REFUSED
        assert tree.read(BALANCING) == b"2\n"
        tree.put(BALANCING, "1\n")
        again = await bench.plan("numa.balancing")
        tree.boot(BOOT_B)
        results = await bench.carry_out(again)
        assert results["numa.balancing"].outcome is Outcome.REFUSED


async def test_a_host_that_is_read_only_stays_as_it_is(
    open_hosts: Open, tree: Tree, programs: str
) -> None:
    async with open_hosts(HostConfig(name="pve", production=True), path=programs) as (session,):
        bench = Bench(Machines(session), tree, deadline_s=30.0)
        plan = await bench.plan("numa.balancing")
        results = await bench.carry_out(plan)
        assert results["numa.balancing"].outcome is Outcome.REFUSED
    assert tree.read(BALANCING) == b"1\n"


@pytest.mark.parametrize(
    ("words", "new"),
    [("No space left on device", b"old\n"), ("Operation not permitted", b"new\n")],
)
async def test_a_file_without_room_beside_it_stays_whole(
    open_hosts: Open, tree: Tree, programs: str, words: str, new: bytes
) -> None:
    """Only where no second name is taken at all (/etc/pve) it is written in place."""
    tree.put("/etc/conf", "old\n")
    install = Path(programs) / "install"
    install.unlink()
    install.write_text(f"#!/bin/sh\necho \"install: cannot create '$4': {words}\" >&2; exit 1\n")
    install.chmod(0o755)
    async with open_hosts(BARE, path=programs) as (session,):
        hands = Hands(session, str(tree.folder))
        done = await hands.carry_out([Step("file", "/etc/conf", b"old\n", b"new\n")], BOOT_A)
    assert tree.read("/etc/conf") == new
    assert done.steps[0].ok is (new == b"new\n")
    assert done.steps[0].ok or words in done.steps[0].error


async def test_commands_travel_as_they_are(open_hosts: Open, tree: Tree, programs: str) -> None:
    said = tree.at("/said")
    tree.program("setpci", f'for word; do printf "[%s]\\n" "$word"; done >{said}; echo done')
    tree.program("modprobe", "echo 'no such module' >&2; exit 3")
    odd = ("setpci", "-s", "0000:01:00.0", "a'b\\c", "$HOME `id` ; x", "")
    async with open_hosts(BARE, path=programs) as (session,):
        hands = Hands(session, str(tree.folder))
        done = await hands.carry_out(
            [Step("command", argv=odd), Step("command", argv=("modprobe", "none"))], BOOT_A
        )
    assert said.read_text() == "".join(f"[{word}]\n" for word in odd[1:])
    assert [one.ok for one in done.steps] == [True, False]
    assert "no such module" in done.steps[1].output
