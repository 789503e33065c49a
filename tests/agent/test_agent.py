"""The agent as it runs: real process, real wire, a pynvml that a test makes ill."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from backends.agent.client import AgentClient
from backends.errors import AgentError, RequestTimeout
from backends.model import GPU_READINGS, HOST_READINGS, Lane
from tests.agent.conftest import Room, World

Start = Callable[..., Any]


async def test_readings_come_out_right(start: Start) -> None:
    room: Room = await start()
    gpus = await room.told.until("gpus")
    assert [gpu["index"] for gpu in gpus["gpus"]] == list(range(8))
    first = gpus["gpus"][0]
    assert first["uuid"] == "GPU-00000000-0000-4000-8000-000000000000"
    assert first["bus_id"] == "0000:01:00.0"
    assert first["once"]["power_limit_default_w"] == 600.0
    assert first["once"]["power_limit_min_w"] == 150.0
    assert first["once"]["sm_clock_max_mhz"] == 2430
    assert first["once"]["architecture"] == "Blackwell"
    assert first["once"]["compute_capability"] == "12.0"
    assert "numa_node" in first["absent"]
    assert gpus["h"]["boot_id"] == room.told.last("hello")["boot_id"]

    fast = await room.told.until("fast", lambda params: len(params["g"]) == 8)
    row = room.keyed(fast, "fast", 3)
    assert row == {
        "power_w": 87.7,
        "power_average_w": 87.0,
        "power_limit_enforced_w": 600.0,
        "utilization_gpu_pct": 97,
        "utilization_memory_pct": 41,
        "memory_used_bytes": 80 * 2**30,
        "temperature_gpu_c": 55,
        "sm_clock_mhz": 2430,
        "memory_clock_mhz": 13365,
        "event_reasons": 4,
        "pcie_generation": 5,
        "pcie_width": 16,
        "performance_state": 1,
    }
    slow = await room.told.until("slow", lambda params: len(params["g"]) == 8)
    row = room.keyed(slow, "slow", 0)
    assert row["memory_total_bytes"] == 96 * 2**30
    assert row["memory_reserved_bytes"] == 2**30
    assert row["temperature_memory_c"] == 61
    assert row["temperature_margin_c"] == 35
    assert row["ecc_enabled"] is True
    assert row["ecc_corrected_count"] == 7
    assert row["remapped_rows_pending"] is True
    assert row["time_power_cap_us"] == 5_000_000
    assert row["time_thermal_us"] == 3_000
    assert row["compute_mode"] == "default"
    assert row["fan_pct"] is None
    absent = await room.told.until("absent", lambda params: bool(params["g"]))
    assert absent["g"][0]["fan_pct"] == "not supported by this GPU"
    assert absent["g"][0]["nvlink_links_total"] == "not supported by this GPU"


async def test_columns_are_the_readings_of_the_model(start: Start) -> None:
    room: Room = await start()
    columns = room.told.last("hello")["columns"]
    for lane in (Lane.FAST, Lane.SLOW, Lane.PCIE):
        expected = [spec.key for spec in GPU_READINGS if spec.lane is lane]
        assert sorted(columns[lane]["g"]) == sorted(expected)
        expected = [spec.key for spec in HOST_READINGS if spec.lane is lane]
        assert sorted(columns[lane]["h"]) == sorted(expected)


async def test_one_lost_gpu_hides_no_other_and_comes_back(start: Start, world: World) -> None:
    room: Room = await start()
    await room.told.until("fast", lambda params: len(params["g"]) == 8)
    world.set(fail={"2:*": 15, "2:nvmlDeviceGetFieldValues": 15})
    lost = await room.told.until("gpu_state")
    assert (lost["uuid"][:12], lost["state"]) == ("GPU-00000002", "lost")
    fast = await room.told.until("fast", lambda params: params["g"][2:3] == [None])
    assert [row is None for row in fast["g"]] == [False, False, True] + [False] * 5
    here = room.told.here()
    world.set(fail={})
    back = await room.told.until("gpu_state", since=here)
    assert (back["uuid"][:12], back["state"]) == ("GPU-00000002", "ok")
    assert [params["state"] for params in room.told.of("driver")] == ["ok"]


async def test_a_gpu_lost_before_the_start_is_listed_all_the_same(
    start: Start, world: World
) -> None:
    world.set(fail={"0:nvmlDeviceGetHandleByIndex": 15})
    room: Room = await start()
    gpus = await room.told.until("gpus")
    assert len(gpus["gpus"]) == 8
    state = await room.told.until("gpu_state")
    assert (state["uuid"], state["state"]) == ("unreadable-0", "lost")
    fast = await room.told.until("fast", lambda params: len(params["g"]) == 8)
    assert fast["g"][0] is None
    assert None not in fast["g"][1:]
    world.set(fail={})
    again = await room.told.until("gpus", since=room.told.here())
    assert again["gpus"][0]["uuid"] == "GPU-00000000-0000-4000-8000-000000000000"


async def test_a_call_that_hangs_costs_its_gpu_alone(start: Start, world: World) -> None:
    room: Room = await start(interval_s=0.5)
    await room.told.until("fast", lambda params: len(params["g"]) == 8)
    world.set(hang=["5:nvmlDeviceGetEnforcedPowerLimit"])
    state = await room.told.until("gpu_state")
    assert (state["uuid"][:12], state["state"]) == ("GPU-00000005", "stuck")
    assert "nvmlDeviceGetEnforcedPowerLimit" in state["detail"]
    driver = await room.told.until("driver", lambda params: params["state"] == "stuck")
    assert "GPU 5" in driver["detail"]
    assert driver["age_s"] >= 1.5
    fast = room.told.last("fast")
    assert [row is None for row in fast["g"]] == [False] * 5 + [True, False, False]
    here = room.told.here()
    world.set(hang=[])
    await room.told.until("driver", lambda params: params["state"] == "ok", since=here)
    await room.told.until("gpu_state", lambda params: params["state"] == "ok", since=here)
    await room.told.until("fast", lambda params: None not in params["g"], since=here)


async def test_while_a_call_hangs_no_second_is_made(start: Start, world: World) -> None:
    room: Room = await start(interval_s=0.1)
    await room.told.until("fast", lambda params: len(params["g"]) == 8)
    pid = room.told.last("hello")["pid"]
    before = len(os.listdir(f"/proc/{pid}/task"))
    world.set(hang=["*"])
    await room.told.until("driver", lambda params: params["state"] == "stuck")
    count = len(room.told.of("fast"))
    await room.told.until("fast", lambda params: len(room.told.of("fast")) > count + 10)
    assert len(os.listdir(f"/proc/{pid}/task")) <= before
    assert room.told.last("fast")["g"] == [None] * 8
    # The host's own readings and requests go on meanwhile.
    assert room.told.last("fast")["h"][1] > 0
    assert isinstance(await room.client.request("ping", timeout_s=10.0), dict)


async def test_a_driver_that_hangs_at_init_is_stuck_and_recovers(
    start: Start, world: World
) -> None:
    world.set(hang=["nvmlInit"])
    room: Room = await start(open_limit_s=3.0)
    slow = await room.told.until("driver")
    assert (slow["state"], "nvmlInit" in slow["detail"]) == ("reloading", True)
    stuck = await room.told.until("driver", lambda params: params["state"] == "stuck")
    assert "nvmlInit" in stuck["detail"]
    assert stuck["age_s"] >= 2.9
    world.set(hang=[])
    await room.told.until("gpus", lambda params: len(params["gpus"]) == 8)
    assert room.told.last("driver")["state"] == "ok"


@pytest.mark.parametrize(
    ("code", "state"),
    [(12, "missing"), (9, "missing"), (18, "mismatch"), (4, "no-permission"), (999, "error")],
)
async def test_driver_states_at_the_start(
    start: Start, world: World, code: int, state: str
) -> None:
    world.set(init=code)
    room: Room = await start()
    said = await room.told.until("driver")
    assert said["state"] == state
    assert said["detail"]
    assert room.told.last("gpus")["gpus"] == []
    world.set(init=0)
    await room.told.until("gpus", lambda params: len(params["gpus"]) == 8)
    assert room.told.last("driver")["state"] == "ok"


async def test_a_reload_is_found_and_a_gpu_may_have_another_index(
    start: Start, world: World
) -> None:
    room: Room = await start()
    await room.told.until("fast", lambda params: len(params["g"]) == 8)
    world.set(fail={"*": 9}, init=9)
    away = await room.told.until("driver", lambda params: params["state"] != "ok")
    assert away["state"] == "reloading"
    here = room.told.here()
    world.set(fail={}, init=0, order=[1, 0, 2, 3, 4, 5, 6, 7], version="590.44")
    gpus = await room.told.until("gpus", since=here)
    assert gpus["gpus"][0]["uuid"].startswith("GPU-00000001")
    back = await room.told.until("driver", since=here)
    assert (back["state"], back["version"]) == ("ok", "590.44")


async def test_a_mismatch_while_running_is_told_and_left(start: Start, world: World) -> None:
    room: Room = await start()
    await room.told.until("fast", lambda params: len(params["g"]) == 8)
    world.set(fail={"*": 18}, init=18)
    await room.told.until("driver", lambda params: params["state"] == "mismatch")
    here = room.told.here()
    world.set(fail={}, init=0)
    await room.told.until("driver", lambda params: params["state"] == "ok", since=here)


async def test_all_gpus_gone_is_a_driver_that_reloads(start: Start, world: World) -> None:
    room: Room = await start()
    await room.told.until("fast", lambda params: len(params["g"]) == 8)
    world.set(fail={"*": 999})
    state = await room.told.until("gpu_state")
    assert state["state"] == "error"
    await room.told.until("driver", lambda params: params["state"] == "reloading")
    here = room.told.here()
    world.set(fail={})
    await room.told.until("driver", lambda params: params["state"] == "ok", since=here)


async def test_mig_unified_memory_and_old_calls(start: Start, world: World) -> None:
    world.set(
        mig=True,
        unified=[1],
        fail={"nvmlDeviceGetTemperatureV": 13, "nvmlDeviceGetMarginTemperature": 13},
        no_v2=True,
        no_fields=[186, 185],
        version="575.57.08",
    )
    room: Room = await start()
    slow = await room.told.until("slow", lambda params: bool(params["g"]))
    uuid = room.told.last("gpus")["gpus"][0]["uuid"]
    assert slow["m"][uuid] == ["1g.24gb 1.0 of 24.0 GiB"] * 2
    row = room.keyed(slow, "slow", 0)
    assert row["mig_enabled"] is True
    assert row["memory_reserved_bytes"] is None
    assert row["temperature_margin_c"] == 90 - 54
    assert row["time_thermal_us"] == 3_000
    absent = await room.told.until(
        "absent", lambda params: params["g"] and "utilization_gpu_pct" in params["g"][0]
    )
    assert "power_average_w" in absent["g"][0]
    assert "unified" in absent["g"][1]["memory_total_bytes"]
    assert "unified" in absent["g"][1]["memory_used_bytes"]
    assert room.row("fast", 0)["power_w"] == 87.7
    assert room.row("fast", 0)["temperature_gpu_c"] == 54
    assert "MIG" in absent["g"][0]["utilization_gpu_pct"]
    world.set(unified_how="zero")
    here = room.told.here()
    await room.client.request("refresh")
    await room.told.until("slow", since=here)
    assert room.row("slow", 1)["memory_total_bytes"] is None


async def test_nvlink_is_counted(start: Start, world: World) -> None:
    world.set(nvlink=True)
    room: Room = await start()
    slow = await room.told.until("slow", lambda params: bool(params["g"]))
    row = room.keyed(slow, "slow", 0)
    assert (row["nvlink_links_active"], row["nvlink_links_total"]) == (17, 18)
    assert row["nvlink_error_count"] == 7


async def test_an_unsupported_call_is_not_made_again_at_once(
    start: Start, world: World, tmp_path: Any
) -> None:
    calls = tmp_path / "calls"
    world.set(calls=str(calls), gpus=1)
    room: Room = await start()
    await room.told.until("slow", lambda params: bool(params["g"]))
    for _ in range(3):
        here = room.told.here()
        await room.client.request("refresh")
        await room.told.until("slow", since=here)
    assert calls.read_text().count("fan") == 1


async def test_requests(start: Start) -> None:
    room: Room = await start()
    assert await room.client.request("set_interval", {"seconds": 0.001}) == {"seconds": 0.1}
    assert await room.client.request("set_pcie", {"on": True}) == {"on": True}
    pcie = await room.told.until("pcie", lambda params: None not in params["g"])
    assert pcie["g"][0] == [200 * 1024, 100 * 1024]
    with pytest.raises(AgentError, match="no method nonsense"):
        await room.client.request("nonsense")
    with pytest.raises(AgentError, match="seconds"):
        await room.client.request("set_interval", {})
    with pytest.raises(AgentError, match="no module"):
        await room.client.request("no_such_area.verb")


async def test_the_driver_is_let_go_of_when_asked(start: Start) -> None:
    room: Room = await start()
    await room.told.until("fast", lambda params: len(params["g"]) == 8)
    await room.client.request("release_driver", {"seconds": 1})
    gone = await room.told.until("driver", lambda params: params["state"] == "reloading")
    assert "as asked" in gone["detail"]
    here = room.told.here()
    await room.told.until("driver", lambda params: params["state"] == "ok", since=here)


async def test_processes_are_who_they_are(start: Start, world: World) -> None:
    sleeper = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import time; time.sleep(60)", "--model-path", "/models/big-one"
    )
    try:
        hidden = 4_000_000
        world.set(processes=[[0, sleeper.pid, 5 * 2**30], [1, sleeper.pid, None], [2, hidden, 7]])
        room: Room = await start()
        said = await room.told.until("processes", lambda params: len(params["p"]) == 2)
        ours, ghost = said["p"]
        assert ours["pid"] == sleeper.pid
        assert ours["visible"] is True
        assert ours["start_ticks"] > 0
        assert ours["command"].endswith("--model-path /models/big-one")
        assert ours["user"]
        assert sorted(ours["memory_bytes"].values(), key=str) == [5 * 2**30, None]
        assert (ghost["pid"], ghost["visible"], ghost["user"]) == (hidden, False, None)
        note = await room.told.until("note", lambda params: "namespace" in params["text"])
        assert note
        here = room.told.here()
        world.set(processes=[])
        await room.client.request("refresh")
        gone = await room.told.until("processes", since=here)
        assert gone["p"] == []
    finally:
        sleeper.kill()
        await sleeper.wait()


async def test_the_end_of_input_ends_it_even_while_the_driver_hangs(
    start: Start, world: World
) -> None:
    room: Room = await start()
    await room.told.until("fast", lambda params: len(params["g"]) == 8)
    pid = room.told.last("hello")["pid"]
    world.set(hang=["*"])
    await room.client.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert await room.client.closed()


async def test_a_killed_agent_is_told_in_words(start: Start) -> None:
    room: Room = await start()
    os.kill(room.told.last("hello")["pid"], 9)
    async with asyncio.timeout(20):
        assert "signal 9" in await room.client.closed()
    with pytest.raises(AgentError, match="gone"):
        await room.client.request("ping")


async def test_a_request_without_an_answer_times_out(start: Start) -> None:
    room: Room = await start()
    os.kill(room.told.last("hello")["pid"], 19)
    try:
        with pytest.raises(RequestTimeout):
            await room.client.request("ping", timeout_s=0.3)
    finally:
        os.kill(room.told.last("hello")["pid"], 18)
    assert isinstance(await room.client.request("ping", timeout_s=20.0), dict)
    assert isinstance(room.client, AgentClient)
