"""Load from the server's host: the same generator over a channel, its GPUs beside it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from backends.agent.remote.http import ask
from backends.bench.endpoint import Unreachable, direct, parse_url
from backends.bench.gpuwindow import GpuSampler, joules_per_token
from backends.bench.onhost import HostGenerator, through
from backends.bench.place import environment_of
from backends.bench.process import GeneratorFailed
from backends.bench.results import RunStatus
from backends.bench.runner import Event, Progress, Run, prepare_run
from backends.bench.samples import read_records
from backends.errors import RoomError, UsageError
from backends.link.base import Channel
from backends.link.local import LocalTransport
from backends.model import (
    DriverState,
    DriverStatus,
    EventReasons,
    GpuReadings,
    GpuStatus,
    HostReadings,
    HostSnapshot,
    LinkState,
    LinkStatus,
)
from tests.bench.conftest import Scheduled, closed


class Session:
    """A host of the room that is this machine, with the agent's own HTTP."""

    def __init__(self) -> None:
        self.transport = LocalTransport()
        self.asked: list[str] = []

    async def request(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        asked_by: str,
        what: str,
        changes_host: bool = False,
        timeout_s: float = 10.0,
    ) -> object:
        assert method == "http.ask"
        assert not changes_host
        self.asked.append(what)
        return await asyncio.to_thread(ask, dict(params or {}))

    async def open(self, argv: Sequence[str]) -> Channel:
        return await self.transport.open(argv)


async def test_a_run_over_a_channel(scheduled: Scheduled, tmp_path: Path) -> None:
    session = Session()
    endpoint = scheduled.endpoint("vllm")
    fetch = through(session, endpoint)
    prepared = await prepare_run(closed(3, 9), endpoint, fetch)
    result = await Run(prepared, HostGenerator(session.open), fetch, folder=tmp_path).execute()
    assert result.status is RunStatus.COMPLETE
    assert result.client.where == "host"
    (step,) = result.steps
    assert (step.succeeded, step.failures) == (9, {})
    assert step.ledger.server_output == 90
    assert len(list(read_records(result.run_id, tmp_path))) == 9
    assert "GET /v1/models" in session.asked
    await session.transport.close()


async def test_letting_go_ends_it_on_the_host(scheduled: Scheduled) -> None:
    session = Session()
    before = scheduled.aborted()
    endpoint = scheduled.endpoint()
    fetch = direct(endpoint)
    running = asyncio.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Progress) and event.in_flight == 4:
            running.set()

    prepared = await prepare_run(closed(4, 100_000, tokens=2000), endpoint, fetch)
    run = Run(prepared, HostGenerator(session.open), fetch, listener=listen)
    task = asyncio.create_task(run.execute())
    async with asyncio.timeout(60):
        await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(20):
            await task
    async with asyncio.timeout(20):
        while scheduled.aborted() - before < 4:  # noqa: ASYNC110 - another process tells
            await asyncio.sleep(0.1)
    await session.transport.close()


async def test_a_host_without_python(scheduled: Scheduled) -> None:
    session = Session()
    endpoint = scheduled.endpoint()
    fetch = direct(endpoint)
    prepared = await prepare_run(closed(1, 1), endpoint, fetch)
    run = Run(prepared, HostGenerator(session.open, "/nowhere/python3"), fetch)
    try:
        result = await run.execute()
    except (GeneratorFailed, RoomError):
        return
    assert result.status is RunStatus.BROKEN
    assert "/nowhere/python3" in (result.error or "")


async def test_a_server_that_is_down_there() -> None:
    fetch = through(Session(), parse_url("http://127.0.0.1:9"))
    with pytest.raises(Unreachable) as caught:
        await fetch("GET", "/v1/models")
    assert caught.value.detail == "refused"


def test_tls_is_measured_from_here() -> None:
    with pytest.raises(UsageError):
        through(Session(), parse_url("https://x"))


# --- GPUs -------------------------------------------------------------------------------


