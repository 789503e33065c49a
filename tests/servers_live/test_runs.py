"""What is started outlives the agent, is found again, and is stopped wholly."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from backends.errors import AgentError
from tests.servers_live.conftest import Host, new_host

SLEEP = "import time; time.sleep(600)"
LISTEN = """
import socket, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", {port})); s.listen(); print("up", flush=True); time.sleep(600)
"""
# A child in a session of its own that ignores SIGTERM, with a grandchild: what workers do.
STUBBORN = """
import os, signal, subprocess, sys, time
code = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('deaf', flush=True); time.sleep(600)"
)
subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("adrift", flush=True)
    time.sleep(600)
time.sleep(600)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_a_run_is_written_down_and_its_arguments_arrive_as_they_are(host: Host) -> None:
    words = ["a b", "'\"`$(id)`", "=ls", "*", "日本", "new\nline", "--api-key", "geheim"]
    code = (
        "import json, os, sys; alone = os.getsid(0) == os.getpgrp() == os.getpid(); "
        "print(json.dumps([sys.argv[1:], os.environ['HF_TOKEN'], sys.stdin.read(), alone]))"
    )
    answer = await host.start(
        "args", sys.executable, "-c", code, *words, env={"HF_TOKEN": "hf_" + "x" * 20}
    )
    record = answer["started"]
    state = await host.until(record["dir"], lambda state: state["exit"] is not None)
    assert state["exit"]["code"] == 0
    argv, token, asked, alone = json.loads(Path(record["log"]).read_text())
    assert argv == words
    assert asked == "", "nobody is there to type"
    assert alone, "in a session and a process group of its own"
    assert token == "hf_" + "x" * 20
    kept = Path(record["dir"], "id.json").read_text()
    assert "geheim" not in kept
    assert "hf_x" not in kept
    assert json.loads(kept)["env"]["HF_TOKEN"] == "***"


async def test_it_outlives_the_agent_and_another_operator_finds_it(host: Host) -> None:
    record = await host.python("outlive", SLEEP)
    await host.client.close()
    other = await new_host()
    try:
        found = [s for s in await other.ask("servers.list") if s["record"]["dir"] == record["dir"]]
        assert [state["alive"] for state in found] == [True]
        assert found[0]["record"]["by"] == "me"
        pieces = await other.stop(record["dir"], grace_s=5)
        assert pieces[-1]["done"]
        assert pieces[-1]["left"] == []
    finally:
        await other.client.close()


async def test_a_second_start_is_told_who_has_the_profile(host: Host) -> None:
    await host.python("once", SLEEP)
    answer = await host.start("once", sys.executable, "-c", SLEEP)
    assert answer["busy"]["by"] == "me"


@pytest.mark.parametrize(
    ("argv", "more", "errno"),
    [
        (["/no/such/program"], {}, "ENOENT"),
        (["/etc/passwd"], {}, "EACCES"),
        (["sleep", "1"], {"cwd": "/no/such/folder"}, "ENOENT"),
    ],
)
async def test_a_start_that_cannot_be_says_why(
    host: Host, argv: list[str], more: dict[str, str], errno: str
) -> None:
    answer = await host.start("wrong", *argv, **more)
    assert answer["failed"]["errno"] == errno
    again = await host.start("wrong", sys.executable, "-c", SLEEP)
    assert "started" in again, "a failed start must give the profile free"


async def test_stop_is_complete_where_children_hide_and_are_deaf(host: Host) -> None:
    record = await host.python("stubborn", STUBBORN)

    def all_there(state: dict[str, object]) -> bool:
        log = Path(record["log"]).read_text()
        return "deaf" in log and "adrift" in log

    await host.until(record["dir"], all_there)
    before = await host.ask("servers.look", dir=record["dir"], deep=True)
    pids = [member["pid"] for member in before["members"] if member["state"] != "Z"]
    assert len(pids) == 3
    pieces = await host.stop(record["dir"], grace_s=0.5)
    assert pieces[-1] == {"done": True, "left": [], "port": None}
    assert any("SIGKILL" in piece.get("step", "") for piece in pieces)
    assert not [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists()
                and Path(f"/proc/{pid}/cmdline").read_bytes()]  # fmt: skip
    state = await host.until(record["dir"], lambda state: not state["supervised"])
    assert state["exit"]["signal"] == 15


