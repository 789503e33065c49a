"""Atomic files: old or new, never in between."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backends.storage import atomic
from backends.storage.failure import DiskFull, StorageError


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.toml"
    atomic.write_text(path, "a = 1\n")
    atomic.write_text(path, "a = 2\n")
    assert path.read_text() == "a = 2\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["state.toml"]


def test_new_files_are_private_and_old_ones_keep_their_mode(tmp_path: Path) -> None:
    path = tmp_path / "x"
    atomic.write_text(path, "1")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    atomic.write_text(path, "2")
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "config.toml"
    real.parent.mkdir()
    real.write_text("old")
    link = tmp_path / "config.toml"
    link.symlink_to(real)
    atomic.write_text(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_an_error_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic.replacing(path) as file:
        file.write(bytes([1 // int(not path)]))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_full_disk_is_said_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull) as caught:
        atomic.write_text(path, "new")
    assert str(path) in caught.value.detail
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(StorageError):
        atomic.write_text(tmp_path / "x", "new")


def test_a_killed_writer_leaves_old_or_new(tmp_path: Path) -> None:
    path = tmp_path / "x"
    atomic.write_bytes(path, b"0" * 200_000)
    code = (
        "import sys\nfrom pathlib import Path\nfrom backends.storage.atomic import write_bytes\n"
        "print('go', flush=True)\nn = 0\n"
        "while True:\n    n += 1\n"
        "    write_bytes(Path(sys.argv[1]), str(n % 10).encode() * 200_000)\n"
    )
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        data = path.read_bytes()
        assert len(data) == 200_000
        assert len(set(data)) == 1


def test_leftovers_of_killed_writers_go(tmp_path: Path) -> None:
    old, young, other = (tmp_path / n for n in (".x.0123abcd.tmp", ".x.89abcdef.tmp", ".keep.tmp"))
    for path in (old, young, other):
        path.write_text("")
    os.utime(old, (0, 0))
    os.utime(other, (0, 0))
    assert atomic.remove_leftovers(tmp_path) == 1
    assert sorted(os.listdir(tmp_path)) == [".keep.tmp", ".x.89abcdef.tmp"]
