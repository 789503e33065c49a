"""What a host says becomes what is known of it; nonsense costs nothing but itself."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.model import DriverState, GpuState, HostSnapshot, Lane
from backends.telemetry.cells import GPU_CELLS, HOST_CELLS
from backends.telemetry.history import TOTAL, Window
from tests.telemetry.wire import LIVE, Host, gpu_entry, hello, row

BUSY = {
    "power_w": 512.5,
    "utilization_gpu_pct": 100,
    "memory_used_bytes": 2**36,
    "sm_clock_mhz": 2400,
}


def assert_honest(snapshot: HostSnapshot) -> None:
    """Every reading has a value or a reason, never both, never neither."""
    for cells, readings, absent in [
        (HOST_CELLS, snapshot.readings, snapshot.absent),
        *((GPU_CELLS, gpu.readings, gpu.absent) for gpu in snapshot.gpus),
    ]:
        for key in cells:
            assert (getattr(readings, key) is None) == bool(absent.get(key)), key


def test_a_sample_becomes_readings_with_their_time() -> None:
    host = Host()
    host.fast(BUSY, {**BUSY, "power_w": 87})
    snapshot = host.snapshot()
    first, second = snapshot.gpus
    assert first.readings.power_w == 512.5
    assert second.readings.power_w == 87.0
    assert isinstance(second.readings.power_w, float)
    assert first.readings.power_limit_max_w == 600.0
    assert first.read_s[Lane.FAST] == pytest.approx(1000.0)
    assert snapshot.sampled_s == pytest.approx(1000.0)
    assert snapshot.agent is not None
    assert snapshot.agent.hostname == "gpu01"
    assert_honest(snapshot)


def test_absent_keeps_the_reason_of_the_host() -> None:
    host = Host()
    host.fast(BUSY, BUSY)
    host.say(
        "absent",
        {"g": [{"temperature_gpu_c": "Not Supported"}, None], "h": {"cpu_pct": "no /proc"}},
    )
    snapshot = host.snapshot()
    assert snapshot.gpus[0].absent["temperature_gpu_c"] == "Not Supported"
    assert snapshot.gpus[1].absent["temperature_gpu_c"] == "the host gave no reason"
    assert snapshot.gpus[0].absent["energy_j"] == "not sampled yet"
    assert "not being sampled" in snapshot.gpus[0].absent["pcie_rx_bytes_per_s"]
    assert snapshot.absent["cpu_pct"] == "no /proc"
    assert_honest(snapshot)


@pytest.mark.parametrize(
    ("key", "raw"),
    [
        ("memory_used_bytes", 2**64 - 1),
        ("power_w", -5),
        ("power_w", float("nan")),
        ("power_w", "87 W"),
        ("power_w", [1]),
        ("power_w", True),
        ("utilization_gpu_pct", 4_294_967_295),
        ("temperature_gpu_c", 10**40),
        pytest.param("sm_clock_mhz", 10**5000, id="huge"),
    ],
)
def test_an_impossible_value_is_absent_with_its_reason(key: str, raw: Any) -> None:
    host = Host()
    host.fast({**BUSY, key: raw}, BUSY)
    gpu = host.snapshot().gpus[0]
    assert getattr(gpu.readings, key) is None
    assert gpu.absent[key]
    assert host.telemetry.malformed_count == 1
    host.fast(BUSY, BUSY)
    assert host.snapshot().gpus[0].readings.power_w == 512.5


def test_one_silent_gpu_leaves_the_others() -> None:
    host = Host()
    host.fast(BUSY, BUSY)
    host.say("gpu_state", {"uuid": "GPU-0", "state": "stuck", "detail": "nvmlDeviceGetPowerUsage"})
    host.fast(None, {**BUSY, "power_w": 100})
    snapshot = host.snapshot()
    stuck, well = snapshot.gpus
    assert stuck.state is GpuState.STUCK
    assert stuck.readings.power_w == 512.5, "the last value stays, with its age"
    assert stuck.read_s[Lane.FAST] < well.read_s[Lane.FAST]
    assert well.readings.power_w == 100.0
    now_s = host.clock.monotonic_s()
    total = host.telemetry.history.series(TOTAL, "power_w", Window.MINUTE, 60, now_s - 1)
    assert total[-1] == pytest.approx(100.0), "a stuck GPU's old value is in no sum"


def test_a_garbled_row_leaves_the_others() -> None:
    host = Host()
    assert host.sample("fast", ["what", row("fast", **BUSY)])
    snapshot = host.snapshot()
    assert snapshot.gpus[0].readings.power_w is None
    assert snapshot.gpus[1].readings.power_w == 512.5


def test_a_lost_gpu_has_no_numbers_but_what_it_was_and_comes_back_by_uuid() -> None:
    host = Host(gpus=3)
    host.fast(BUSY, BUSY, BUSY)
    host.say("gpus", {"gpus": [gpu_entry(0), gpu_entry(1, uuid="GPU-2")]})
    host.fast(BUSY, {**BUSY, "power_w": 222})
    by_uuid = {gpu.uuid: gpu for gpu in host.snapshot().gpus}
    lost = by_uuid["GPU-1"]
    assert lost.state is GpuState.LOST
    assert lost.readings.power_w is None
    assert "no longer lists" in lost.absent["power_w"]
    assert lost.readings.power_limit_max_w == 600.0
    assert by_uuid["GPU-2"].readings.power_w == 222.0, "known by uuid, not by index"
    assert_honest(host.snapshot())

    host.say("gpus", {"gpus": [gpu_entry(i) for i in range(3)]})
    host.fast(BUSY, {**BUSY, "power_w": 333}, BUSY)
    back = host.snapshot().gpus[1]
    assert (back.uuid, back.state, back.readings.power_w) == ("GPU-1", GpuState.OK, 333.0)


def test_the_driver_keeps_the_moment_of_its_state() -> None:
    host = Host()
    host.clock.advance(10)
    host.say("driver", {"state": "stuck", "version": None, "cuda_version": None, "detail": "power"})
    host.clock.advance(5)
    host.say("driver", {"state": "stuck", "version": None, "cuda_version": None, "detail": "power"})
    driver = host.snapshot().driver
    assert driver is not None
    assert (driver.state, driver.since_s) == (DriverState.STUCK, 1010.0)


def test_what_was_read_once_of_the_host_comes_with_the_gpus() -> None:
    host = Host()
    once = {"cpu_count": 64, "kernel": "6.17.0", "cpu_model": None, "x": 1}
    host.say("gpus", {"gpus": [], "h": once})
    snapshot = host.snapshot()
    assert (snapshot.readings.cpu_count, snapshot.readings.kernel) == (64, "6.17.0")
    assert snapshot.absent["cpu_model"]
    assert_honest(snapshot)


def test_a_gpu_that_cannot_say_who_it_is_is_the_one_that_had_its_index() -> None:
    host = Host(gpus=3)
    host.fast(BUSY, BUSY, BUSY)
    mute = {"uuid": "unreadable-1", "index": 1, "name": "GPU 1", "bus_id": ""}
    host.say("gpus", {"gpus": [gpu_entry(0), mute, gpu_entry(2)]})
    assert host.snapshot().gpus[1].state is GpuState.LOST, "at no moment it looks well"
    host.say("gpu_state", {"uuid": "unreadable-1", "state": "lost", "detail": "GPU is lost"})
    host.fast(BUSY, None, {**BUSY, "power_w": 77})
    gpus = host.snapshot().gpus
    assert [gpu.uuid for gpu in gpus] == ["GPU-0", "GPU-1", "GPU-2"]
    assert (gpus[1].state, gpus[1].name) == (GpuState.LOST, "Test card")
    assert gpus[1].readings.power_w is None
    assert gpus[2].readings.power_w == 77.0
    host.say("gpus", {"gpus": [gpu_entry(i) for i in range(3)]})
    host.fast(BUSY, BUSY, BUSY)
    assert [gpu.state for gpu in host.snapshot().gpus] == [GpuState.OK] * 3


def test_a_gpu_mute_from_the_start_has_no_second_row_when_it_speaks() -> None:
    host = Host(gpus=0)
    mute = {"uuid": "unreadable-0", "index": 0, "name": "GPU 0"}
    host.say("gpus", {"gpus": [mute]})
    host.say("gpu_state", {"uuid": "unreadable-0", "state": "lost", "detail": "x"})
    assert [gpu.state for gpu in host.snapshot().gpus] == [GpuState.LOST]
    host.say("gpus", {"gpus": [gpu_entry(0)]})
    assert [gpu.uuid for gpu in host.snapshot().gpus] == ["GPU-0"]


def test_the_driver_may_have_been_so_for_a_while() -> None:
    host = Host()
    host.say("driver", {"state": "stuck", "detail": "power", "age_s": 7.5, "nvml_version": "13.1"})
    snapshot = host.snapshot()
    assert snapshot.driver is not None
    assert snapshot.driver.since_s == 1000.0 - 7.5
    host.clock.advance(30.0)
    host.say("driver", {"state": "ok", "age_s": 50.0})
    recovered = host.snapshot().driver
    assert recovered is not None
    assert recovered.since_s == 1030.0, "it was stuck until now, whatever was before"
    assert snapshot.agent is not None
    assert snapshot.agent.nvml_version == "13.1"


def test_stamps_of_the_host_become_our_time_less_half_the_way() -> None:
    host = Host()
    link = replace(LIVE, round_trip_s=0.2)
    host.snapshot(link)
    for late_s in (0.4, 0.1, 0.9):
        taken_s = host.clock.monotonic_s()
        assert host.sample("fast", [row("fast", **BUSY)] * 2, late_s=late_s)
    assert host.snapshot(link).sampled_s == pytest.approx(taken_s, abs=0.01)


def test_a_reboot_starts_the_clock_anew() -> None:
    host = Host()
    host.fast(BUSY, BUSY)
    host.boot_s = host.clock.monotonic_s() - 20.0
    host.say("hello", hello(boot_id="b-2"))
    host.say("gpus", {"gpus": [gpu_entry(0), gpu_entry(1)]})
    taken_s = host.clock.monotonic_s()
    host.fast(BUSY, BUSY)
    assert host.snapshot().sampled_s == pytest.approx(taken_s)


def test_strings_are_cleaned_and_bounded() -> None:
    host = Host()
    evil = "\x1b]0;owned\x07\x1b[31mred" + "x" * 5000
    once = {"vbios_version": evil}
    host.say("gpus", {"gpus": [gpu_entry(0, name=evil, bus_id=evil, once=once)]})
    host.say("note", {"text": evil})
    host.say(
        "processes", {"t": 1, "p": [{"pid": 7, "command": evil, "user": evil, "memory_bytes": {}}]}
    )
    host.say("kernel", {"events": [{"at": 1e9, "kind": "xid", "text": evil, "xid": 79}]})
    snapshot = host.snapshot()
    text = repr(dataclasses.asdict(replace(snapshot, gpus=snapshot.gpus[:1])))
    assert "\\x1b" not in text
    assert "owned" not in text
    assert len(text) < 20_000


def test_processes_with_and_without_what_can_be_seen() -> None:
    host = Host()
    host.say(
        "processes",
        {
            "t": 5,
            "p": [
                {
                    "pid": 4242,
                    "start_ticks": 99,
                    "user": "llm",
                    "command": "python3 -m sglang.launch_server",
                    "memory_bytes": {"GPU-0": 2**36, "GPU-1": 2**64 - 1},
                    "started": 1.7e9,
                    "model": "a-model",
                },
                {"pid": 1, "visible": False, "memory_bytes": {"GPU-0": None}, "command": None},
                {"pid": "x"},
            ],
        },
    )
    seen, hidden = host.snapshot().processes
    assert seen.memory_bytes == {"GPU-0": 2**36, "GPU-1": None}
    assert seen.started is not None
    assert (hidden.visible, hidden.command, hidden.start_ticks) == (False, "", None)
    assert host.telemetry.malformed_count == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5)
    ),
    max_leaves=20,
)
METHODS = [
    *("hello", "gpus", "fast", "slow", "pcie", "absent", "gpu_state"),
    *("driver", "processes", "kernel", "note", "?"),
]
KEYS = [
    *("t", "g", "h", "m", "gpus", "uuid", "state"),
    *("p", "events", "text", "columns", "once", "at", "pid"),
]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(METHODS), JSON | st.dictionaries(st.sampled_from(KEYS), JSON)),
        max_size=8,
    )
)
def test_nonsense_never_raises_and_never_becomes_a_number(messages: list[tuple[str, Any]]) -> None:
    host = Host()
    for method, params in messages:
        host.say(method, params)
    assert_honest(host.snapshot())


def test_unknown_columns_and_methods_of_a_newer_agent_are_passed_over() -> None:
    host = Host(hello_changes={"columns": {"fast": {"g": ["power_w", "shine", "sm_clock_mhz"]}}})
    assert host.sample("fast", [[10.0, 3, 1200], [11.0, 4, 1300]])
    assert not host.say("sparkles", {})
    assert host.snapshot().gpus[1].readings.sm_clock_mhz == 1300
    assert host.telemetry.malformed_count == 0
