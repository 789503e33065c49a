"""Changes on a host through a real sshd: applied, verified, ignored, failed, taken back."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from backends.config import HostConfig
from backends.errors import AgentError, UsageError
from backends.tuning import apply as applying
from backends.tuning import prepare
from backends.tuning.desk import Desk
from backends.tuning.facts import Vantage
from backends.tuning.findings import Verdict
from backends.tuning.fixes import Fix, Write, kernel_flags
from backends.tuning.machines import Machines, needs_name
from backends.tuning.snapshot import (
    Outcome,
    Result,
    Saved,
    Snapshot,
    decode_results,
    decode_snapshot,
    encode,
    shell_script,
)
from backends.tuning.steps import Form
from tests.tuning_live.conftest import Bench, Open
from tests.tuning_live.tree import BOOT_B, CPU, Tree

pytestmark = pytest.mark.real
GPU01 = HostConfig(name="gpu01")
BALANCING = "/proc/sys/kernel/numa_balancing"
GOVERNOR = f"{CPU}/cpu2/cpufreq/scaling_governor"


def everything(tree: Tree) -> dict[str, bytes]:
    """Every file of a tree, backups aside."""
    return {
        str(path.relative_to(tree.folder)): path.read_bytes()
        for path in tree.folder.rglob("*")
        if path.is_file() and "backups" not in path.parts
    }


async def test_applied_verified_and_taken_back_to_the_byte(open_hosts: Open, tree: Tree) -> None:
    before = everything(tree)
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        plan = await bench.plan("numa.balancing", "cpu.governor", form=Form.BOTH)
        assert everything(tree) == before, "a plan changes nothing"
        results = await bench.carry_out(plan)
        assert {r.outcome for r in results.values()} == {Outcome.APPLIED}
        assert tree.read(BALANCING) == b"0\n"
        assert tree.read(GOVERNOR) == b"performance\n"
        assert b"kernel.numa_balancing = 0" in tree.read("/etc/sysctl.d/90-gpuroom.conf")
        again = await bench.carry_out(await bench.plan("vm.max_map_count"))
        assert again["vm.max_map_count"].outcome is Outcome.APPLIED
        tree.put("/proc/sys/vm/max_map_count", "65530\n")
        back = await bench.back(plan, list(results.values()))
        assert {r.outcome for r in back} == {Outcome.APPLIED}
    assert everything(tree) == before


async def test_a_write_that_is_ignored_is_a_failure(open_hosts: Open, tree: Tree) -> None:
    # The kernel takes 0 for this one, and goes on showing its default.
    tree.at("/proc/slack").symlink_to("/proc/self/timerslack_ns")
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        found, findings = await bench.judge()
        ignored = replace(
            findings["numa.balancing"], fix=Fix("no slack", runtime=(Write("/proc/slack", "0"),))
        )
        wanted = [ignored, findings["numa.zone_reclaim"]]
        plan = await prepare.prepare(bench.machines, found, wanted, reading=bench.reading)
        results = await bench.carry_out(plan)
        assert results["numa.balancing"].outcome is Outcome.FAILED
        assert "ignored, it reads '50000'" in results["numa.balancing"].detail
        assert results["numa.zone_reclaim"].outcome is Outcome.APPLIED


async def test_a_value_that_somebody_sets_back_is_a_failure_and_says_so(
    open_hosts: Open, tree: Tree
) -> None:
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        desk = Desk(bench.machines, reading=bench.reading)
        planned = await desk.plan(await desk.judge(), ["numa.balancing", "vm.max_map_count"])
        await desk.keep_snapshot(planned)

        def sets_back(result: Result) -> None:
            if (result.check, result.outcome) == ("numa.balancing", Outcome.APPLIED):
                tree.put(BALANCING, "1\n")

        results, _ = await desk.apply(planned, sets_back)
        by_check = {r.check: r for r in results}
        failed = by_check["numa.balancing"]
        assert failed.outcome is Outcome.FAILED
        assert f"{BALANCING} was written and read back, and reads '1' by now" in failed.detail
        assert by_check["vm.max_map_count"].outcome is Outcome.APPLIED
        (stored,) = await desk.snapshots()
        assert decode_results(stored.results) == tuple(results)


async def test_a_write_that_fails_says_errno_and_the_kernels_lines(
    open_hosts: Open, tree: Tree
) -> None:
    # Reads as a number, and refuses every write with EINVAL or EPERM.
    tree.at(GOVERNOR).unlink()
    tree.at(GOVERNOR).symlink_to("/proc/self/oom_score")
    tree.program(
        "dmesg",
        "read -r up _ < /proc/uptime\n"
        "echo '[    0.000000] Linux version 6.14'\n"
        'echo "[${up%.*}.990000] cpufreq: refused"',
    )
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        found, findings = await bench.judge()
        fix = Fix("a score", runtime=(Write(GOVERNOR, "performance"),))
        wanted = [replace(findings["numa.zone_reclaim"], fix=fix), findings["numa.balancing"]]
        plan = await prepare.prepare(bench.machines, found, wanted, reading=bench.reading)
        results = await bench.carry_out(plan)
        failed = results["numa.zone_reclaim"]
        assert failed.outcome is Outcome.FAILED
        assert GOVERNOR in failed.detail
        assert re.search(r": E[A-Z]+: ", failed.detail)
        assert [line.split("] ")[1] for line in failed.kernel] == ["cpufreq: refused"]
        assert results["numa.balancing"].outcome is Outcome.APPLIED


async def test_what_somebody_else_changed_is_not_taken_back(open_hosts: Open, tree: Tree) -> None:
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        plan = await bench.plan("numa.balancing")
        results = list((await bench.carry_out(plan)).values())
        tree.put(BALANCING, "7\n")
        (refused,) = await bench.back(plan, results)
        assert refused.outcome is Outcome.REFUSED
        assert tree.read(BALANCING) == b"7\n"
        (forced,) = await bench.back(plan, results, force=True)
        assert forced.outcome is Outcome.APPLIED
        assert tree.read(BALANCING) == b"1\n"


async def test_nothing_under_another_boot(open_hosts: Open, tree: Tree) -> None:
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        plan = await bench.plan("numa.balancing")
        found, findings = await bench.judge()
        tree.boot(BOOT_B)
        results = await bench.carry_out(plan)
        assert results["numa.balancing"].outcome is Outcome.REFUSED
        assert "another boot" in results["numa.balancing"].detail
        assert tree.read(BALANCING) == b"1\n"
        with pytest.raises(AgentError, match="another boot"):
            await prepare.prepare(
                bench.machines, found, [findings["numa.balancing"]], reading=bench.reading
            )
        tree.at("/proc/sys/kernel/random/boot_id").unlink()
        with pytest.raises(AgentError, match="does not say which boot") as caught:
            await bench.plan("numa.balancing")
        assert str(tree.at("/proc/sys/kernel/random/boot_id")) in caught.value.detail


async def test_a_locked_host_is_not_changed(open_hosts: Open, tree: Tree) -> None:
    async with open_hosts(HostConfig(name="gpu01", production=True)) as (session,):
        bench = Bench(Machines(session), tree)
        assert "production" in needs_name(bench.machines)
        plan = await bench.plan("numa.balancing")
        results = await applying.apply(bench.machines, plan, reading=bench.reading)
        assert results[0].outcome is Outcome.REFUSED
        assert "read-only" in results[0].detail
        assert tree.read(BALANCING) == b"1\n"


async def test_the_kernel_command_line_twice_in_a_row(open_hosts: Open, tree: Tree) -> None:
    tree.program("update-grub", 'echo run >> "$GPUROOM_ROOT/refreshed"')
    before = tree.read("/etc/default/grub")
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        found, findings = await bench.judge()
        wanted = [replace(findings["cpu.scaling_driver"], fix=kernel_flags("amd_pstate=active"))]
        plan = await prepare.prepare(bench.machines, found, wanted, reading=bench.reading)
        results = await bench.carry_out(plan)
        (first,) = results.values()
        assert first.outcome is Outcome.NEEDS_REBOOT, first
        edited = tree.read("/etc/default/grub")
        assert edited != before
        assert tree.read("/refreshed") == b"run\n"
        second = await prepare.prepare(bench.machines, found, wanted, reading=bench.reading)
        await bench.carry_out(second)
        assert tree.read("/etc/default/grub") == edited
        assert tree.read("/refreshed") == b"run\n", "nothing to refresh the second time"
        back = await bench.back(plan, list(results.values()))
        assert {r.outcome for r in back} == {Outcome.APPLIED}
        assert tree.read("/etc/default/grub") == before
        assert tree.read("/refreshed") == b"run\nrun\n", "and the loader is told"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_script_of_a_snapshot_puts_back_any_bytes(tree: Tree, shell: str) -> None:
    odd = bytes(range(256)) + b"%s %d 'x' \\n $(id) `id`\n\n"
    tree.put("/etc/pve/lxc/129.conf", b"new\n").chmod(0o640)
    before = (Saved("a.b", "file", Vantage.HOST, "/etc/pve/lxc/129.conf", odd, 0o640),
              Saved("a.b", "file", Vantage.HOST, "/etc/gone it's/x.conf", b"-n", 0o600),
              Saved("a.b", "file", Vantage.HOST, "/etc/ours.conf"),
              Saved("c.d", "write", Vantage.HOST, "/sys/thp", b"always [madvise] never\n"),
              Saved("e.f", "command", Vantage.HOST, argv=("x",), undo=("false", "a b")),
             )  # fmt: skip
    tree.put("/etc/ours.conf", "ours\n")
    tree.put("/sys/thp", "[always] madvise never\n")
    snapshot = Snapshot("s", "gpu01\nrm -rf /", {Vantage.HOST: "gpu01"}, {Vantage.HOST: BOOT_B},
                        "now", "me", {Vantage.HOST: "/"}, before)  # fmt: skip
    done = replay(snapshot, tree, shell)
    assert done.returncode == 1, "what could not be taken back is not kept silent"
    assert b"not put back: false 'a b'" in done.stderr
    assert b"another boot" in done.stderr
    assert tree.read("/etc/pve/lxc/129.conf") == odd
    assert tree.at("/etc/pve/lxc/129.conf").stat().st_mode & 0o777 == 0o640
    assert tree.read("/etc/gone it's/x.conf") == b"-n"
    assert tree.at("/etc/gone it's/x.conf").stat().st_mode & 0o777 == 0o600
    assert not tree.at("/etc/ours.conf").exists()
    assert tree.read("/sys/thp") == b"madvise\n", "what the kernel takes for it"
    assert not list(tree.folder.rglob("*gpuroom-new"))


def replay(snapshot: Snapshot, tree: Tree, shell: str = "sh") -> subprocess.CompletedProcess[bytes]:
    """Run the script of a snapshot below a folder."""
    return subprocess.run(
        [shutil.which(shell) or shell, "-s", "host"],
        input=shell_script(snapshot).encode(),
        env={"ROOT": str(tree.folder), "PATH": os.environ["PATH"]},
        stderr=subprocess.PIPE,
        check=False,
    )


async def test_the_script_of_a_snapshot_puts_everything_back(open_hosts: Open, tree: Tree) -> None:
    before = everything(tree)
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        plan = await bench.plan("numa.balancing", "cpu.governor", form=Form.BOTH)
        await bench.carry_out(plan)
    assert everything(tree) != before
    assert decode_snapshot(encode(plan.snapshot)) == plan.snapshot
    done = replay(plan.snapshot, tree)
    assert (done.returncode, done.stderr) == (0, b"")
    assert everything(tree) == before


def test_results_survive_the_history() -> None:
    result = Result("a.b", Outcome.FAILED, "EINVAL", ("[1.0] no",), {"/x": b"\xff", "/y": None})
    assert decode_results(encode((result,))) == (result,)


async def test_an_id_that_cannot_be_carried_out_says_why(open_hosts: Open, tree: Tree) -> None:
    async with open_hosts(GPU01) as (session,):
        bench = Bench(Machines(session), tree)
        with pytest.raises(UsageError, match="no finding"):
            await bench.plan("no.such")
        _, findings = await bench.judge()
        right = next(f for f in findings.values() if f.verdict is Verdict.PASS and f.fix is None)
        with pytest.raises(UsageError, match="no fix"):
            await bench.plan(right.check)
