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
from backends.sim import host_tree
from backends.sim.proc_tree import BOOT_ID, CPUS
from backends.sim.server import simulated_modules, simulated_settings
from backends.tuning.desk import Desk
from backends.tuning.machines import Machines
from backends.tuning.snapshot import Outcome
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
        first = gpus[0].readings if gpus else None
        lanes = first is not None and None not in (first.energy_j, first.power_w)
        if lanes and snapshot.processes:
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
        "engine_state": "/tmp/d/engine.json", "root": "/tmp/d/host",
    }  # fmt: skip
    modules = swapped(lambda sent: simulated_modules(sent, "idle"), {"x": "1", "pynvml": "real"})
    assert modules["x"] == "1"
    assert "SCENARIO = 'idle'" in str(modules["pynvml"])


async def test_the_machine_that_plays_the_demo_host_is_never_changed(tmp_path: Path) -> None:
    file = tmp_path / "setting"
    paths = (str(file), f"/../..{file}")
    async with RoomHub([HostConfig(name="demo", target="demo")]) as hub:
        await wait_for_processes(hub)
        session = hub.sessions[0]
        for path in paths:
            step = {"kind": "file", "path": path, "data": "MQ==", "mode": 0o644}
            asked = {"steps": [step], "boot_id": BOOT_ID, "root": "/"}
            await session.request(
                "changes.carry_out", asked, asked_by="test", what="change", changes_host=True
            )
    assert not file.exists()


async def test_the_checklist_of_the_demo_is_of_the_demo_and_is_put_right_there() -> None:
    async with RoomHub([HostConfig(name="demo", target="demo")]) as hub:
        await wait_for_processes(hub)
        desk = Desk(Machines(hub.sessions[0]))
        judged = await desk.judge()
        facts = {fact.key: fact.value for fact in judged.gathered.document.facts}
        assert facts["/proc/sys/kernel/osrelease"] == host_tree.KERNEL + "\n"
        assert facts["/sys/devices/system/cpu/online"] == f"0-{CPUS - 1}\n"
        found = {f.check: f.verdict.value for f in judged.findings}
        for check in (
            "gpu.count",
            "gpu.driver_match",
            "cuda.init",
            "gpu.p2p",
            "pcie.acs",
            "gpu.xid",
        ):
            assert found[check] == "PASS", check
        for check in ("cpu.governor", "numa.balancing", "cpu.scaling_driver", "svc.journal"):
            assert found[check] == "WARN", check
        words = [found[f.check] for f in judged.findings if not f.instance]
        assert words.count("UNKNOWN") < 40, "what the folder does not hold, and measurements"
        ids = ["cpu.governor", "numa.balancing", "numa.zone_reclaim", "svc.time_sync"]
        plan = await desk.plan(judged, [*ids, "cpu.scaling_driver"])
        await desk.keep_snapshot(plan)
        results, after = await desk.apply(plan)
        came = {r.check: r for r in results}
        assert {c: r.outcome for c, r in came.items()} == {
            "cpu.governor": Outcome.APPLIED,
            "numa.balancing": Outcome.APPLIED,
            "numa.zone_reclaim": Outcome.FAILED,
            "svc.time_sync": Outcome.FAILED,
            "cpu.scaling_driver": Outcome.NEEDS_REBOOT,
        }, came
        assert "1" in came["numa.zone_reclaim"].detail
        assert any("apparmor" in line for line in came["svc.time_sync"].kernel)
        assert after is not None
        now = {f.check: f.verdict.value for f in after.findings}
        assert (now["cpu.governor"], now["numa.balancing"]) == ("PASS", "PASS")
        back = await desk.roll_back((await desk.snapshots())[0])
        assert {r.outcome for r in back} == {Outcome.APPLIED, Outcome.ALREADY_SO}, back
