from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from backends.link.quoting import command_line

NASTY = [
    "",
    "plain",
    "two words",
    "it's",
    "back\\slash",
    "\\",
    "end\\",
    "\\\\'\\'",
    '"$HOME" `id` $(id) !!',
    "*?[a]~{b,c}",
    "-n",
    "line\nfeed\ttab",
    "é ✓",
    "#;&|<>()",
    "'",
    "%s%d",
]


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish"])
def test_arguments_arrive_as_they_are_in_every_login_shell(shell: str) -> None:
    path = shutil.which(shell)
    assert path, f"{shell} is not installed"
    program = "import json, sys; print(json.dumps(sys.argv[1:]))"
    line = command_line([sys.executable, "-c", program, *NASTY])
    done = subprocess.run([path, "-c", line], capture_output=True, check=True)
    assert json.loads(done.stdout) == NASTY


@pytest.mark.parametrize("argv", [[], ["a\x00b"]])
def test_what_no_shell_can_carry_is_refused(argv: list[str]) -> None:
    with pytest.raises(ValueError, match="argument"):
        command_line(argv)
