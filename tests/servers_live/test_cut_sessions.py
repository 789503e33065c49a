"""Only the sshd of a session is killed: a start, a stop, a wait and a followed log go on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import tomli_w

from backends import paths
from backends.agent.remote import runs
from backends.config import Config, HostConfig
from backends.errors import AgentGone, LinkError, RoomError
from backends.servers.launchers.base import ProfileBusy, StopStep
from backends.servers.lifecycle import ANSWERING, State
from tests.servers_live.rooms import (
    DEADLINE_S,
    OF_THIS_RUN,
    Play,
    desk_of,
    is_state,
    members_alive,
    quick_profile,
)
from tests.servers_live.test_cut_off import finished, gpuroom
from tests.servers_live.test_half_done import until
from tests.sshd import SshLab, ssh_lab

__all__ = ["ssh_lab"]
pytestmark = pytest.mark.real
T = TypeVar("T")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place that a login at `gpu01` has, too."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "ssh/gpu01/home/.local/state"))


def far(lab: SshLab) -> dict[str, object]:
    return {
        "host": HostConfig(name="here", target="gpu01", python=sys.executable),
        "config": Config(ssh=lab.settings()),
    }


async def linked(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer, once the host is back."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await ask()
            except (LinkError, AgentGone):
                await asyncio.sleep(0.05)


async def test_in_a_start_the_server_comes_up_and_nobody_starts_a_second(
    ssh_lab: SshLab, tmp_path: Path
) -> None:
    server = ssh_lab.server("gpu01")
    held = tmp_path / "held.log"  # whoever opens a pipe to write waits for a reader
    os.mkfifo(held)
    profile = quick_profile(f"begun{OF_THIS_RUN}", log=str(held))
    lock = Path(runs.root(), profile.name, "lock")
    async with desk_of(profile, **far(ssh_lab)) as desk:  # type: ignore[arg-type]
        starting = asyncio.create_task(desk.start(profile))
        await until(lambda: lock.exists() and lock.read_bytes())
        server.cut_sessions()
        with pytest.raises(RoomError):
            await starting
        with pytest.raises(ProfileBusy, match="running already") as busy:
            await linked(lambda: desk.start(profile))
        assert "started by" in busy.value.detail
        reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
        try:
            await until(lambda: list(lock.parent.glob("*/id.json")))
            run = await desk.find(profile.name)
            async with await desk.watch(run, profile) as watch:
                await watch.until(is_state(*ANSWERING), DEADLINE_S)
                assert watch.last_look is not None
                assert [member.pid for member in watch.last_look.members] == [run.pid]
            assert (await desk.stop(run)).complete
        finally:
            os.close(reader)
        assert members_alive(run.run_id) == []
        state = runs.state(run.place)
        assert state is not None
        assert state["exit"]["code"] == 0, "its supervisor saw the end, though nobody heard it"


async def test_in_a_stop_it_is_carried_to_its_end_and_is_no_crash(ssh_lab: SshLab) -> None:
    server = ssh_lab.server("gpu01")
    profile = quick_profile(f"deaf{OF_THIS_RUN}", "--deaf")
    asked = asyncio.Event()

    def told(step: StopStep) -> None:
        asked.set()

    async with desk_of(profile, **far(ssh_lab)) as desk:  # type: ignore[arg-type]
        run = await desk.start(profile)
        await until(lambda: b"listening" in Path(run.place, "server.log").read_bytes())
        stopping = asyncio.create_task(desk.stop(run, told, grace_s=0.5))
        await asyncio.wait_for(asked.wait(), DEADLINE_S)
        server.cut_sessions()
        with pytest.raises(RoomError):
            await stopping
        await until(lambda: not members_alive(run.run_id))
        found = await linked(lambda: desk.find(profile.name))
        async with await desk.watch(found, profile) as watch:
            await watch.until(is_state(State.STOPPED), DEADLINE_S)
        again = await desk.start(profile)
        assert (await desk.stop(again, grace_s=0)).complete


async def test_waiting_and_following_go_on_with_no_line_lost_or_doubled(
    ssh_lab: SshLab, tmp_path: Path
) -> None:
    server = ssh_lab.server("gpu01")
    play = Play(tmp_path)
    play.now(say=["one"], answers={"/health": 503})
    profile = play.profile("custom", ready={"path": "/health"})
    table = {
        "name": "played", "host": "gpu01", "engine": "custom", "port": profile.port,
        "command": list(profile.command), "ready": {"path": "/health"}, "stop_grace_s": 3,
    }  # fmt: skip
    place = paths.config_file()
    place.parent.mkdir(parents=True, exist_ok=True)
    host = {"name": "gpu01", "target": "gpu01", "python": sys.executable}
    ssh = msgspec.to_builtins(ssh_lab.settings())
    place.write_text(tomli_w.dumps({"hosts": [host], "servers": [table], "ssh": ssh}))
    async with desk_of(profile) as desk:
        run = await desk.start(profile)
        waiting = gpuroom("wait-ready", "played")
        following = gpuroom("logs", "gpu01", "played", "-f")
        try:
            await heard(waiting, b"loading")
            out = await heard(following, b"one", out=True)
            server.cut_sessions()
            play.now(say=["one", "two"])
            await heard(waiting, b"lost")
            play.now(say=["one", "two", "three"], answers={"/health": 200})
            status, _, said = await finished(waiting)
            assert status == 0, said
            out += await heard(following, b"three", out=True)
            assert out == b"one\ntwo\nthree\n"
        finally:
            for each in (waiting, following):
                each.kill()
                await finished(each)
            assert (await desk.stop(run, grace_s=1)).complete


async def heard(process: subprocess.Popen[bytes], words: bytes, *, out: bool = False) -> bytes:
    """What it says up to a line with these words."""
    pipe = process.stdout if out else process.stderr
    assert pipe is not None
    said = b""
    while words not in said:
        line = await asyncio.wait_for(asyncio.to_thread(pipe.readline), DEADLINE_S)
        assert line, said
        said += line
    return said
