"""Questions on a real terminal: a pseudo-terminal answers."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from backends.link.base import NobodyToAsk
from tests.sshd import SshLab, make_key
from tui.cli.prompts import terminal_prompter

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.real


class Terminal:
    """A program on a pseudo-terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._fd, far = pty.openpty()
        take_terminal = (
            "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
            "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", take_terminal, str(ROOT / "gpuroom.py"), *arguments],
            stdin=far,
            stdout=far,
            stderr=far,
            start_new_session=True,
        )
        os.close(far)
        self.seen = ""

    def expect(self, words: str, timeout_s: float = 30.0) -> None:
        deadline_s = time.monotonic() + timeout_s
        while words not in self.seen:
            assert time.monotonic() < deadline_s, f"{words!r} never came:\n{self.seen}"
            if select.select([self._fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self._fd, 65536).decode("utf-8", "replace")
                except OSError:  # the far side is closed
                    assert words in self.seen, f"{words!r} never came:\n{self.seen}"

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._fd)[3] & termios.ECHO)

    def end(self) -> int:
        self.seen += self._rest()
        status = self._process.wait(30)
        os.close(self._fd)
        return status

    def _rest(self) -> str:
        collected = b""
        try:
            while data := os.read(self._fd, 65536):
                collected += data
        except OSError:
            pass
        return collected.decode("utf-8", "replace")


@pytest.fixture
def config(ssh_lab: SshLab, tmp_path: Path) -> str:
    path = tmp_path / "config.toml"
    path.write_text(f'[ssh]\nconfig_file = "{ssh_lab.config_file}"\n')
    return str(path)


def test_an_unknown_host_key_is_accepted_by_yes_alone(ssh_lab: SshLab, config: str) -> None:
    ssh_lab.server("gpu01", known=False)
    for answer, status in (("y\n", 3), ("yes\n", 0)):
        terminal = Terminal("hosts", "gpu01", "--config", config)
        terminal.expect("(yes/no)")
        assert "SHA256:" in terminal.seen
        terminal.type(answer)
        assert terminal.end() == status, terminal.seen
    terminal = Terminal("hosts", "gpu01", "--config", config)
    assert terminal.end() == 0
    assert "SHA256" not in terminal.seen


def test_a_passphrase_is_not_echoed_and_ctrl_c_restores_the_terminal(
    ssh_lab: SshLab, config: str
) -> None:
    make_key(ssh_lab.key, passphrase="correct horse")
    ssh_lab.server("gpu01")
    terminal = Terminal("hosts", "gpu01", "--config", config)
    terminal.expect("Passphrase of")
    deadline_s = time.monotonic() + 10
    while terminal.echoes():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    terminal.type("correct horse\n")
    assert terminal.end() == 0, terminal.seen
    assert "horse" not in terminal.seen

    terminal = Terminal("hosts", "gpu01", "--config", config)
    terminal.expect("Passphrase of")
    terminal.type("\x03")
    deadline_s = time.monotonic() + 10
    while not terminal.echoes():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert terminal.end() == 130


def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert isinstance(terminal_prompter(), NobodyToAsk)
