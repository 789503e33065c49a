"""How a host is judged comes from the configuration, its files and the waivers that were kept."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from backends.config import Config, HostConfig, load
from backends.errors import ConfigError, UsageError
from backends.tuning import waivers
from backends.tuning.engine import evaluate
from backends.tuning.settings import options_for, profile_of
from tests.tuning.cases import CASES, document
from tests.tuning.test_custom import CHECK
from tui.cli.main import main

ROOM = """
[tuning]
profile = "throughput"
checks = ["checks/room.toml"]
expected = { "gpu.count" = 8 }

[[hosts]]
name = "gpu01"
[hosts.tuning]
profile = "latency"
use = "dedicated"
checks = ["checks/gpu01.toml"]
expected = { "gpu.count" = 4 }

[[hosts]]
name = "gpu02"
"""
OWN = CHECK.replace("hugepages", "swap").replace("nr_hugepages", "swappiness")
OF_GPU01 = (
    '[[waivers]]\ncheck = "site.hugepages"\nreason = "old kernel"\nuntil = 2099-01-31\n'
    '[[waivers]]\ncheck = "cpu.governor"\nreason = "lab"\nuntil = 2099-01-31\nhost = "gpu09"\n'
)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks/room.toml").write_text('use = "shared"\n' + CHECK)
    (tmp_path / "checks/gpu01.toml").write_text(OF_GPU01)
    (tmp_path / "c.toml").write_text(ROOM)
    return load(tmp_path / "c.toml")


def test_a_host_stands_over_the_room(config: Config, tmp_path: Path) -> None:
    first, second = config.hosts
    one, two = options_for(config, first), options_for(config, second)
    assert (one.profile.name, two.profile.name) == ("latency", "throughput")
    assert profile_of(Config(), HostConfig(name="x")) == "default"
    assert (one.use, two.use) == ("dedicated", "shared")
    assert (one.expected, two.expected) == ({"gpu.count": "4"}, {"gpu.count": "8"})
    assert [c.id for c in one.checks] == [c.id for c in two.checks] == ["site.hugepages"]
    assert [w.check for w in one.waivers] == ["site.hugepages"], "a waiver of gpu09 is not here"
    assert not two.waivers
    extra = tmp_path / "more.toml"
    extra.write_text(OWN + '[expected]\n"gpu.count" = 2\n')
    chosen = options_for(config, first, profile="default", files=[extra])
    assert chosen.profile.name == "default"
    assert chosen.expected == {"gpu.count": "2"}
    assert len(chosen.checks) == 2


@pytest.mark.parametrize(
    ("text", "words", "place"),
    [
        (None, "cannot read the file of checks", "room.toml"),
        ("[[checks]]\nid = 3\n", "Expected `str`", "room.toml:2"),
    ],
)
def test_a_wrong_file_is_named(
    config: Config, tmp_path: Path, text: str | None, words: str, place: str
) -> None:
    path = tmp_path / "checks/room.toml"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        options_for(config, config.hosts[1])
    assert caught.value.detail.endswith(place)


def test_the_same_check_in_two_files_and_a_value_of_no_check(
    config: Config, tmp_path: Path
) -> None:
    (tmp_path / "checks/gpu01.toml").write_text(CHECK)
    with pytest.raises(ConfigError, match="there twice"):
        options_for(config, config.hosts[0])
    (tmp_path / "c.toml").write_text('[tuning]\nexpected = { "gpu.cuont" = 8 }\n')
    with pytest.raises(ConfigError, match=r"no check 'gpu\.cuont'"):
        options_for(load(tmp_path / "c.toml"), HostConfig(name="x"))


def test_a_waiver_is_kept_listed_and_taken_away(capsys: pytest.CaptureFixture[str]) -> None:
    ahead = waivers.today() + timedelta(days=30)
    waivers.accept("gpu01", "numa.zone_reclaim", " agreed\nwith security ", ahead)
    waivers.accept("gpu01", "numa.zone_reclaim", "agreed", ahead)
    waivers.accept("gpu02", "pcie.mrrs", "a card in the lab", waivers.today())
    (one, two) = waivers.load()
    assert (one.reason, one.host, one.until) == ("agreed", "gpu01", ahead), "the later one counts"
    facts = document(CASES["numa.zone_reclaim"].bad)
    bad = {f.check: f for f in evaluate(facts, options_for(Config(), HostConfig(name="gpu01")))}
    assert "agreed (until" in bad["numa.zone_reclaim"].waived
    bad = {f.check: f for f in evaluate(facts, options_for(Config(), HostConfig(name="gpu02")))}
    assert not bad["numa.zone_reclaim"].waived, "of another host"
    assert main(["tuning", "waivers", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["host"], row["check"]) for row in rows] == [
        ("gpu01", "numa.zone_reclaim"),
        ("gpu02", "pcie.mrrs"),
    ]
    assert not any(row["ended"] for row in rows)
    assert waivers.drop("gpu01", "numa.zone_reclaim")
    assert not waivers.drop("gpu01", "numa.zone_reclaim")
    assert waivers.load() == (two,)


def test_a_waiver_of_a_check_is_of_each_of_its_instances() -> None:
    waivers.accept("gpu01", "pcie.link_width", "riser", waivers.today())
    found = evaluate(
        document(CASES["pcie.link_width"].bad), options_for(Config(), HostConfig(name="gpu01"))
    )
    wrong = [f for f in found if f.rule == "pcie.link_width" and f.verdict.value == "FAIL"]
    assert wrong
    assert all(f.waived for f in wrong)


def test_a_waiver_needs_a_reason_and_a_day_ahead() -> None:
    with pytest.raises(UsageError, match="needs a reason"):
        waivers.accept("gpu01", "pcie.mrrs", "  ", waivers.today())
    with pytest.raises(UsageError, match="is past"):
        waivers.accept("gpu01", "pcie.mrrs", "x", waivers.today() - timedelta(days=1))
    with pytest.raises(UsageError, match="is no day"):
        waivers.end_of("next year")
    assert waivers.end_of("90d") == waivers.today() + timedelta(days=90)
    waivers.file().parent.mkdir(parents=True, exist_ok=True)
    waivers.file().write_text("[[waivers]]\ncheck = 3\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        waivers.load()


def test_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tuning", "gpu01", "waive", "numa.balancing"]) == 2
    assert "needs an end" in capsys.readouterr().err
    assert main(["tuning", "gpu01", "waive", "numa.balancin", "--until", "9d"]) == 2
    assert "numa.balancing" in capsys.readouterr().err
    assert main(["tuning", "gpu01", "waive", "numa.balancing", "--until", "9d"]) == 2
    assert "needs a reason" in capsys.readouterr().err
    why = ["--reason", "one node", "--until", "2099-01-31"]
    assert main(["tuning", "gpu01", "waive", "numa.balancing", *why]) == 0
    assert "numa.balancing until 2099-01-31: one node" in capsys.readouterr().out
    config = tmp_path / "c.toml"
    config.write_text('[tuning]\nprofile = "latency"\n')
    pasted = tmp_path / "pasted.txt"
    pasted.write_text("vm.swappiness = 60\nkernel.numa_balancing = 1\n")
    assert main(["tuning", "read", str(pasted), "--json", "--config", str(config)]) in (0, 10)
    assert main(["tuning", "gpu01", "unwaive", "numa.balancing"]) == 0
    assert main(["tuning", "gpu01", "unwaive", "numa.balancing"]) == 1
