"""Runs on a file system that is really full: a small tmpfs that the agent's host has there."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from backends.agent.client import AgentClient
from backends.link.local import LocalTransport
from tests.servers_live.conftest import DEADLINE_S, NVML_SOURCE, Host

pytestmark = pytest.mark.real
SILENT = "import time; time.sleep(600)"


class Small:
    """A folder with 512 KiB, within a mount namespace of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder.parent / "python"
        self.python.write_text(
            f"#!/bin/sh\nexec unshare -rm sh -c 'mount -t tmpfs -o size=512k none {folder} && "
            f'exec {sys.executable} "$@"\' sh "$@"\n'
        )
        self.python.chmod(0o755)

    def fill(self, pid: int) -> Path:
        """Fill it to the last byte, as a process within sees it."""
        place = Path(f"/proc/{pid}/root{self.folder}")
        chunk = b"\0" * 4096
        with place.joinpath("filler").open("wb", buffering=0) as file:
            try:
                while file.write(chunk):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        return place


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    folder = tmp_path / "small"
    folder.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return Small(folder)


async def test_on_a_full_tmpfs_servers_end_as_they_should_and_none_begins(small: Small) -> None:
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", str(small.folder)]
    if subprocess.run(probe, check=False).returncode != 0:
        return  # no namespaces for this account: test_full_disk.py shows it by limits
    client = AgentClient(
        LocalTransport(), python=str(small.python), pynvml_source=NVML_SOURCE,
        on_notification=lambda method, params: None,
    )  # fmt: skip
    await client.start(DEADLINE_S)
    host = Host(client)
    try:
        first = await host.python("first", SILENT)
        record = await host.python("second", SILENT)
        place = small.fill(first["pid"])

        for profile in ("first", "third"):  # one whose folder is there, and one whose is not
            answer = await host.start(profile, sys.executable, "-c", SILENT)
            assert "busy" in answer or answer["failed"]["errno"] == "ENOSPC", answer

        assert (await host.stop(first["dir"], grace_s=5))[-1]["left"] == []
        state = await host.until(first["dir"], lambda state: state["exit"] is not None)
        assert state["exit"]["signal"] == 15
        assert state["stop"]["by"] == "me", "who stopped it was written down all the same"
        assert not state["supervised"] or not state["alive"]

        answer = await host.start("first", sys.executable, "-c", SILENT)
        assert answer["failed"]["errno"] == "ENOSPC", answer
        place = Path(f"/proc/{record['pid']}/root{small.folder}")
        assert [
            run.name for run in (place / "gpuroom/servers/first").iterdir() if run.is_dir()
        ] == [first["run_id"]], "nothing is left of what did not begin"

        (place / "filler").unlink()
        again = await host.python("first", SILENT)
        for run in (again, record):
            assert (await host.stop(run["dir"], grace_s=1))[-1]["left"] == []
    finally:
        await client.close()
