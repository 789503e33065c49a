"""What docs/servers.md says is so."""

from __future__ import annotations

import re
import tomllib

from backends.servers.profiles import resolve_profiles
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "servers.md").read_text(encoding="utf-8")


def test_the_modules_it_names_are_there() -> None:
    rows = [line for line in TEXT.split("\n") if line.startswith("| `")]
    rows = [row for row in rows if not row.startswith("| `gpuroom ")]  # the table of commands
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    assert len(named) > 10
    for name in named:
        place = ROOT if name.startswith("backends/") else ROOT / "backends" / "servers"
        assert (place / name).exists(), name


def test_its_profiles_can_be_used() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    profiles = {p.name: p for p in resolve_profiles(tomllib.loads(blocks[0])["servers"])}
    assert set(profiles) == {"glm", "glm-ep"}
    words = profiles["glm-ep"].command
    assert "--tp" not in words
    assert words[words.index("--ep") + 1] == "8"
    assert "--disable-cuda-graph" in words
