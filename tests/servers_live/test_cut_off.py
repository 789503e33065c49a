"""What goes on when gpuroom does not: a link that is cut, a gpuroom that is killed, a late lock."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w

from backends import paths
from backends.config import Config, HostConfig
from backends.servers.launchers.base import ProfileBusy
from backends.servers.lifecycle import ANSWERING, State
from backends.servers.logfeed import LogData, LogEvent
from backends.servers.profiles import Profile
from tests.servers_live.rooms import DEADLINE_S, desk_of, is_state, members_alive, quick_profile
from tests.sshd import SshLab, ssh_lab

__all__ = ["ssh_lab"]
pytestmark = [pytest.mark.real, pytest.mark.usefixtures("own_state")]
ROOT = Path(__file__).resolve().parents[2]


def lives(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}/exe").exists()


@pytest.mark.parametrize("hung", [False, True], ids=["cut", "hung"])
async def test_a_link_that_is_lost_during_a_start(ssh_lab: SshLab, hung: bool) -> None:
    server = ssh_lab.server("gpu01")
    profile = quick_profile("far", "--delay", "8")
    settings = ssh_lab.settings(keepalive_s=1.0, keepalive_count=1)
    got: list[bytes] = []

    def sink(piece: LogData | LogEvent) -> None:
        got.append(getattr(piece, "data", b""))

    host = HostConfig(name="here", target="gpu01", python=sys.executable)
    async with desk_of(profile, host=host, config=Config(ssh=settings)) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run, profile, log_sink=sink) as watch:
            await watch.until(lambda _: b"loading" in b"".join(got), DEADLINE_S)
            if hung:
                server.freeze()
                lost = await watch.until(is_state(State.LOST), DEADLINE_S)
            server.cut()
            if not hung:
                lost = await watch.until(is_state(State.LOST), DEADLINE_S)
            assert lost.last_known in (State.LAUNCHING, State.LOADING)
            assert lost.why == "the host is out of reach"
            assert lives(run.pid), "the server goes on"
            server.start()
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
            await watch.until(lambda _: b"listening" in b"".join(got), DEADLINE_S)
            assert b"".join(got) == b"loading\nlistening\n", "no line lost, none doubled"
        again = await desk.find("far")
        assert (again.run_id, again.pid) == (run.run_id, run.pid)
        assert (await desk.stop(again)).complete


async def test_another_connection_finds_what_was_started_before_the_cut(ssh_lab: SshLab) -> None:
    server = ssh_lab.server("gpu01")
    profile = quick_profile("far", "--delay", "4")
    host, config = (
        HostConfig(name="here", target="gpu01", python=sys.executable),
        Config(ssh=ssh_lab.settings()),
    )
    async with desk_of(profile, host=host, config=config) as desk:
        run = await desk.start(profile)
        server.cut()
    server.start()
    async with desk_of(profile, host=host, config=config) as desk:
        found = await desk.find("far")
        assert found.run_id == run.run_id
        assert found.age_s is not None
        async with await desk.watch(found, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
        assert (await desk.stop(found)).complete


def configure(profile: Profile) -> None:
    """The profile in the configuration that the command reads, on this machine."""
    table = {
        "name": profile.name, "host": "local", "engine": "custom", "port": profile.port,
        "command": list(profile.command), "ready": {"path": "/health"}, "stop_grace_s": 3,
    }  # fmt: skip
    place = paths.config_file()
    place.parent.mkdir(parents=True, exist_ok=True)
    host = {"name": "local", "target": "local", "python": sys.executable}
    place.write_text(tomli_w.dumps({"hosts": [host], "servers": [table]}))


def gpuroom(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "gpuroom.py"), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip


async def finished(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    out, err = await asyncio.to_thread(process.communicate, None, DEADLINE_S)
    return process.returncode, out, err


async def test_gpuroom_is_killed_during_a_start_and_finds_the_server_again() -> None:
    profile = quick_profile("killed", "--delay", "4")
    configure(profile)
    starting = gpuroom("start", "killed", "--wait")
    assert starting.stderr is not None
    said = b""
    while b"is started on local" not in said:
        line = await asyncio.to_thread(starting.stderr.readline)
        assert line, said
        said += line
    starting.kill()
    await finished(starting)
    status, out, err = await finished(gpuroom("wait-ready", "killed", "--json"))
    assert status == 0, err
    answer = json.loads(out)
    assert f"pid {answer['pid']}," in said.decode()
    assert answer["state"] == "ready"
    status, _, err = await finished(gpuroom("stop", "killed"))
    assert status == 0, err
    assert members_alive(answer["run_id"]) == []


async def test_two_who_start_at_once_one_wins_and_the_other_is_told_who() -> None:
    configure(quick_profile("both"))
    first, second = await asyncio.gather(
        finished(gpuroom("start", "both")), finished(gpuroom("start", "both"))
    )
    (lost,) = [each for each in (first, second) if each[0] != 0]
    assert lost[0] in (7, 8)
    assert b"started by" in lost[2]
    status, _, err = await finished(gpuroom("stop", "both"))
    assert status == 0, err


async def test_a_start_waits_for_the_run_that_is_leaving() -> None:
    profile = quick_profile("late")
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        assert run.pid is not None
        record = json.loads(Path(run.place, "id.json").read_text())
        os.kill(record["supervisor_pid"], signal.SIGSTOP)
        try:
            os.kill(run.pid, signal.SIGKILL)
            starting = asyncio.create_task(desk.start(profile))
            await asyncio.sleep(1.0)
            assert not starting.done()
        finally:
            os.kill(record["supervisor_pid"], signal.SIGCONT)
        again = await starting
        assert again.run_id != run.run_id
        assert (await desk.stop(again)).complete


async def test_workers_that_a_crash_left_behind_are_named_and_stopped() -> None:
    profile = quick_profile("left", "--workers", "1")
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        async with await desk.watch(run, profile) as watch:
            await watch.until(is_state(*ANSWERING), DEADLINE_S)
        assert run.pid is not None
        os.kill(run.pid, signal.SIGKILL)
        (worker,) = [pid for pid in members_alive(run.run_id) if pid != run.pid]
        async with asyncio.timeout(DEADLINE_S):
            while not (found := await desk.check(profile)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        (finding,) = [each for each in found if each.id == "earlier-left"]
        assert f"pid {worker}" in finding.title
        with pytest.raises(ProfileBusy, match="not all of its processes") as busy:
            await desk.start(profile)
        assert f"pid {worker}" in busy.value.detail
        assert (await desk.stop(await desk.find("left"), grace_s=0.5)).complete
        async with await desk.watch(run, profile) as watch:
            found = await watch.until(is_state(State.CRASHED, State.STOPPED), DEADLINE_S)
            assert found.state is State.CRASHED, "that it was cleared away makes no stop of it"
        again = await desk.start(profile)
        assert (await desk.stop(again, grace_s=0.5)).complete
