"""The generator as one piece: what any python3 is given, and how it ends."""

from __future__ import annotations

import ast
import json
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from backends.bench import generator
from backends.bench.job import STUB, argv, payload

SOURCES = sorted(Path(generator.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_python_3_8_can_read_it(path: Path) -> None:
    ast.parse(path.read_text("utf-8"), feature_version=(3, 8))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_it_imports_the_standard_library_and_itself_alone(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names


def test_the_payload_is_small_and_always_the_same() -> None:
    payload.cache_clear()
    first = payload()
    payload.cache_clear()
    assert payload() == first
    assert len(first) < 64_000
    assert b"gpuroom" in zlib.decompress(first)


def run_program(stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        argv(sys.executable, payload()), input=stdin, capture_output=True, timeout=60
    )


def test_no_job_no_run() -> None:
    assert run_program(payload()).returncode == 2
    assert run_program(payload()[:100]).returncode == 2
    bad = run_program(payload() + b"{\n")
    assert bad.returncode == 2
    assert b"no JSON" in bad.stderr


def test_it_waits_for_its_first_step_and_ends_with_its_input() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        job = {
            "gate": True,
            "route": "chat",
            "stream": True,
            "seed": 1,
            "nonce": "n",
            "ignore_eos": False,
            "prompt": {"kind": "words", "words": ["a"]},
            "parts": [
                {"input": {"kind": "fixed", "value": 9}, "output": {"kind": "fixed", "value": 9}}
            ],
            "target": {"host": "127.0.0.1", "port": port, "authority": "x"},
            "limits": {"connect_s": 5.0, "silence_s": 5.0, "request_s": 5.0},
            "steps": [{"load": {"kind": "closed", "concurrency": 1}, "index": 0, "repetition": 0}],
        }
        process = subprocess.Popen(
            argv(sys.executable, payload()), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(payload() + json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        seen = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [message["t"] for message in seen] == ["begin", "state"]
        assert seen[1]["state"] == "waiting"
        # Long enough for a worker that does not wait to stumble.
        time.sleep(0.5)
        assert process.poll() is None
        process.stdin.close()
        (end,) = (json.loads(line) for line in process.stdout)
        assert end["status"] == "stopped"
        assert process.wait(timeout=30) == 3
        process.stdout.close()


def test_a_server_that_is_not_there_is_said() -> None:
    job = {
        "target": {"host": "127.0.0.1", "port": 9, "authority": "127.0.0.1:9"},
        "limits": {"connect_s": 2.0, "silence_s": 2.0, "request_s": 2.0},
        "steps": [],
    }
    done = run_program(payload() + json.dumps(job).encode() + b"\n")
    assert done.returncode == 1
    (end,) = map(json.loads, done.stdout.splitlines())
    assert end["status"] == "broken"
    assert "no connection to 127.0.0.1:9" in end["error"]


def test_the_stub_is_one_argument_without_quotes_of_a_shell() -> None:
    # It is handed over as an argument; whoever quotes it must not have to escape much.
    assert "$" not in STUB
    assert "`" not in STUB
    assert '"' not in STUB
