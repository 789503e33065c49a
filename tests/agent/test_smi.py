"""A host without python3: nvidia-smi as it runs, and its text as it comes."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from backends.agent.smi import Frame, SmiClient
from backends.agent.smi_fields import FIELDS, KEYS, Query, names_of_help, negotiate, parse_row
from backends.errors import AgentError
from backends.link.local import LocalTransport
from backends.model import Lane
from tests.agent.conftest import DEADLINE_S, Told


class SmiWorld:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        self.set()

    def set(self, **values: Any) -> None:
        self.values.update(values)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.values))
        new.replace(self.path)

    def calls(self) -> list[str]:
        return Path(f"{self.path}.log").read_text().splitlines()


@pytest.fixture
def smi_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmiWorld:
    world = SmiWorld(tmp_path / "smi.json")
    monkeypatch.setenv("FAKE_SMI", str(world.path))
    return world


@pytest_asyncio.fixture
async def smi(smi_world: SmiWorld, tmp_path: Path) -> AsyncIterator[Callable[[], Any]]:
    program = tmp_path / "nvidia-smi"
    script = Path(__file__).parent / "fake_smi.py"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    program.chmod(0o755)
    clients: list[SmiClient] = []

    async def begin() -> tuple[SmiClient, Told]:
        told = Told()
        client = SmiClient(
            LocalTransport(), on_notification=told, interval_s=0.5, program=str(program)
        )
        clients.append(client)
        await client.start(DEADLINE_S)
        return client, told

    yield begin
    for client in clients:
        await client.close()


def keyed(told: Told, lane: str, index: int) -> dict[str, Any]:
    columns = told.last("hello")["columns"][lane]["g"]
    return dict(zip(columns, told.last(lane)["g"][index], strict=True))


async def test_readings_and_reasons(smi: Callable[[], Any]) -> None:
    client, told = await smi()
    await told.until("fast")
    assert [gpu["uuid"] for gpu in told.last("gpus")["gpus"]] == [f"GPU-{i:08d}" for i in range(4)]
    assert told.last("gpus")["gpus"][1]["bus_id"] == "0000:02:00.0"
    assert told.last("gpus")["gpus"][0]["once"]["power_limit_max_w"] == 600.0
    assert told.last("driver")["state"] == "ok"
    assert told.last("driver")["version"] == "580.65.06"
    fast = keyed(told, "fast", 2)
    assert fast["power_w"] == 88.25
    assert fast["power_average_w"] == 87.01
    assert fast["memory_used_bytes"] == 2**30
    assert fast["event_reasons"] == 4
    assert fast["performance_state"] == 1
    await told.until("slow")
    slow = keyed(told, "slow", 0)
    assert slow["time_thermal_us"] == 3
    assert slow["ecc_enabled"] is True
    assert slow["mig_enabled"] is False
    assert slow["compute_mode"] == "exclusive process"
    assert slow["energy_j"] is None
    absent = await told.until("absent")
    assert absent["g"][0]["fan_pct"] == "not supported by this GPU"
    assert "python3" in absent["g"][0]["energy_j"]
    assert "python3" in absent["h"]["cpu_pct"]
    assert "python3" in told.last("note")["text"]
    assert isinstance(await client.request("ping"), dict)
    with pytest.raises(AgentError, match="can't be done"):
        await client.request("set_pcie", {"on": True})


async def test_a_lost_gpu_0_stalls_nothing(smi: Callable[[], Any], smi_world: SmiWorld) -> None:
    _, told = await smi()
    await told.until("fast")
    smi_world.set(lost=[0])
    state = await told.until("gpu_state")
    assert (state["uuid"], state["state"]) == ("GPU-00000000", "lost")
    fast = await told.until("fast", lambda params: params["g"][0] is None)
    assert None not in fast["g"][1:]
    here = told.here()
    smi_world.set(lost=[], gone=[0])
    for _ in range(3):
        fast = await told.until("fast", lambda params: params["g"][0] is None, since=here)
        assert None not in fast["g"][1:]
        here = told.here()
    smi_world.set(gone=[])
    await told.until("gpu_state", lambda params: params["state"] == "ok", since=here)


async def test_a_query_that_ends_for_one_gpu_goes_on_without_it(
    smi: Callable[[], Any], smi_world: SmiWorld
) -> None:
    _, told = await smi()
    await told.until("fast")
    smi_world.set(ends_for=[1])
    state = await told.until("gpu_state")
    assert (state["uuid"], state["state"]) == ("GPU-00000001", "lost")
    fast = await told.until("fast", since=told.here())
    assert [row is None for row in fast["g"]] == [False, True, False, False]
    assert smi_world.calls()[-1].endswith("--id=GPU-00000000,GPU-00000002,GPU-00000003")


async def test_a_slow_driver_tears_no_gpu_out(smi: Callable[[], Any], smi_world: SmiWorld) -> None:
    smi_world.set(row_s=0.2)
    _, told = await smi()
    await told.until("fast", lambda params: len(told.of("fast")) >= 3)
    assert told.of("gpu_state") == []
    assert all(None not in params["g"] for params in told.of("fast"))


async def test_old_names_are_asked_for_where_the_new_are_not_known(
    smi: Callable[[], Any], smi_world: SmiWorld
) -> None:
    smi_world.set(
        unknown=["power.draw.instant", "power.draw.average", "memory.reserved"],
        rejected=["clocks_event_reasons_counters.sw_power_cap"],
    )
    _, told = await smi()
    await told.until("fast")
    fast = keyed(told, "fast", 0)
    assert (fast["power_w"], fast["power_average_w"]) == (87.12, None)
    # The help named one field that the query then rejected: it was asked again without it.
    assert "sw_power_cap" in smi_world.calls()[-2]
    assert "sw_power_cap" not in smi_world.calls()[-1]


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", "mismatch"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "missing",
        ),
        ("Failed to initialize NVML: Insufficient Permissions", "no-permission"),
        ("Failed to initialize NVML: Unknown Error", "error"),
        ("No devices were found", "missing"),
    ],
)
async def test_driver_states(
    smi: Callable[[], Any], smi_world: SmiWorld, words: str, state: str
) -> None:
    smi_world.set(say=words)
    _, told = await smi()
    driver = await told.until("driver")
    assert driver["state"] == state
    assert driver["detail"].startswith(words[:20])
    smi_world.set(say="")
    await told.until("fast")
    assert told.last("driver")["state"] == "ok"


async def test_silence_is_a_stuck_driver(smi: Callable[[], Any], smi_world: SmiWorld) -> None:
    _, told = await smi()
    await told.until("fast")
    calls = len(smi_world.calls())
    smi_world.set(hang=True)
    await told.until("driver", lambda params: params["state"] == "stuck")
    assert len(smi_world.calls()) == calls
    here = told.here()
    smi_world.set(hang=False)
    await told.until("driver", lambda params: params["state"] == "ok", since=here)


async def test_another_interval(smi: Callable[[], Any], smi_world: SmiWorld) -> None:
    client, told = await smi()
    await told.until("fast")
    assert await client.request("set_interval", {"seconds": 2}) == {"seconds": 2.0}
    await told.until("fast", since=told.here())
    assert "-lms 2000" in smi_world.calls()[-1]


async def test_no_nvidia_smi_either(tmp_path: Path) -> None:
    client = SmiClient(LocalTransport(), on_notification=Told(), program=str(tmp_path / "nothing"))
    with pytest.raises(AgentError, match="neither python3 nor nvidia-smi"):
        await client.start(DEADLINE_S)
    await client.close()


def test_every_reading_has_one_field() -> None:
    keys = [field.key for field in FIELDS]
    assert len(keys) == len(set(keys))
    known = {key for lane in KEYS.values() for key in lane}
    assert set(keys) - known == {"time_thermal_sw_us", "time_thermal_hw_us"}


def test_help_names_both_of_an_alias() -> None:
    text = '"a.new" or "a.old"\nSection about "quoted" things.\n"b"\n'
    assert names_of_help(text) == {"a.new", "a.old", "b"}


def test_frame_of_three_with_the_first_gone() -> None:
    query = negotiate(["index", "uuid"])
    rows = [parse_row(f"{i}, GPU-{i}", query) for i in (0, 1, 2, 1, 2, 1, 2)]
    frame = Frame()
    frame.expected = 3
    samples = [frame.add(row) for row in rows if row is not None]
    assert [[row.index for row in sample] for sample in samples if sample] == [
        [0, 1, 2],
        [1, 2],
        [1, 2],
    ]


def test_frame_finds_its_count_again_after_a_torn_sample() -> None:
    query = negotiate(["index", "uuid"])
    frame = Frame()
    rows = {i: parse_row(f"{i}, GPU-{i}", query) for i in range(4)}
    sizes = []
    for index in (0, 1, None, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3):
        row = None if index is None else rows[index]
        sample = frame.flush() if row is None else frame.add(row)
        if sample:
            sizes.append(len(sample))
    assert sizes == [2, 2, 4, 4]


@pytest.mark.shared
def test_a_real_h200_line(shared: Path) -> None:
    header, line = (shared / "captures/h200/query-gpu.csv").read_text().splitlines()[:2]
    names = [name.split(" [")[0].strip() for name in header.split(",")]
    query = negotiate(names)
    asked = [(name, field) for name, field in query.fields if name in names]
    cells = dict(zip(names, (cell.strip() for cell in line.split(",")), strict=True))
    # The recording has units: the query asks for none.
    text = ", ".join(
        cells[name].removesuffix(u)
        for name in (*query.identity, *(n for n, _ in asked))
        for u in [cells[name][len(cells[name].split(" ")[0]) :] if name not in ("name",) else ""]
    )
    row = parse_row(text, Query(query.identity, tuple(asked)))
    assert row is not None
    assert row.values["power_w"] == 80.33
    assert row.values["memory_total_bytes"] == 143771 * 2**20
    assert row.values["temperature_memory_c"] == 39
    assert row.values["event_reasons"] == 1
    assert row.absent["fan_pct"] == "not supported by this GPU"


@given(st.text(max_size=400))
def test_no_line_breaks_the_parser(line: str) -> None:
    parse_row(line, negotiate(()))
    names_of_help(line)


@given(st.lists(st.text(alphabet="0123456789.-+eExNaPinf[]/ ", max_size=12), max_size=40))
def test_no_cell_breaks_the_parser(cells: list[str]) -> None:
    query = negotiate(name for field in FIELDS for name in field.names)
    cells = (["0", "GPU-0", *cells, *[""] * 60])[: len(query.names)]
    row = parse_row(", ".join(cells), query)
    assert row is None or set(row.values) <= {key for keys in KEYS.values() for key in keys}


def test_lanes_are_covered() -> None:
    covered = {field.key for field in FIELDS}
    assert set(KEYS[Lane.FAST]) <= covered
