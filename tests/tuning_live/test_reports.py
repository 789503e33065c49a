"""Reports, runs compared, own files and SARIF, as an operator and a pipeline get them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tuning_live.tree import BOOT_B, Tree, make_host
from tui.cli.main import main

pytestmark = pytest.mark.real
BALANCING = "/proc/sys/kernel/numa_balancing"
SYSCTL = "/etc/sysctl.d/90-gpuroom.conf"


class Operator:
    """Somebody at a prompt."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def says(self, *argv: str) -> tuple[int, str, str]:
        status = main(argv)
        got = self._capsys.readouterr()
        return status, got.out, got.err


@pytest.fixture
def operator(capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(capsys)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_host(tmp_path / "root")


def test_the_report_says_what_remains_what_was_changed_and_what_was_seen(
    operator: Operator, tree: Tree
) -> None:
    root = ["--root", str(tree.folder)]
    operator.says(
        "tuning", "local", "apply", "--only", "numa.balancing", "cpu.governor",
        "--form", "both", "--yes", *root,
    )  # fmt: skip
    status, text, _ = operator.says("tuning", "local", "report", *root)
    assert status >= 10
    remains, _, rest = text.partition("## What was changed")
    changed, _, seen = rest.partition("## What was seen")
    assert "numa.zone\\_reclaim" in remains or "`numa.zone_reclaim`" in remains
    assert "`numa.balancing`" not in remains.partition("## What could not")[0]
    assert remains.index("**FAIL**") < remains.index("**WARN**"), "in the order of worth"
    assert "why: " in remains
    assert "fix (at once): " in remains
    assert f"`{BALANCING}`: 1 to 0" in changed
    assert f"new `{SYSCTL}`" in changed
    assert "and 3 more of the kind" in changed
    assert "| `numa.balancing` | PASS |" in seen
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") in (4, 5), line
    status, body, _ = operator.says("tuning", "local", "report", "--json", *root)
    assert json.loads(body)["changes"][0]["results"]["numa.balancing"] == "applied"


def test_two_runs_and_two_hosts_are_compared(
    operator: Operator, tree: Tree, tmp_path: Path
) -> None:
    root = ["--root", str(tree.folder)]
    _, good, _ = operator.says("facts", "local", *root)
    (tmp_path / "good.json").write_text(good)
    operator.says("tuning", "local", *root)
    tree.put(BALANCING, "0\n")
    operator.says("tuning", "local", *root)
    status, text, _ = operator.says("tuning", "diff", "local@-1", "local@last")
    assert status == 1
    assert "numa.balancing: WARN | PASS  Automatic NUMA balancing off" in text
    assert "kernel.numa_balancing = 1" in text
    assert f"{BALANCING}@host: 1 | 0" in text
    status, text, _ = operator.says("tuning", "diff", "local@last", "local@last")
    assert (status, "no finding differs" in text) == (0, True)
    status, text, _ = operator.says("tuning", "diff", str(tmp_path / "good.json"), "local", *root)
    assert status == 1
    assert "numa.balancing: WARN | PASS" in text
    status, body, _ = operator.says("tuning", "diff", "local@-1", "local", "--json", *root)
    (row,) = [r for r in json.loads(body)["findings"] if r["what"] == "numa.balancing"]
    assert (row["a"], row["b"]) == ("WARN", "PASS")
    assert row["b_evidence"] == "kernel.numa_balancing = 0"
    status, _, error = operator.says("tuning", "diff", "local@999", "local@last")
    assert status == 2
    assert "no run 999 of local" in error
    assert "there are " in error


def test_own_settings_are_listed_and_removed_one_by_one(operator: Operator, tree: Tree) -> None:
    root = ["--root", str(tree.folder)]
    status, text, _ = operator.says("tuning", "local", "files", *root)
    assert (status, text.strip()) == (0, "nothing of gpuroom's lies on the host")
    tree.put("/etc/modprobe.d/gpuroom.conf", "options nvidia x=1\n")  # by that name, and not ours
    operator.says(
        "tuning", "local", "apply", "--only", "numa.balancing", "numa.zone_reclaim",
        "--form", "persistent", "--yes", *root,
    )  # fmt: skip
    assert tree.read(BALANCING) == b"1\n", "the persistent form leaves the running value"
    before = tree.read(SYSCTL)
    status, body, _ = operator.says("tuning", "local", "files", "--json", *root)
    (file,) = json.loads(body)
    assert file["path"] == SYSCTL
    ids = [setting["id"] for setting in file["settings"]]
    assert ids == ["sysctl:kernel.numa_balancing", "sysctl:vm.zone_reclaim_mode"]
    assert operator.says("tuning", "local", "files", "--remove", "sysctl:x", *root)[0] == 2
    remove = ("tuning", "local", "files", "--remove", ids[0])
    status, _, error = operator.says(*remove, "--dry-run", *root)
    assert "-kernel.numa_balancing = 0" in error
    assert tree.read(SYSCTL) == before
    assert operator.says(*remove, *root)[0] == 5, "not without a yes"
    status, text, _ = operator.says(*remove, "--yes", *root)
    assert status == 0, text
    assert b"numa_balancing" not in tree.read(SYSCTL)
    assert b"vm.zone_reclaim_mode = 0" in tree.read(SYSCTL)
    status, _, error = operator.says("tuning", "local", "files", "--remove", ids[1], "--yes", *root)
    assert status == 0, error
    assert not tree.at(SYSCTL).exists(), "nothing is left in it, so it goes"
    for _ in range(2):
        status, text, _ = operator.says("tuning", "local", "rollback", "--yes", *root)
        assert status == 0, text
    assert tree.read(SYSCTL) == before, "a removal is taken back like any change"


def test_a_form_that_a_fix_does_not_have_is_said(operator: Operator, tree: Tree) -> None:
    root = ["--root", str(tree.folder)]
    tree.put("/proc/sys/kernel/random/boot_id", BOOT_B + "\n")
    status, _, error = operator.says(
        "tuning", "local", "apply", "--only", "virt.dev_nodes", "--form", "persistent",
        "--dry-run", *root,
    )  # fmt: skip
    assert status == 0
    assert "cannot be done: it has no persistent form" in error


def test_sarif_is_what_the_standard_asks_for(operator: Operator, tree: Tree) -> None:
    """Section 3 of SARIF 2.1.0, as far as it says must."""
    status, text, _ = operator.says("tuning", "local", "--sarif", "--root", str(tree.folder))
    assert status in (10, 20, 30)
    log: dict[str, Any] = json.loads(text)
    assert set(log) == {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "gpuroom"
    rules = driver["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert rule.get("helpUri", "https://").startswith("http")
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["kind"] in {
            "pass", "open", "informational", "notApplicable", "review", "fail",
        }  # fmt: skip
        assert result["level"] in {"none", "note", "warning", "error"}
        assert (result["level"] == "none") == (result["kind"] != "fail"), "3.27.10"
        assert result["message"]["text"]
        (place,) = result["locations"]
        assert place["logicalLocations"][0]["fullyQualifiedName"].startswith("local/")
        for suppression in result.get("suppressions", []):
            assert suppression["kind"] in {"inSource", "external"}
    assert any(result["level"] == "error" for result in run["results"])