def snapshot(at_s: float, power_w: float | None, **more: Any) -> HostSnapshot:
    readings = GpuReadings(power_w=power_w, power_limit_enforced_w=600.0, **more)
    return HostSnapshot(
        host="gpu01",
        version=int(at_s * 1000),
        link=LinkStatus(LinkState.LIVE, 0.0),
        interval_s=1.0,
        gpus=(GpuStatus("GPU-1", 0, "RTX", "0000:01", readings=readings),),
        driver=DriverStatus(DriverState.OK, "580.1", "13.0"),
        readings=HostReadings(kernel="6.8", boot_id="b", cpu_count=8),
        sampled_s=at_s,
    )


def sampled(*snapshots: HostSnapshot) -> GpuSampler:
    current = list(snapshots)
    sampler = GpuSampler(lambda: current[0], lambda: 0.0)
    while current:
        sampler.look()
        sampler.look()  # The same reading again is no second sample.
        current.pop(0)
        if not current:
            break
    return sampler


def test_energy_is_power_over_the_window() -> None:
    cap = int(EventReasons.SW_POWER_CAP)
    sampler = sampled(
        snapshot(10.0, 100.0, sm_clock_mhz=1000, utilization_gpu_pct=50.0),
        snapshot(11.0, 300.0, sm_clock_mhz=2000, utilization_gpu_pct=100.0, event_reasons=cap),
        snapshot(12.0, 500.0, sm_clock_mhz=1500, event_reasons=cap | 1, temperature_gpu_c=70.0),
    )
    (gpu,) = sampler.between(10.0, 12.0)
    # 100 W for half a second, 300 W for one, 500 W for half a second.
    assert gpu.power_mean_w == pytest.approx(300.0)
    assert gpu.energy_j == pytest.approx(600.0)
    assert (gpu.power_max_w, gpu.power_limit_w) == (500.0, 600.0)
    assert gpu.throttle_s == {"sw_power_cap": 1.5}
    assert (gpu.sm_clock_mean_mhz, gpu.sm_clock_max_mhz) == (1500.0, 2000)
    assert gpu.utilization_mean == 0.75
    assert gpu.temperature_max_c == 70.0
    assert joules_per_token([gpu], 300) == pytest.approx(2.0)
    assert sampler.between(20.0, 21.0) == ()


def test_absent_power_is_no_energy() -> None:
    (gpu,) = sampled(snapshot(1.0, None)).between(0.0, 2.0)
    assert gpu.power_mean_w is None
    assert gpu.energy_j is None
    assert joules_per_token([gpu], 10) is None
    assert joules_per_token([], 10) is None


def test_what_is_known_of_the_host_goes_into_the_result() -> None:
    environment = environment_of(snapshot(1.0, 5.0), "0.1")
    assert (environment.host, environment.kernel, environment.driver) == ("gpu01", "6.8", "580.1")
    assert environment.gpus[0]["power_limit_w"] == 600.0
    assert environment.gpus[0]["memory_total_bytes"] is None


def test_the_command_names_a_host(scheduled: Scheduled, capsys: pytest.CaptureFixture[str]) -> None:
    from tui.cli import main

    code = main(
        [
            "bench", "local", "--url", scheduled.url(), "--plan", "smoke", "--requests", "4",
            "--no-warm-up", "--json", "--quiet",
        ]
    )  # fmt: skip
    from backends.bench.results import from_json

    result = from_json(capsys.readouterr().out)
    assert code in (0, 6)
    assert result.client.where == "host"
    assert result.environment.host == "local"
    assert result.environment.kernel == os.uname().release
    assert result.steps[0].succeeded == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gpu01", "nobody"], "no server is called"),
        (["gpu01", "nobody", "--url", "http://x"], "exclude each other"),
        (["gpu01"], "which server?"),
    ],
)
def test_servers_by_name(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from tui.cli import main

    assert main(["bench", *arguments]) == 2
    assert words in capsys.readouterr().err
