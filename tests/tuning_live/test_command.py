"""`gpuroom facts` and `gpuroom tuning HOST` as an operator calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends.tuning import measure
from backends.tuning.facts import Fact, FactsDocument, decode
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
    assert "numa.balancing: applied" in say("tuning", "local", "report", *root)[1]

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


def test_figures_are_set_against_link_and_card() -> None:
    gpu = "0000:01:00.0"
    values: dict[str, int | float | str] = {
        f"bench/name/{gpu}": "NVIDIA H200",
        f"bench/h2d/{gpu}/gb_s": 55.0,
        f"bench/matmul/{gpu}/tflop_s": 690.0,
        f"bench/launch/{gpu}/submit_us": 7.0,
        f"gpu/{gpu}/link_width_max": 16,
        f"gpu/{gpu}/link_gen_max": 5,
    }
    rows = measure.rows(FactsDocument([Fact(k, v) for k, v in values.items()]))
    shares = {row.what.split(" 0000")[0]: row.share_pct for row in rows}
    assert shares["copy host to GPU"] == pytest.approx(87, abs=1)
    assert shares["bf16 matrix product"] == pytest.approx(70, abs=1)
    assert shares["launch"] is None
    assert "H200, dense bf16" in measure.table(rows)


def test_what_the_measuring_program_says_is_not_believed_blindly() -> None:
    assert measure.parse({"key": 5}) is None
    assert measure.parse(["x"]) is None
    message = measure.parse({"key": "bench/read/gb_s", "value": 1.5})
    assert message is not None
    assert message.value == 1.5
