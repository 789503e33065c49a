"""What stands in the way of a start, each kind with who or what, and a way out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from backends.model import (
    GpuProcess,
    GpuReadings,
    GpuStatus,
    HostSnapshot,
    LinkState,
    LinkStatus,
    Severity,
)
from backends.servers.host import MemberFacts, PortFacts, PortHolder, RunRecord, RunState
from backends.servers.precheck import (
    CheckFacts,
    Executable,
    PathFacts,
    findings,
    model_paths,
)
from backends.servers.profiles import Profile, resolve_profiles

SINCE = datetime(2026, 12, 2, 10, 0, tzinfo=UTC).timestamp()
GIB = 1 << 30
FINE = CheckFacts(
    port=PortFacts(30000, free=True),
    executable=Executable(exists=True, runs=True, path="/usr/bin/python3"),
    paths={"/models/glm": PathFacts(exists=True, readable=True)},
    log_room=PathFacts(exists=True, readable=True, free_bytes=100 * GIB),
)


@pytest.fixture
def profile() -> Profile:
    command = ["python3", "-m", "sglang.launch_server", "--model-path", "/models/glm"]
    table = {"name": "glm", "host": "gpu01", "engine": "sglang", "command": command}
    return resolve_profiles([table])[0]


def snapshot(*used_gib: float, processes: tuple[GpuProcess, ...] = ()) -> HostSnapshot:
    gpus = tuple(
        GpuStatus(
            uuid=f"GPU-{index}", index=index, name="GPU", bus_id="0",
            readings=GpuReadings(memory_used_bytes=int(used * GIB), memory_total_bytes=96 * GIB),
        )
        for index, used in enumerate(used_gib)
    )  # fmt: skip
    link = LinkStatus(LinkState.LIVE, 0.0)
    return HostSnapshot("gpu01", 1, link, 1.0, gpus=gpus, processes=processes)


def ids(profile: Profile, facts: CheckFacts, seen: HostSnapshot | None = None) -> list[str]:
    found = findings(profile, facts, seen or snapshot())
    assert all(finding.way_out for finding in found), "each has a way out"
    return [finding.id for finding in found]


def with_(**changes: object) -> CheckFacts:
    return msgspec.structs.replace(FINE, **changes)


def test_nothing_in_the_way(profile: Profile) -> None:
    assert findings(profile, FINE, snapshot(0.5, 1.0)) == []
    assert model_paths(profile) == ["/models/glm"]


def test_who_has_the_port_and_since_when(profile: Profile) -> None:
    holder = PortHolder(4242, 1, "python3 -m vllm", user="ann", started=SINCE)
    (found,) = findings(
        profile, with_(port=PortFacts(30000, free=False, owners=(holder,))), snapshot()
    )
    assert found.severity is Severity.CRITICAL
    for part in ("30000", "pid 4242", "ann", "python3 -m vllm", "2026-12-02 10:00:00 UTC"):
        assert part in found.title
    long = PortHolder(4242, 1, "python3 " + "--option " * 30, user="ann", started=SINCE)
    (cut,) = findings(profile, with_(port=PortFacts(30000, free=False, owners=(long,))), snapshot())
    assert "\u2026, since 2026" in cut.title, "a command that is cut does not look like a whole one"
    (hidden,) = findings(profile, with_(port=PortFacts(30000, free=False)), snapshot())
    assert "not visible" in hidden.title


def test_an_earlier_run_and_what_is_left_of_one(profile: Profile) -> None:
    record = RunRecord(
        profile="glm", run_id="r", pid=77, start_ticks=1, boot_id="b", log="/l", dir="/d",
        started_at=SINCE, by="ann", origin="desk",
    )  # fmt: skip
    facts = with_(earlier=(RunState(record, alive=True),), left=(MemberFacts(78, 1, "worker"),))
    early, left = findings(profile, facts, snapshot())
    assert (early.id, left.id) == ("earlier-run", "earlier-left")
    assert "pid 77, started by ann from desk, since 2026-12-02" in early.title
    assert "`gpuroom restart glm` replaces it, `gpuroom stop glm` ends it" in early.way_out
    assert "pid 78 worker" in left.title
    assert "gpuroom stop glm" in left.way_out


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"executable": Executable(exists=False, runs=False)}, ["executable-missing"]),
        ({"executable": Executable(exists=True, runs=False)}, ["executable-denied"]),
        ({"cwd": False}, ["cwd-missing"]),
        ({"paths": {"/models/glm": PathFacts(exists=False)}}, ["model-missing"]),
        ({"paths": {"/models/glm": PathFacts(exists=True)}}, ["model-denied"]),
        ({"log_room": PathFacts(exists=True, free_bytes=5 << 20)}, ["disk-full"]),
        ({"log_room": PathFacts(exists=True, free_bytes=None)}, []),
    ],
)
def test_places(profile: Profile, change: dict[str, object], found: list[str]) -> None:
    assert ids(profile, with_(**change)) == found


def test_gpus_that_somebody_holds_visible_or_not(profile: Profile) -> None:
    holder = GpuProcess(9, 1, "ann", "train.py", {"GPU-1": 70 * GIB})
    seen = snapshot(0.5, 70.0, 40.0, processes=(holder,))
    one, two = findings(profile, FINE, seen)
    assert "GPU 1 holds 70.0 of 96 GiB: pid 9 train.py" in one.title
    assert "GPU 2" in two.title
    assert "no process is visible" in two.title
    assert {one.severity, two.severity} == {Severity.WARNING}
    chosen = replace(profile, env={"CUDA_VISIBLE_DEVICES": "0"})
    assert findings(chosen, FINE, seen) == []
    by_uuid = replace(profile, env={"CUDA_VISIBLE_DEVICES": "GPU-2"})
    assert len(findings(by_uuid, FINE, seen)) == 1


def test_the_gravest_comes_first(profile: Profile) -> None:
    facts = with_(executable=Executable(exists=False, runs=False))
    assert ids(profile, facts, snapshot(80.0)) == ["executable-missing", "gpu-busy"]


def test_a_word_that_is_too_long_for_the_kernel_there(profile: Profile) -> None:
    facts = msgspec.structs.replace(FINE, word_bytes=131_071)
    fits = "x" * (131_071 - len("FITS="))
    long = replace(profile, command=(*profile.command, "é" * 65_536), env={"FITS": fits})
    (found,) = findings(long, facts, snapshot())
    assert found.title.startswith("argument 5 of the command has 131072 bytes")
    assert "path of the file" in found.way_out
    assert ids(replace(profile, env={"FITS": fits + "x"}), facts) == ["word-too-long"]
