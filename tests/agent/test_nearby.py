"""A server looked at again: few processes are read, and what happens is seen all the same."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backends.agent.remote import members, nearby, processes

DEADLINE_S = 30.0
# Forks a child at each line that it reads; the child leaves the session at the word "away".
PARENT = """
import os, sys, time
print("up", flush=True)
for line in sys.stdin:
    if os.fork() == 0:
        if line.strip() == "away" and os.fork():
            os._exit(0)
        time.sleep(600)
"""


class Server:
    """A process that forks when it is told to, and looks at it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        ticks = processes.read_stat("/proc", process.pid)
        assert ticks is not None
        self.key = (process.pid, ticks[0])
        self.record: dict[str, Any] = {
            "boot_id": members.boot_id(), "pid": process.pid, "start_ticks": ticks[0],
            "session": process.pid, "supervisor_pid": -1, "supervisor_ticks": -1, "run_id": "",
        }  # fmt: skip

    def fork(self, how: str = "child") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{how}\n")
        self.process.stdin.flush()

    def look(self) -> list[members.Member]:
        return nearby.scan(self.key, lambda: self.record)

    def until(self, test: Callable[[list[members.Member]], object]) -> list[members.Member]:
        deadline = time.monotonic() + DEADLINE_S
        while not test(found := self.look()):
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(nearby, "_seen", {})
    monkeypatch.setattr(nearby, "WHOLE_EVERY_S", 600.0)
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    yield Server(process)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_only_the_servers_own_processes_are_read_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    whole = processes.stat_fields

    def counted(root: str, pid: int) -> Any:
        read.append(pid)
        return whole(root, pid)

    monkeypatch.setattr(processes, "stat_fields", counted)
    server.look()
    assert len(set(read)) > 2, "the first look reads all"
    read.clear()
    assert [member.pid for member in server.look()] == [server.process.pid]
    assert set(read) <= {server.process.pid, -1}


def test_a_new_child_and_its_end_are_seen_without_a_whole_look(server: Server) -> None:
    server.look()
    server.fork()
    found = server.until(lambda found: len(found) == 2)
    (child,) = [member.pid for member in found if member.pid != server.process.pid]
    os.kill(child, signal.SIGKILL)
    server.until(lambda found: [m.state for m in found if m.pid == child] == ["Z"])


def test_whoever_came_another_way_is_seen_by_the_next_whole_look(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.look()
    server.fork("away")
    deadline = time.monotonic() + DEADLINE_S
    session = server.record
    while not [m for m in members.scan(session, deep=False) if m.pid != server.process.pid]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    monkeypatch.setattr(nearby, "WHOLE_EVERY_S", 0.0)
    assert any(m.state != "Z" and m.pid != server.process.pid for m in server.look())


def test_where_the_kernel_lists_no_children_all_is_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearby, "children", lambda task: None)
    server.look()
    server.fork()
    server.until(lambda found: len(found) == 2)
