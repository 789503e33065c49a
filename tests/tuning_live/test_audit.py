"""Many hosts judged at once: the good ones though another cannot be read; a hung file is left."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from backends.agent.remote import facts
from tests.sshd import free_port
from tests.tuning_live.tree import make_host
from tui.cli.main import main

pytestmark = pytest.mark.real


def test_every_host_has_a_line_and_one_that_is_lost_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = make_host(tmp_path / "root")
    config = tmp_path / "config.toml"
    config.write_text(
        "".join(f'[[hosts]]\nname = "{n}"\ntarget = "local"\n' for n in ("gpu01", "gpu02"))
        + f'[[hosts]]\nname = "gone"\ntarget = "nobody@127.0.0.1:{free_port()}"\n'
    )
    common = ["tuning", "audit", "--root", str(tree.folder), "--config", str(config)]
    status = main([*common, "--json"])
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert [row["host"] for row in rows] == ["gpu01", "gpu02", "gone"]
    assert rows[0]["error"] is None
    assert rows[0]["counts"] == rows[1]["counts"]
    assert rows[0]["counts"]["WARN"] > 0
    assert {f["check"] for f in rows[0]["findings"]} >= {"numa.balancing", "cpu.governor"}
    assert "refuses connections" in rows[2]["error"]
    assert "1 of 3 hosts could not be read" in err
    assert status == 30
    status = main([*common, "gpu02"])
    out, _ = capsys.readouterr()
    assert out.startswith("gpu02 ")
    assert len(out.splitlines()) == 1
    assert "WARN" in out
    assert status == 30


def test_no_hosts_at_all_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.toml"
    config.write_text("")
    assert main(["tuning", "audit", "--config", str(config)]) == 2
    assert "no hosts" in capsys.readouterr().err


def test_what_an_own_check_reads_is_read_on_the_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = make_host(tmp_path / "root")
    tree.put("/proc/sys/vm/nr_hugepages", "1024\n")
    checks = tmp_path / "checks.toml"
    checks.write_text(
        '[[checks]]\nid = "site.hugepages"\ntitle = "As agreed"\nwhy = "storage"\n'
        'reads = "/proc/sys/vm/nr_hugepages"\nequals = "8192"\nfix = { write = "8192" }\n'
    )
    main(["tuning", "local", "--root", str(tree.folder), "--checks", str(checks), "--json"])
    found = {row["check"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["site.hugepages"]["verdict"] == "WARN"
    assert "1024" in found["site.hugepages"]["evidence"]
    assert "8192" in found["site.hugepages"]["fix"]


def test_a_file_that_hangs_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = make_host(tmp_path / "root")
    let_go = threading.Event()
    read = facts.Gatherer._read

    def hanging(self: facts.Gatherer, path: str, *rest: object, **more: object) -> None:
        if path == "/proc/cmdline":
            let_go.wait(60)
        read(self, path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(facts.Gatherer, "_read", hanging)
    rows = [["file", "/proc/cmdline", [], 4096, False]]
    rows += [["file", f"/proc/{name}", [], 4096, False] for name in ("version", "meminfo")]
    try:
        found = facts.collect({"probes": rows, "root": str(tree.folder), "deadline_s": 1.0})
    finally:
        let_go.set()
    by_key = {row[0]: row for row in found["facts"]}
    assert by_key["/proc/version"][1]
    assert by_key["/proc/meminfo"][1]
    assert by_key["/proc/cmdline"][1:3] == (None, "ETIMEDOUT")
