"""The configuration says what it takes, and where it is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from backends import paths
from backends.config import Config, HostConfig, TuningConfig, load, parse, resolve_hosts
from backends.errors import ConfigError, RoomError
from backends.state import RoomState, load_state, save_state

SAMPLE = Path(__file__).resolve().parents[2] / "config.toml"


def uncommented(text: str) -> str:
    """The sample with each commented key switched on."""
    return re.sub(r"(?m)^# (?=\[\[|[a-z\"_.]+ = )", "", text)


def test_the_sample_is_the_defaults() -> None:
    defaults = TuningConfig(profile="default", use="any")
    assert parse(SAMPLE.read_text()) == Config(tuning=defaults)


def test_every_key_of_the_sample_is_real_and_every_real_key_is_in_the_sample() -> None:
    text = uncommented(SAMPLE.read_text()) + '\n[[hosts]]\nname = "pve"\n'
    text = text.replace('"room.quit" = "q"', '"room.quit" = "q"')
    config = parse(text)
    assert config.hosts[0].container == 129
    for kind, table in (
        (HostConfig, r"\[\[hosts\]\]"),
        *(
            (type(getattr(config, name)), rf"\[{name}\]")
            for name in ("refresh", "screen", "tuning", "ssh")
        ),
    ):
        body = re.search(rf"{table}(.*?)(?=\n\[|\Z)", text, re.DOTALL)
        assert body
        written = set(re.findall(r"(?m)^(\w+) =", body[1]))
        assert written == {field.encode_name for field in msgspec.structs.fields(kind)}


@pytest.mark.parametrize(
    ("text", "title", "line", "hint"),
    [
        ("[refresh]\n\ninterval = 2", "unknown key `refresh.interval`", 3, "`interval_s`"),
        (
            '[[hosts]]\nname="a"\n[[hosts]]\nname="b"\nproducton=true',
            "unknown key `hosts.producton`",
            5,
            "`production`",
        ),
        ('[refresh]\ninterval_s="x"', "`refresh.interval_s`: expected float, got str", 2, ""),
        ("[refresh]\ninterval_s=0.01", "`refresh.interval_s`: expected float >= 0.1", 2, ""),
        ("hosts=3", "`hosts`: expected array, got int", 1, ""),
        ('\n[[hosts]]\ntarget="x"', "`hosts.name` is missing", 2, ""),
        ('[[hosts]]\nname="a"\n[[hosts]]\nname="a"', "two hosts are named 'a'", 4, ""),
        ('[screen]\nsort="pwr"', "`screen.sort`: invalid enum value 'pwr'", 2, "power"),
        ('[[hosts]]\nname="a"\nhypervisor="b"', "there is no host 'b'", 3, "a"),
        ('[[hosts]]\nname="a"\ncontainer=1', "`hosts.container` needs `hypervisor`", 3, ""),
        ('[[hosts]]\nname="-oProxyCommand=x"', "can't be a host's name", 2, ""),
        ('[tuning]\n\nprofile="fast"', "`tuning.profile`: invalid enum value 'fast'", 3, "latency"),
        ('[[hosts]]\nname="a"\n[hosts.tuning]\nuze="any"', "`hosts.tuning.uze`", 4, "`use`"),
        ('[[hosts]]\nname="a"\ntuning={profil="latency"}', "`hosts.tuning.profil`", 3, "profile"),
        ("scren = 2", "unknown key `scren`", 1, "`screen`"),
        ("x = ", "not valid TOML", 1, ""),
        ('refresh = {interval_s = "q"}', "`refresh.interval_s`: expected float, got str", 1, ""),
    ],
)
def test_a_mistake_names_place_and_remedy(text: str, title: str, line: int, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, Path("c.toml"))
    assert title in caught.value.title
    assert caught.value.line == line
    assert caught.value.detail == f"c.toml:{line}"
    assert hint in caught.value.hint


def test_a_file_that_is_no_text_or_too_large(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"a = 1\n\xff")
    with pytest.raises(ConfigError, match="not UTF-8") as caught:
        load(path)
    assert caught.value.line == 2
    path.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load(path)


def test_no_file_is_the_defaults_unless_it_was_named(tmp_path: Path) -> None:
    assert load() == Config()
    assert not paths.config_file().exists(), "reading must not write"
    with pytest.raises(ConfigError, match="no such configuration file"):
        load(tmp_path / "missing.toml")


def test_resolve_hosts() -> None:
    config = parse('[[hosts]]\nname="a"\ntarget="root@x"\n[[hosts]]\nname="b"')
    assert [h.name for h in resolve_hosts(config, [])] == ["a", "b"]
    found = resolve_hosts(config, ["a", "me@h:22", "a", "demo:idle"])
    assert [h.address for h in found] == ["root@x", "me@h:22", "demo:idle"]


def test_state_is_kept_apart_and_survives_damage() -> None:
    state = RoomState(interval_s=0.5, hidden_panes=("bench",))
    save_state(state)
    assert load_state() == state
    assert [p.name for p in paths.state_file().parent.iterdir()] == ["state.toml"]
    paths.state_file().write_text("interval_s = 'soon'")
    assert load_state() == RoomState()


def test_state_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RoomError, match="could not be kept"):
        save_state(RoomState(sort="power"), blocked / "state.toml")
