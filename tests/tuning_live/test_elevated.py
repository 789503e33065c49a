"""The way to root: a stand-in for sudo that asks for a password, or for none."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.agent.remote import changes, elevated, facts

SUDO = """#!/bin/sh
ask=
while [ "$1" != "--" ]; do
  case "$1" in -n) [ -n "$FREE" ] || { echo "sudo: a password is required" >&2; exit 1; } ;;
  -S) ask=yes ;; -p) shift ;; esac
  shift
done
shift
if [ -n "$ask" ] && [ -z "$FREE" ]; then
  read -r given
  [ "$given" = "open sesame" ] || { echo "sudo: 1 incorrect password attempt" >&2; exit 1; }
fi
exec "$@"
"""


@pytest.fixture
def sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in, alone before the PATH; we are nobody in particular."""
    place = tmp_path / "bin" / "sudo"
    place.parent.mkdir()
    place.write_text(SUDO.replace("$FREE", ""))
    place.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place.parent}:/usr/bin:/bin")
    monkeypatch.setattr(elevated, "is_root", lambda: False)
    return place


def make_free(sudo: Path) -> None:
    sudo.write_text(SUDO.replace("$FREE", "yes"))


def test_with_a_password_and_never_with_a_wrong_one(sudo: Path, tmp_path: Path) -> None:
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("b\n")
    params = {"paths": ["/nothing"], "root": str(tmp_path)}
    names = changes.MODULES
    answer = elevated.call(names, "read", params, "open sesame")
    assert answer["boot_id"] == "b"
    assert answer["files"]["/nothing"] == {"data": None, "mode": None, "error": ""}
    with pytest.raises(elevated.Refused, match="incorrect password"):
        elevated.call(names, "read", params, "guess")
    with pytest.raises(elevated.Refused, match="password is required"):
        elevated.call(names, "read", params)
    make_free(sudo)
    assert elevated.call(names, "read", params)["boot_id"] == "b"
    # sudo does not take the line that it does not need; it must not reach the program.
    assert elevated.call(names, "read", params, "open sesame")["boot_id"] == "b"


def test_without_sudo_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(elevated.Refused, match="sudo can't be run"):
        elevated.call(changes.MODULES, "read", {"paths": []})


def test_what_was_denied_is_read_again_as_root(
    sudo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "root/etc/pve/lxc/129.conf"
    secret.parent.mkdir(parents=True)
    secret.write_text("arch: amd64\n")
    real = facts.Gatherer._read

    def denied(self: facts.Gatherer, path: str, *arguments: object, **more: object) -> None:
        if path.startswith("/etc/pve"):
            self._keep(path, None, "EACCES", path, True)
        else:
            real(self, path, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(facts.Gatherer, "_read", denied)
    probes = [["glob", "/etc/pve/lxc/*.conf", [], 65_536, True]]
    asked = {"probes": probes, "root": str(tmp_path / "root")}
    plain = facts.collect(dict(asked))
    assert plain["denied"] == 1
    assert plain["facts"][0][2] == "EACCES"
    refused = facts.collect({**asked, "sudo": True})
    assert refused["denied"] == 1
    assert "password is required" in refused["note"]
    given = facts.collect({**asked, "password": "open sesame"})
    assert given["denied"] == 0
    assert given["facts"][0][1] == "arch: amd64\n"


def test_changes_are_carried_out_through_it(sudo: Path, tmp_path: Path) -> None:
    make_free(sudo)
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("b\n")
    value = tmp_path / "proc/sys/vm"
    value.write_text("1\n")
    step = {"kind": "write", "path": "/proc/sys/vm", "data": "MAo=", "mode": None}
    params = {"steps": [step], "boot_id": "b", "root": str(tmp_path), "sudo": True}
    answer = changes._ask("carry_out", params)
    assert answer["steps"][0]["ok"]
    assert value.read_text() == "0\n"
