"""gpuroom killed with SIGKILL, and the link cut, at each moment of a change and of its way back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from backends.config import Config, HostConfig
from backends.hub import RoomHub
from backends.model import LinkState
from backends.storage.tuning_tables import StoredSnapshot
from backends.tuning.desk import Desk, newest
from backends.tuning.gather import Reading, reached
from backends.tuning.machines import Machines
from backends.tuning.snapshot import Outcome, Result, decode_results, decode_snapshot, script_path
from backends.tuning.steps import Form
from backends.tuning.unfinished import how_left
from tests.sshd import SshLab, SshServer
from tests.tuning_live.conftest import DEADLINE_S, until
from tests.tuning_live.test_apply import everything
from tests.tuning_live.tree import Tree, make_host
from tui.cli.main import main

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]
CHECKOUT = Path(__file__).resolve().parents[2]
GPU01 = HostConfig(name="gpu01")
CHECKS = ("numa.balancing", "vm.max_map_count", "numa.zone_reclaim")
VALUES = {
    "numa.balancing": "/proc/sys/kernel/numa_balancing",
    "vm.max_map_count": "/proc/sys/vm/max_map_count",
    "numa.zone_reclaim": "/proc/sys/vm/zone_reclaim_mode",
}
SYSCTL = "/etc/sysctl.d/90-gpuroom.conf"
KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from backends.tuning import changes
from backends.tuning.desk import Desk
from tui.cli.main import main

where, moment, nth = changes, sys.argv[2], int(sys.argv[3])
if moment.split()[1] != "carry_out":
    where = Desk
name, real = moment.split()[1], getattr(where, moment.split()[1])
calls = []

async def dies(*arguments, **more):
    calls.append(1)
    if moment.startswith("before") and len(calls) == nth:
        os.kill(os.getpid(), signal.SIGKILL)
    result = await real(*arguments, **more)
    if moment.startswith("after") and len(calls) == nth:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(where, name, dies)
sys.exit(main(sys.argv[4:]))
"""
"""The command, which kills itself before or after the n-th call of one function."""


@dataclass(frozen=True)
class Moment:
    """When gpuroom is killed.

    Attributes:
        when: `before` or `after`, and which function.
        nth: Which call of it.
        snapshot: Whether what was there is written down by then.
        left: What the history says of the change.
        done: How many of the three fixes stand on the host.
    """

    when: str
    nth: int
    snapshot: bool
    left: str
    done: int


BEGUN = "it was cut, or is still at work: {} was begun"
MOMENTS = (
    Moment("before keep_snapshot", 1, False, "", 0),
    Moment("after keep_snapshot", 1, True, "nothing was begun", 0),
    Moment("before carry_out", 1, True, BEGUN.format(0), 0),
    Moment("after carry_out", 1, True, BEGUN.format(0), 1),
    Moment("before carry_out", 3, True, BEGUN.format(2), 2),
    Moment("before judge", 2, True, "cut before the checks were judged again", 3),
)


def configured(lab: SshLab) -> Path:
    """A configuration that leads to the servers of a lab."""
    place = lab.folder / "config.toml"
    settings = f'[ssh]\nconfig_file = "{lab.config_file}"\n'
    place.write_text(settings + '[[hosts]]\nname = "gpu01"\n')
    return place


async def killed(moment: str, nth: int, home: Path, argv: list[str]) -> None:
    """Run a command that is killed at a moment."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, str(CHECKOUT), moment, str(nth), *argv),
        env={**os.environ, "GPUROOM_HOME": str(home)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(child.communicate(), 3 * DEADLINE_S)
    assert child.returncode == -signal.SIGKILL, (moment, nth, said.decode())


def on_the_host(tree: Tree, before: Mapping[str, bytes], order: list[str]) -> list[str]:
    """Which checks were put right there; each wholly, with its line, or not at all."""
    text = tree.read(SYSCTL).decode() if tree.at(SYSCTL).exists() else ""
    changed = [c for c in order if tree.read(VALUES[c]) != before[VALUES[c].lstrip("/")]]
    for check, path in VALUES.items():
        name = path.removeprefix("/proc/sys/").replace("/", ".")
        assert (f"{name} = " in text) is (check in changed), (check, text)
    assert not text or text.endswith("\n")
    return changed


async def test_killed_at_each_moment_of_a_change(
    ssh_lab: SshLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What was there is always written down before the first write, and all of it comes back."""
    ssh_lab.server("gpu01")
    config = configured(ssh_lab)
    trees = [make_host(tmp_path / f"root{number}") for number in range(len(MOMENTS))]
    homes = [tmp_path / f"home{number}" for number in range(len(MOMENTS))]
    before = everything(trees[0])
    change = ["tuning", "gpu01", "apply", "--only", *CHECKS, "--form", "both", "--yes"]
    change += ["--config", str(config), "--root"]
    await asyncio.gather(
        *(
            killed(moment.when, moment.nth, home, [*change, str(tree.folder)])
            for moment, tree, home in zip(MOMENTS, trees, homes, strict=True)
        )
    )
    async with RoomHub([GPU01], Config(hosts=(GPU01,), ssh=ssh_lab.settings())) as hub:
        (session,) = hub.sessions
        await reached(session, DEADLINE_S)
        for moment, tree, home in zip(MOMENTS, trees, homes, strict=True):
            monkeypatch.setenv("GPUROOM_HOME", str(home))
            desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
            stored = await desk.snapshots()
            assert bool(stored) is moment.snapshot, moment
            if not stored:
                assert everything(tree) == before
                continue
            await took_back(desk, stored[0], moment, tree, before)
    assert "nothing was begun" in said(capsys, homes[1], monkeypatch)


