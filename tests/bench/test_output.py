"""The generator's standard output: nobody that reads it slowly, or not at all, holds a run up."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from backends.bench.generator.output import Output
from backends.bench.job import argv, payload
from tests.bench.conftest import Scheduled

LINE = b"x" * 999 + b"\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        with contextlib.suppress(OSError):
            os.close(fd)


def test_what_a_full_pipe_does_not_take_waits(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    out = Output(writer)
    for _ in range(1000):
        out.line(LINE)
        out.flush()
    assert out.waiting
    assert out.error is None

    got = bytearray()

    def read() -> None:
        while len(got) < 1000 * len(LINE):
            got.extend(os.read(reader, 65536))

    thread = threading.Thread(target=read)
    thread.start()
    out.close(20.0)
    thread.join(20.0)
    assert not out.waiting
    assert bytes(got) == LINE * 1000


def test_closing_gives_up_when_nobody_reads(pipe: tuple[int, int]) -> None:
    out = Output(pipe[1])
    out.line(LINE * 1000)
    begun = time.monotonic()
    out.close(0.2)
    assert 0.2 <= time.monotonic() - begun < 10
    assert out.waiting


def test_a_reader_that_has_gone_is_an_error(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    out = Output(pipe[1])
    out.line(LINE)
    out.flush()
    assert isinstance(out.error, BrokenPipeError)
    out.line(LINE)  # For nobody.
    assert not out.waiting
    out.close(5.0)


def test_an_owner_that_does_not_read_does_not_hold_the_load_up(scheduled: Scheduled) -> None:
    job = {
        "route": "chat",
        "stream": True,
        "seed": 1,
        "nonce": "n",
        "ignore_eos": True,
        "prompt": {"kind": "words", "words": ["a"]},
        "parts": [
            {"input": {"kind": "fixed", "value": 9}, "output": {"kind": "fixed", "value": 4}}
        ],
        "target": {"host": "127.0.0.1", "port": scheduled.port, "authority": "x"},
        "limits": {"connect_s": 15.0, "silence_s": 15.0, "request_s": 60.0},
        "steps": [
            {
                "load": {"kind": "closed", "concurrency": 24},
                "total_requests": 400,  # Some 200 kB of records, and a pipe holds 64.
                "index": 0,
                "repetition": 0,
            }
        ],
    }
    scheduled.log()
    process = subprocess.Popen(
        argv(sys.executable, payload()), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(payload() + json.dumps(job).encode() + b"\n")
    process.stdin.flush()
    served = 0
    deadline = time.monotonic() + 60
    while served < 400:
        served += len(scheduled.log())
        assert time.monotonic() < deadline, f"{served} of 400 were sent"
        time.sleep(0.1)
    messages = [json.loads(line) for line in process.stdout]
    assert sum(message["t"] == "request" for message in messages) == 400
    assert messages[-1]["status"] == "complete"
    assert process.wait(timeout=30) == 0
    process.stdin.close()
    process.stdout.close()
