"""Without python3 on the host: what nvidia-smi prints becomes readings, and what it lacks none."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from backends.agent.smi_fields import FIELDS, KEYS, Query, SmiRow, negotiate, parse_row
from backends.model import GpuStatus, Lane
from tests.telemetry.test_decode import assert_honest
from tests.telemetry.wire import Host, hello

EMPTY = [
    "N/A",
    "[N/A]",
    "[Not Supported]",
    "[Unknown Error]",
    "[GPU requires reset]",
    "[Insufficient Permissions]",
    "[GPU is lost]",
    "[Requested functionality has been deprecated]",
    "Requested functionality has been deprecated",
    "Unknown",
    "ERR!",
    "",
    "-",
    "nan",
    "inf",
]
COLUMNS = {lane.value: {"g": keys, "h": []} for lane, keys in KEYS.items() if lane is not Lane.ONCE}


def status_of(row: SmiRow) -> GpuStatus:
    """The GPU of one line, as the room would know it."""
    host = Host(gpus=0, hello_changes={"columns": COLUMNS})
    host.say("hello", hello(columns=COLUMNS, python=""))
    once = {key: row.values[key] for key in KEYS[Lane.ONCE] if key in row.values}
    known = {"uuid": row.uuid, "index": row.index, "name": row.name, "bus_id": row.bus_id}
    host.say("gpus", {"gpus": [known | {"once": once}]})
    for lane in (Lane.FAST, Lane.SLOW):
        assert host.sample(lane.value, [[row.values.get(key) for key in KEYS[lane]]])
    host.say("absent", {"g": [row.absent], "h": {}})
    snapshot = host.snapshot()
    assert_honest(snapshot)
    return snapshot.gpus[0]


def recorded(shared: Path) -> tuple[Query, list[str], list[str]]:
    """Query, names and cells of the recorded line, cells as `nounits` would print them."""
    lines = (shared / "captures/h200/query-gpu.csv").read_text().splitlines()
    header, cells = (next(csv.reader([line], skipinitialspace=True)) for line in lines[:2])
    names = [name.partition(" [")[0] for name in header]
    plain = [cell.removesuffix(" W").removesuffix(" %") for cell in cells]
    plain = [cell.removesuffix(" MiB").removesuffix(" MHz") for cell in plain]
    return negotiate(names), names, plain


def row_of(query: Query, names: list[str], cells: list[str]) -> SmiRow:
    text = dict(zip(names, cells, strict=True))
    row = parse_row(", ".join(text[name] for name in query.names), query)
    assert row is not None
    return row


@pytest.mark.shared
def test_the_recorded_line_comes_out_right(shared: Path) -> None:
    query, names, cells = recorded(shared)
    gpu = status_of(row_of(query, names, cells))
    readings = gpu.readings
    assert (gpu.name, gpu.bus_id) == ("NVIDIA H200", "0000:00:06.0")
    assert (readings.power_w, readings.power_limit_enforced_w) == (80.33, 700.0)
    assert readings.memory_total_bytes == 143771 * 2**20
    assert (readings.temperature_gpu_c, readings.temperature_memory_c) == (36.0, 39.0)
    assert (readings.sm_clock_mhz, readings.sm_clock_max_mhz) == (345, 1980)
    assert (readings.pcie_generation, readings.pcie_width) == (5, 16)
    assert (readings.event_reasons, readings.performance_state) == (1, 0)
    assert readings.ecc_enabled is True
    assert readings.fan_pct is None
    assert gpu.absent["fan_pct"] == "not supported by this GPU"


@pytest.mark.shared
@pytest.mark.parametrize("nothing", EMPTY)
def test_no_cell_without_a_value_becomes_a_number(shared: Path, nothing: str) -> None:
    query, names, cells = recorded(shared)
    keys = {name: field.key for name, field in query.fields}
    for position, name in enumerate(names):
        if name not in keys:
            continue
        damaged = [*cells[:position], nothing, *cells[position + 1 :]]
        gpu = status_of(row_of(query, names, damaged))
        assert getattr(gpu.readings, keys[name]) is None, (name, nothing)
        assert gpu.absent[keys[name]], name


@pytest.mark.parametrize("nothing", ["[N/A]", "[Unknown Error]", "ERR!"])
def test_a_card_that_tells_nothing_has_no_number_at_all(nothing: str) -> None:
    query = negotiate([name for field in FIELDS for name in field.names] + ["index", "uuid"])
    known = {"index": "0", "uuid": "GPU-1"}
    cells = [known.get(name, nothing) for name in query.names]
    gpu = status_of(row_of(query, list(query.names), cells))
    assert [key for keys in KEYS.values() for key in keys if key not in gpu.absent] == []
