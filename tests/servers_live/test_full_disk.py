"""A host whose disk is full, and a supervisor that dies: no server that nobody knows of."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from backends.agent.client import AgentClient
from backends.agent.remote import supervisor
from backends.link.local import LocalTransport
from backends.model import Severity
from backends.servers.launchers.base import LaunchError
from tests.servers_live.conftest import DEADLINE_S, NVML_SOURCE, Host
from tests.servers_live.rooms import desk_of, members_alive, quick_profile

pytestmark = pytest.mark.real
SILENT = "import time; time.sleep(600)"


async def limited_host(tmp_path: Path, limit: str) -> Host:
    """An agent whose programs may write no file beyond `limit` blocks of 512 bytes (EFBIG)."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -f {limit}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    client = AgentClient(
        LocalTransport(),
        python=str(python),
        on_notification=lambda method, params: None,
        pynvml_source=NVML_SOURCE,
    )
    await client.start(DEADLINE_S)
    return Host(client)


async def mine(host: Host, tmp_path: Path) -> list[Any]:
    """Its runs; whoever else runs servers on this machine is listed too."""
    found = await host.ask("servers.list")
    return [run for run in found if run["record"]["dir"].startswith(str(tmp_path))]


async def test_a_server_that_cannot_be_written_down_is_never_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    host = await limited_host(tmp_path, "1")
    try:
        began = tmp_path / "began"
        code = f"open({str(began)!r}, 'w'); {SILENT}"
        answer = await host.start("big", sys.executable, "-c", code, env={"PADDING": "x" * 600})
        assert answer["failed"]["errno"] == "EFBIG"
        assert not began.exists()
        assert not members_alive(f"big-{id(host)}-1")
        assert await mine(host, tmp_path) == []
        assert not list((tmp_path / "state").rglob("id.json*")), "no half-written record is left"
    finally:
        await host.client.close()


async def test_the_end_of_a_server_is_written_down_on_a_full_disk(
    host: Host, tmp_path: Path
) -> None:
    """Its room was reserved at the start; children that outlive it are still waited for."""
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SILENT!r}])"
    record = await host.python("ends", f"{child}; sys.stdin.close(); import time; time.sleep(2)")
    place = Path(record["dir"])
    # The supervisor may not make a file any longer than nothing from now on.
    prlimit = ["prlimit", "--fsize=512", "--pid", str(record["supervisor_pid"])]
    subprocess.run(prlimit, check=True)
    (place / f"exit.json.{record['supervisor_pid']}").mkdir()  # the new file can't be made
    state = await host.until(record["dir"], lambda state: state["exit"] is not None)
    assert state["exit"]["code"] == 0
    assert state["supervised"], "what it left is still waited for"
    pieces = await host.stop(record["dir"], grace_s=0)
    assert pieces[-1]["left"] == []


async def test_a_full_disk_stops_no_stop(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock's file can't be made, nor the note of who asked; it is stopped all the same."""
    record = await host.python("held", SILENT)
    home = Path(record["dir"]).parent
    (home / "stop.lock").symlink_to(home / "nowhere" / "stop.lock")  # takes no file, even as root
    pieces = await host.stop(record["dir"], grace_s=1)
    assert pieces[-1]["left"] == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_supervisor_killed_in_the_middle_of_a_start(tmp_path: Path, moment: str) -> None:
    """Killed before the record is written: no server. After: the server is found by it."""
    began = tmp_path / "began"
    spec = {
        "argv": [sys.executable, "-c", f"open({str(began)!r}, 'w'); {SILENT}"],
        "env": {"GPUROOM_RUN": f"killed-{moment}-{os.getpid()}"},
    }
    told, teller = os.pipe()
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    killer = os.fork()
    if killer == 0:  # plays the supervisor

        def known(pid: int) -> None:
            os.write(teller, json.dumps(pid).encode() + b"\n")
            if moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)

        supervisor.start(spec, log, None, known)
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(teller)
    os.close(log)
    pid = int(os.read(told, 64))
    os.close(told)
    os.waitpid(killer, 0)
    deadline = time.monotonic() + DEADLINE_S
    try:
        if moment == "before":
            while Path(f"/proc/{pid}/exe").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            assert not Path(f"/proc/{pid}/exe").exists()
            assert not began.exists()
        else:
            while not began.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            assert began.exists()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def test_a_killed_supervisor_leaves_no_second_server_and_no_lock(
    host: Host, tmp_path: Path
) -> None:
    """Its server is alive to whoever looks: no second one beside it, and it can be stopped."""
    record = await host.python("alone", SILENT)
    os.kill(record["supervisor_pid"], signal.SIGKILL)
    state = await host.until(record["dir"], lambda state: not state["supervised"])
    assert state["alive"]
    (listed,) = await mine(host, tmp_path)
    assert listed["alive"]
    second = await host.start("alone", sys.executable, "-c", SILENT)
    assert second["busy"]["by"] == "me"
    assert second["busy"]["run_id"] == record["run_id"]
    pieces = await host.stop(record["dir"], grace_s=1)
    assert pieces[-1]["left"] == []
    again = await host.python("alone", SILENT)
    assert again["pid"] != record["pid"]


async def test_a_word_that_no_program_can_be_given_is_refused_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    profile = quick_profile("wordy", "x" * (1 << 20), env={"WIDE": "y" * (1 << 20)})
    async with desk_of(profile) as desk:
        argument, variable = [f for f in await desk.check(profile) if f.id == "word-too-long"]
        assert argument.severity is Severity.CRITICAL
        assert argument.title.startswith("argument 4 of the command has 1048576 bytes")
        assert variable.title.startswith("the variable WIDE has 1048581 bytes")
        assert "put it into a file" in variable.way_out
        with pytest.raises(LaunchError) as failed:
            await desk.start(profile)  # as with --force
        assert "Argument list too long" in failed.value.detail
        assert "give it by a file" in str(failed.value.hint)
        assert await desk.newest(profile) is None


async def test_a_record_stays_readable_however_many_variables_there_are(host: Host) -> None:
    env = {f"V{number}": "\x01" * 60_000 for number in range(20)} | {"CUDA_VISIBLE_DEVICES": "0,1"}
    code = "import os; print(len(os.environ['V19']), flush=True); " + SILENT
    record = await host.python("wide", code, env=env)
    state = await host.until(record["dir"], lambda state: state["log"]["size"] > 0)
    assert Path(record["log"]).read_text() == "60000\n", "the server gets all of it"
    assert state["record"]["env"]["CUDA_VISIBLE_DEVICES"] == "0,1", "the short ones are kept"
    assert Path(record["dir"], "id.json").stat().st_size < 1 << 20
    assert (await host.stop(record["dir"], grace_s=1))[-1]["left"] == []
