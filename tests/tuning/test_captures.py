"""What real hosts printed, judged: every expectation of the index."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SHARED
from tests.tuning.captures import Expectation, expectations, judge

FOLDER = SHARED / "captures" / "hosts"
WITHOUT_EVIDENCE = {("c08", "gpu.open_module")}
"""The recording was shortened before the line that this expectation needs."""

TABLE = expectations(FOLDER) if (FOLDER / "index.tsv").is_file() else []


@pytest.mark.shared
@pytest.mark.parametrize("item", TABLE, ids=lambda e: f"{e.id}-{e.check}")
def test_capture_is_judged_right(item: Expectation, shared: Path) -> None:
    found = judge(item.files)
    if (item.id, item.check) in WITHOUT_EVIDENCE:
        assert item.check not in found or found[item.check][0] != "PASS"
    elif item.check == "parse.devices":
        assert found["parse.devices"] == ("INFO", item.verdict.replace(",", ", "))
    else:
        verdict, evidence = found[item.check]
        assert verdict == item.verdict, evidence


@pytest.mark.shared
def test_two_expectations_of_one_pair_agree_on_the_cause(shared: Path) -> None:
    pair = tuple(sorted(FOLDER.glob("c1[02]_*.txt")))
    verdict, evidence = judge(pair)["virt.lxc_majors"]
    assert verdict == "FAIL"
    assert "nvidia-uvm is 510 today" in evidence
    assert "nvidia-caps is 235 today" in evidence
