"""The demo host as the room sees it: a real SSH server, the real agent, simulated cards."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.config import HostConfig
from backends.hub import RoomHub
from backends.model import DriverState, HostSnapshot, LinkState
from backends.sim.server import simulated_modules, simulated_settings
from tests.telemetry.test_decode import assert_honest

pytestmark = pytest.mark.real

WAIT_S = 60.0


async def wait_for_processes(hub: RoomHub) -> HostSnapshot:
    """A snapshot with samples of both lanes and the processes."""
    session = (
        next(iter(hub.sessions.values())) if isinstance(hub.sessions, dict) else hub.sessions[0]
    )
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        snapshot = session.snapshot
        gpus = snapshot.gpus
        if gpus and gpus[0].readings.energy_j is not None and snapshot.processes:
            return snapshot
        await asyncio.sleep(0.05)
    raise AssertionError(f"no processes: {snapshot.link} {snapshot.driver} {snapshot.notes}")


async def test_the_demo_host_is_live_with_its_cards_servers_and_models() -> None:
    async with RoomHub([HostConfig(name="demo", target="demo:sixteen")]) as hub:
        snapshot = await wait_for_processes(hub)
    assert snapshot.link.state is LinkState.LIVE
    assert snapshot.driver is not None
    assert snapshot.driver.state is DriverState.OK
    assert len(snapshot.gpus) == 16
    assert all(gpu.readings.power_w for gpu in snapshot.gpus)
    by_pid = {process.pid: process for process in snapshot.processes}
    assert len(by_pid) == 16
    first, last = by_pid[48_210], by_pid[48_625]
    assert (first.command, first.model) == ("sglang::scheduler_TP0", "glm-5-nvfp4")
    assert (last.command, last.model) == ("VLLM::Worker_TP7", "Qwen/Qwen3-235B-A22B-FP8")
    assert first.container is not None
    assert first.container.startswith("docker ")
    assert snapshot.readings.cpu_count == 128
    assert snapshot.readings.cpu_model == "AMD EPYC 9555 64-Core Processor"
    assert snapshot.readings.memory_total_bytes == 1_584_529_408 * 1024
    assert all(process.visible for process in snapshot.processes)
    assert_honest(snapshot)


def test_what_is_no_agent_is_refused() -> None:
    for junk in (b"", b"junk", zlib.compress(b"[]"), zlib.compress(b"{")):
        with pytest.raises(ValueError, match="agent"):
            simulated_modules(junk, "healthy")
        with pytest.raises(ValueError, match="agent"):
            simulated_settings(junk, Path("/nowhere"))


def test_what_the_near_side_sent_is_kept() -> None:
    def swapped(swap: Callable[[bytes], bytes], sent: dict[str, object]) -> dict[str, object]:
        got: dict[str, object] = json.loads(
            zlib.decompress(swap(zlib.compress(json.dumps(sent).encode())))
        )
        return got

    settings = swapped(
        lambda sent: simulated_settings(sent, Path("/tmp/d/proc")), {"interval_s": 3}
    )
    assert settings == {
        "interval_s": 3, "proc_root": "/tmp/d/proc", "kernel_log": "/tmp/d/proc/kernel.log",
        "engine_state": "/tmp/d/engine.json",
    }  # fmt: skip
    modules = swapped(lambda sent: simulated_modules(sent, "idle"), {"x": "1", "pynvml": "real"})
    assert modules["x"] == "1"
    assert "SCENARIO = 'idle'" in str(modules["pynvml"])


async def test_the_machine_that_plays_the_demo_host_is_never_changed(tmp_path: Path) -> None:
    file = tmp_path / "setting"
    step = {"kind": "file", "path": str(file), "data": "MQ==", "mode": 0o644}
    async with RoomHub([HostConfig(name="demo", target="demo")]) as hub:
        await wait_for_processes(hub)
        session = hub.sessions[0]
        looked = {"paths": [str(file)]}
        found = await session.request("changes.read", looked, asked_by="test", what="read")
        assert isinstance(found, dict)
        asked = {"steps": [step], "boot_id": found["boot_id"]}
        answer = await session.request(
            "changes.carry_out", asked, asked_by="test", what="change", changes_host=True
        )
    assert isinstance(answer, dict)
    assert "simulated" in answer["refused"]
    assert not file.exists()
