"""The commands on this machine: start, look, restart, stop, with their exit statuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from backends import paths
from backends.servers.desk import ServerDesk
from backends.servers.lifecycle import Policy
from tests.servers_live.rooms import QUICK
from tests.servers_live.test_runs import LISTEN, free_port
from tui.cli import main, server_place

pytestmark = pytest.mark.real


class Shell:
    """Runs commands against `local`, on a configuration of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def configure(self, **server: object) -> None:
        """Write the one profile."""
        place = paths.config_file()
        place.parent.mkdir(parents=True, exist_ok=True)
        table = {"name": "small", "host": "local", "engine": "custom", "stop_grace_s": 3, **server}
        place.write_text(tomli_w.dumps({"servers": [table]}))

    def run(self, *argv: str) -> tuple[int, Any, str]:
        """Exit status, the JSON printed, and what was said on stderr."""
        self._capsys.readouterr()
        status = main([*argv, "--json"])
        shown = self._capsys.readouterr()
        return status, json.loads(shown.out) if shown.out else None, shown.err


@pytest.fixture
def shell(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = Shell(capsys)
    yield found
    main(["stop", "small", "--json"])


def serving(port: int) -> list[str]:
    return [sys.executable, "-c", LISTEN.format(port=port)]


def test_a_server_that_runs_is_not_given_up_for_one_that_cannot_start(shell: Shell) -> None:
    port = free_port()
    shell.configure(command=serving(port), port=port)
    status, answer, said = shell.run("start", "small")
    assert status == 0, said
    pid = answer["started"]["pid"]

    shell.configure(command=["/no/such/program"], port=port)
    status, answer, said = shell.run("restart", "small")
    assert status == 8
    assert answer["stopped"] is None
    assert "/no/such/program is not found" in said
    assert Path(f"/proc/{pid}").exists(), "the old run must still be there"

    shell.configure(command=serving(port), port=port)
    status, answer, said = shell.run("restart", "small")
    assert status == 0, said
    assert answer["started"]["pid"] != pid
    assert not Path(f"/proc/{pid}").exists()


def test_a_second_start_and_a_port_that_is_taken_are_refused(shell: Shell) -> None:
    port = free_port()
    shell.configure(command=serving(port), port=port)
    assert shell.run("start", "small")[0] == 0
    status, answer, said = shell.run("start", "small")
    assert status == 7
    assert {finding["id"] for finding in answer["findings"]} >= {"earlier-run"}
    assert "runs already: pid" in said
    assert "`gpuroom restart small` replaces it" in said
    assert "--force" not in said
    status, _, said = shell.run("start", "small", "--force")
    assert (status, "not started" in said) == (7, True), "no insisting starts a second one"
    status, answer, _ = shell.run("stop", "small")
    assert status == 0
    assert answer["complete"] is True


def test_a_server_that_ends_at_once_is_crashed_with_its_words(shell: Shell) -> None:
    code = "import sys; print('RuntimeError: no kernel for this card'); sys.exit(3)"
    shell.configure(command=[sys.executable, "-c", code])
    status, answer, said = shell.run("start", "small", "--wait", "--timeout", "20")
    assert status == 10, said
    assert answer["state"]["state"] == "crashed"


def test_what_will_run_is_said_before_it_runs(shell: Shell) -> None:
    port = free_port()
    command = [*serving(port), "--api-key", "open sesame", "two words"]
    shell.configure(command=command, port=port, env={"HF_TOKEN": "sesame", "MODE": "a"})
    status, answer, said = shell.run("start", "small")
    assert status == 0, said
    shown = [*serving(port), "--api-key", "***", "two words"]
    assert answer["plan"]["commands"] == [shown]
    assert answer["plan"]["env"] == {"PYTHONUNBUFFERED": "1", "HF_TOKEN": "***", "MODE": "a"}
    assert said.index("what runs:") < said.index("small is started")
    assert "--api-key '***' 'two words'\n" in said
    assert "sesame" not in said

    status, again, said = shell.run("restart", "small")
    assert status == 0, said
    order = ["what ends:", f"SIGTERM to pid {answer['started']['pid']}, 3 s", "what runs:"]
    assert [said.index(words) for words in order] == sorted(said.index(words) for words in order)
    assert again["plan"] == answer["plan"]
    status, _, said = shell.run("stop", "small", "--grace", "7")
    assert status == 0, said
    assert f"SIGTERM to pid {again['started']['pid']}, 7 s" in said
    assert "sesame" not in said


def test_one_that_never_answers_is_late(shell: Shell) -> None:
    port = free_port()
    shell.configure(
        command=[sys.executable, "-c", "import time; time.sleep(600)"], port=port,
        ready={"path": "/health"},
    )  # fmt: skip
    assert shell.run("start", "small")[0] == 0
    status, _, said = shell.run("wait-ready", "small", "--timeout", "1.5")
    assert status == 12, said


def test_each_exit_status_of_waiting(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = partial(ServerDesk, policy=Policy(least_quiet_s=0.5, unknown_quiet_s=0.5))
    monkeypatch.setattr(server_place, "ServerDesk", impatient)
    ready = {"path": "/health"}
    shell.configure(
        command=[sys.executable, "-c", "import time; time.sleep(600)"], port=free_port(),
        ready=ready,
    )  # fmt: skip
    status, answer, said = shell.run("start", "small")
    assert status == 0, said
    status, _, said = shell.run("wait-ready", "small", "--timeout", "60")
    assert (status, "stalled: " in said) == (11, True), said
    status, _, said = shell.run("wait-ready", "small", "--through-stalls", "--timeout", "1")
    assert (status, "not ready after 1 s" in said) == (12, True), said
    os.kill(answer["started"]["pid"], signal.SIGKILL)
    status, _, said = shell.run("wait-ready", "small", "--timeout", "60")
    assert (status, "killed" in said) == (10, True), said
    assert shell.run("wait-ready", "nobody")[0] == 2
    port = free_port()
    shell.configure(command=[sys.executable, QUICK, "--port", str(port)], port=port, ready=ready)
    status, _, said = shell.run("start", "small")
    assert status == 0, said
    assert shell.run("wait-ready", "small", "--timeout", "60", "--through-stalls")[0] == 0


def test_a_process_that_runs_becomes_a_profile(shell: Shell, tmp_path: Path) -> None:
    port = free_port()
    command = [
        *serving(port)[:2],
        LISTEN.format(port=port).strip().replace("\n", "; "),
        "two\nlines",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        status, answer, said = shell.run("servers", "import", "local", str(process.pid))
        assert status == 0, said
        (profile,) = answer["servers"]
        assert profile["command"][:3] == command[:3]
        assert "arguments 3 hold line breaks" in said
        assert profile["port"] == port
        odd = tmp_path / "odd.toml"
        odd.write_text("servers = 3\n")
        words = ("servers", "import", "local", str(process.pid), "--append", str(odd))
        status, answer, said = shell.run(*words)
        assert (status, answer) == (2, None), said
        assert "odd.toml" in said
        assert odd.read_text() == "servers = 3\n"
    finally:
        process.kill()
        process.communicate()


def test_an_imported_profile_starts_an_equal_server(shell: Shell, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "server-of-mine").symlink_to(sys.executable)
    port = free_port()
    code = "; ".join(LISTEN.format(port=port).strip().splitlines())
    command = ["server-of-mine", "-c", code, "a 'b' \"c\"", "--flag=$HOME", "日本"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=tmp_path,
        env={
            **os.environ, "CUDA_VISIBLE_DEVICES": "0,1", "NCCL_DEBUG": "INFO", "EDITOR": "vi",
            "PATH": f"{programs}:{os.environ['PATH']}",
        },
    )  # fmt: skip
    try:
        assert process.stdout is not None
        process.stdout.readline()
        shell.configure(command=["true"])
        place = str(paths.config_file())
        status, answer, said = shell.run(
            "servers", "import", "local", str(process.pid), "--name", "equal", "--append", place
        )
        assert status == 0, said
        first = _living(process.pid)
    finally:
        process.kill()
        process.communicate()
    status, answer, said = shell.run("start", "equal")
    assert status == 0, said
    second = _living(answer["started"]["pid"])
    assert second["argv"][1:] == first["argv"][1:]
    assert Path(second["argv"][0]) == programs / "server-of-mine"
    assert (second["exe"], second["cwd"]) == (first["exe"], first["cwd"])
    for name in ("CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "PATH"):
        assert second["env"][name] == first["env"][name]
    assert "EDITOR" not in answer["started"].get("env", {})
    status, _, said = shell.run("stop", "equal")
    assert status == 0, said


def _living(pid: int) -> dict[str, Any]:
    place = Path(f"/proc/{pid}")
    pairs = (entry.partition("=") for entry in (place / "environ").read_text().split("\0"))
    return {
        "argv": (place / "cmdline").read_text().rstrip("\0").split("\0"),
        "exe": (place / "exe").readlink(),
        "cwd": (place / "cwd").readlink(),
        "env": {name: value for name, _, value in pairs},
    }
