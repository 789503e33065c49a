"""`gpuroom tuning` from the command line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from backends.tuning.facts import encode
from tests.tuning.cases import CASES, document
from tests.tuning.samples import LXC_STALE, PROC_DEVICES, SMI_TABLE
from tui.cli import main, tuning_arguments


def test_read_prints_json_and_exits_by_severity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "129.conf").write_text(LXC_STALE)
    (tmp_path / "devices").write_text(PROC_DEVICES)
    status = main(
        ["tuning", "read", str(tmp_path / "129.conf"), str(tmp_path / "devices"), "--json"]
    )
    rows = {row["check"]: row for row in json.loads(capsys.readouterr().out)}
    assert status == 30
    assert rows["virt.lxc_majors"]["verdict"] == "FAIL"
    assert rows["virt.lxc_majors"]["fix_plan"]["persistent"][0]["edit"] == "/etc/pve/lxc/129.conf"
    assert "cpu.governor" not in rows


def test_read_takes_saved_facts_and_printed_output_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "facts.json").write_bytes(encode(document(CASES["numa.balancing"].bad)))
    (tmp_path / "smi.txt").write_text(SMI_TABLE)
    main(["tuning", "read", str(tmp_path / "facts.json"), str(tmp_path / "smi.txt"), "--json"])
    rows = {row["check"]: row["verdict"] for row in json.loads(capsys.readouterr().out)}
    assert rows["numa.balancing"] == "WARN"
    assert rows["gpu.persistence"] == "WARN"


@pytest.mark.parametrize("form", ["--markdown", "--sarif", "--facts", "--all"])
def test_other_forms(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "smi.txt").write_text(SMI_TABLE)
    main(["tuning", "read", str(tmp_path / "smi.txt"), form])
    assert "gpu" in capsys.readouterr().out


def test_diff_says_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, case in (("a", CASES["numa.balancing"].good), ("b", CASES["numa.balancing"].bad)):
        (tmp_path / name).write_bytes(encode(document(case)))
    assert main(["tuning", "diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "numa.balancing: PASS | WARN" in capsys.readouterr().out
    assert main(["tuning", "diff", str(tmp_path / "a"), str(tmp_path / "a"), "--json"]) == 0


def test_explain_and_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tuning", "explain", "virt.lxc_majors"]) == 0
    assert "/proc/devices" in capsys.readouterr().out
    assert main(["tuning", "explain", "virt.lxc_major"]) == 2
    assert "virt.lxc_majors" in capsys.readouterr().err
    assert main(["tuning", "list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) >= 138
    assert main(["tuning", "list", "--thresholds", "--profile", "latency"]) == 0
    assert "vm_swappiness" in capsys.readouterr().out


def test_files_that_cannot_be_used_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tuning", "read", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err
    (tmp_path / "bad.json").write_text('{"facts": [{"key": 3}]}')
    assert main(["tuning", "read", str(tmp_path / "bad.json")]) == 2
    assert "facts document" in capsys.readouterr().err


def test_the_operators_checks_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "smi.txt").write_text(SMI_TABLE)
    (tmp_path / "c.toml").write_text('[expected]\n"gpu.count" = "8"\n')
    main(
        [
            "tuning",
            "read",
            str(tmp_path / "smi.txt"),
            "--checks",
            str(tmp_path / "c.toml"),
            "--json",
        ]
    )
    rows = {row["check"]: row["verdict"] for row in json.loads(capsys.readouterr().out)}
    assert rows["gpu.count"] == "FAIL"


@pytest.mark.parametrize(
    ("typed", "then", "what", "only"),
    [
        ("gpu01 --root /tmp/x apply --only a.b", "apply", None, ["a.b"]),
        ("gpu01 --root /tmp/x --only a.b c.d apply", "apply", None, ["a.b", "c.d"]),
        ("gpu01 rollback --root /tmp/x --yes SNAP", "rollback", "SNAP", None),
        ("gpu01 --root /tmp/x --yes rollback SNAP", "rollback", "SNAP", None),
        ("gpu01 --only wakeup experiment cpu.cstates --root /tmp/x", "experiment", "cpu.cstates",
         ["wakeup"]),
        ("gpu01 --root /tmp/x", "judge", None, None),
    ],
)  # fmt: skip
def test_words_and_options_in_any_order(
    typed: str, then: str, what: str | None, only: list[str] | None
) -> None:
    parser = argparse.ArgumentParser()
    tuning_arguments.add_arguments(parser)
    found = parser.parse_args(typed.split())
    assert (found.host, found.then, found.what, found.only) == ("gpu01", then, what, only)
    assert found.root == "/tmp/x"


@pytest.mark.parametrize("typed", ["--json gpu01 apply", "--root /tmp gpu01 apply", "gpu01 aply"])
def test_what_cannot_be_understood_names_the_order(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["tuning", *typed.split()])
    assert "gpuroom tuning HOST [THEN] [WHAT] [options]" in capsys.readouterr().err
