"""The demo host as the room sees it: a real SSH server, the real agent, simulated cards."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.config import HostConfig
from backends.errors import AgentError
from backends.hub import RoomHub
from backends.model import DriverState, HostSnapshot, LinkState
from backends.session import HostSession
from backends.sim import boot, host_programs, host_tree
from backends.sim.proc_tree import BOOT_ID, CPUS
from backends.sim.server import simulated_modules, simulated_settings
from backends.tuning.desk import Desk
from backends.tuning.machines import Machines
from backends.tuning.measurements.parts import PARTS
from backends.tuning.measurements.run import measure
from backends.tuning.snapshot import Outcome
from backends.tuning.steps import Form
from tests.telemetry.test_decode import assert_honest

pytestmark = pytest.mark.real

WAIT_S = 60.0
SOUND = ("gpu.count", "gpu.driver_match", "gpu.gsp", "cuda.init", "gpu.p2p", "gpu.xid", "pcie.mps")
WRONG = {
    "cpu.governor": "WARN",
    "cpu.scaling_driver": "WARN",
    "gpu.hmm": "WARN",
    "numa.balancing": "WARN",
    "pcie.acs": "WARN",
    "pcie.aer": "WARN",
    "svc.time_sync": "FAIL",
    "virt.lxc_majors": "FAIL",
}
COMES = {
    "cpu.governor": Outcome.APPLIED,
    "numa.balancing": Outcome.APPLIED,
    "pcie.acs[65:01.1]": Outcome.APPLIED,
    "numa.zone_reclaim": Outcome.FAILED,
    "svc.time_sync": Outcome.FAILED,
    "cpu.scaling_driver": Outcome.NEEDS_REBOOT,
    "gpu.hmm[0]": Outcome.NEEDS_REBOOT,
    "virt.lxc_majors": Outcome.NEEDS_RESTART,
}
"""What comes of each fix."""


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something."""
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s
        await asyncio.sleep(0.05)


def agent_boot(session: HostSession) -> str:
    """The boot that the agent spoke of; empty while there is none."""
    agent = session.snapshot.agent
    return (
        agent.boot_id if agent is not None and session.snapshot.link.state is LinkState.LIVE else ""
    )


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
        with pytest.raises(AgentError, match="a simulated host has nothing to measure"):
            await measure(session, PARTS[:1])
    assert not file.exists()


async def test_the_checklist_of_the_demo_is_of_the_demo_and_is_put_right_there() -> None:
    async with RoomHub([HostConfig(name="demo", target="demo")]) as hub:
        await wait_for_processes(hub)
        desk = Desk(Machines(hub.sessions[0]))
        judged = await desk.judge()
        facts = {fact.key: fact.value for fact in judged.gathered.document.facts}
        assert facts["/proc/sys/kernel/osrelease"] == host_programs.KERNEL + "\n"
        assert facts["/sys/devices/system/cpu/online"] == f"0-{CPUS - 1}\n"
        found = {f.check: f.verdict.value for f in judged.findings}
        assert {check: found[check] for check in SOUND} == dict.fromkeys(SOUND, "PASS")
        assert {check: found[check] for check in WRONG} == WRONG
        unknown = [f.check for f in judged.findings if found[f.check] == "UNKNOWN"]
        assert len(unknown) <= 18, unknown  # what only a measurement shows
        wrong = [f for f in judged.findings if found[f.check] in ("WARN", "FAIL")]
        ids = [f.check for f in wrong if f.fix is not None and f.fix.applicable]
        plan = await desk.plan(judged, ids, form=Form.BOTH)
        await desk.keep_snapshot(plan)
        results, after = await desk.apply(plan)
        came = {r.check: r for r in results}
        assert {check: came[check].outcome for check in COMES} == COMES, came
        others = {r.check: r.outcome for r in results if r.check not in COMES}
        assert set(others.values()) == {Outcome.APPLIED}, others
        assert "reads '1' by now: something else sets it" in came["numa.zone_reclaim"].detail
        assert any("apparmor" in line for line in came["svc.time_sync"].kernel)
        assert after is not None
        now = {f.check: f.verdict.value for f in after.findings}
        done = [check for check, outcome in COMES.items() if outcome is Outcome.APPLIED]
        assert {check: now[check] for check in done} == dict.fromkeys(done, "PASS")
        back = await desk.roll_back((await desk.snapshots())[0])
        left = [r for r in back if r.outcome not in (Outcome.APPLIED, Outcome.ALREADY_SO)]
        assert all("nothing takes it back" in r.detail for r in left), left


async def test_a_reboot_keeps_what_lasts_and_shows_what_fell_back() -> None:
    async with RoomHub([HostConfig(name="demo", target="demo:idle")]) as hub:
        session = hub.sessions[0]
        await until(lambda: session.snapshot.link.state is LinkState.LIVE)
        desk = Desk(Machines(session))
        judged = await desk.judge()
        for form, ids in (
            (Form.RUNTIME, ["cpu.governor"]),
            (Form.BOTH, ["numa.balancing", "vm.dirty"]),
            (Form.PERSISTENT, ["cpu.scaling_driver"]),
        ):
            plan = await desk.plan(judged, ids, form=form)
            await desk.keep_snapshot(plan)
            results, after = await desk.apply(plan)
            assert {r.outcome for r in results} <= {Outcome.APPLIED, Outcome.NEEDS_REBOOT}, results
            assert after is not None
        before = {f.check: f.verdict.value for f in after.findings}
        assert [before[c] for c in ("cpu.governor", "numa.balancing", "vm.dirty")] == ["PASS"] * 3
        step = {"kind": "command", "argv": ["systemctl", "reboot"]}
        asked = {"steps": [step], "boot_id": BOOT_ID}
        await session.request(
            "changes.carry_out", asked, asked_by="test", what="reboot", changes_host=True
        )
        await until(lambda: agent_boot(session) not in ("", BOOT_ID))
        judged = await desk.judge()
        now = {f.check: f.verdict.value for f in judged.findings}
        assert now["cpu.scaling_driver"] == now["vm.dirty"] == "PASS"
        # The maker's file is read after ours.
        assert judged.fell_back is not None
        assert [one.check for one in judged.fell_back] == ["numa.balancing"]


def test_somebody_reboots_a_while_after_a_change(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    host_tree.write(tmp_path / "host", proc, cpus=4, cards=2)
    root = tmp_path / "host"
    assert boot.changed_for_s(root) is None
    boot.put(root, boot.IGNORED, "0\n")
    boot.put_back(root)
    assert boot.changed_for_s(root) is None, "what does not hold is no change"
    place = boot.put(root, "/proc/sys/vm/swappiness", "1\n")
    os.utime(place, (time.time() + 5, time.time() + 5))
    assert boot.changed_for_s(root) is not None
    boot.begin(root)
    assert place.read_text() == "60\n"
    assert boot.changed_for_s(root) is None


def test_a_power_limit_is_set_within_what_the_card_takes(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    root = tmp_path / "host"
    host_tree.write(root, tmp_path / "proc", cpus=4, cards=2)
    smi = str(root / "usr/bin/nvidia-smi")
    said = [
        subprocess.run([smi, "-i", "0000:06:00.0", "-pl", watts], capture_output=True, check=False)
        for watts in ("700", "600")
    ]
    assert [one.returncode for one in said] == [255, 0]
    assert b"between 300.00 W and 600.00 W" in said[0].stdout
    assert (root / host_programs.LIMITS.lstrip("/")).read_text() == "0000:06:00.0 600\n"
