"""The log of a real llama.cpp server: ready, stopped, without a model, without a port."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.servers.catalogue import load_catalogue
from backends.servers.diagnose import diagnose_file
from backends.servers.verdict import Verdict
from tests.servers_real import tiny_gguf

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("gguf") is None,
        reason="xllamacpp and gguf are not installed",
    ),
]
# The package carries the server itself and prints its log; the program only holds it.
PROGRAM = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 128, 1, 1
server = xllamacpp.Server(params)
sys.stdin.read()
del server
time.sleep(0.5)  # its log is written by a thread of its own
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(model: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(model), str(port)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def verdict_of(log: Path) -> Verdict:
    return diagnose_file(log, load_catalogue())


def wait_for(log: Path, outcome: str) -> Verdict:
    deadline = time.monotonic() + 60
    while True:
        verdict = verdict_of(log)
        if verdict.outcome == outcome or time.monotonic() > deadline:
            return verdict
        time.sleep(0.1)


def test_it_becomes_ready_and_is_stopped(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with start(model, free_port(), log) as server:  # leaving closes its input: it stops
        ready = wait_for(log, "ready")
    assert ready.outcome == "ready"
    assert ready.engine == "llamacpp"
    assert ready.evidence is not None
    assert "listening on http" in ready.evidence.text
    assert server.returncode == 0
    stopped = verdict_of(log)
    assert (stopped.outcome, stopped.ready_line) == ("stopped", ready.ready_line)


@pytest.mark.parametrize(
    ("damage", "cause"), [("cut", "model-file-broken"), ("gone", "model-files-missing")]
)
def test_a_model_that_is_broken_or_missing(
    damage: str, cause: str, model: Path, tmp_path: Path
) -> None:
    path, log = tmp_path / "m.gguf", tmp_path / "server.log"
    if damage == "cut":
        path.write_bytes(model.read_bytes()[:2000])
    with start(path, free_port(), log) as server:
        assert server.wait(60) != 0
    verdict = verdict_of(log)
    assert (verdict.outcome, verdict.cause, verdict.ready_line) == ("crash", cause, None)


def test_a_port_that_is_taken(model: Path, tmp_path: Path, taken: int) -> None:
    log = tmp_path / "server.log"
    with start(model, taken, log) as server:
        assert server.wait(60) != 0
    verdict = verdict_of(log)
    assert (verdict.outcome, verdict.cause) == ("crash", "port-in-use")


def test_killed_while_it_was_ready(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with start(model, free_port(), log) as server:
        found = wait_for(log, "ready")
        server.kill()
        assert server.wait(60) == -9
    assert found.outcome == "ready"
    # The log alone cannot know; the process is the witness.
    assert verdict_of(log).outcome == "ready"
