"""The pair with stale majors from the command line: judged, mended, taken back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tuning_live.test_pair import CONF, OLD_CONF
from tests.tuning_live.tree import BOOT_A, Tree, make_host
from tui.cli.main import main

pytestmark = pytest.mark.real


def test_stale_majors_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pve = make_host(tmp_path / "pve")
    pve.put(CONF, OLD_CONF)
    guest = Tree(tmp_path / "guest")
    guest.put("/proc/sys/kernel/random/boot_id", BOOT_A + "\n")
    guest.put("/proc/devices", "Character devices:\n195 nvidia\n235 nvidia-caps\n509 nvidia-uvm\n")
    guest.program("systemd-detect-virt", "echo lxc")
    config = tmp_path / "config.toml"
    config.write_text(
        '[[hosts]]\nname = "vllm"\ntarget = "local"\nhypervisor = "pve"\ncontainer = 129\n'
        '[[hosts]]\nname = "pve"\ntarget = "local"\n'
    )
    where = ["--config", str(config), "--root", str(guest.folder), "--root-below", str(pve.folder)]
    main(["tuning", "vllm", "--json", *where])
    found = {one["check"]: one["verdict"] for one in json.loads(capsys.readouterr().out)}
    assert found["virt.lxc_majors"] == "FAIL"
    yes = ["--yes", "--host-name", "vllm"]
    assert main(["tuning", "vllm", "apply", "--only", "virt.lxc_majors", *yes, *where]) == 0
    assert "dev0: /dev/nvidia0" in pve.read(CONF).decode()
    assert main(["tuning", "vllm", "rollback", "--yes", *where]) == 0
    assert pve.read(CONF).decode() == OLD_CONF
