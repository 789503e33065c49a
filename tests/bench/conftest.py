"""A server with a known schedule, started once; and runs against it."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends.bench import planfile
from backends.bench.endpoint import Endpoint, direct, parse_url
from backends.bench.plan import Plan
from backends.bench.process import LocalGenerator
from backends.bench.results import RunResult, RunStatus
from backends.bench.runner import Event, Run, prepare_run

TTFT_S, GAP_S = 0.05, 0.01


@dataclass(frozen=True)
class Scheduled:
    """The running server."""

    port: int

    def url(self, mode: str = "plain") -> str:
        return f"http://127.0.0.1:{self.port}/{mode}"

    def endpoint(self, mode: str = "plain") -> Endpoint:
        return parse_url(self.url(mode))

    def log(self) -> list[dict[str, Any]]:
        """What was sent since the last call."""
        data: list[dict[str, Any]] = self._get("/log")
        return data

    def aborted(self) -> int:
        """How many of its streams clients have ended before their time."""
        count: int = self._get("/aborted")
        return count

    def open(self) -> int:
        """How many of its streams are under way."""
        count: int = self._get("/open")
        return count

    def _get(self, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        data = json.loads(connection.getresponse().read())
        connection.close()
        return data


@pytest.fixture(scope="session")
def scheduled() -> Iterator[Scheduled]:
    """The server, in a process of its own."""
    with serve() as server:
        yield server


@contextlib.contextmanager
def serve(*more: str) -> Iterator[Scheduled]:
    """Start it, wait for its port, end it."""
    program = Path(__file__).with_name("scheduled_server.py")
    process = subprocess.Popen(
        [sys.executable, str(program), str(TTFT_S), str(GAP_S), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield Scheduled(int(process.stdout.readline()))
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def plan_of(text: str) -> Plan:
    """A plan without warm-up and pauses, with the keys of `text`."""
    return planfile.parse("pause_s = 0.0\nflush_cache = false\n" + text)


def closed(streams: int, requests: int, extra: str = "", tokens: int = 10) -> Plan:
    """So many requests on so many streams."""
    plan = plan_of(
        f"route = 'chat'\nparts = [{{ input = 32, output = {tokens} }}]\n{extra}\n"
        f"[[steps]]\nload = 'closed'\nconcurrency = {streams}\nrequests = {requests}\n"
    )
    return msgspec.structs.replace(plan, warm_up=None)


async def run_plan(
    plan: Plan,
    endpoint: Endpoint,
    *,
    folder: Path | None = None,
    listener: Callable[[Event], None] = lambda event: None,
) -> RunResult:
    """Run a plan to its end."""
    fetch = direct(endpoint)
    prepared = await prepare_run(plan, endpoint, fetch)
    run = Run(prepared, LocalGenerator(), fetch, folder=folder, listener=listener)
    result = await run.execute()
    assert result.status is not RunStatus.BROKEN, result.error
    return result
