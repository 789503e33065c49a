"""Each scenario of the demo, read by the agent's own readers and judged as any host is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from backends.agent.remote.gpu import Gpu
from backends.agent.remote.readings import COLUMNS
from backends.clock import ManualClock
from backends.model import GPU_READINGS, GpuState, HostSnapshot, Lane, Severity
from backends.sim import nvml
from backends.telemetry.decode import Telemetry
from tests.telemetry.test_decode import assert_honest
from tests.telemetry.wire import LIVE, START


class Demo:
    """A scenario and its host, both at the test's own time; one sample a second."""

    def __init__(self, scenario: str) -> None:
        self.clock = ManualClock(START, 1000.0)
        nvml.configure(scenario, 1, self.clock.monotonic_s, self.clock.advance)
        self.telemetry = Telemetry("demo", self.clock)
        self.gpus = []
        for index in range(nvml.nvmlDeviceGetCount()):
            gpu = Gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index), index, 595)
            gpu.identify()
            self.gpus.append(gpu)
        columns = {lane: {"g": keys, "h": []} for lane, keys in COLUMNS.items()}
        self.say("hello", {"boot_id": "b", "columns": columns})
        self.say("driver", {"state": "ok", "version": nvml.nvmlSystemGetDriverVersion()})
        entries = []
        for gpu in self.gpus:
            once, absent = gpu.read_once()
            known = {"uuid": gpu.uuid, "index": gpu.index, "name": gpu.name, "bus_id": gpu.bus_id}
            entries.append(known | {"once": once, "absent": absent})
        self.say("gpus", {"gpus": entries})
        self.begin_s = self.clock.monotonic_s()
        self.absent: list[dict[str, str]] = [{} for _ in self.gpus]

    @property
    def at_s(self) -> float:
        return self.clock.monotonic_s() - self.begin_s

    def say(self, method: str, params: dict[str, Any]) -> None:
        assert self.telemetry.notify(method, params), method

    def play_until(self, at_s: float) -> HostSnapshot:
        snapshot = self.telemetry.snapshot(LIVE, 1.0, 0)
        while self.at_s < at_s:
            second = round(self.at_s)
            for lane in ("fast", "slow") if second % 5 == 0 else ("fast",):
                samples = [gpu.read(lane) for gpu in self.gpus]
                t = int(self.clock.monotonic_s() * 1e9)
                self.say(lane, {"t": t, "g": [sample.values for sample in samples]})
                for gpu, sample in zip(self.gpus, samples, strict=True):
                    state = sample.fault.kind if sample.fault else "ok"
                    self.say("gpu_state", {"uuid": gpu.uuid, "state": state})
                for reasons, sample in zip(self.absent, samples, strict=True):
                    reasons.update(sample.absent)
                self.say("absent", {"g": self.absent})
                if lane == "slow":
                    self.say("processes", {"p": self._processes()})
                    for gpu in self.gpus:
                        if gpu.mig:
                            lines = {gpu.uuid: gpu.mig_instances()}
                            self.say("slow", {"t": t, "m": lines})
            snapshot = self.telemetry.snapshot(LIVE, 1.0, second)
            assert_honest(snapshot)
            self.clock.advance(1.0)
        return snapshot

    def _processes(self) -> list[dict[str, Any]]:
        return [
            {"pid": pid, "kind": kind, "memory_bytes": {gpu.uuid: held}, "model": "m"}
            for gpu in self.gpus
            for pid, kind, held in gpu.processes()
        ]


def words(snapshot: HostSnapshot, least: Severity = Severity.INFO) -> set[tuple[int | None, str]]:
    found = set()
    for verdict in snapshot.verdicts:
        gpu = snapshot.gpu(verdict.gpu_uuid) if verdict.gpu_uuid else None
        if least is Severity.INFO or verdict.severity is not Severity.INFO:
            found.add((None if gpu is None else gpu.index, verdict.word))
    return found


@pytest.fixture(autouse=True)
def clean_world() -> Iterator[None]:
    yield
    nvml._world = None


@pytest.mark.parametrize("scenario", ["healthy", "idle", "sixteen"])
def test_a_healthy_host_never_warns(scenario: str) -> None:
    demo = Demo(scenario)
    seen = set()
    while demo.at_s < 240:
        snapshot = demo.play_until(demo.at_s + 1)
        assert words(snapshot, Severity.WARNING) == set()
        seen |= {word for _, word in words(snapshot)}
    assert seen <= {"BUSY", "IDLE", "CAPPED"}
    assert ("BUSY" in seen) == (scenario != "idle")


def test_every_reading_of_a_healthy_card_but_those_it_lacks() -> None:
    gpu = Demo("healthy").play_until(6).gpus[0]
    lacking = {spec.key for spec in GPU_READINGS if getattr(gpu.readings, spec.key) is None}
    pcie = {spec.key for spec in GPU_READINGS if spec.lane is Lane.PCIE}
    nvlink = {"nvlink_links_active", "nvlink_links_total", "nvlink_error_count"}
    assert lacking == pcie | nvlink | {"fan_pct", "temperature_memory_c"}


def test_capped_cards_are_all_warned_of_with_their_share() -> None:
    snapshot = Demo("capped").play_until(60)
    assert words(snapshot, Severity.WARNING) == {(index, "CAPPED") for index in range(8)}
    assert all(gpu.held_pct["power_cap"] > 50 for gpu in snapshot.gpus)
    assert "450 W, set below the 600 W" in snapshot.verdicts[0].evidence


def test_the_straggler_is_found_with_its_cause() -> None:
    demo = Demo("straggler")
    found = set()
    while demo.at_s < 90:
        snapshot = demo.play_until(demo.at_s + 1)
        found |= words(snapshot, Severity.WARNING)
        for verdict in snapshot.verdicts:
            if verdict.word == "STRAGGLER":
                assert "hot" in verdict.advice
    assert found == {(5, "STRAGGLER"), (5, "HOT")}


def test_the_lost_card_is_said_and_forgotten_when_it_is_back() -> None:
    demo = Demo("lost-gpu")
    assert words(demo.play_until(20), Severity.WARNING) == set()
    lost = demo.play_until(40)
    assert (3, "LOST") in words(lost)
    assert lost.gpus[3].state is GpuState.LOST
    assert lost.gpus[3].readings.power_w is None
    assert (0, "IDLE") in words(lost)
    back = demo.play_until(100)
    assert (3, "LOST") not in words(back)
    assert back.gpus[3].readings.power_w is not None


def test_mig_cards_are_judged_by_power_alone() -> None:
    snapshot = Demo("mig").play_until(30)
    for index in (0, 1):
        gpu = snapshot.gpus[index]
        assert gpu.readings.utilization_gpu_pct is None
        assert "MIG" in gpu.absent["utilization_gpu_pct"]
        assert (index, "MIG-BUSY") in words(snapshot)
        assert len(gpu.mig_instances) == 2
        assert "of 47" in gpu.mig_instances[0]
    assert (2, "BUSY") in words(snapshot)
    assert words(snapshot, Severity.WARNING) == set()
