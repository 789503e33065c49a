"""The real program in a real terminal: tmux presses the keys, the demo host answers over SSH."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sshd import SshLab, make_key, ssh_lab

__all__ = ["ssh_lab"]  # a fixture

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]


class Tmux:
    """One tmux server of its own with one pane."""

    def __init__(self, socket: Path, home: Path) -> None:
        self.socket = socket
        self.home = home

    def run(self, *arguments: str) -> str:
        argv = ["tmux", "-S", str(self.socket), "-f", os.devnull, *arguments]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def start(self, *arguments: str, size: tuple[int, int] = (80, 24), **environment: str) -> None:
        settings = {"GPUROOM_HOME": str(self.home), "COLORTERM": "truecolor", **environment}
        words = [f"{name}={value}" for name, value in settings.items()]
        program = [sys.executable, str(ROOT / "gpuroom.py"), *arguments]
        self.run(
            "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]),
            "env", "-u", "NO_COLOR", "COLUMNS=80", "LINES=24", *words,
            "sh", "-c", '"$@"; echo "left with $?"; sleep 600',
            "sh", *program,
        )  # fmt: skip

    def screen(self, *, colors: bool = False) -> str:
        return self.run("capture-pane", "-p", *(("-e",) if colors else ()))

    def press(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def wait(self, fits: str | Callable[[str], bool]) -> str:
        """The screen, once it fits and is painted whole: the next look sees the same."""
        until_s = time.monotonic() + WAIT_S
        before = ""
        while True:
            screen = self.screen()
            if screen == before and (fits in screen if isinstance(fits, str) else fits(screen)):
                return screen
            before = screen
            if time.monotonic() > until_s:
                pytest.fail(f"{fits!r} did not come; the screen is:\n{screen}")
            time.sleep(0.1)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    session = Tmux(tmp_path / "tmux", tmp_path / "home")
    yield session
    subprocess.run(
        ["tmux", "-S", str(session.socket), "kill-server"], check=False, capture_output=True
    )


def test_a_session_with_the_demo_host(tmux: Tmux) -> None:
    tmux.start("demo")
    screen = tmux.wait("8 × RTX PRO 6000")
    screen = tmux.wait("/600W")
    assert "demo live" in screen.splitlines()[0]
    assert sum("/600W" in line for line in screen.splitlines()) == 8
    assert "2 server" in screen

    tmux.press("j", "j", "Enter")
    tmux.wait("› GPU 2")
    tmux.press("n")
    tmux.wait("› GPU 3")
    tmux.press("Escape")
    tmux.wait("3 tuning")

    tmux.press("P")
    tmux.wait("› processes")
    tmux.press("BSpace")
    tmux.wait("3 tuning")

    tmux.press("J")
    tmux.wait("start the agent")
    tmux.press("Escape")
    tmux.wait("3 tuning")

    tmux.press("?")
    tmux.wait("busy is good")
    tmux.press("Escape")
    tmux.wait("3 tuning")

    tmux.press("/", "nothing-fits", "Enter")
    tmux.wait("no GPU fits the filter")
    tmux.press("Escape")
    tmux.wait("/600W")

    tmux.press("-")
    tmux.wait("every 2s")
    tmux.press(":", "fleet", "Enter")
    tmux.wait("› fleet")

    tmux.press("C-c")
    tmux.wait("q quits")
    tmux.press("q")
    tmux.wait("left with 0")
    assert "interval_s = 2.0" in (tmux.home / "state" / "state.toml").read_text()


def test_the_screen_of_another_size_and_back(tmux: Tmux) -> None:
    tmux.start("demo", "--scenario", "sixteen", size=(80, 24))
    tmux.wait(lambda text: sum("/600W" in line for line in text.splitlines()) == 16)
    tmux.run("resize-window", "-x", "160", "-y", "50")
    tmux.wait("host CPU")
    tmux.run("resize-window", "-x", "60", "-y", "15")
    tmux.wait(lambda text: "1▌GPUs" in text and "q quit" in text)
    tmux.press("q")
    tmux.wait("left with 0")


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (("--ascii",), {}),
        ((), {"NO_COLOR": "1"}),
        ((), {"TERM": "screen", "COLORTERM": ""}),
        (("--theme", "light"), {}),
    ],
)
def test_plainer_terminals(
    tmux: Tmux, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    tmux.start("demo", *arguments, **environment)
    screen = tmux.wait("/600W")
    if "--ascii" in arguments:
        assert screen.isascii()
    raw = tmux.screen(colors=True)
    if "NO_COLOR" in environment:
        assert "38;" not in raw
        assert "[3" not in raw.replace("[39", "")
    elif environment.get("TERM") == "screen":
        assert "38;2" not in raw
        assert "\x1b[36m" in raw or "[36" in raw
    tmux.press("q")
    tmux.wait("left with 0")


def test_without_a_terminal_it_says_what_to_use_instead() -> None:
    program = [sys.executable, str(ROOT / "gpuroom.py"), "demo"]
    done = subprocess.run(
        program, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "needs a terminal" in done.stderr
    assert "gpuroom top" in done.stderr


def room_config(lab: SshLab, tmp_path: Path, *hosts: str) -> Path:
    """A configuration that leads to the servers of a lab."""
    file = tmp_path / "config.toml"
    lines = [f'[[hosts]]\nname = "{name}"\n' for name in hosts]
    lines.append(f'[ssh]\nconfig_file = "{lab.config_file}"\nkeepalive_s = 1.0\n')
    file.write_text("\n".join(lines))
    return file


def test_an_unknown_host_key_is_shown_and_trusted_only_on_request(
    tmux: Tmux, ssh_lab: SshLab, tmp_path: Path
) -> None:
    server = ssh_lab.server("gpu01", known=False)
    fingerprint = subprocess.run(
        ["ssh-keygen", "-lf", f"{server.host_key}.pub"], check=True, capture_output=True, text=True
    ).stdout.split()[1]
    config = room_config(ssh_lab, tmp_path, "gpu01")
    tmux.start("gpu01", "--config", str(config), size=(100, 30))
    screen = tmux.wait("unknown host key")
    assert fingerprint in screen
    tmux.press("Escape")
    tmux.wait("refused")
    tmux.press("c")
    tmux.wait("unknown host key")
    tmux.press("C-y")
    tmux.wait(lambda text: "gpu01 no NVIDIA driver" in text or "gpu01 live" in text)
    tmux.press("q")
    tmux.wait("left with 0")
    assert ssh_lab.known_hosts.read_text() == ""


def test_a_passphrase_is_asked_for_and_never_shown(
    tmux: Tmux, ssh_lab: SshLab, tmp_path: Path
) -> None:
    make_key(ssh_lab.key, passphrase="open sesame")
    ssh_lab.server("gpu01")
    config = room_config(ssh_lab, tmp_path, "gpu01")
    tmux.start("gpu01", "--config", str(config), size=(100, 30), SSH_AUTH_SOCK="")
    tmux.wait("Passphrase of a key")
    tmux.press("-l", "open sesame")
    assert "open sesame" not in tmux.wait("•")
    tmux.press("Enter")
    tmux.wait(lambda text: "gpu01 no NVIDIA driver" in text or "gpu01 live" in text)
    tmux.press("J")
    assert "sesame" not in tmux.wait("start the agent")


def test_a_host_that_hangs_is_said_so_and_comes_back_by_itself(
    tmux: Tmux, ssh_lab: SshLab, tmp_path: Path
) -> None:
    server = ssh_lab.server("gpu01")
    config = room_config(ssh_lab, tmp_path, "gpu01")
    tmux.start("gpu01", "demo", "--config", str(config), size=(100, 30))
    tmux.wait(lambda text: "gpu01 no NVIDIA driver" in text or "gpu01 live" in text)
    server.freeze()
    tmux.wait(lambda text: "lost" in text.splitlines()[0])
    assert "lost" not in tmux.screen().splitlines()[0].partition("demo")[2]
    server.thaw()
    tmux.wait(lambda text: "gpu01 no NVIDIA driver" in text or "gpu01 live" in text.splitlines()[0])


def test_a_kill_leaves_the_terminal_as_it_was(tmux: Tmux) -> None:
    tmux.start("demo")
    tmux.wait("/600W")
    shell = int(tmux.run("display-message", "-p", "#{pane_pid}"))
    listed = subprocess.run(["pgrep", "-P", str(shell)], capture_output=True, text=True, check=True)
    os.kill(int(listed.stdout.split()[0]), signal.SIGTERM)
    screen = tmux.wait("left with 143")
    assert "/600W" not in screen
