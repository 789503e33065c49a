"""docs/ssh.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path

from asyncssh.config import SSHClientConfig

from backends import lifeline
from backends.config import SshConfig
from backends.link.auth import MAX_ANSWERS
from backends.link.limiter import Limiter
from backends.link.target import parse_target

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "ssh.md").read_text()


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_names_can_be_read() -> None:
    for text in re.findall(r"^\| (`.+?`) \|", section("Names"), re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", text):
            parse_target(name.replace("SCENARIO", "idle"))


def test_every_honoured_option_is_known() -> None:
    honoured = section("What of `~/.ssh/config` is honoured").split("Not honoured")[0]
    options = set(re.findall(r"`([A-Z][A-Za-z]+)`", honoured))
    assert len(options) > 20
    assert {name.lower() for name in options} <= set(SSHClientConfig._handlers)


def test_the_keys_of_the_configuration_exist() -> None:
    table = next(row for row in TEXT.splitlines() if row.startswith("| `ServerAliveInterval`"))
    keys = re.findall(r"`([a-z_]+)`", table.replace("`[ssh]`", ""))
    assert keys
    assert set(keys) <= set(SshConfig.__struct_fields__)


def test_deadlines() -> None:
    settings = SshConfig()
    assert f"`connect_timeout_s` = {settings.connect_timeout_s:g} |" in TEXT
    noticed_s = settings.keepalive_s * (settings.keepalive_count + 1)
    assert f"= {noticed_s:g} s |" in TEXT
    assert noticed_s < 10
    assert f"after {lifeline.HUNG_S:g} s |" in TEXT
    assert lifeline.STALE_INTERVALS == 3
    assert MAX_ANSWERS == 3
    assert Limiter()._at_once == 5
