"""A benchmark shows a server the key that its profile names: by command and on screen."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from backends import config as configuration
from backends.config import HostConfig
from backends.errors import UsageError
from backends.paths import config_file
from screens.bench_target import headers_of
from tui.cli import bench
from tui.cli.bench_place import where
from tui.shell import Shell
from tui.themes import make_look

BEARER = {"authorization": "Bearer sesame-1234"}


@pytest.fixture
def configured(own_home: Path) -> Path:
    path = config_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = (
        "[[servers]]\nname = 'keyed'\napi_key_env = 'PROFILE_KEY'\n"
        "host = 'local'\nport = 8123\ncommand = ['vllm', 'serve', 'm']\n"
        "[[servers]]\nname = 'plain'\n"
        "host = 'local'\nport = 8124\ncommand = ['vllm', 'serve', 'm']\n"
    )
    path.write_text(tables)
    return path


def headers(*words: str) -> dict[str, str]:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return where(parser.parse_args(words)).server.headers


def test_by_command(configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="PROFILE_KEY holds no key"):
        headers("local", "keyed")
    monkeypatch.setenv("PROFILE_KEY", "sesame-1234")
    assert headers("local", "keyed") == BEARER
    assert headers("local", "plain") == {}
    assert headers("local", "8123") == {}, "a bare port names no profile"
    monkeypatch.setenv("OTHER", "another")
    named = headers("local", "keyed", "--api-key-env", "OTHER")
    assert named == {"authorization": "Bearer another"}


def test_on_screen(configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [HostConfig(name="local", target="local")]
    look = make_look("dark", ascii_set=False)
    shell = Shell(look, hosts, config=configuration.load(configured), current="local")
    with pytest.raises(UsageError, match="PROFILE_KEY holds no key"):
        headers_of(shell, "keyed")
    monkeypatch.setenv("PROFILE_KEY", "sesame-1234")
    assert headers_of(shell, "keyed") == BEARER
    assert headers_of(shell, "plain") == {}
    assert headers_of(shell, None) == {}
