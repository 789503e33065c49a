"""`gpuroom tuning HOST measure` and `experiment` as an operator calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.measure.conftest import FakeGpus
from tests.tuning_live.tree import make_host
from tui.cli.main import main

pytestmark = pytest.mark.real
BALANCING = "/proc/sys/kernel/numa_balancing"


class Room:
    """The command line on a folder that stands for this machine."""

    def __init__(self, folder: Path, gpus: FakeGpus, capsys: pytest.CaptureFixture[str]) -> None:
        self.tree = make_host(folder, gpus=0)
        self.gpus = gpus
        self._capsys = capsys

    def say(self, *argv: str) -> tuple[int, str, str]:
        """Status, output, and what was said beside it."""
        more = ["--root", str(self.tree.folder), "--python", self.gpus.python]
        status = main(["tuning", "local", *argv, *more])
        got = self._capsys.readouterr()
        return status, got.out, got.err


@pytest.fixture
def room(tmp_path: Path, gpus: FakeGpus, capsys: pytest.CaptureFixture[str]) -> Room:
    return Room(tmp_path / "root", gpus, capsys)


def test_measured_listed_and_compared(room: Room) -> None:
    status, text, said = room.say("measure", "--only", "copies", "memory")
    assert status == 0, text
    assert "host to GPU 0" in text
    assert "is usual" in text
    assert "kept as measurement 1" in said
    room.gpus.set(copy_gb_s=30.0)
    _, text, _ = room.say("measure", "--only", "copies", "--json")
    second = json.loads(text)
    assert second["measurement"] == 2
    rates = {row["key"]: row["value"] for row in second["figures"]}
    assert rates["bench/h2d/0000:01:00.0/gb_s"] == pytest.approx(30, rel=0.02)
    _, text, _ = room.say("measure", "--history", "--json")
    assert [one["parts"] for one in json.loads(text)] == [["copies"], ["copies", "memory"]]
    _, text, _ = room.say("measure", "--history")
    assert text.count("\n") == 2
    status, text, _ = room.say("measure", "--compare", "1", "2")
    assert status == 0
    assert "-43." in text
    _, text, _ = room.say("history", "--json")
    listed = json.loads(text)
    assert [one["measurement"] for one in listed["measurements"]] == [2, 1]


def test_a_name_that_is_none_and_a_number_that_is_none(room: Room) -> None:
    status, _, said = room.say("measure", "--only", "everything")
    assert status == 2
    assert "copies" in said
    assert room.say("measure", "--compare", "8", "9")[0] == 2


def test_what_is_open_and_needs_no_measurement(room: Room) -> None:
    status, text, said = room.say("measure", "--only", "open")
    assert status == 0
    assert text == ""
    assert "nothing is INCONCLUSIVE" in said


def test_an_experiment_wants_a_yes_and_says_what_came_of_it(room: Room) -> None:
    change = ("experiment", "numa.balancing", "--only", "copies", "--runs", "2")
    assert room.say("experiment")[0] == 2
    status, _, said = room.say(*change, "--dry-run")
    assert status == 0
    assert "numa_balancing" in said
    status, _, said = room.say(*change)
    assert status == 5
    assert "not confirmed" in said
    assert room.tree.read(BALANCING) == b"1\n"
    status, text, _ = room.say(*change, "--yes")
    assert status == 0
    assert "no measurable change" in text
    assert "taken back: applied" in text
    room.gpus.set(copy_by=str(room.tree.at(BALANCING)), copy_gb_s={"1": 41.0, "0": 53.0})
    status, text, _ = room.say(*change, "--yes", "--keep", "--json")
    done = json.loads(text)
    assert done["kept"]
    assert {line["word"] for line in done["figures"]} == {"better"}
    assert room.tree.read(BALANCING) == b"0\n"
    _, text, _ = room.say("history")
    assert text.count("experiment ") == 2
    assert "numa.balancing" in text


def test_a_production_host_is_measured_after_a_yes(
    tmp_path: Path, gpus: FakeGpus, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = make_host(tmp_path / "root", gpus=0)
    config = tmp_path / "config.toml"
    config.write_text('[[hosts]]\nname = "gpu01"\ntarget = "local"\nproduction = true\n')
    argv = ["tuning", "gpu01", "measure", "--only", "copies", "--root", str(tree.folder)]
    argv += ["--python", gpus.python, "--config", str(config)]
    assert main(argv) == 5
    assert "marked production" in capsys.readouterr().err
    assert main([*argv, "--yes"]) == 0
    assert "host to GPU 0" in capsys.readouterr().out
