"""A server with a known schedule, started once; and runs against it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from backends.bench import planfile
from backends.bench.endpoint import Endpoint, direct, parse_url
from backends.bench.plan import Plan
from backends.bench.process import LocalGenerator
from backends.bench.results import RunResult, RunStatus
from backends.bench.runner import Event, Progress, Run, prepare_run

TTFT_S, GAP_S = 0.05, 0.01
REFERENCE = Path(__file__).resolve().parents[2] / "benchmarks" / "reference_server.c"
HELD_S = 0.6
"""How long `held_up` keeps a worker from its sockets."""


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

    def open(self, mode: str = "plain") -> int:
        """How many streams of a mode are under way."""
        count: int = self._get(f"/{mode}/open")
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


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The reference server of the benchmarks: 1,024 streams are too many for one in Python."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    program = tmp_path_factory.mktemp("reference") / "reference_server"
    subprocess.run([compiler, "-O2", "-o", str(program), str(REFERENCE)], check=True)
    process = subprocess.Popen(
        [str(program), "200", "50"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield parse_url(f"http://127.0.0.1:{int(process.stdout.readline())}")
    finally:
        process.stdin.close()
        process.wait(timeout=10)
        process.stdout.close()


def reference_log(endpoint: Endpoint) -> list[dict[str, Any]]:
    """What the reference server sent since the last call, as `Scheduled.log` has it."""
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/sent")
        lines = connection.getresponse().read().decode().splitlines()
    log = []
    for line in lines:
        number, received_ns, *sent_ns = map(int, line.split())
        log.append(
            {
                "number": number,
                "received_ns": received_ns,
                "before_ns": sent_ns,
                "after_ns": sent_ns,
            }
        )
    return log


async def held_up(scheduled: Scheduled, deadline_s: float) -> tuple[float, RunResult]:
    """Stop a worker for a while; from then to the first word that the client limits."""
    endpoint = scheduled.endpoint()
    fetch = direct(endpoint)
    prepared = await prepare_run(closed(8, 100_000, tokens=50), endpoint, fetch)
    generator = LocalGenerator()
    running, told = asyncio.Event(), asyncio.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Progress) and event.in_flight == 8:
            running.set()
            if held and event.limited:
                told.set()

    held = False
    run = Run(prepared, generator, fetch, listener=listen)
    task = asyncio.create_task(run.execute())
    async with asyncio.timeout(deadline_s):
        await running.wait()
        assert generator.pid is not None
        (worker,) = psutil.Process(generator.pid).children()
        held, begun = True, time.monotonic()
        worker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(HELD_S)
        worker.send_signal(signal.SIGCONT)
        await told.wait()
        took = time.monotonic() - begun
        run.stop()
        return took, await task


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
