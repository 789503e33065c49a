from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import asyncssh
import pytest

from backends.link.known_hosts import host_key_name, look_up, save


@pytest.fixture(scope="module")
def key() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519").convert_to_public()


def text_of(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key("openssh").decode().split()[:2])


def test_names_as_openssh_writes_them() -> None:
    assert host_key_name("GPU01", 22) == "gpu01"
    assert host_key_name("gpu01", 2222) == "[gpu01]:2222"
    assert host_key_name("10.0.0.1", 2222, "Fleet") == "fleet"


@pytest.mark.parametrize(
    ("names", "host", "port", "known"),
    [
        ("gpu01", "gpu01", 22, True),
        ("gpu01", "GPU01", 22, True),
        ("a,gpu01,b", "gpu01", 22, True),
        ("*.example.org", "gpu01.example.org", 22, True),
        ("gpu0?", "gpu01", 22, True),
        ("*,!gpu01", "gpu01", 22, False),
        ("*,!gpu01", "gpu02", 22, True),
        ("[gpu01]:2222", "gpu01", 2222, True),
        ("[gpu01]:2222", "gpu01", 22, False),
        ("gpu01", "gpu01", 2222, True),
        ("gpu1", "gpu01", 22, False),
        ("gpu[01]", "gpu0", 22, False),
    ],
)
def test_patterns(
    tmp_path: Path, key: asyncssh.SSHKey, names: str, host: str, port: int, known: bool
) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"# comment\n\n{names} {text_of(key)} comment\n")
    found = look_up([file], host, port)
    assert bool(found.trusted) is known
    if known:
        assert found.trusted[0].place == f"{file}:3"


def test_a_key_known_without_the_port_is_no_reason_to_call_another_one_changed(
    tmp_path: Path, key: asyncssh.SSHKey
) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"gpu01 {text_of(key)}\n")
    assert look_up([file], "gpu01", 2222).by_bare_name
    assert not look_up([file], "gpu01", 22).by_bare_name


def test_hashed_entries(tmp_path: Path, key: asyncssh.SSHKey) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"[gpu01]:2222 {text_of(key)}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "gpu01" not in file.read_text()
    assert look_up([file], "gpu01", 2222).trusted
    assert not look_up([file], "gpu02", 2222).trusted


def test_markers_and_broken_lines(tmp_path: Path, key: asyncssh.SSHKey) -> None:
    file = tmp_path / "known_hosts"
    file.write_bytes(
        b"\xff\xfe garbage\n@unknown * x y\ngpu01 ssh-ed25519 notbase64\ngpu01\n|1|bad ssh-rsa x\n"
        + f"@cert-authority *.org {text_of(key)}\n@revoked * {text_of(key)}\n".encode()
    )
    found = look_up([file, tmp_path / "missing"], "a.org", 22)
    assert not found.trusted
    assert [entry.line for entry in found.authorities] == [6]
    assert [entry.line for entry in found.revoked] == [7]


def test_saving_is_once_each_and_private(tmp_path: Path, key: asyncssh.SSHKey) -> None:
    file = tmp_path / "state" / "known_hosts"
    names = [f"host{number}" for number in range(40)]
    threads = [threading.Thread(target=save, args=(file, name, key)) for name in names * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = file.read_text().splitlines()
    assert sorted(lines) == sorted(f"{name} {text_of(key)}" for name in names)
    assert file.stat().st_mode & 0o777 == 0o600
    assert look_up([file], "host7", 22).trusted[0].key == key


def test_saving_after_a_line_without_its_end(tmp_path: Path, key: asyncssh.SSHKey) -> None:
    file = tmp_path / "known_hosts"
    file.write_text("# no line feed")
    save(file, "gpu01", key)
    assert look_up([file], "gpu01", 22).trusted
