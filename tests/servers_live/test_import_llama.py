"""`gpuroom servers import` of a real llama.cpp server: its profile starts an equal one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends import paths
from tests.servers_live.rooms import LLAMA
from tests.servers_live.test_commands import Shell
from tests.sshd import free_port

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")
pytestmark = pytest.mark.real

from tests.servers_real import tiny_gguf  # noqa: E402


@pytest.fixture
def shell(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = Shell(capsys)
    yield found
    found.run("stop", "again")


def test_an_imported_llama_server_is_started_again(shell: Shell, tmp_path: Path) -> None:
    program = tmp_path / "llama-server"  # a name by which it is known
    shutil.copy(LLAMA, program)
    model = tiny_gguf(tmp_path / "tiny.gguf")
    command = [sys.executable, str(program), "--model", str(model), "--port", str(free_port())]
    command += ["--parallel", "2", "--ctx-size", "512"]
    place = str(paths.config_file())
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path)
    try:
        pid = str(process.pid)
        assert shell.run("wait-ready", pid, "--host", "local", "--timeout", "60")[0] == 0
        status, told, said = shell.run("adopt", "local", pid)
        assert status == 0, said
        assert (told["state"], told["engine"]) == ("ready", "llamacpp")
        status, _, said = shell.run(
            "servers", "import", "local", pid, "--name", "again", "--append", place
        )
        assert status == 0, said
        assert 'engine = "llamacpp"' in Path(place).read_text()
    finally:
        process.terminate()
        process.wait()
    status, answer, said = shell.run("start", "again", "--wait")
    assert status == 0, said
    words = Path(f"/proc/{answer['started']['pid']}/cmdline").read_text().rstrip("\0").split("\0")
    assert words == command
    status, told, said = shell.run("config", "again")
    assert told["asked"]["n_ctx"] == "512", said
    status, told, said = shell.run("config", "again", "--effective")
    rows = {row["name"]: (row["asked"], row["effective"], row["standing"]) for row in told}
    assert rows["n_ctx"][2] == "same", rows
    wrong = [row for row in told if row["standing"] in ("differs", "unasked")]
    assert told[: len(wrong)] == wrong, "what differs comes first"
    assert status == (13 if wrong else 0)
    assert shell.run("stop", "again")[0] == 0
