"""Whole rooms: real servers, the real agent, and everything that goes wrong between them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from backends import lifeline
from backends.config import Config, HostConfig
from backends.errors import AgentError, UsageError
from backends.events import AgentRestarted, HostEvent, HostKeyRefused, LinkLost, LinkRestored
from backends.hub import RoomHub
from backends.link.base import Prompter
from backends.model import LinkState
from backends.session import HostSession
from tests.link.fakes import until
from tests.link.prompters import ScriptedPrompter
from tests.sshd import SshLab, free_port

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.real


def hub_of(
    lab: SshLab, names: Iterable[str], prompter: Prompter | None = None, **settings: float
) -> RoomHub:
    hosts = [HostConfig(name=name) for name in names]
    return RoomHub(hosts, Config(ssh=lab.settings(**settings)), prompter)  # type: ignore[arg-type]


def state(session: HostSession) -> LinkState:
    return session.snapshot.link.state


def sampled(session: HostSession) -> bool:
    return session.snapshot.sampled_s is not None


def happened(hub: RoomHub) -> list[HostEvent]:
    found = []
    while not hub.events.empty():
        found.append(hub.events.get_nowait())
    return found


async def test_local() -> None:
    async with RoomHub([HostConfig(name="local")]) as hub:
        session = hub.session("local")
        await until(lambda: sampled(session), "a sample")
        snapshot = session.snapshot
        assert snapshot.link.transport == "local"
        assert snapshot.link.via == "agent"
        assert snapshot.agent is not None
        assert snapshot.agent.pid != os.getpid()
        pid = snapshot.agent.pid
    await until(lambda: not Path(f"/proc/{pid}").exists(), "the agent to leave")


async def test_an_answer_in_pieces_is_written_down(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\n")
    async with RoomHub([HostConfig(name="local")]) as hub:
        session = hub.session("local")
        await until(lambda: state(session) is LinkState.LIVE)
        pieces = session.stream(
            "files.follow", {"path": str(log)}, asked_by="server.log", what="follow the log"
        )
        async with asyncio.timeout(30), contextlib.aclosing(pieces):
            async for piece in pieces:
                assert piece
                break
        entry = list(hub.journal)[-1]
        assert (entry.what, entry.result) == ("follow the log", "left")
        missing = session.stream("selftest.nonsense", {}, asked_by="t", what="try")
        with pytest.raises(AgentError):
            await anext(missing)
        assert list(hub.journal)[-1].result not in ("ok", "left")


async def test_two_hosts_over_ssh(ssh_lab: SshLab) -> None:
    ssh_lab.server("a", shell="fish", noise="moo", banner="hello\n")
    ssh_lab.server("b", shell="zsh", noise="moo", options=["MaxSessions 1"])
    async with hub_of(ssh_lab, ["a", "b"]) as hub:
        await until(lambda: all(map(sampled, hub.sessions)), "samples of both")
        assert [entry.what for entry in hub.journal] == ["start the agent"] * 2
        version = hub.version
        await until(lambda: hub.version > version, "the next sample")


async def test_a_name_that_is_no_host() -> None:
    hub = RoomHub([])
    with pytest.raises(UsageError):
        hub.session("x")


async def test_a_target_that_cannot_be_read_is_a_state() -> None:
    async with RoomHub([HostConfig(name="bad", target="a b"), HostConfig(name="local")]) as hub:
        await until(lambda: state(hub.session("bad")) is LinkState.REFUSED)
        assert "'a b' is not a host" in hub.session("bad").snapshot.link.error
        await until(lambda: sampled(hub.session("local")))


async def test_sshd_killed_and_back(ssh_lab: SshLab) -> None:
    server = ssh_lab.server("a")
    async with hub_of(ssh_lab, ["a"]) as hub:
        session = hub.session("a")
        await until(lambda: session.snapshot.readings.kernel, "what is read once")
        kernel = session.snapshot.readings.kernel
        server.cut()
        await until(lambda: state(session) is LinkState.LOST)
        assert session.snapshot.readings.kernel == kernel, "the last values stay"
        assert session.snapshot.link.error
        server.start()
        await until(lambda: state(session) is LinkState.LIVE, "the way back", 60)
        assert [type(event) for event in happened(hub)][-2:] == [LinkLost, LinkRestored]


async def test_a_hung_host_is_flagged_and_comes_back_and_no_other_notices(ssh_lab: SshLab) -> None:
    hung = ssh_lab.server("hung")
    ssh_lab.server("fine")
    async with hub_of(ssh_lab, ["hung", "fine"], keepalive_s=1.0, keepalive_count=2) as hub:
        await until(lambda: all(map(sampled, hub.sessions)))
        hung.freeze()
        try:
            await until(lambda: state(hub.session("hung")) is not LinkState.LIVE, "the flag", 20)
            await until(lambda: state(hub.session("hung")) is LinkState.LOST, "the loss", 20)
            assert state(hub.session("fine")) is LinkState.LIVE
            before = hub.session("fine").snapshot.sampled_s
            assert before is not None
            fine = hub.session("fine")
            await until(lambda: (fine.snapshot.sampled_s or 0) > before, "the other's samples")
        finally:
            hung.thaw()
        await until(lambda: state(hub.session("hung")) is LinkState.LIVE, "the way back", 60)


async def test_an_agent_that_is_killed_or_stopped(ssh_lab: SshLab) -> None:
    ssh_lab.server("a", options=["MaxSessions 1"])
    async with hub_of(ssh_lab, ["a"]) as hub:
        session = hub.session("a")
        await until(lambda: sampled(session))
        agent = session.snapshot.agent
        assert agent is not None
        os.kill(agent.pid, signal.SIGKILL)
        events: list[HostEvent] = []
        while not any(isinstance(event, AgentRestarted) for event in events):
            async with asyncio.timeout(60):
                events.append(await hub.events.get())
        assert not any(isinstance(event, LinkLost) for event in events)
        assert session.snapshot.agent not in (None, agent)


async def test_an_agent_that_is_stopped(ssh_lab: SshLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeline, "HUNG_S", 2.0)
    ssh_lab.server("a", options=["MaxSessions 1"])
    async with hub_of(ssh_lab, ["a"]) as hub:
        session = hub.session("a")
        await until(lambda: sampled(session))
        agent = session.snapshot.agent
        assert agent is not None
        os.kill(agent.pid, signal.SIGSTOP)
        try:
            await until(lambda: session.snapshot.agent != agent, "a new agent", 60)
            await until(lambda: state(session) is LinkState.LIVE, timeout_s=60)
        finally:
            os.kill(agent.pid, signal.SIGCONT)
        await until(lambda: not Path(f"/proc/{agent.pid}").exists(), "the old one to leave")


async def test_unknown_host_key_refused_then_accepted(ssh_lab: SshLab) -> None:
    ssh_lab.server("a", known=False)
    asked = ScriptedPrompter()
    async with hub_of(ssh_lab, ["a"], asked) as hub:
        session = hub.session("a")
        await until(lambda: state(session) is LinkState.REFUSED)
        assert any(isinstance(event, HostKeyRefused) for event in happened(hub))
        assert any("not known" in alert.title for alert in hub.alerts)
        asked._accept = True
        session.retry_now()
        await until(lambda: sampled(session))


async def test_the_state_says_that_a_person_is_asked(ssh_lab: SshLab) -> None:
    ssh_lab.server("a", known=False)
    async with hub_of(ssh_lab, ["a"], ScriptedPrompter(accept_keys=True, think_s=1.0)) as hub:
        await until(lambda: state(hub.session("a")) is LinkState.HOST_KEY)
        await until(lambda: state(hub.session("a")) is LinkState.LIVE)


async def test_twenty_hosts_of_which_some_are_dead(ssh_lab: SshLab) -> None:
    server = ssh_lab.server("alive", alias=False, options=["MaxStartups 10:30:100"])
    names = [f"h{number:02}" for number in range(20)]
    dead = set(names[::2])
    silent = [socket_that_stays_silent() for _ in range(3)]
    for number, name in enumerate(names):
        if name not in dead:
            ssh_lab.add_alias(name, server)
        else:
            port = silent[number % 3].getsockname()[1] if number % 4 else free_port()
            with ssh_lab.config_file.open("a") as file:
                file.write(f"Host {name}\n HostName 127.0.0.1\n Port {port}\n")
    try:
        async with hub_of(ssh_lab, names, connect_timeout_s=20.0) as hub:
            began_s = time.monotonic()
            alive = [session for session in hub.sessions if session.name not in dead]
            await until(lambda: all(map(sampled, alive)), "every live host", 60)
            assert time.monotonic() - began_s < 20, "none waited for a dead one's deadline"
            for session in hub.sessions:
                if session.name in dead:
                    assert state(session) in (LinkState.LOST, LinkState.CONNECTING)
            stopping_s = time.monotonic()
        assert time.monotonic() - stopping_s < 10
    finally:
        for sock in silent:
            sock.close()


def socket_that_stays_silent() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


async def test_stop_does_not_wait_for_a_hung_peer(ssh_lab: SshLab) -> None:
    server = ssh_lab.server("a")
    hub = hub_of(ssh_lab, ["a"])
    await hub.start()
    try:
        await until(lambda: sampled(hub.session("a")))
        server.freeze()
        before = set(asyncio.all_tasks())
        async with asyncio.timeout(10):
            await hub.stop()
        assert not any(task.get_name() == "host-a" for task in asyncio.all_tasks() - before)
    finally:
        server.thaw()


async def test_a_host_without_python3_streams_nvidia_smi(ssh_lab: SshLab) -> None:
    programs = ssh_lab.folder / "bin"
    programs.mkdir()
    (programs / "cat").symlink_to("/bin/cat")
    world = ssh_lab.folder / "smi.json"
    world.write_text("{}")
    smi = programs / "nvidia-smi"
    fake = ROOT / "tests" / "agent" / "fake_smi.py"
    smi.write_text(f"#!/bin/sh\nFAKE_SMI='{world}' exec {sys.executable} {fake} \"$@\"\n")
    smi.chmod(0o755)
    ssh_lab.server("a", path=str(programs), options=["MaxSessions 1"])
    async with hub_of(ssh_lab, ["a"]) as hub:
        session = hub.session("a")
        await until(lambda: session.snapshot.gpus and sampled(session), "a sample")
        snapshot = session.snapshot
        assert snapshot.link.via == "nvidia-smi"
        assert snapshot.gpus[0].readings.power_w is not None
        assert any("no python3" in note for note in snapshot.notes)
        assert [entry.result for entry in hub.journal] == ["ok, via nvidia-smi"]


async def test_a_host_with_neither_says_what_to_install(ssh_lab: SshLab) -> None:
    ssh_lab.server("a", path=str(ssh_lab.folder / "empty"))
    async with hub_of(ssh_lab, ["a"]) as hub:
        session = hub.session("a")
        await until(lambda: state(session) is LinkState.LOST)
        assert "no python3" in session.snapshot.link.error
        assert "nvidia-smi" in session.snapshot.link.error
        assert "install python3" in session.snapshot.link.hint


async def test_a_host_with_neither_but_linux_tools_is_held_without_readings(
    ssh_lab: SshLab,
) -> None:
    """A hypervisor that passes its GPUs through: no driver, no python3."""
    programs = ssh_lab.folder / "bin"
    programs.mkdir()
    (programs / "cat").symlink_to("/bin/cat")
    ssh_lab.server("a", path=str(programs), options=["MaxSessions 1"])
    async with hub_of(ssh_lab, ["a"]) as hub:
        session = hub.session("a")
        await until(lambda: sampled(session), "a sign of life")
        first = session.snapshot.sampled_s
        await until(lambda: session.snapshot.sampled_s != first, "another one")
        snapshot = session.snapshot
        assert (snapshot.link.state, snapshot.link.via) == (LinkState.LIVE, "tools")
        assert snapshot.gpus == ()
        assert snapshot.agent is not None
        assert snapshot.agent.boot_id
        assert snapshot.driver is not None
        assert "no nvidia-smi" in snapshot.driver.detail
        assert snapshot.readings.cpu_pct is None
        with pytest.raises(AgentError, match="can't be done"):
            await session.request("processes.list", asked_by="test", what="list")
        await until(lambda: session.snapshot.link.round_trip_s is not None, "a heartbeat")


class TestDemo:
    async def test_a_host_with_eight_cards_and_nothing_left_afterwards(self) -> None:
        async with RoomHub([HostConfig(name="demo")]) as hub:
            session = hub.session("demo")
            await until(lambda: len(session.snapshot.gpus) == 8 and sampled(session))
            await until(lambda: all(g.readings.power_w for g in session.snapshot.gpus))
            assert session.snapshot.link.transport == "demo"
            agent = session.snapshot.agent
            assert agent is not None
            pid = agent.pid
        await until(lambda: not Path(f"/proc/{pid}").exists(), "its agent to leave")

    async def test_a_scenario(self) -> None:
        async with RoomHub([HostConfig(name="demo:sixteen")]) as hub:
            session = hub.session("demo:sixteen")
            await until(lambda: len(session.snapshot.gpus) == 16)

    async def test_a_scenario_that_does_not_exist(self) -> None:
        async with RoomHub([HostConfig(name="demo:nonsense")]) as hub:
            session = hub.session("demo:nonsense")
            await until(lambda: state(session) is LinkState.REFUSED)
            assert "healthy" in session.snapshot.link.hint

    async def test_nothing_is_left_when_the_room_is_killed(self) -> None:
        code = (
            "import asyncio, sys\n"
            "from backends.config import HostConfig\n"
            "from backends.hub import RoomHub\n"
            "async def main():\n"
            "    async with RoomHub([HostConfig(name='demo')]) as hub:\n"
            "        session = hub.session('demo')\n"
            "        while session.snapshot.agent is None: await asyncio.sleep(0.05)\n"
            "        print(session.snapshot.agent.pid, flush=True)\n"
            "        await asyncio.sleep(3600)\n"
            "asyncio.run(main())\n"
        )
        room = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=ROOT
        )
        try:
            assert room.stdout is not None
            agent = int(await room.stdout.readline())
            server = int(Path(f"/proc/{agent}/stat").read_text().rsplit(")", 1)[1].split()[1])
        finally:
            room.kill()
            await room.wait()
        await until(lambda: not Path(f"/proc/{server}").exists(), "the demo host to leave")
        await until(lambda: not Path(f"/proc/{agent}").exists(), "its agent to leave")
