"""What the documentation says of tuning is so."""

from __future__ import annotations

import re

from backends.tuning import report
from backends.tuning.custom import parse
from backends.tuning.findings import Verdict
from backends.tuning.rules import all_rules
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")


def test_the_example_of_an_operators_file_is_accepted() -> None:
    block = re.search(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    assert block
    assert parse(block[1]).checks


def test_every_verdict_and_exit_status_is_named() -> None:
    for verdict in Verdict:
        assert verdict.value in TEXT
    for code in (report.EXIT_WARN, report.EXIT_FAIL, report.EXIT_CRITICAL):
        assert re.search(rf"\b{code} (?:warnings|failures|critical)", TEXT)


def test_rules_and_files_that_are_named_exist() -> None:
    ids = {rule.id for rule in all_rules()}
    for name in re.findall(r"`((?:cpu|gpu|net|kernel|virt|pcie)\.[a-z_]+)`", TEXT):
        assert name in ids
    for path in re.findall(r"`((?:backends|tests|benchmarks)/[\w/.]+)`", TEXT):
        if "GROUP" not in path:
            assert (ROOT / path).exists(), path
