"""What a real H200 answered, through decoding, histories and verdicts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backends.model import GpuStatus, HostSnapshot, Severity
from backends.telemetry.history import Window
from tests.telemetry.test_decode import assert_honest
from tests.telemetry.wire import Host, gpu_entry, row

pytestmark = pytest.mark.shared

ONCE = {
    "power_limit_default_w": ("power_default", 1000),
    "sm_clock_max_mhz": ("clk_sm_max", 1),
    "pcie_generation_max": ("link_gen_max", 1),
    "pcie_width_max": ("link_width_max", 1),
    "vbios_version": ("vbios", None),
    "numa_node": ("numa_node", 1),
}
FAST = {
    "power_w": ("power_usage", 1000),
    "power_limit_enforced_w": ("power_limit", 1000),
    "temperature_gpu_c": ("temp", 1),
    "sm_clock_mhz": ("clk_sm", 1),
    "memory_clock_mhz": ("clk_mem", 1),
    "event_reasons": ("reasons", 1),
    "pcie_generation": ("link_gen", 1),
    "pcie_width": ("link_width", 1),
    "performance_state": ("pstate", 1),
}
SLOW = {
    "energy_j": ("energy", 1000),
    "fan_pct": ("fan", 1),
    "pcie_replay_count": ("replay", 1),
    "nvlink_links_active": ("nvlink0", 1),
    "ecc_corrected_count": ("ecc_corr", 1),
    "ecc_uncorrected_count": ("ecc_uncorr", 1),
    "persistence_enabled": ("persistence", 1),
}


def taken(capture: dict[str, Any], keys: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Readings of the recording by our keys, and the reasons for those that it lacks."""
    values, absent = {}, {}
    for key, (name, scale) in keys.items():
        answer = capture[name]
        if answer["error"]:
            absent[key] = answer["error"].partition(": ")[2]
        elif scale in (None, 1):
            values[key] = answer["value"]
        else:
            values[key] = answer["value"] / scale
    return values, absent


@dataclass
class Replay:
    """A host whose one GPU is the recorded one."""

    host: Host
    capture: dict[str, Any]
    uuid: str

    def snapshot(self) -> HostSnapshot:
        return self.host.snapshot()

    def gpu(self) -> GpuStatus:
        return self.snapshot().gpus[0]

    def words(self) -> dict[str, Severity]:
        return {v.word: v.severity for v in self.snapshot().verdicts}


@pytest.fixture
def replay(shared: Path) -> Replay:
    capture = json.loads((shared / "captures/h200/nvml.json").read_text())
    once, absent = taken(capture, ONCE)
    fast, fast_absent = taken(capture, FAST)
    slow, slow_absent = taken(capture, SLOW)
    fast |= {
        "utilization_gpu_pct": capture["util"]["value"]["gpu"],
        "utilization_memory_pct": capture["util"]["value"]["memory"],
        "memory_used_bytes": capture["mem"]["value"]["used"],
    }
    once["power_limit_min_w"], once["power_limit_max_w"] = (
        value / 1000 for value in capture["power_constraints"]["value"]
    )
    slow["memory_total_bytes"] = capture["mem"]["value"]["total"]
    fields = {field: value for field, code, value in capture["field_values"]["value"] if code == 0}
    slow["temperature_memory_c"] = fields[82]
    host = Host(gpus=0)
    uuid = capture["uuid"]["value"]
    entry = gpu_entry(
        0,
        uuid=uuid,
        name=capture["name"]["value"],
        bus_id=capture["pci"]["value"]["busId"],
        once=once,
        absent=absent,
    )
    host.say("gpus", {"gpus": [entry]})
    host.slow(slow)
    host.fast(fast)
    host.say("absent", {"g": [fast_absent | slow_absent], "h": {}})
    host.say("processes", {"t": host.t, "p": []})
    return Replay(host, capture, uuid)


def play(replay: Replay, phases: set[int]) -> None:
    """Feed the 10 Hz samples of those phases, at their own pace."""
    load = replay.capture["load"]
    starts = [float(at) for _, at in load["phases"]]
    last_s: float | None = None
    for sample in load["rows"]:
        values = dict(zip(load["columns"], sample, strict=True))
        phase = sum(values["t"] >= start for start in starts) - 1
        if phase not in phases:
            continue
        replay.host.clock.advance(values["t"] - last_s if last_s is not None else 0.1)
        last_s = values["t"]
        fast = {
            "power_w": values["power_instant"] / 1000,
            "power_average_w": values["power_avg"] / 1000,
            "power_limit_enforced_w": 700.0,
            "utilization_gpu_pct": values["util_gpu"],
            "utilization_memory_pct": values["util_mem"],
            "memory_used_bytes": values["mem_mib"] << 20,
            "temperature_gpu_c": values["temp"],
            "sm_clock_mhz": values["clk_sm"],
            "event_reasons": values["reasons"],
            "pcie_generation": 5,
            "pcie_width": 16,
        }
        replay.host.fast(fast, step_s=0.0)
        replay.host.slow({"energy_j": values["energy_mj"] / 1000})


