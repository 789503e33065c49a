"""What the SSH configuration says, read from files of a home of its own."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from backends import paths
from backends.errors import LinkError
from backends.link import hop
from backends.link.hop import Hop, resolve
from backends.link.target import SshTarget, parse_ssh_target

USUAL = "~/.ssh/config"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(hop, "SYSTEM_CONFIG", str(tmp_path / "system_config"))
    return tmp_path


def resolved(home: Path, text: str, target: str = "gpu01") -> Hop:
    (home / ".ssh" / "config").write_text(text)
    return resolve(parse_ssh_target(target), USUAL)


def test_without_any_configuration(home: Path) -> None:
    found = resolve(SshTarget("gpu01"), USUAL)
    assert (found.address, found.port, found.user) == ("gpu01", 22, getpass.getuser())
    assert not found.identities.named
    assert home / ".ssh" / "id_ed25519" in found.identities.files
    assert found.identities.agent_path is None
    assert found.known_hosts_files[:2] == (
        paths.known_hosts_file(),
        home / ".ssh" / "known_hosts",
    )


def test_an_alias(home: Path) -> None:
    found = resolved(
        home,
        "Host gpu*\n HostName %h.example.org\n User ops\n Port 2222\n ProxyJump a,me@b:24\n"
        " IdentityFile ~/.ssh/%r_key\n IdentitiesOnly yes\n IdentityAgent ~/agent\n"
        " HostKeyAlias fleet\n UserKnownHostsFile ~/kh1 ~/kh2\n CertificateFile ~/c.pub\n"
        " BindAddress 127.0.0.1\nHost *\n User other\n",
    )
    assert (found.address, found.port, found.user) == ("gpu01.example.org", 2222, "ops")
    assert found.jumps == (SshTarget("a"), SshTarget("b", "me", 24))
    assert found.identities.files == (home / ".ssh" / "ops_key",)
    assert found.identities.named
    assert found.identities.only
    assert found.identities.agent_path == str(home / "agent")
    assert found.identities.certificates == (home / "c.pub",)
    assert found.host_key_alias == "fleet"
    assert found.known_hosts_files[1:3] == (home / "kh1", home / "kh2")
    assert found.bind_address == "127.0.0.1"


def test_user_and_port_of_the_target_win(home: Path) -> None:
    found = resolved(home, "Host *\n User other\n Port 1\n", "me@gpu01:44")
    assert (found.user, found.port) == ("me", 44)


def test_none_takes_away(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent")
    assert resolved(home, "").identities.agent_path == "/tmp/agent"
    found = resolved(
        home,
        "Host gpu01\n ProxyJump none\n ProxyCommand none\n IdentityAgent none\n"
        "Host *\n ProxyJump jump\n",
    )
    assert found.jumps == ()
    assert found.proxy_command is None
    assert found.identities.agent_path is None


def test_relative_include(home: Path) -> None:
    (home / ".ssh" / "conf.d").mkdir()
    (home / ".ssh" / "conf.d" / "a").write_text("Host gpu01\n Port 2201\n")
    assert resolved(home, "Include conf.d/*\n").port == 2201


def test_options_that_are_not_known_are_passed_over(home: Path) -> None:
    text = "Host *\n ControlMaster auto\n ObscureFutureOption yes\n KexAlgorithms ^future-kex\n"
    assert resolved(home, text).port == 22


def test_the_systems_file_comes_after_the_users_own(home: Path) -> None:
    (home / "system_config").write_text("Host *\n Port 2299\n User system\n")
    found = resolved(home, "Host *\n User mine\n")
    assert (found.user, found.port) == ("mine", 2299)


def test_a_systems_file_that_cannot_be_understood_is_done_without(home: Path) -> None:
    (home / "system_config").write_text("Match version 99\n Port 2299\n")
    assert resolved(home, "Host *\n Port 44\n").port == 44


def test_a_named_file_is_the_only_one(home: Path) -> None:
    (home / "system_config").write_text("Host *\n Port 2299\n")
    (home / "mine").write_text("Host *\n User me\n")
    found = resolve(SshTarget("gpu01"), str(home / "mine"))
    assert (found.user, found.port) == ("me", 22)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Host *\n\n  Port many\n", "config:3: "),
        ("Match future x\n", "config:1: "),
        ('Host "open\n', "config:1: "),
        ("Host *\n ProxyJump a b c;d\n", "config:2: "),
        ("Host *\n ProxyCommand nc %Z\n", "config: "),
        ("Host *\n ProxyJump a,;b\n", "not a host"),
    ],
)
def test_mistakes_name_their_place(home: Path, text: str, words: str) -> None:
    with pytest.raises(LinkError) as caught:
        resolved(home, text)
    assert words in str(caught.value)


def test_a_file_that_may_not_be_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home / ".ssh" / "config"
    folder.mkdir()
    with pytest.raises(LinkError, match="cannot be read"):
        resolve(SshTarget("gpu01"), USUAL)
