"""What was edited in others' files is listed as ours and taken back, on both machines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tuning_live.test_pair import CONF, OLD_CONF, guest
from tests.tuning_live.tree import Tree, make_host
from tui.cli.main import main

__all__ = ["guest"]
pytestmark = pytest.mark.real
GRUB = "/etc/default/grub"
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def said(*argv: str) -> tuple[int, str, str]:
        status = main(argv)
        got = capsys.readouterr()
        return status, got.out, got.err

    return said


def listed(say: Say, host: str, *where: str) -> dict[str, tuple[str, str]]:
    """By id: path and line."""
    status, out, _ = say("tuning", host, "files", "--json", *where)
    assert status == 0
    return {
        setting["id"]: (file["path"], setting["line"])
        for file in json.loads(out)
        for setting in file["settings"]
    }


def test_a_kernel_command_line(tmp_path: Path, say: Say) -> None:
    tree = make_host(tmp_path / "root")
    tree.put("/sys/devices/system/cpu/cpu0/acpi_cppc/highest_perf", "255\n")
    tree.program("update-grub", 'echo ran >> "$GPUROOM_ROOT/ran"')
    old = tree.read(GRUB)
    where = ("--root", str(tree.folder))
    files = ("tuning", "local", "files")
    change = ("tuning", "local", "apply", "--only", "cpu.scaling_driver")
    status, out, error = say(*change, "--form", "persistent", "--yes", *where)
    assert status == 0, (out, error)
    new = tree.read(GRUB)
    assert b"amd_pstate=active" in new
    ((edit, (path, line)),) = listed(say, "local", *where).items()
    assert path == GRUB
    assert '+GRUB_CMDLINE_LINUX_DEFAULT="quiet amd_pstate=active"' in line
    # By hand since: said, and not overwritten.
    tree.put(GRUB, new + b"GRUB_TIMEOUT=3\n")
    assert "changed by others since" in listed(say, "local", *where)[edit][1]
    status, out, _ = say(*files, "--remove", edit, "--yes", *where)
    assert status == 1
    assert "no longer as this change left it" in out
    assert tree.read(GRUB).endswith(b"GRUB_TIMEOUT=3\n")
    tree.put(GRUB, new)
    # Taken back: the file as it was, and what makes it count runs again.
    _, _, shown = say(*files, "--remove", edit, "--dry-run", *where)
    assert '-GRUB_CMDLINE_LINUX_DEFAULT="quiet amd_pstate=active"' in shown
    assert "update-grub" in shown
    status, out, error = say(*files, "--remove", edit, "--yes", *where)
    assert status == 0, (out, error)
    assert tree.read(GRUB) == old
    assert tree.read("/ran") == b"ran\nran\n"
    assert listed(say, "local", *where) == {}
    # And that is a change like any other.
    assert say("tuning", "local", "rollback", "--yes", *where)[0] == 0
    assert tree.read(GRUB) == new
    assert list(listed(say, "local", *where)) == [edit]


def test_entries_of_a_container_on_its_hypervisor(tmp_path: Path, guest: Tree, say: Say) -> None:
    pve = make_host(tmp_path / "pve")
    pve.put(CONF, OLD_CONF)
    config = tmp_path / "config.toml"
    config.write_text(
        '[[hosts]]\nname = "vllm"\ntarget = "local"\nhypervisor = "pve"\ncontainer = 129\n'
        '[[hosts]]\nname = "pve"\ntarget = "local"\n'
    )
    there = ("--config", str(config))
    pair = ("--root", str(guest.folder), "--root-below", str(pve.folder), *there)
    apply = ("tuning", "vllm", "apply", "--only", "virt.lxc_majors", "--yes")
    assert say(*apply, *pair)[0] == 0
    ((edit, (path, line)),) = listed(say, "vllm", *pair).items()
    assert path == CONF
    assert "+dev0: /dev/nvidia0,mode=0666" in line
    assert "-lxc.cgroup2.devices.allow: c 508:* rwm" in line
    status, out, error = say("tuning", "vllm", "files", "--remove", edit, "--yes", *pair)
    assert status == 0, (out, error)
    assert pve.read(CONF).decode() == OLD_CONF
    assert listed(say, "vllm", *pair) == {}