def said(capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `history` prints."""
    monkeypatch.setenv("GPUROOM_HOME", str(home))
    assert main(["tuning", "gpu01", "history"]) == 0
    return capsys.readouterr().out


async def took_back(
    desk: Desk, made: StoredSnapshot, moment: Moment, tree: Tree, before: Mapping[str, bytes]
) -> None:
    """The history tells what was cut, the host agrees, and everything comes back."""
    snapshot = decode_snapshot(made.body)
    order = list(dict.fromkeys(saved.check for saved in snapshot.saved))
    assert sorted(order) == sorted(CHECKS)
    assert script_path(snapshot).is_file() or moment.when == "before keep_snapshot"
    words = moment.left
    for number, check in enumerate(order):
        words = words.replace(f" {number} was", f" {check} was")
    assert how_left(made) == words, moment
    changed = on_the_host(tree, before, order)
    assert changed == order[: moment.done], moment
    cut = await desk.cut()
    assert (cut is not None) is ("was begun" in words and "nothing" not in words), moment
    if moment.done or cut:
        back = await desk.roll_back(made)
        assert {r.outcome for r in back} <= {Outcome.APPLIED, Outcome.ALREADY_SO}, back
        assert newest(await desk.snapshots()) is None
        assert await desk.cut() is None
    assert everything(tree) == before, moment


async def test_killed_while_taking_back_and_told_at_the_next_look(
    ssh_lab: SshLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    ssh_lab.server("gpu01")
    tree, home = make_host(tmp_path / "root"), tmp_path / "home"
    before = everything(tree)
    monkeypatch.setenv("GPUROOM_HOME", str(home))
    where = ["--config", str(configured(ssh_lab)), "--root", str(tree.folder)]
    async with RoomHub([GPU01], Config(hosts=(GPU01,), ssh=ssh_lab.settings())) as hub:
        (session,) = hub.sessions
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        planned = await desk.plan(await desk.judge(DEADLINE_S), CHECKS, form=Form.BOTH)
        await desk.keep_snapshot(planned)
        results, _ = await desk.apply(planned)
        assert {r.outcome for r in results} == {Outcome.APPLIED}
        back = ["tuning", "gpu01", "rollback", "--yes", *where]
        await killed("after carry_out", 1, home, back)
        last = planned.snapshot.saved[-1]
        assert last.path == VALUES[last.check] or last.path == SYSCTL
        (stored,) = await desk.snapshots()
        assert how_left(stored) == f"taking it back was cut, or is still at work: {last.path}"
        # The next look says so, and where the way back is.
        await asyncio.to_thread(main, ["tuning", "gpu01", *where])
        assert (
            f"taking it back was cut, or is still at work: {last.path};"
            " `gpuroom tuning gpu01 rollback` takes it back"
        ) in capsys.readouterr().err
        told: list[Result] = []
        again = await desk.roll_back(stored, told=told.append)
        assert told[0].outcome is Outcome.ALREADY_SO, "what is back already is left alone"
        assert {r.outcome for r in again[1:]} == {Outcome.APPLIED}
        assert everything(tree) == before
        (stored,) = await desk.snapshots()
        assert how_left(stored) == ""


def cut_link(server: SshServer) -> None:
    """End the sessions of an sshd, and nothing that they run: as a cable that is pulled."""
    for pid in server.family():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().startswith("sshd") and pid != server.pid:
                os.kill(pid, signal.SIGKILL)


async def test_a_link_that_is_cut_in_a_change_and_in_its_way_back(
    ssh_lab: SshLab, tree: Tree
) -> None:
    server = ssh_lab.server("gpu01")
    before = everything(tree)
    async with RoomHub([GPU01], Config(hosts=(GPU01,), ssh=ssh_lab.settings())) as hub:
        (session,) = hub.sessions
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        planned = await desk.plan(await desk.judge(DEADLINE_S), CHECKS, form=Form.BOTH)
        order = [task.check for task in planned.tasks]
        await desk.keep_snapshot(planned)

        def told(result: Result) -> None:
            if result.check == order[0] and result.outcome is not Outcome.BEGUN:
                cut_link(server)

        results, _ = await desk.apply(planned, told)
        assert results[0].outcome is Outcome.APPLIED
        assert [r.outcome for r in results[1:]] == [Outcome.FAILED, Outcome.FAILED]
        await until(lambda: session.snapshot.link.state is LinkState.LIVE)
        (stored,) = await desk.snapshots()
        assert [r.check for r in decode_results(stored.results)] == order

        cuts: list[Result] = []

        def once(result: Result) -> None:
            if not cuts:
                cut_link(server)
            cuts.append(result)

        back = await desk.roll_back(stored, told=once)
        (stored,) = await desk.snapshots()
        if any(r.outcome is Outcome.FAILED for r in back):  # else the new link was that fast
            assert how_left(stored) == "not all of it was taken back"
            assert newest([stored]) is stored, "the way back is still offered"
        async with asyncio.timeout(DEADLINE_S):
            while any(r.outcome is Outcome.FAILED for r in back):
                await until(lambda: session.snapshot.link.state is LinkState.LIVE)
                back = await desk.roll_back(stored)
        assert {r.outcome for r in back} <= {Outcome.APPLIED, Outcome.ALREADY_SO}
    assert everything(tree) == before
