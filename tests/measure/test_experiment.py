"""Experiments on a folder that stands for a host: measured, tried, measured, taken back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backends.errors import ReadOnlyError, UsageError
from backends.tuning.desk import Desk
from backends.tuning.gather import Reading
from backends.tuning.machines import Machines
from backends.tuning.measurements import experiment, history
from backends.tuning.measurements.desk import Wishes
from backends.tuning.measurements.parts import chosen, not_measured, suited
from backends.tuning.measurements.verdict import Word
from backends.tuning.report import to_text
from tests.measure.conftest import FakeGpus, Reach
from tests.tuning_live.tree import Tree, make_host

pytestmark = pytest.mark.real
BALANCING = "/proc/sys/kernel/numa_balancing"
COPIES = chosen(["copies"])


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_host(tmp_path / "root", gpus=0)


async def trial_of(desk: Desk, check: str) -> experiment.Trial:
    return await experiment.prepare(desk, await desk.judge(60), check, COPIES)


async def test_what_helps_is_shown_and_taken_back(
    at_host: Reach, gpus: FakeGpus, tree: Tree
) -> None:
    gpus.set(copy_by=str(tree.at(BALANCING)), copy_gb_s={"1": 41.0, "0": 53.0})
    async with at_host() as session:
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        trial = await trial_of(desk, "numa.balancing")
        assert any("numa_balancing" in line for line in trial.lines())
        done = await experiment.carry_out(desk, trial, wishes=Wishes(python=gpus.python))
    assert done.sound
    assert done.applied == {"numa.balancing": "applied"}
    assert done.restored == ("applied",)
    assert not done.kept
    assert tree.read(BALANCING) == b"1\n"
    assert {line.word for line in done.lines} == {Word.BETTER}
    line = done.lines[0]
    assert len(line.before) == len(line.after) == len(line.again) == 3
    assert line.drift_pct == pytest.approx(0, abs=1)
    assert line.change_pct == pytest.approx(29, abs=1)
    (kept,) = await history.stored(lambda all_: all_.experiments("gpu01"))
    assert experiment.decode(kept.body) == done


async def test_what_changes_nothing_is_said_and_kept_if_wanted(
    at_host: Reach, gpus: FakeGpus, tree: Tree
) -> None:
    async with at_host() as session:
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        trial = await trial_of(desk, "numa.balancing")
        done = await experiment.carry_out(desk, trial, keep=True, wishes=Wishes(python=gpus.python))
        assert done.summary == "no measurable change"
        assert done.kept
        assert done.restored == ("applied",), "taken back for the last runs, then applied again"
        assert done.applied == {"numa.balancing": "applied"}
        assert tree.read(BALANCING) == b"0\n"
        again = experiment.prepare(desk, await desk.judge(60), "numa.balancing", COPIES)
        with pytest.raises(UsageError):
            await again


async def test_a_write_that_fails_is_no_result(at_host: Reach, gpus: FakeGpus, tree: Tree) -> None:
    async with at_host() as session:
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        trial = await trial_of(desk, "numa.balancing")
        tree.at(BALANCING).unlink()
        tree.at(BALANCING).mkdir()
        done = await experiment.carry_out(desk, trial, wishes=Wishes(python=gpus.python))
    assert not done.sound
    assert "not applied" in done.note
    assert done.lines == ()


async def test_what_cannot_be_measured_afterwards_is_taken_back(
    at_host: Reach, gpus: FakeGpus, tree: Tree
) -> None:
    said: list[str] = []

    def told(words: str) -> None:
        said.append(words)
        if words.startswith("after"):
            gpus.set(fail=["cuInit"])

    async with at_host() as session:
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        trial = await trial_of(desk, "numa.balancing")
        done = await experiment.carry_out(
            desk, trial, keep=True, wishes=Wishes(python=gpus.python), told=told
        )
    assert "not measured afterwards" in done.note
    assert not done.kept
    assert tree.read(BALANCING) == b"1\n"


async def test_cancelled_in_the_middle_it_is_taken_back(
    at_host: Reach, gpus: FakeGpus, tree: Tree
) -> None:
    tried = asyncio.Event()

    def told(words: str) -> None:
        if words.startswith("after"):
            assert tree.read(BALANCING) == b"0\n"
            tried.set()

    async with at_host() as session:
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        trial = await trial_of(desk, "numa.balancing")
        work = asyncio.create_task(
            experiment.carry_out(
                desk, trial, keep=True, wishes=Wishes(python=gpus.python), told=told
            )
        )
        await asyncio.wait_for(tried.wait(), 60)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert tree.read(BALANCING) == b"1\n"


async def test_nothing_is_changed_beside_what_holds_the_gpus(
    at_host: Reach, nvml: FakeGpus, tree: Tree
) -> None:
    async with at_host() as session:
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        trial = await trial_of(desk, "numa.balancing")
        nvml.set(processes={"0": [77]})
        with pytest.raises(ReadOnlyError):
            await experiment.carry_out(desk, trial, wishes=Wishes(python=nvml.python))
        assert await desk.snapshots() == []
    assert tree.read(BALANCING) == b"1\n"


async def test_what_takes_a_reboot_is_no_experiment(at_host: Reach, tree: Tree) -> None:
    async with at_host() as session:
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        judged = await desk.judge(60)
        late = next(
            f for f in judged.findings
            if f.fix is not None and f.fix.persistent and not f.fix.runtime and not f.fix.manual
        )  # fmt: skip
        with pytest.raises(UsageError) as refused:
            await experiment.prepare(desk, judged, late.check)
    assert "at once" in refused.value.title


async def test_what_drifts_by_itself_is_not_the_fixs_doing(
    at_host: Reach, gpus: FakeGpus, tree: Tree
) -> None:
    speed = {"before": 53.0, "after": 45.0, "again": 37.0}

    def told(words: str) -> None:
        for word, gb_s in speed.items():
            if words.startswith(word):
                gpus.set(copy_by=str(tree.at(BALANCING)), copy_gb_s={"0": gb_s, "1": gb_s})

    async with at_host() as session:
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        trial = await trial_of(desk, "numa.balancing")
        done = await experiment.carry_out(desk, trial, wishes=Wishes(python=gpus.python), told=told)
    assert done.sound
    assert {line.word for line in done.lines} == {Word.DRIFT}
    assert done.summary.startswith("drift: ")


async def test_what_cannot_be_measured_again_is_said(
    at_host: Reach, gpus: FakeGpus, tree: Tree
) -> None:
    def told(words: str) -> None:
        if words.startswith("again"):
            gpus.set(fail=["cuInit"])

    async with at_host() as session:
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        trial = await trial_of(desk, "numa.balancing")
        done = await experiment.carry_out(
            desk, trial, keep=True, wishes=Wishes(python=gpus.python), told=told
        )
    assert "again without it" in done.note
    assert not done.sound
    assert not done.kept
    assert tree.read(BALANCING) == b"1\n"


def test_what_no_measurement_shows_has_its_reason() -> None:
    assert "server's own load" in not_measured("cpu.quota")
    assert "network" in not_measured("net.somaxconn")
    assert not not_measured("numa.balancing")


def test_each_kind_of_check_has_what_shows_it() -> None:
    assert [part.name for part in suited("cpu.cstates")] == ["wakeup", "launch"]
    assert [part.name for part in suited("pcie.mrrs")] == ["copies", "pairs"]
    assert [part.name for part in suited("fs.readahead")] == ["read"]
    assert suited("site.own")


async def test_a_belief_about_requests_of_gpus_is_tried(
    at_host: Reach, gpus: FakeGpus, tmp_path: Path
) -> None:
    tree = make_host(tmp_path / "mrrs", gpus=1)
    now = tree.put("/mrrs", "512")
    # CAP_EXP+8.w=5000:7000 sets 4096, 2000:7000 takes it back to 512.
    script = f'case "$3" in *=5000:*) echo 4096 >{now};; *) echo 512 >{now};; esac'
    tree.program("setpci", script)
    gpus.set(copy_by=str(now), copy_gb_s={"512": 53.0, "4096": 53.05})
    async with at_host() as session:
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        judged = await desk.judge(60)
        finding = next(f for f in judged.findings if f.rule == "pcie.mrrs" and f.trial)
        assert finding.verdict.value == "PASS", "a belief is no failure"
        assert "to be tried" in to_text(judged.findings)
        trial = await experiment.prepare(desk, judged, "pcie.mrrs", COPIES)
        done = await experiment.carry_out(desk, trial, wishes=Wishes(python=gpus.python))
    assert done.sound, done.note
    assert done.summary == "no measurable change"
    assert set(done.applied.values()) == {"applied"}
    assert now.read_text().strip() == "512"