async def test_the_end_by_a_signal_is_written_down(host: Host) -> None:
    record = await host.python("killed", SLEEP)
    os.kill(record["pid"], 9)
    state = await host.until(record["dir"], lambda state: state["exit"] is not None)
    assert (state["exit"]["signal"], state["alive"]) == (9, False)


async def test_a_stranger_on_the_port_is_named_and_not_touched(host: Host) -> None:
    port = free_port()
    stranger = subprocess.Popen(
        [sys.executable, "-c", LISTEN.format(port=port)], stdout=subprocess.PIPE
    )
    try:
        assert stranger.stdout is not None
        stranger.stdout.readline()
        facts = await host.ask("servers.check", port=port)
        assert [owner["pid"] for owner in facts["port"]["owners"]] == [stranger.pid]
        record = await host.python("beside", SLEEP, port=port)
        pieces = await host.stop(record["dir"], grace_s=2)
        assert [owner["pid"] for owner in pieces[-1]["port"]["owners"]] == [stranger.pid]
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.communicate()


async def test_a_reused_pid_is_never_taken_for_the_server(host: Host) -> None:
    record = await host.python("reused", SLEEP)
    await host.stop(record["dir"], grace_s=2)
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        path = Path(record["dir"], "id.json")
        forged = {**json.loads(path.read_text()), "pid": bystander.pid, "session": bystander.pid}
        path.write_text(json.dumps(forged))
        state = await host.ask("servers.look", dir=record["dir"], deep=True)
        assert not state["alive"]
        assert state["members"] == []
        await host.stop(record["dir"], grace_s=0)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def test_a_record_from_before_the_reboot_is_gone(host: Host) -> None:
    record = await host.python("reboot", SLEEP)
    path = Path(record["dir"], "id.json")
    original = path.read_text()
    path.write_text(json.dumps({**json.loads(original), "boot_id": "another"}))
    state = await host.ask("servers.look", dir=record["dir"], deep=True)
    assert (state["rebooted"], state["alive"], state["members"]) == (True, False, [])
    path.write_text(original)


async def test_two_operators_who_stop_at_once(host: Host) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, lambda *a: None)\n"
    record = await host.python("both", code + "print('up', flush=True)\nwhile True: time.sleep(1)")
    await host.until(record["dir"], lambda state: "up" in Path(record["log"]).read_text())
    other = await new_host()
    try:
        first = asyncio.create_task(host.stop(record["dir"], grace_s=3))
        async with asyncio.timeout(20):
            while not Path(record["dir"]).parent.joinpath("stop.lock").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        with pytest.raises(AgentError, match="me is stopping it already"):
            await other.stop(record["dir"], grace_s=0)
        assert (await first)[-1]["left"] == []
    finally:
        await other.client.close()


async def test_describe_gives_what_a_profile_is_written_from(host: Host, tmp_path: Path) -> None:
    port = free_port()
    log = tmp_path / "own.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", LISTEN.format(port=port), "--token", "s3cret"],
            stdout=out, cwd=tmp_path, env={**os.environ, "OPENAI_API_KEY": "sk-abcdefgh"},
        )  # fmt: skip
    try:
        async with asyncio.timeout(20):
            while "up" not in log.read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        found = await host.ask("servers.describe", pid=process.pid)
        assert (found["ports"], found["cwd"], found["stdout"]) == ([port], str(tmp_path), str(log))
        assert found["argv"][-2:] == ["--token", "***"]
        assert found["env"]["OPENAI_API_KEY"] == "***"
        listed = {who["pid"]: who for who in await host.ask("servers.candidates")}
        assert listed[process.pid]["ports"] == [port]
    finally:
        process.kill()
        process.wait()


async def test_names_that_would_leave_the_folder_are_refused(host: Host) -> None:
    for name in ("../up", "a/b", "", "-x", "a" * 80):
        with pytest.raises(AgentError, match="can't be a name"):
            await host.ask("servers.start", profile=name, run_id="r", argv=["true"])
