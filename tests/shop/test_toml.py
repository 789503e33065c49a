"""TOML that nobody should write: always one error with its place, and never a hang."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from backends import config
from backends.bench import planfile
from backends.errors import ConfigError
from backends.servers import catalogue
from backends.state import RoomState, load_state
from backends.tuning import custom

WHERE = Path("file.toml")
READERS: dict[str, Callable[[str], object]] = {
    "config": lambda text: config.parse(text, WHERE),
    "checks": lambda text: custom.parse(text, WHERE),
    "plan": lambda text: planfile.parse(text, WHERE),
    "catalogue": lambda text: catalogue.parse_catalogue(text, path=WHERE),
}
HOSTILE = {
    "lists": "\na = " + "[" * 5000 + "]" * 5000,
    "tables": "\na = " + "{b = " * 3000,
    "number": "\na = " + "9" * 5000,
    "no end": "\na = [",
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_it_is_an_error_with_its_place(reader: str, kind: str) -> None:
    with pytest.raises(ConfigError) as caught:
        READERS[reader](HOSTILE[kind])
    assert "file.toml" in str(caught.value)
    if kind in ("lists", "tables", "number"):
        assert "line 2" in str(caught.value) or caught.value.line == 2


def test_the_state_of_the_screen_is_never_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "state.toml"
    for text in HOSTILE.values():
        path.write_text(text)
        assert load_state(path) == RoomState()


def test_a_plan_that_repeats_for_ever_is_told_at_once() -> None:
    text = next(iter(planfile.available().values())).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("repetitions")]
    with pytest.raises(ConfigError, match="unrolls to more than"):
        planfile.parse("\n".join([f"repetitions = {10**18}", *lines]), WHERE)


@pytest.mark.parametrize("value", ["inf", "1e400", "1e12"])
def test_a_time_has_an_end(value: str) -> None:
    with pytest.raises(ConfigError, match=r"ssh.keepalive_s.*<= 86400"):
        config.parse(f"[ssh]\nkeepalive_s = {value}\n", WHERE)


def test_no_host_is_its_own_hypervisor() -> None:
    with pytest.raises(ConfigError, match="can't be its own") as caught:
        config.parse('[[hosts]]\nname = "a"\nhypervisor = "a"\n', WHERE)
    assert caught.value.line == 3
