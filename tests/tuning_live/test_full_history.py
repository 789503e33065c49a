"""A history that takes nothing: the host is judged all the same, and nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from backends import paths
from backends.config import HostConfig
from backends.storage.failure import DiskFull, StorageError
from backends.tuning import apply as applying
from backends.tuning.desk import Desk
from backends.tuning.gather import Reading
from backends.tuning.machines import Machines
from backends.tuning.snapshot import Outcome, Result
from tests.tuning_live.conftest import DEADLINE_S, Bench, Open
from tests.tuning_live.tree import Tree
from tui.cli.main import main

pytestmark = pytest.mark.real
GPU01 = HostConfig(name="gpu01")
BALANCING = "/proc/sys/kernel/numa_balancing"
MAPS = "/proc/sys/vm/max_map_count"


def damage() -> None:
    """The history is no database any more."""
    place = paths.data_dir() / "history.db"
    place.parent.mkdir(parents=True, exist_ok=True)
    for beside in place.parent.glob("history.db*"):
        beside.unlink()
    place.write_bytes(b"no database" * 1000)


async def test_a_damaged_history_hides_no_finding_and_lets_nothing_be_changed(
    open_hosts: Open, tree: Tree
) -> None:
    async with open_hosts(GPU01) as (session,):
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        damage()
        judged = await desk.judge(DEADLINE_S)
        assert any(finding.check == "numa.balancing" for finding in judged.findings)
        assert any("not kept" in note for note in judged.gathered.notes)
        planned = await desk.plan(judged, ["numa.balancing"])
        with pytest.raises(StorageError):
            await desk.keep_snapshot(planned)
        assert tree.read(BALANCING) == b"1\n"


async def test_a_disk_that_fills_in_the_middle_stops_before_the_next_fix(
    open_hosts: Open, tree: Tree
) -> None:
    """What was begun stands in the history as begun; nothing is done that isn't written down."""
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        plan = await bench.plan("numa.balancing", "vm.max_map_count")
        kept: list[list[Result]] = []

        async def keep(results: Sequence[Result]) -> None:
            if kept:
                raise DiskFull("no space left")
            kept.append(list(results))

        results = await applying.apply(bench.machines, plan, reading=bench.reading, keep=keep)
        assert [r.outcome for r in kept[0]] == [Outcome.BEGUN]
        assert [r.outcome for r in results] == [Outcome.APPLIED, Outcome.REFUSED]
        assert "written down first: no space left" in results[1].detail
        assert tree.read(BALANCING) == b"0\n"
        assert tree.read(MAPS) == b"65530\n"
        back = await bench.back(plan, kept[0])
        assert {r.outcome for r in back} == {Outcome.APPLIED}
        assert tree.read(BALANCING) == b"1\n"


@pytest.mark.parametrize("command", [["tuning", "local", "--json"], ["servers", "local", "--json"]])
def test_commands_that_only_look_go_on_without_a_history(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    damage()
    main(command)
    told = capsys.readouterr()
    assert told.out.startswith(("[", "{"))
    assert "note: " in told.err
    assert "The history's file is damaged" in told.err
