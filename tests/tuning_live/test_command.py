"""`gpuroom facts` and `gpuroom tuning HOST` as an operator calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends.tuning.facts import decode
from tests.tuning_live.tree import BOOT_B, make_host
from tui.cli.main import main

pytestmark = pytest.mark.real
BALANCING = "/proc/sys/kernel/numa_balancing"


def test_from_judging_to_taking_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = make_host(tmp_path / "root")
    root = ["--root", str(tree.folder)]

    def say(*argv: str) -> tuple[int, str, str]:
        status = main(argv)
        got = capsys.readouterr()
        return status, got.out, got.err

    status, facts, _ = say("facts", "local", *root)
    assert status == 0
    document = decode(facts)
    assert document.boot_id.startswith("1111")
    assert document.derived
    saved = tmp_path / "facts.json"
    saved.write_text(facts)
    status, text, _ = say("tuning", "local", "--json", *root)
    live = {row["check"]: row["verdict"] for row in json.loads(text)}
    assert live["numa.balancing"] == "WARN"
    again, text, _ = say("tuning", str(saved), "--json")
    assert again == status
    assert {row["check"]: row["verdict"] for row in json.loads(text)} == live

    change = ("tuning", "local", "apply", "--only", "numa.balancing")
    assert say(*change, "--dry-run", *root)[0] == 0
    assert tree.read(BALANCING) == b"1\n"
    status, _, error = say(*change, *root)
    assert status == 5
    assert "not confirmed" in error
    status, text, error = say(*change, "--yes", "--json", *root)
    assert status == 0, error
    assert json.loads(text)[0]["outcome"] == "applied"
    assert tree.read(BALANCING) == b"0\n"
    _, text, _ = say("tuning", "local", "history", "--json")
    (snapshot,) = json.loads(text)["snapshots"]
    assert snapshot["results"] == {"numa.balancing": "applied"}
    assert "| `numa.balancing` | applied |" in say("tuning", "local", "report", *root)[1]

    tree.boot(BOOT_B)
    _, _, error = say("tuning", "local", *root)
    assert "booted since" in error
    assert "numa.balancing: PASS -> WARN" in error
    assert say("tuning", "local", "rollback")[0] == 5
    status, text, _ = say("tuning", "local", "rollback", "--yes", *root)
    assert status == 0
    assert "has reset it" in text
    assert say("tuning", "local", "rollback", "--yes")[0] == 2, "nothing is left to go back to"


def test_a_production_host_wants_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = make_host(tmp_path / "root")
    config = tmp_path / "config.toml"
    config.write_text('[[hosts]]\nname = "gpu01"\ntarget = "local"\nproduction = true\n')
    change = ["tuning", "gpu01", "apply", "--only", "numa.balancing", "--yes"]
    change += ["--root", str(tree.folder), "--config", str(config)]
    assert main(change) == 5
    assert "marked production" in capsys.readouterr().err
    assert tree.read(BALANCING) == b"1\n"
    assert main([*change, "--host-name", "gpu01"]) == 0
    assert tree.read(BALANCING) == b"0\n"
