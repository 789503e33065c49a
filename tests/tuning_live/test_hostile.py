"""What goes wrong while a host is changed: lost links, full disks, other people, no rights."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from backends.config import HostConfig
from backends.hub import RoomHub
from backends.session import HostSession
from backends.tuning import apply as applying
from backends.tuning import prepare, rollback
from backends.tuning.changed import RootNeeded
from backends.tuning.desk import Desk, newest
from backends.tuning.fixes import kernel_flags
from backends.tuning.gather import Reading, reached
from backends.tuning.machines import Machines
from backends.tuning.snapshot import Outcome, Result, decode_results, decode_snapshot
from backends.tuning.steps import Form
from tests.tuning_live.conftest import DEADLINE_S, Bench, Open
from tests.tuning_live.tree import CPU, Tree

pytestmark = pytest.mark.real
GPU01 = HostConfig(name="gpu01")
BALANCING = "/proc/sys/kernel/numa_balancing"
MAPS = "/proc/sys/vm/max_map_count"
SYSCTL = "/etc/sysctl.d/90-gpuroom.conf"


async def test_a_host_lost_in_the_middle_leaves_a_change_that_can_be_taken_back(
    open_hosts: Open, tree: Tree
) -> None:
    """The link goes while the second fix is at work; the third is never begun."""
    slow = "/etc/sysctl.d/90-gpuroom.conf"
    async with open_hosts(GPU01) as (session,):
        reading = Reading(root=str(tree.folder))
        desk = Desk(Machines(session), reading=reading)
        judged = await desk.judge(DEADLINE_S)
        planned = await desk.plan(
            judged, ["numa.balancing", "vm.max_map_count", "numa.zone_reclaim"], form=Form.BOTH
        )
        order = [task.check for task in planned.tasks]
        await desk.keep_snapshot(planned)
        # Somebody holds the lock, so that the second fix waits; then its agent is killed.
        seen: list[Result] = []
        holder = os.open(tree.folder, os.O_RDONLY | os.O_DIRECTORY)

        def told(result: Result) -> None:
            seen.append(result)
            if result.check == order[0] and result.outcome is not Outcome.BEGUN:
                fcntl.flock(holder, fcntl.LOCK_EX)
            if result.check == order[1] and result.outcome is Outcome.BEGUN:
                agent = session.snapshot.agent
                assert agent is not None
                asyncio.get_running_loop().call_later(0.3, os.kill, agent.pid, 9)

        results, _ = await desk.apply(planned, told)
        fcntl.flock(holder, fcntl.LOCK_UN)
        os.close(holder)
        by_check = {r.check: r for r in results}
        assert by_check[order[0]].outcome in (Outcome.APPLIED, Outcome.NEEDS_RESTART)
        assert by_check[order[1]].outcome is Outcome.FAILED
        assert "a roll back finds out" in by_check[order[1]].detail
        assert by_check[order[2]].outcome is Outcome.FAILED
        assert "not begun" in by_check[order[2]].detail
        stored = newest(await desk.snapshots())
        assert stored is not None
        assert {r.check for r in decode_results(stored.results)} == set(order)
        back = await desk.roll_back(stored)
        deadline = time.monotonic() + DEADLINE_S
        while any(r.outcome is Outcome.FAILED for r in back) and time.monotonic() < deadline:
            # It may be begun again at any time; what is back already is left alone.
            await asyncio.sleep(0.1)
            await reached(session, DEADLINE_S)
            back = await desk.roll_back(stored)
        assert {r.outcome for r in back} <= {Outcome.APPLIED, Outcome.ALREADY_SO}, back
        assert tree.read(BALANCING) == b"1\n"
        assert tree.read(MAPS) == b"65530\n"
        assert not tree.at(slow).exists()
        assert newest(await desk.snapshots()) is None


async def test_a_room_that_ends_in_the_middle_has_written_down_what_it_began(
    open_hosts: Open, tree: Tree
) -> None:
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        plan = await bench.plan("numa.balancing", "vm.max_map_count")
        kept: list[list[Result]] = []

        async def keep(results: Sequence[Result]) -> None:
            kept.append(list(results))

        await applying.apply(bench.machines, plan, reading=bench.reading, keep=keep)
        assert [[r.outcome for r in results] for results in kept] == [
            [Outcome.BEGUN],
            [Outcome.APPLIED],
            [Outcome.APPLIED, Outcome.BEGUN],
            [Outcome.APPLIED, Outcome.APPLIED],
        ]
        # As if the room had ended before the second answer came, and then before it was done.
        tree.put(MAPS, "65530\n")
        back = await rollback.roll_back(
            bench.machines, plan.snapshot, kept[2], reading=bench.reading
        )
        assert [r.outcome for r in back] == [Outcome.ALREADY_SO, Outcome.APPLIED]
        assert tree.read(BALANCING) == b"1\n"


async def test_a_disk_that_is_full_for_the_copy_leaves_the_file_alone(
    tree: Tree, tmp_path: Path
) -> None:
    """No copy, no edit: the file system of the copies takes nothing more."""
    text = "# long\n" * 1000 + 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'
    tree.put("/etc/default/grub", text)
    tree.program("update-grub", "exit 0")
    copies = tree.at("/var/backups")
    copies.mkdir(parents=True)
    python = tmp_path / "python"
    full = f'mount -t tmpfs -o size=4k none {copies}; exec python3 "$@"'
    inside = ["unshare", "-rm", "sh", "-c"]
    if subprocess.run([*inside, f"mount -t tmpfs none {copies}"], check=False).returncode:
        # Without a file system of its own: no file may grow beyond a few kilobytes.
        full, inside = 'ulimit -f 4; exec python3 "$@"', ["sh", "-c"]
    python.write_text(f'#!/bin/sh\nexec {shlex.join([*inside, full])} - "$@"\n')
    python.chmod(0o755)
    host = HostConfig(name="gpu01", target="local", python=str(python))
    async with RoomHub([host]) as hub:
        bench = Bench(Machines(hub.sessions[0]), tree)
        found, findings = await bench.judge()
        wanted = [
            replace(findings["cpu.scaling_driver"], fix=kernel_flags("iommu=pt")),
            findings["numa.balancing"],
        ]
        plan = await prepare.prepare(bench.machines, found, wanted, reading=bench.reading)
        results = await bench.carry_out(plan)
        failed = results["cpu.scaling_driver"]
        assert failed.outcome is Outcome.FAILED
        assert re.search("/var/backups/.*(ENOSPC|EFBIG)", failed.detail), failed
        assert tree.read("/etc/default/grub").decode() == text
        assert results["numa.balancing"].outcome is Outcome.APPLIED
        back = await bench.back(plan, list(results.values()))
        assert {r.outcome for r in back} == {Outcome.APPLIED}
        assert tree.read("/etc/default/grub").decode() == text


async def test_two_operators_at_once(open_hosts: Open, tree: Tree) -> None:
    """Both want the same and one thing of their own; nothing is lost, and both can go back."""
    second = HostConfig(name="gpu01-too")
    before = tree.read(BALANCING)
    async with open_hosts(GPU01, second) as (one, two):
        benches = [Bench(Machines(session), tree) for session in (one, two)]
        plans = [
            await benches[0].plan("numa.balancing", "vm.max_map_count", form=Form.BOTH),
            await benches[1].plan("numa.balancing", "numa.zone_reclaim", form=Form.BOTH),
        ]
        done = await asyncio.gather(
            *(
                applying.apply(bench.machines, plan, reading=bench.reading)
                for bench, plan in zip(benches, plans, strict=True)
            )
        )
        outcomes = {r.outcome for results in done for r in results}
        assert outcomes <= {Outcome.APPLIED, Outcome.REFUSED, Outcome.ALREADY_SO}
        lines = tree.read(SYSCTL).decode().splitlines()
        applied = {r.check for results in done for r in results if r.outcome is not Outcome.REFUSED}
        names = {"numa.balancing": "kernel.numa_balancing", "vm.max_map_count": "vm.max_map_count",
                 "numa.zone_reclaim": "vm.zone_reclaim_mode"}  # fmt: skip
        for check in applied:
            count = sum(line.startswith(f"{names[check]} =") for line in lines)
            assert count == 1, f"{check} was applied and stands in the file once: {lines}"
        for bench, plan, results in reversed(list(zip(benches, plans, done, strict=True))):
            back = await bench.back(plan, results, force=True)
            assert {r.outcome for r in back} <= {Outcome.APPLIED, Outcome.ALREADY_SO}
        assert tree.read(BALANCING) == before


async def test_the_way_back_is_in_reverse_order_and_to_the_byte(
    open_hosts: Open, tree: Tree
) -> None:
    governor = f"{CPU}/cpu0/cpufreq/scaling_governor"
    tree.put(SYSCTL, "# mine\r\nvm.swappiness = 7")  # no line feed at its end, and not ours
    tree.at(SYSCTL).chmod(0o640)
    before = {path: tree.read(path) for path in (SYSCTL, BALANCING, MAPS, governor)}
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        plan = await bench.plan(
            "numa.balancing", "vm.max_map_count", "cpu.governor", form=Form.BOTH
        )
        results = await bench.carry_out(plan)
        lines = rollback.lines(plan.snapshot, list(results.values()))
        order: list[str] = []
        back = await rollback.roll_back(
            bench.machines,
            plan.snapshot,
            list(results.values()),
            reading=bench.reading,
            told=lambda result: order.append(result.detail.partition(":")[0]),
        )
    assert {r.outcome for r in back} == {Outcome.APPLIED}
    # Exactly that is shown beforehand; one value into many files as one.
    assert f"put back '1' into {BALANCING} on gpu01" in lines
    assert f"put back {SYSCTL} on gpu01, as it was" in lines
    assert "put back 'schedutil' into 4 files on gpu01:" in lines
    assert f"  {governor}" in lines
    assert "remove /etc/tmpfiles.d/gpuroom.conf on gpu01" in lines
    saved = [one.path for one in plan.snapshot.saved if one.path in order]
    assert order == list(reversed(saved))
    assert {path: tree.read(path) for path in before} == before
    assert tree.at(SYSCTL).stat().st_mode & 0o777 == 0o640


async def test_where_sudo_wants_a_password_it_says_so_and_takes_it(
    open_hosts: Open, tree: Tree, tmp_path: Path
) -> None:
    """An ordinary user where sudo asks: refused with its words, then the password is taken."""
    sudo = tmp_path / "bin/sudo"
    sudo.parent.mkdir()
    sudo.write_text(
        "#!/bin/sh\n"
        'case "$1" in -n) echo "sudo: a password is required" >&2; exit 1;; esac\n'
        'while [ "$1" != "--" ]; do shift; done; shift\n'
        'read -r given; [ "$given" = "open sesame" ] || exit 1\n'
        'PLAYED_ROOT=1; export PLAYED_ROOT; exec "$@"\n'
    )
    sudo.chmod(0o755)
    wrapper = tmp_path / "bin/python-of-a-user"
    # Whoever runs this may be root: the agent is made to think that it is not.
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import os\nif not os.environ.get('PLAYED_ROOT'): os.geteuid = lambda: 1000\n"
    )
    wrapper.write_text(
        f"#!/bin/sh\nPATH={sudo.parent}:$PATH; export PATH; PYTHONPATH={site}; export PYTHONPATH\n"
        f'exec {shutil.which("python3")} "$@"\n'
    )
    wrapper.chmod(0o755)
    host = HostConfig(name="gpu01", target="local", python=str(wrapper))
    async with RoomHub([host]) as hub:
        session: HostSession = hub.sessions[0]
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        judged = await desk.judge(DEADLINE_S)
        with pytest.raises(RootNeeded, match="a password is required") as caught:
            await desk.plan(judged, ["numa.balancing"])
        assert caught.value.wants_password
        assert "--ask-password" in caught.value.hint
        desk = Desk(
            Machines(session), reading=Reading(root=str(tree.folder), password="open sesame")
        )
        planned = await desk.plan(judged, ["numa.balancing"])
        await desk.keep_snapshot(planned)
        results, _ = await desk.apply(planned)
        assert [r.outcome for r in results] == [Outcome.APPLIED]
        assert tree.read(BALANCING) == b"0\n"
        (stored,) = await desk.snapshots()
        secret = b"open sesame"
        assert secret not in stored.body + (stored.results or b"")
        assert decode_snapshot(stored.body).saved
        written = " ".join(entry.request + entry.result for entry in hub.journal)
        assert "open sesame" not in written