IDLE_BEFORE, CONTEXT, GEMM, COPY, TINY = -1, 0, 1, 3, 5


def test_the_values_come_out_as_they_were_read(replay: Replay) -> None:
    gpu = replay.gpu()
    readings = gpu.readings
    assert (gpu.name, gpu.bus_id) == ("NVIDIA H200", "00000000:00:06.0")
    assert readings.power_w == 80.32
    assert readings.power_limit_enforced_w == readings.power_limit_max_w == 700.0
    assert readings.power_limit_min_w == 200.0
    assert readings.memory_used_bytes == 644939776
    assert readings.memory_total_bytes == 150754820096
    assert (readings.sm_clock_mhz, readings.sm_clock_max_mhz) == (345, 1980)
    assert (readings.temperature_gpu_c, readings.temperature_memory_c) == (36.0, 39.0)
    assert readings.pcie_replay_count == 1
    assert readings.persistence_enabled is True
    assert readings.ecc_uncorrected_count == 0
    assert readings.energy_j == pytest.approx(2904.921)


def test_what_it_does_not_support_is_absent_with_the_reason(replay: Replay) -> None:
    gpu = replay.gpu()
    for key in ("fan_pct", "nvlink_links_active", "numa_node"):
        assert getattr(gpu.readings, key) is None
        assert gpu.absent[key] == "Not Supported"
    assert_honest(replay.snapshot())


def test_idle_is_idle(replay: Replay) -> None:
    assert set(replay.words()) == {"IDLE"}


def test_a_live_context_is_idle_with_its_clocks_up_and_memory_of_nobody(replay: Replay) -> None:
    play(replay, {CONTEXT})
    replay.host.clock.advance(0.5)
    verdicts = {v.word: v for v in replay.snapshot().verdicts}
    assert "122 W of 700 W" in verdicts["IDLE"].evidence
    assert "context is open" in verdicts["IDLE"].evidence


def test_a_matrix_product_is_capped_at_the_board_s_own_limit(replay: Replay) -> None:
    play(replay, {GEMM})
    gpu = replay.gpu()
    assert gpu.readings.power_average_w == pytest.approx(690, abs=2)
    assert gpu.held_pct["power_cap"] == pytest.approx(79, abs=3), "it took a second to get there"
    words = replay.words()
    assert words["CAPPED"] is Severity.INFO
    assert "BUSY" in words


def test_a_copy_is_busy_and_not_capped_and_power_tells_them_apart(replay: Replay) -> None:
    play(replay, {COPY})
    gpu = replay.gpu()
    assert gpu.readings.utilization_gpu_pct == 100.0
    assert gpu.readings.power_w == pytest.approx(466, abs=5)
    assert "CAPPED" not in replay.words()
    assert "BUSY" in replay.words()


def test_tiny_kernels_are_busy_by_utilisation_and_no_more(replay: Replay) -> None:
    play(replay, {TINY})
    verdict = next(v for v in replay.snapshot().verdicts if v.word in ("BUSY", "IDLE"))
    assert verdict.word == "BUSY"
    assert "of 700 W" in verdict.evidence


def test_memory_held_by_a_process_that_the_guest_cannot_see(replay: Replay) -> None:
    play(replay, {CONTEXT})
    for _ in range(12):
        replay.snapshot()
        replay.host.clock.advance(1.0)
        play(replay, {CONTEXT})
    ghost = next(v for v in replay.snapshot().verdicts if v.word == "GHOST")
    assert ghost.severity is Severity.INFO
    assert "5.2 GiB" in ghost.evidence
    assert "guest" in ghost.advice


def test_energy_agrees_with_power(replay: Replay) -> None:
    play(replay, set(range(-1, 8)))
    rows = replay.capture["load"]["rows"]
    seconds = rows[-1][0] - rows[0][0]
    mean_w = sum(row[3] for row in rows) / len(rows) / 1000
    assert replay.gpu().energy_average_w == pytest.approx(mean_w, rel=0.03), f"over {seconds:.0f} s"


def test_the_history_has_the_phases(replay: Replay) -> None:
    play(replay, set(range(-1, 8)))
    history, now_s = replay.host.telemetry.history, replay.host.clock.monotonic_s()
    peak_w = max(sample[3] for sample in replay.capture["load"]["rows"]) / 1000
    for window in Window:
        spans = history.spans(replay.uuid, "power_w", window, int(window.seconds / 5), now_s)
        known = [span for span in spans if span is not None]
        assert max(span.high for span in known) == pytest.approx(peak_w), "above its limit, once"
        assert min(span.low for span in known) == pytest.approx(80, abs=2)
    minute = history.series(replay.uuid, "utilization_gpu_pct", Window.MINUTE, 60, now_s)
    assert minute[:25] == [None] * 25, "before the recording there is nothing"
    assert max(value for value in minute if value is not None) == pytest.approx(100)


def test_a_row_of_the_recording_fits_the_wire() -> None:
    assert len(row("fast", power_w=80.3)) == 13
