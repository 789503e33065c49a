"""Disks that are really full or read-only: of the host below a change, or of the operator."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from backends.config import HostConfig
from backends.hub import RoomHub
from backends.tuning import prepare
from backends.tuning.fixes import kernel_flags
from backends.tuning.machines import Machines
from backends.tuning.snapshot import Outcome, Result
from backends.tuning.steps import Form, Plan
from tests.tuning_live.conftest import DEADLINE_S, Bench
from tests.tuning_live.test_apply import everything
from tests.tuning_live.tree import Tree

pytestmark = pytest.mark.real
CHECKOUT = Path(__file__).resolve().parents[2]
BALANCING = "/proc/sys/kernel/numa_balancing"
SYSCTL = "/etc/sysctl.d/90-gpuroom.conf"
GRUB = "/etc/default/grub"


def namespaces() -> bool:
    """Whether this account may mount in a namespace of its own."""
    probe = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"]
    return subprocess.run(probe, check=False, stderr=subprocess.DEVNULL).returncode == 0


def host_with(tmp_path: Path, mounts: str) -> HostConfig:
    """A host whose agent lives in a mount namespace of its own."""
    python = tmp_path / "python"
    inside = f'{mounts} && exec {sys.executable} "$@"'
    python.write_text(f'#!/bin/sh\nexec unshare -rm sh -c {shlex.quote(inside)} sh "$@"\n')
    python.chmod(0o755)
    return HostConfig(name="gpu01", target="local", python=str(python))


async def changed(
    host: HostConfig, tree: Tree, form: Form, look: Callable[[Path], None] = lambda root: None
) -> tuple[dict[str, Result], list[Result]]:
    """Change a command line, a value and a file; take it back.

    Args:
        host: Where.
        tree: Its files.
        form: Which form.
        look: Is given `/` as the agent sees it, between the two.
    """
    async with RoomHub([host]) as hub:
        bench = Bench(Machines(hub.sessions[0]), tree)
        found, findings = await bench.judge()
        flag = replace(findings["cpu.scaling_driver"], fix=kernel_flags("iommu=pt"))
        wanted = [flag, findings["numa.balancing"]]
        plan: Plan = await prepare.prepare(
            bench.machines, found, wanted, form=form, reading=bench.reading
        )
        results = await bench.carry_out(plan)
        agent = hub.sessions[0].snapshot.agent
        assert agent is not None
        look(Path(f"/proc/{agent.pid}/root"))
        return results, await bench.back(plan, list(results.values()))


async def test_a_read_only_etc_is_said_and_nothing_is_half_done(tree: Tree, tmp_path: Path) -> None:
    tree.put(SYSCTL, "# mine\n")
    tree.program("update-grub", "exit 0")
    before, etc = everything(tree), shlex.quote(str(tree.at("/etc")))
    if not namespaces():
        return  # a read-only folder is shown by test_on_the_host.py
    host = host_with(tmp_path, f"mount --bind {etc} {etc} && mount -o remount,bind,ro {etc}")
    results, back = await changed(host, tree, Form.PERSISTENT)
    for result in results.values():
        assert result.outcome is Outcome.FAILED, result
        assert "EROFS: Read-only file system" in result.detail
    assert {r.outcome for r in back} <= {Outcome.ALREADY_SO}
    assert everything(tree) == before
    results, back = await changed(host, tree, Form.BOTH)
    assert "EROFS" in results["numa.balancing"].detail
    assert {r.outcome for r in back} == {Outcome.APPLIED, Outcome.ALREADY_SO}, "what was written"
    assert everything(tree) == before


@pytest.mark.parametrize("full", ["bytes", "names"])
async def test_an_etc_without_room_keeps_its_files_whole(
    tree: Tree, tmp_path: Path, full: str
) -> None:
    """No bytes are left there, or no names: the old file stays as it is, and no other beside it."""
    long = "# long\n" * 1500 + 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'
    tree.put(GRUB, long)
    tree.program("update-grub", "exit 0")
    if not namespaces():
        return  # what open and write say then is shown by test_on_the_host.py
    there, kept = tree.at("/etc/default"), tmp_path / "grub"
    kept.write_text(long)
    size = "size=16k" if full == "bytes" else "size=1m,nr_inodes=2"
    host = host_with(
        tmp_path,
        f"mount -t tmpfs -o {size} none {there} && cp {kept} {there}/grub",
    )

    def look(root: Path) -> None:
        place = root / str(there).lstrip("/")
        assert [path.name for path in place.iterdir()] == ["grub"]
        assert (place / "grub").read_text() == long

    results, back = await changed(host, tree, Form.PERSISTENT, look)
    failed = results["cpu.scaling_driver"]
    assert failed.outcome is Outcome.FAILED
    assert f"{GRUB}: ENOSPC" in failed.detail
    assert results["numa.balancing"].outcome is not Outcome.FAILED, "it stops no other"
    assert Outcome.FAILED not in {r.outcome for r in back}


async def test_no_room_for_the_snapshot_means_that_nothing_is_changed(
    tree: Tree, tmp_path: Path
) -> None:
    """The operator's own disk is full: a real one, or no file may grow there."""
    home = tmp_path / "home"
    home.mkdir()
    argv = [
        *(sys.executable, "gpuroom.py", "tuning", "local", "apply", "--only", "numa.balancing"),
        *("--yes", "--root", str(tree.folder)),
    ]
    limit = 'ulimit -f 0; exec "$@"'
    inside = ["sh", "-c", limit, "sh", *argv]
    if namespaces():
        fills = f"mount -t tmpfs -o size=64k none {home} && cat /dev/zero > {home}/full; "
        inside = ["unshare", "-rm", "sh", "-c", fills + 'exec "$@"', "sh", *argv]
    status, out, error = await run(inside, {"GPUROOM_HOME": str(home)})
    assert status == 1, (out, error)
    assert "this run is not kept" in error or "disk is full" in error
    assert "What was stored before is intact" in error
    assert out == "", "nothing was carried out"
    assert tree.read(BALANCING) == b"1\n"


async def run(argv: list[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
    """A command's status and words."""
    child = await asyncio.create_subprocess_exec(
        *argv,
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await asyncio.wait_for(child.communicate(), DEADLINE_S)
    assert child.returncode is not None
    return child.returncode, out.decode(), error.decode()
