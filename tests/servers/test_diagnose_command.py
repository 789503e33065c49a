"""`gpuroom diagnose`: what it prints and how it exits."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.servers import failing
from tui.cli.main import main

KEYS = {
    "file", "engine", "version", "outcome", "phase", "ready_line", "cause", "evidence_line",
    "title", "remedies", "warnings",
}  # fmt: skip
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    path = tmp_path / "crash.log"
    path.write_text(failing.vllm(OOM))
    return path


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    path = tmp_path / "ready.log"
    path.write_text(
        "INFO 05-01 10:00:00 [api_server.py:1] vLLM API server version 0.9.1\n"
        "WARNING 05-01 10:00:01 [a.py:1] Using default MoE config. "
        "Performance might be sub-optimal! "
        "Config file not found at /x.json\nINFO:     Application startup complete.\n"
    )
    return path


def test_json_is_one_list_with_an_object_a_file(
    crashed: Path, ready: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(crashed), str(ready), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [set(entry) for entry in found] == [KEYS, KEYS]
    assert [entry["file"] for entry in found] == [str(crashed), str(ready)]
    first, second = found
    assert first["outcome"] == "crash"
    assert first["engine"] == "vllm"
    assert first["version"] == "0.11.0"
    assert first["cause"] == "cuda-oom-late"
    shown = crashed.read_bytes().split(b"\n")[first["evidence_line"] - 1]
    assert shown.endswith(OOM.encode())
    assert first["ready_line"] is None
    assert first["remedies"]
    assert second["outcome"] == "ready"
    assert second["ready_line"] == second["evidence_line"] == 3
    assert second["cause"] is None
    assert second["warnings"][0]["line"] == 2
    assert second["warnings"][0]["id"] == "moe-kernel-default"


def test_people_read_cause_line_and_remedy(
    crashed: Path, ready: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(crashed), str(ready)]) == 0
    text = capsys.readouterr().out
    assert "CRASH  (vLLM 0.11.0)" in text
    assert "[cuda-oom-late]" in text
    assert "  try: " in text
    assert "READY" in text
    assert "ready at line 3" in text
    assert "note, line 2" in text


def test_the_exit_code_tells_a_failure_when_asked(crashed: Path, ready: Path) -> None:
    assert main(["diagnose", str(crashed), "--exit-code"]) == 1
    assert main(["diagnose", str(ready), "--exit-code"]) == 0
    assert main(["diagnose", str(crashed)]) == 0


def test_a_file_that_cannot_be_read_does_not_hide_the_others(
    ready: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(tmp_path / "none.log"), str(ready), "--json"]) == 2
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)) == 1
    assert "cannot read" in captured.err
    assert main(["diagnose", str(tmp_path), "--json"]) == 2


def test_standard_input_is_read_as_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(failing.sglang(OOM).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["diagnose", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["engine"] == "sglang"


def test_the_engine_can_be_told(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(ready), "--json", "--engine", "sglang"]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert (found["engine"], found["outcome"]) == ("sglang", "loading")


def test_causes_of_ones_own(
    crashed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.toml"
    own.write_text("[[cause]]\nid='ours'\ntitle='ours'\nsignatures=['tried to allocate 2.00']\n")
    assert main(["diagnose", str(crashed), "--json", "--catalogue", str(own)]) == 0
    assert json.loads(capsys.readouterr().out)[0]["cause"] == "ours"
    own.write_text("[[cause]]\nid='ours'\n")
    assert main(["diagnose", str(crashed), "--catalogue", str(own)]) == 2
    assert "catalogue" in capsys.readouterr().err


def test_what_a_log_says_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "evil.log"
    path.write_bytes(failing.sglang("RuntimeError: \x1b]0;owned\x07 \x1b[2J bad \u202e").encode())
    assert main(["diagnose", str(path)]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "bad" in text


def test_neither_textual_nor_rich_is_imported(crashed: Path) -> None:
    program = (
        "import sys; from tui.cli.main import main; main(['diagnose', sys.argv[1]]);"
        "sys.exit(bool({'textual', 'rich', 'asyncssh'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(crashed)], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
