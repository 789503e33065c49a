"""The documents say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backends.telemetry import reference
from backends.telemetry.readings_json import GPU_KEYS, snapshot_json
from tests.conftest import ROOT
from tests.telemetry.test_readings_json import full_host

READINGS = ROOT / "docs/readings.md"
TOP_JSON = ROOT / "docs/top-json.md"


def test_the_tables_of_readings_are_current() -> None:
    text = READINGS.read_text(encoding="utf-8")
    assert reference.updated(text) == text, "run: python -m backends.telemetry.reference"
    assert "`power_w` | W | number | fast" in text


def test_every_verdict_is_documented_and_every_documented_one_exists() -> None:
    sources = [ROOT / "backends" / name for name in ("verdicts.py", "stragglers.py")]
    code = "\n".join(Path(source).read_text(encoding="utf-8") for source in sources)
    given = set(re.findall(r'"([A-Z][A-Z]+(?:-[A-Z]+)*)"', code))
    table = READINGS.read_text(encoding="utf-8").partition("## Verdicts")[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = {word for row in rows for word in re.findall(r"`([A-Z-]+)`", row)}
    assert given == documented


@pytest.mark.parametrize("name", ["host", "gpu", "verdict", "link", "process"])
def test_the_keys_of_the_json_are_documented(name: str) -> None:
    section = re.search(
        rf"<!-- keys: {name} -->\n(.*?)<!-- end -->", TOP_JSON.read_text("utf-8"), re.DOTALL
    )
    assert section is not None
    documented = re.findall(r"^\| `([a-z_]+)` \|", section[1], re.MULTILINE)
    host = snapshot_json(full_host(), 100.0)
    example = {
        "host": host,
        "gpu": {key: value for key, value in host["gpus"][0].items() if key not in GPU_KEYS},
        "verdict": host["gpus"][0]["verdicts"][0],
        "link": host["link"],
        "process": host["processes"][0],
    }[name]
    assert documented == list(example)
