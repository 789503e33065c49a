"""The server's host around a run: neighbours on GPUs, clock, tuning, configuration by the log."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from backends.bench import hostchecks, tuning_digest
from backends.bench.conditions import changes
from backends.bench.effective_log import read_effective
from backends.bench.host_look import look_at_host, still_served
from backends.bench.identify import Server
from backends.bench.results import Environment, RunStatus, Severity
from backends.hub import HostSession
from backends.model import GpuProcess, GpuStatus, HostSnapshot, LinkState, LinkStatus
from backends.servers.engines import EngineId
from backends.servers.host import CommandResult
from backends.storage.tuning_tables import StoredRun, TuningHistory
from tests.bench_data.runs import run as a_run

LOG = """\
INFO 12-02 10:00:00 [utils.py:1] non-default args: {'model': '/models/tiny', 'max_num_seqs': 64}
INFO 12-02 10:00:01 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: \
model='/models/tiny', dtype=torch.bfloat16, kv_cache_dtype=fp8, seed=0
"""
PROGRAM = """
import http.server, sys
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
sys.stderr.write(open(sys.argv[1]).read()); sys.stderr.flush()
print(server.server_port, flush=True)
sys.stdin.read()
"""
NOW = datetime(2026, 12, 2, 12, tzinfo=UTC)


def process(pid: int, *uuids: str) -> GpuProcess:
    return GpuProcess(pid, 1, "me", f"program-{pid}", dict.fromkeys(uuids, 2 << 30))


def snapshot(*processes: GpuProcess) -> HostSnapshot:
    gpus = tuple(GpuStatus(index=i, uuid=f"GPU-{i}", bus_id="", name="") for i in range(2))
    return HostSnapshot(
        "h", 1, LinkStatus(LinkState.LIVE, 0.0), 1.0, gpus=gpus, processes=processes
    )


@pytest.mark.parametrize(
    ("processes", "ours", "keys"),
    [
        ((process(1, "GPU-0"),), {1}, []),
        ((process(1, "GPU-0"), process(9, "GPU-0")), {1}, ["gpu_shared"]),
        ((process(1, "GPU-0"), process(9, "GPU-1")), {1}, ["gpu_neighbours"]),
        ((process(9, "GPU-1"),), {1}, ["gpu_neighbours"]),
        ((process(9, "GPU-1"),), None, ["gpus_unseen"]),
        ((), {1}, []),
    ],
)
def test_who_else_is_on_the_gpus(
    processes: tuple[GpuProcess, ...], ours: set[int] | None, keys: list[str]
) -> None:
    found = hostchecks.neighbours(snapshot(*processes), ours)
    assert [finding.key for finding in found] == keys
    if keys and ours is not None:
        assert "program-9 (pid 9, 2.0 GiB)" in found[0].text


def test_processes_of_another_namespace_are_known_by_their_names() -> None:
    ranks = [
        replace(process(40 + i, f"GPU-{i}"), command=f"sglang::scheduler_TP{i}") for i in (0, 1)
    ]
    (found,) = hostchecks.neighbours(snapshot(*ranks), {77}, EngineId.SGLANG)
    assert found.key == "gpu_by_name"
    assert found.text.endswith("taken for this server's: sglang::scheduler_TP0 and 1 more")
    found, other = hostchecks.neighbours(
        snapshot(*ranks, process(9, "GPU-1")), {77}, EngineId.SGLANG
    )
    assert (found.key, other.key) == ("gpu_by_name", "gpu_shared")
    # Those of another engine are not taken for the server's, nor any where its pids are told.
    (found,) = hostchecks.neighbours(snapshot(*ranks), {77}, EngineId.VLLM)
    assert found.key == "gpu_neighbours"
    (found,) = hostchecks.neighbours(snapshot(process(1, "GPU-0"), ranks[1]), {1}, EngineId.SGLANG)
    assert found.key == "gpu_neighbours"


def test_no_gpu_in_sight_is_said() -> None:
    assert hostchecks.neighbours(replace(snapshot(), gpus=()), {1})[0].key == "gpus_unseen"


@pytest.mark.parametrize(
    ("offset", "synced", "keys"),
    [
        ((0.2, 0.1), True, []),
        ((3.0, 0.1), True, ["clock_off"]),
        ((-3.0, 2.5), True, []),
        ((0.0, 0.1), False, ["clock_unsynchronised"]),
        (None, None, ["clock_unknown", "clock_unknown"]),
    ],
)
def test_the_clock(
    offset: tuple[float, float] | None, synced: bool | None, keys: list[str]
) -> None:
    assert [finding.key for finding in hostchecks.clock(offset, synced)] == keys


def test_the_clock_is_read_from_what_the_host_prints() -> None:
    told = CommandResult(code=0, out="1700000010.500000000\n")
    assert hostchecks.clock_offset(told, 1700000000.0, 1700000001.0) == (10.0, 0.5)
    assert hostchecks.clock_offset(CommandResult(code=0, out="1700000010.%N"), 0, 1) is None
    assert hostchecks.clock_offset(CommandResult(code=1, out="1700000010"), 0, 1) is None
    assert hostchecks.synchronised(CommandResult(code=0, out="NTPSynchronized=no\n")) is False
    assert hostchecks.synchronised(CommandResult(code=0, out="NTPSynchronized=yes\n")) is True
    assert hostchecks.synchronised(CommandResult(missing="timedatectl")) is None


def checklist(at: datetime, boot: str = "boot-1", **verdicts: str) -> StoredRun:
    return StoredRun(1, "h", at.isoformat(), boot, msgspec.json.encode(verdicts).decode())


def test_the_digest_has_counts_and_what_is_not_fine() -> None:
    run = checklist(NOW, a="FAIL", b="PASS", c="WARN", d="PASS")
    assert tuning_digest.digest(run) == {
        "summary": "1 FAIL, 1 WARN, 2 PASS",
        "boot_id": "boot-1",
        "read_utc": NOW.isoformat(),
        "a": "FAIL",
        "c": "WARN",
    }


@pytest.mark.parametrize(
    ("run", "keys"),
    [
        (None, ["tuning_unknown"]),
        (checklist(NOW, a="PASS"), []),
        (checklist(NOW, a="FAIL"), ["tuning_fails"]),
        (checklist(NOW - timedelta(days=3), a="PASS"), ["tuning_old"]),
        (checklist(NOW, "boot-0 boot-9", a="FAIL"), ["tuning_old", "tuning_fails"]),
        (checklist(NOW, "boot-9 boot-1", a="PASS"), []),
    ],
)
def test_what_is_known_of_the_tuning(run: StoredRun | None, keys: list[str]) -> None:
    found = tuning_digest.findings_of(run, "h", "boot-1", NOW)
    assert [finding.key for finding in found] == keys


def test_a_comparison_names_a_check_that_differs_and_not_when_it_was_read() -> None:
    a, b = (
        msgspec.structs.replace(run, environment=Environment(tuning=tuning_digest.digest(one)))
        for run, one in (
            (a_run(1), checklist(NOW, x="PASS", y="WARN")),
            (a_run(1), checklist(NOW - timedelta(days=1), x="FAIL", y="WARN")),
        )
    )
    named = {difference.key for difference in changes(a, b) if "tuning" in difference.key}
    assert named == {"tuning x", "tuning summary"}


def test_the_configuration_by_a_log() -> None:
    values = read_effective(LOG.encode(), EngineId.VLLM)
    assert values["kv_cache_dtype"] == "fp8"
    assert values["max_num_seqs"] == "64"
    assert read_effective(b"nothing of it", EngineId.VLLM) == {}


@asynccontextmanager
async def server(log: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """A process that listens and writes its log to a file."""
    told = log.with_suffix(".told")
    told.write_text(LOG)
    with log.open("wb") as file:
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, str(told), "vllm serve", "--model", "/models/tiny",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=file,
        )  # fmt: skip
    try:
        assert running.stdout is not None
        yield running, int(await running.stdout.readline())
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()
        running._transport.close()  # type: ignore[attr-defined]


async def test_a_host_is_looked_at_and_a_server_that_went_is_noticed(
    here: HostSession, tmp_path: Path
) -> None:
    history = TuningHistory.at_home()
    boot = here.snapshot.readings.boot_id or ""
    history.add_run("here", boot, '{"cpu.governor": "FAIL"}', b"{}")
    history.close()
    async with server(tmp_path / "server.log") as (running, port):
        found = await look_at_host(here, port, Server(engine="vllm"), Environment())
        told = found.environment
        assert told.server_pid == running.pid
        assert told.server_start_ticks
        assert (told.effective_source, told.effective_config["kv_cache_dtype"]) == ("log", "fp8")
        assert told.tuning["cpu.governor"] == "FAIL"
        keys = {finding.key for finding in found.findings}
        assert "tuning_fails" in keys
        assert "clock_off" not in keys
        result = msgspec.structs.replace(
            a_run(1), environment=told, status=RunStatus.COMPLETE, findings=()
        )
        assert (await still_served(here, port, result)).findings == ()
        running.kill()
        await running.wait()
        gone = await still_served(here, port, result)
    assert [finding.key for finding in gone.findings] == ["server_changed"]
    assert gone.findings[0].severity is Severity.ERROR


async def test_a_configuration_over_http_is_taken_as_it_is(
    here: HostSession, tmp_path: Path
) -> None:
    async with server(tmp_path / "server.log") as (_, port):
        about = Server(engine="vllm", config={"a": "1"})
        found = await look_at_host(here, port, about, Environment())
    assert found.environment.effective_source == "http"
    assert found.environment.effective_config == {}
