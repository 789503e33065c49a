"""The document of the demo names every scenario, in the words of the code."""

from __future__ import annotations

import re

from backends.sim.scenarios import SCENARIOS
from tests.conftest import ROOT


def test_every_scenario_is_documented_in_its_own_words() -> None:
    text = (ROOT / "docs/demo.md").read_text(encoding="utf-8").partition("## Scenarios")[2]
    documented = re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", text, re.MULTILINE)
    assert documented == [(scenario.name, scenario.description) for scenario in SCENARIOS]
