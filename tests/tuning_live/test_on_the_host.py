"""What the agent does with files and with others on its host: whole files, one change at a time."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import fcntl
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from backends.agent.remote import alone
from backends.agent.remote import changes as remote
from backends.config import HostConfig
from backends.session import HostSession
from backends.tuning import apply as applying
from backends.tuning import changes
from backends.tuning.machines import Machines
from backends.tuning.snapshot import Outcome
from tests.tuning_live.conftest import Bench, Open, until
from tests.tuning_live.tree import Tree

BALANCING = "/proc/sys/kernel/numa_balancing"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("b\n")
    (tmp_path / "value").write_text("1\n")
    return tmp_path


def wanted(root: Path, by: str = "bob at jump2") -> dict[str, Any]:
    """One value from 1 to 0."""
    old, new = (base64.b64encode(text).decode() for text in (b"1\n", b"0\n"))
    step = {"kind": "write", "path": "/value", "data": new, "expect": old}
    return {"steps": [step], "boot_id": "b", "root": str(root), "by": by}


def test_who_finds_the_host_being_changed_waits_and_is_told_by_whom(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = wanted(root)
    with alone.Alone(str(root), "alice at jump1\x1b[2J"):
        monkeypatch.setattr(alone, "LOCK_S", 0.1)
        refused = remote.carry_out(params)["refused"]
        assert "another change is being carried out on the host by alice at jump1[2J" in refused
        assert (root / "value").read_text() == "1\n"
    held = os.open(root, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)  # somebody who does not say so
    assert "by somebody" in remote.carry_out(params)["refused"]
    monkeypatch.setattr(alone, "LOCK_S", 60.0)
    waits = threading.Event()
    monkeypatch.setattr(alone.time, "sleep", lambda seconds: waits.set() or waits.wait(0.01))
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: answers.append(remote.carry_out(params)))
    waiting.start()
    assert waits.wait(60)
    os.close(held)
    waiting.join(60)
    assert answers[0]["steps"][0]["ok"]
    assert (root / "value").read_text() == "0\n"


def test_who_waited_and_finds_another_value_is_told_who_was_there(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()
    monkeypatch.setattr(alone.time, "sleep", lambda seconds: waits.set() or waits.wait(0.01))
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: answers.append(remote.carry_out(wanted(root))))
    with alone.Alone(str(root), "alice at jump1"):
        waiting.start()
        assert waits.wait(60)
        (root / "value").write_text("7\n")
    waiting.join(60)
    assert answers[0]["refused"] == (
        "/value is no longer as it was shown: alice at jump1 changed the host a moment ago"
    )
    assert (root / "value").read_text() == "7\n"


def test_who_says_nothing_or_cannot_holds_it_all_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*arguments: object) -> None:
        raise OSError(errno.EMFILE, "no sockets")

    monkeypatch.setattr(alone.socket, "socket", refuses)
    assert remote.carry_out(wanted(root))["steps"][0]["ok"]
    assert not alone._holder("gpuroom-change:0:0:")


def test_a_file_system_without_locks_is_changed_all_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(alone.fcntl, "flock", unknown)
    assert remote.carry_out(wanted(root))["steps"][0]["ok"]
    assert (root / "value").read_text() == "0\n"


def test_what_waits_when_the_room_goes_is_never_begun(root: Path) -> None:
    work = remote.AtWork()
    with alone.Alone(str(root), "alice"):
        work.finish()  # nothing is at work: at once
        assert "try again" in remote.carry_out(wanted(root), work.ending)["refused"]
    assert (root / "value").read_text() == "1\n"


def test_what_is_no_file_is_never_written(tmp_path: Path) -> None:
    """A link to a device must not be taken for a file of ours."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/conf").symlink_to("/dev/null")
    with pytest.raises(OSError, match="not a file"):
        remote._install(str(tmp_path / "etc/conf"), b"x", None)
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """No room for a second name beside it is no reason to empty the first."""
    conf = tmp_path / "grub"
    conf.write_text("quiet\n")
    real = os.open

    def full(path: str, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith("gpuroom-new"):
            raise OSError(number, "no room")
        return real(path, flags, mode)

    monkeypatch.setattr(remote.os, "open", full)
    with pytest.raises(OSError, match="no room"):
        remote._install(str(conf), b"quiet iommu=pt\n", None)
    assert conf.read_text() == "quiet\n"


def test_where_no_second_name_is_taken_it_is_written_in_place_or_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "129.conf"
    conf.write_text("arch: amd64\ncores: 4\n")
    real = os.open

    def of_its_own_kind(path: str, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith("gpuroom-new"):
            raise OSError(errno.EACCES, "no such name here")
        return real(path, flags, mode)

    monkeypatch.setattr(remote.os, "open", of_its_own_kind)
    remote._install(str(conf), b"arch: amd64\n", None)
    assert conf.read_text() == "arch: amd64\n"
    real_write, calls = os.pwrite, []

    def fills(fd: int, data: bytes, offset: int) -> int:
        calls.append(offset)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "no space")
        return real_write(fd, data[:5], offset)

    monkeypatch.setattr(remote.os, "pwrite", fills)
    with pytest.raises(OSError, match="no space"):
        remote._install(str(conf), b"cores: 8\nmemory: 1\n", None)
    assert conf.read_text() == "arch: amd64\n"


@pytest.mark.real
async def test_a_fix_that_is_at_work_when_the_link_is_cut_is_finished(
    open_hosts: Open, tree: Tree
) -> None:
    """An edited file whose program never ran would be neither the old state nor the new."""
    tree.put("/etc/one", "old\n")
    tree.program(
        "late",
        'echo begun > "$GPUROOM_ROOT/begun"\n'
        'while [ ! -e "$GPUROOM_ROOT/go" ]; do sleep 0.05; done\n'
        'echo said; echo done > "$GPUROOM_ROOT/done"',
    )
    steps = [
        applying.Step("file", "/etc/one", b"old\n", b"new\n"),
        applying.Step("command", argv=("late",)),
        applying.Step("file", "/etc/two", None, b"two\n"),
    ]
    async with open_hosts(HostConfig(name="gpu01")) as (session,):
        bench = Bench(Machines(session), tree)
        boot = tree.read("/proc/sys/kernel/random/boot_id").decode().strip()
        (at,) = bench.machines.vantages
        asked = asyncio.create_task(
            changes.carry_out(bench.machines, at, steps, boot, bench.reading)
        )
        await until(tree.at("/begun").exists)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    # The room is gone: its agent's standard input has ended.
    tree.put("/go", "")
    await until(tree.at("/etc/two").exists)
    assert tree.read("/done") == b"done\n"


def holds_open(session: HostSession, folder: Path) -> bool:
    """Whether the agent of a host waits for the lock of a folder."""
    assert session.snapshot.agent is not None
    for fd in Path(f"/proc/{session.snapshot.agent.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if fd.readlink() == folder:
                return True
    return False


@pytest.mark.real
async def test_two_operators_one_wins_and_the_other_is_told_who(
    open_hosts: Open, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a real sshd each: the first is at work on the host while the second asks."""
    second = HostConfig(name="gpu01-too")
    tree.program(
        "late",
        'echo begun > "$GPUROOM_ROOT/begun"\n'
        f'echo 2 > "$GPUROOM_ROOT{BALANCING}"\n'
        'while [ ! -e "$GPUROOM_ROOT/go" ]; do sleep 0.05; done',
    )
    async with open_hosts(HostConfig(name="gpu01"), second) as (one, two):
        first, other = (Bench(Machines(session), tree) for session in (one, two))
        plan = await other.plan("numa.balancing")
        boot = tree.read("/proc/sys/kernel/random/boot_id").decode().strip()
        (at,) = first.machines.vantages
        monkeypatch.setattr(changes, "operator", lambda: "alice")
        winning = asyncio.create_task(
            changes.carry_out(
                first.machines, at, [applying.Step("command", argv=("late",))], boot, first.reading
            )
        )
        await until(tree.at("/begun").exists)

        async def let_go() -> None:
            await until(lambda: holds_open(two, tree.folder))
            tree.put("/go", "")

        (result,), _ = await asyncio.gather(
            applying.apply(other.machines, plan, reading=other.reading), let_go()
        )
        assert (await winning).steps[0].ok
    assert result.outcome is Outcome.REFUSED
    assert "no longer as it was shown: alice at " in result.detail
    assert f"at {socket.gethostname()} changed the host a moment ago" in result.detail
    assert tree.read(BALANCING) == b"2\n"
