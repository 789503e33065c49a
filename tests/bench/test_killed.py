"""Gpuroom killed outright while it measures: nothing that was measured is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from backends.bench.draft import UNFINISHED, completed, read_draft
from backends.bench.results import RunStatus
from backends.bench.sink import Sink, draft_file, goes_on
from backends.storage.history import History
from tests.bench.conftest import Scheduled
from tests.bench_data.runs import run
from tui.cli import main

ROOT = Path(__file__).resolve().parents[2]
PLAN = """\
parts = [{ input = 32, output = 8 }]
warm_up = { steady = false, requests = 1 }
pause_s = 0
[goodput]
e2e_s = 30
[[steps]]
load = "closed"
concurrency = 2
requests = 6
[[steps]]
load = "closed"
concurrency = 4
requests = 100000
"""


def of_the_second(lines: list[bytes]) -> list[bytes]:
    """Records of the second step that were measured; a last line may be cut off."""
    whole = [line for line in lines if line.endswith(b"}")]
    return [line for line in whole if b'"step":1' in line and b'"phase":"warmup"' not in line]


def until(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_was_measured_is_all_there(
    scheduled: Scheduled, own_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "two.toml"
    plan.write_text(PLAN)
    folder = own_home / "data" / "runs"
    process = subprocess.Popen(
        [
            sys.executable, str(ROOT / "gpuroom.py"), "bench", "--url", scheduled.url("vllm"),
            "--plan", str(plan), "--quiet", "--json-lines",
        ],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        while b'"finding"' in line:
            line = process.stdout.readline()
        first = json.loads(line)["step"]
        (records,) = folder.glob("*.jsonl")
        until(lambda: len(of_the_second(records.read_bytes().splitlines())) >= 8, process)
        # As long as it goes on nobody takes it for left behind, nor away from it.
        assert goes_on(records)
        assert main(["bench", "list"]) == 0
        assert "unfinished" not in capsys.readouterr().out
        assert main(["bench", "import", str(records)]) == 2
        assert "this run goes on" in capsys.readouterr().err
        process.send_signal(signal.SIGKILL)
        process.wait()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

    assert main(["bench", "list"]) == 0
    assert f"1 unfinished: `gpuroom bench import {records}`" in capsys.readouterr().out
    written = records.read_bytes().splitlines()
    assert main(["bench", "import", str(records)]) == 0
    assert main(["bench", "list"]) == 0
    assert "1 unfinished" not in capsys.readouterr().out
    assert not list(folder.iterdir())
    with History.at_home() as history:
        result = history.load(history.resolve("last"))
        kept = history.samples_of(result.run_id)
    assert (result.run_id, result.status) == (records.stem, RunStatus.BROKEN)
    assert result.error == UNFINISHED
    # What produced it, and the step that had ended with all of its figures.
    assert (result.plan.name, result.target.engine) == ("two", "vllm")
    assert result.target.url.startswith("http://127.0.0.1:")
    done, cut = result.steps
    assert json.loads(msgspec.json.encode(done)) == first
    assert done.server is not None or done.ledger.server_output is not None
    # The step that was cut off, from every record on the disk.
    assert (cut.label, cut.concurrency, cut.index) == ("4 streams", 4, 1)
    assert cut.sent == len(of_the_second(written)) >= 8
    assert cut.ttft_s is not None
    assert cut.gap_s is not None
    assert cut.goodput is not None
    assert kept.exists()


def test_a_document_without_records_and_records_without_a_document(own_home: Path) -> None:
    folder = own_home / "data" / "runs"
    folder.mkdir(parents=True)
    sink = Sink(folder / "20260301T110000-abc123.jsonl")
    assert goes_on(sink.path)
    sink.close()
    # Nothing was ever written: nothing stays.
    assert list(folder.iterdir()) == []
    assert read_draft(sink.path) is None
    draft_file(sink.path).write_text("{")
    assert read_draft(sink.path) is None
    assert not goes_on(folder / "none.jsonl")


def test_what_is_no_record_is_left_out() -> None:
    whole = run(1)
    assert completed(whole, b"nonsense") is whole
    draft = msgspec.structs.replace(whole, error=UNFINISHED)
    assert completed(draft, b'nonsense\n{"step": 99, "id": 1, "due_s": 1, "end_s": 2}\n').steps == (
        whole.steps
    )
