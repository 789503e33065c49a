"""The folders of runs on a host: bounded, never one of a living server, whatever the clock does."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from backends.agent.remote import members, runs, supervisor
from tests.servers_live.conftest import Host
from tests.servers_live.test_full_disk import SILENT

DAY_S = 86400.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = Path(runs.root()) / "glm"
    found.mkdir(parents=True)
    return found


def run_folder(home: Path, name: str, started_at: float, *, pid: int = 1, ticks: int = -1) -> Path:
    """A run; by default one that has ended."""
    place = home / name
    place.mkdir()
    record = {
        "profile": "glm", "run_id": name, "pid": pid, "start_ticks": ticks, "session": pid,
        "supervisor_pid": 1, "supervisor_ticks": -1, "started_at": started_at,
        "boot_id": members.boot_id(),
    }  # fmt: skip
    (place / "id.json").write_text(json.dumps(record))
    (place / "server.log").write_text("words\n")
    return place


def living(home: Path, name: str, started_at: float) -> Path:
    me = os.getpid()
    ticks = int(Path(f"/proc/{me}/stat").read_text().rpartition(")")[2].split()[19])
    return run_folder(home, name, started_at, pid=me, ticks=ticks)


def test_the_newest_are_kept_and_a_living_one_always(home: Path) -> None:
    now = time.time()
    alive = living(home, "alive", now - 100 * DAY_S)
    ended = [run_folder(home, f"r{n:02}", now - (50 - n) * 60) for n in range(30)]
    runs.prune(str(home))
    assert alive.exists()
    assert [each.exists() for each in ended] == [False] * 10 + [True] * 20


def test_folders_of_failed_starts_are_bounded_and_the_latest_logs_kept(home: Path) -> None:
    now = time.time()
    failed = []
    for number in range(30):
        place = home / f"f{number:02}"
        place.mkdir()
        (place / "server.log").write_text("cannot open shared object file\n")
        os.utime(place, (now - (50 - number) * 60,) * 2)
        failed.append(place)
    kept = run_folder(home, "recorded", now - 300 * DAY_S)
    runs.prune(str(home))
    assert kept.exists(), "what is recorded is counted apart"
    assert [each.exists() for each in failed] == [False] * 10 + [True] * 20


def test_a_clock_that_was_set_back(home: Path) -> None:
    """Runs that seem to come from the future neither hide the living one nor outlast the newest."""
    now = time.time()
    future = [run_folder(home, f"z{n:02}", now + DAY_S + n) for n in range(20)]
    alive = living(home, "alive", now - 5)
    newest = run_folder(home, "newest", now - 60)
    listed = [run["record"]["run_id"] for run in runs.list_runs({"limit": 1}, str(home))]
    assert listed == [alive.name]
    runs.prune(str(home))
    assert newest.exists()
    assert [each.exists() for each in future].count(False) == 1


def test_a_record_with_odd_times_is_no_stumbling_block(home: Path) -> None:
    place = run_folder(home, "odd", 0.0)
    record = json.loads((place / "id.json").read_text())
    (place / "id.json").write_text(json.dumps(record | {"started_at": "yesterday"}))
    runs.prune(str(home))
    assert [run["record"]["run_id"] for run in runs.list_runs({}, str(home))] == ["odd"]


@pytest.mark.real
async def test_a_failed_start_and_one_that_is_refused_leave_no_folder(host: Host) -> None:
    answer = await host.start("wrong", "/no/such/program")
    assert answer["failed"]["errno"] == "ENOENT"
    home = Path(runs.root()) / "wrong"
    assert runs.folders(str(home)) == []
    record = await host.python("once", SILENT)
    answer = await host.start("once", "true")
    assert answer["busy"]["by"] == "me"
    place = Path(record["dir"])
    assert runs.folders(str(place.parent)) == [place.name]


def test_on_a_full_disk_it_goes_into_the_room_that_was_reserved(tmp_path: Path) -> None:
    path = tmp_path / "stop.json"
    supervisor.reserve(str(path))
    assert supervisor.read_json(str(path)) is None, "nothing is said yet"
    (tmp_path / f"stop.json.{os.getpid()}").mkdir()  # the new file can't be made
    supervisor.write_reserved(str(path), {"by": "me"})
    assert supervisor.read_json(str(path)) == {"by": "me"}
    with pytest.raises(OSError, match="No such file"):
        supervisor.write_reserved(str(tmp_path / "gone" / "stop.json"), {})


@pytest.mark.real
async def test_a_stop_that_cannot_be_written_down_happens_and_says_so(host: Host) -> None:
    record = await host.python("full", SILENT)
    place = Path(record["dir"])
    assert place.joinpath("stop.json").stat().st_size == supervisor.END_BYTES, "room is reserved"
    assert (await host.ask("servers.look", dir=record["dir"]))["stop"] is None
    place.joinpath("stop.json").unlink()
    place.joinpath("stop.json").mkdir()
    first, *_, last = await host.stop(record["dir"], grace_s=1)
    assert "who stops it can't be written down" in first["step"]
    assert str(place / "stop.json") in first["step"]
    assert last["left"] == []

    record = await host.python("full", SILENT)
    await host.stop(record["dir"], grace_s=1)
    assert (await host.ask("servers.look", dir=record["dir"]))["stop"]["by"] == "me"


@pytest.mark.real
async def test_a_command_of_a_megabyte_is_started_found_and_stopped(host: Host) -> None:
    code = f"import os, sys; print(len(sys.argv), flush=True); {SILENT}"
    words = ["\x1b[31m\n" * 1000] * 150
    answer = await host.start("long", sys.executable, "-c", code, *words)
    record = answer["started"]
    state = await host.until(record["dir"], lambda state: state["log"]["size"] > 0)
    assert Path(record["log"]).read_text() == "151\n", "the server gets all of it"
    assert state["record"]["argv"][-1].endswith("...")
    assert (await host.stop(record["dir"], grace_s=1))[-1]["left"] == []
