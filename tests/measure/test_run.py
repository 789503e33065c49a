"""Measuring a host through a real sshd and the real agent: figures, tools, refusals, ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backends.errors import AgentError, ReadOnlyError, RoomError
from backends.tuning.desk import Desk
from backends.tuning.engine import evaluate
from backends.tuning.facts import FactsDocument
from backends.tuning.findings import Verdict
from backends.tuning.gather import Reading
from backends.tuning.machines import Machines
from backends.tuning.measurements.desk import Wishes, measure_host
from backends.tuning.measurements.figures import rows
from backends.tuning.measurements.joining import joined
from backends.tuning.measurements.parts import chosen, settling
from backends.tuning.measurements.run import measure
from tests.agent.test_over_ssh import gone
from tests.measure.conftest import GPUS, FakeGpus, Reach
from tests.tuning_live.tree import make_host

pytestmark = pytest.mark.real
A, B = GPUS


async def test_every_part_of_two_gpus_without_torch(at_host: Reach, gpus: FakeGpus) -> None:
    gpus.set(peer_gb_s={"rest": 54.0, "1-0": 12.0})
    said: list[str] = []
    async with at_host() as session:
        done = await measure(
            session,
            chosen(["copies", "memory", "launch", "pairs"]),
            python=gpus.python,
            told=said.append,
        )
    facts = {fact.key: fact.value for fact in done.facts.facts}
    assert facts[f"bench/h2d/{A}/gb_s"] == pytest.approx(53, rel=0.05)
    assert facts[f"bench/d2h/{B}/gb_s"] == pytest.approx(53, rel=0.05)
    assert facts[f"bench/membw/{A}/gb_s"] == pytest.approx(4400, rel=0.05)
    assert facts[f"bench/membw/{A}/theory_gb_s"] == pytest.approx(4917, rel=0.01)
    assert facts[f"bench/p2p/{A}/{B}/gb_s"] == pytest.approx(54, rel=0.05)
    assert facts[f"bench/p2p/{B}/{A}/gb_s"] == pytest.approx(12, rel=0.05)
    assert facts[f"bench/p2p/{A}/{B}/plain_gb_s"] == pytest.approx(11, rel=0.05)
    assert facts[f"bench/p2p/{A}/{B}/plain_latency_us"] == pytest.approx(14, rel=0.1)
    assert facts[f"bench/p2p/{A}/{B}/latency_us"] == pytest.approx(2, rel=0.1)
    assert facts[f"bench/p2p_copy/{A}/{B}/equal"] is True
    assert facts[f"bench/launch/{A}/submit_us"] is not None
    assert facts["bench/tool/nvbandwidth"] is None
    assert done.failed == {}
    assert any("GPU 0 to GPU 1" in line for line in said)
    assert {row.unit for row in rows(done.facts)} == {"GB/s", "us"}


async def test_links_and_clocks_are_read_under_load(at_host: Reach, nvml: FakeGpus) -> None:
    nvml.set(work={"link_gen": 4})
    async with at_host() as session:
        done = await measure(session, chosen(["link"]), python=nvml.python, load_s=3.0)
    facts = {fact.key: fact.value for fact in done.facts.facts}
    assert done.failed == {}
    for gpu in GPUS:
        assert facts[f"bench/load/{gpu}/link_gen"] == 4
        assert facts[f"bench/load/{gpu}/pstate"] == "P0"
        assert facts[f"bench/load/{gpu}/link_changes"] == 0
        assert facts[f"bench/load/{gpu}/power_w"] == 420
        assert facts[f"bench/load/{gpu}/seconds"] >= 1.0  # type: ignore[operator]


async def test_what_the_load_settles_in_the_checklist(
    at_host: Reach, nvml: FakeGpus, tmp_path: Path
) -> None:
    tree = make_host(tmp_path / "root", gpus=0)
    async with at_host() as session:
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        judged = await desk.judge(60)
        before = {f.check: f.verdict for f in judged.findings}
        assert before["pcie.link_gen"] is Verdict.INCONCLUSIVE
        assert before["gpu.clocks"] is Verdict.INCONCLUSIVE
        parts = settling(judged.findings)
        assert "link" in [part.name for part in parts]
        wishes = Wishes(python=nvml.python, load_s=3.0)
        done = await measure_host(desk, judged, chosen(["link"]), wishes)
    after = {f.check: f for f in done.judged.findings}
    assert after["pcie.link_gen"].verdict is Verdict.PASS
    assert after["gpu.clocks"].verdict is Verdict.PASS
    assert after["pcie.link_flap"].verdict is Verdict.INCONCLUSIVE, "three seconds are too few"
    assert {f.check for f in done.settled(judged.findings)} >= {"pcie.link_gen", "gpu.clocks"}


async def test_a_link_that_stays_slow_under_load_fails(
    at_host: Reach, nvml: FakeGpus, tmp_path: Path
) -> None:
    nvml.set(work={"link_gen": 2})
    tree = make_host(tmp_path / "root", gpus=0)
    async with at_host() as session:
        desk = Desk(Machines(session), reading=Reading(root=str(tree.folder)))
        judged = await desk.judge(60)
        wishes = Wishes(python=nvml.python, load_s=3.0)
        done = await measure_host(desk, judged, chosen(["link"]), wishes)
    found = next(f for f in done.judged.findings if f.check == "pcie.link_gen")
    assert found.verdict is Verdict.FAIL
    assert "Gen2 of Gen5 under load" in found.evidence


async def test_links_alone_where_nvml_says_nothing(
    at_host: Reach, gpus: FakeGpus, tmp_path: Path
) -> None:
    place = tmp_path / "root/sys/bus/pci/devices" / A
    place.mkdir(parents=True)
    for name, text in {
        "vendor": "0x10de", "class": "0x030200", "current_link_speed": "2.5 GT/s PCIe",
        "current_link_width": "16",
    }.items():  # fmt: skip
        (place / name).write_text(text + "\n")
    gpus.set(rises={str(place / "current_link_speed"): "32.0 GT/s PCIe\n"})
    async with at_host() as session:
        done = await measure(
            session, chosen(["link"]), python=gpus.python, load_s=3.0, root=str(tmp_path / "root")
        )
    facts = {fact.key: fact.value for fact in done.facts.facts}
    assert facts[f"bench/load/{A}/speed_gts"] == 32.0
    assert facts[f"bench/load/{A}/width"] == 16


@pytest.mark.parametrize(
    "world", [{"processes": {"1": [4242]}}, {"used_mib": 90_000}], ids=["process", "memory"]
)
async def test_never_beside_what_holds_the_gpus(
    at_host: Reach, nvml: FakeGpus, world: dict[str, object]
) -> None:
    nvml.set(**world)
    async with at_host() as session:
        with pytest.raises(ReadOnlyError) as refused:
            await measure(session, chosen(["copies"]), python=nvml.python)
        assert "GPU" in refused.value.detail
        done = await measure(session, chosen(["copies"]), python=nvml.python, beside=True)
        assert done.facts.facts
        assert await measure(session, chosen(["wakeup"])), "needs no GPU"


async def test_a_host_without_any_of_it(at_host: Reach) -> None:
    async with at_host() as session:
        with pytest.raises(AgentError) as failure:
            await measure(session, chosen(["copies", "link"]), python="/nonexistent/python")
    assert "copies" in failure.value.detail
    assert "link" in failure.value.detail


async def test_what_takes_too_long_is_ended(at_host: Reach, gpus: FakeGpus) -> None:
    gpus.tool("all_reduce_perf", "sleep 600 & echo $! > " + str(gpus.folder / "pid") + "; wait")
    async with at_host() as session:
        done = await measure(
            session, chosen(["wakeup", "allreduce"]), python=gpus.python, limit_s=8.0
        )
    assert done.failed["all_reduce_perf"] == "it was not done in time"
    assert await gone(int((gpus.folder / "pid").read_text()))


async def _begun(gpus: FakeGpus) -> int:
    """The process of the load, once it is at work."""
    place = Path(f"{gpus.world}.load")
    for _ in range(1200):
        if place.exists() and place.read_text():
            return int(place.read_text())
        await asyncio.sleep(0.05)
    raise AssertionError("no load")


async def test_cancelled_it_ends_on_the_host(at_host: Reach, gpus: FakeGpus) -> None:
    async with at_host() as session:
        work = asyncio.create_task(
            measure(session, chosen(["link"]), python=gpus.python, load_s=500.0)
        )
        pid = await _begun(gpus)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert await gone(pid), "while the agent lives on"


async def test_the_load_ends_with_the_agent(at_host: Reach, gpus: FakeGpus) -> None:
    async with at_host() as session:
        work = asyncio.create_task(
            measure(session, chosen(["link"]), python=gpus.python, load_s=500.0)
        )
        pid = await _begun(gpus)
    with pytest.raises((RoomError, asyncio.CancelledError)):
        await asyncio.wait_for(work, 60)
    assert await gone(pid)


async def test_errors_and_heat_are_counted_for_a_minute(
    at_host: Reach, nvml: FakeGpus, tmp_path: Path
) -> None:
    tree = make_host(tmp_path / "root", gpus=0)
    count = tree.put("/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "40\n")
    tree.put("/sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "2\n")
    nvml.set(rises={str(count): "47\n"})
    async with at_host() as session:
        root = str(tree.folder)
        done = await measure(session, chosen(["busy"]), python=nvml.python, busy_s=3.0, root=root)
    facts = {fact.key: fact.value for fact in done.facts.facts}
    assert done.failed == {}
    assert facts["bench/busy/throttle/cpu0_core"] == 7
    assert facts["bench/busy/throttle/cpu1_core"] == 0
    assert facts[f"bench/load/{A}/replays_delta"] == 0
    whole = joined(FactsDocument(), done.facts)
    found = {f.check: f for f in evaluate(whole)}
    assert found["cpu.thermal"].verdict is Verdict.WARN
    assert "7 throttle events on 1 CPUs" in found["cpu.thermal"].evidence
    assert not any("replays_per_minute" in fact.key for fact in whole.facts), "too short"


async def test_a_part_that_the_driver_refuses_stops_no_other(
    at_host: Reach, gpus: FakeGpus
) -> None:
    gpus.set(fail=["cuModuleLoadData", "cuMemcpyPeerAsync"])
    async with at_host() as session:
        done = await measure(
            session, chosen(["copies", "launch", "pairs", "memory"]), python=gpus.python
        )
    facts = {fact.key: fact.value for fact in done.facts.facts}
    assert done.failed == {
        "launch": "GPU 1: cuModuleLoadData gave 999",
        "pairs": "GPU 1 to GPU 0: cuMemcpyPeerAsync gave 999",
    }
    assert facts[f"bench/membw/{B}/gb_s"]
    assert facts[f"bench/h2d/{B}/gb_s"]
