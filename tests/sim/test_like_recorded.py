"""The simulated card at rest beside a real one of its kind at rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.sim import nvml

pytestmark = pytest.mark.shared


@pytest.fixture
def recorded(shared: Path) -> Iterator[dict[str, str]]:
    """`nvidia-smi -q` of an idle RTX PRO 6000: `Section/Key` -> value, sections one deep."""
    text = (shared / "captures/hosts/c01_nvsmi_q_rtxpro6000_idle.txt").read_text()
    values: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        key, colon, value = (part.strip() for part in line.partition(" : "))
        if colon:
            values.setdefault(f"{section}/{key}", value)
        elif line.startswith("    ") and not line.startswith("     "):
            section = key
    yield values
    nvml._world = None


def number(text: str) -> float:
    found = re.match(r"-?[\d.]+", text)
    assert found, text
    return float(found[0])


def test_at_rest_it_reads_as_the_real_one(recorded: dict[str, str]) -> None:
    nvml.configure("idle", 1, lambda: 0.0)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    low, high = nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    clocks = [
        nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
        nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM),
    ]
    name = nvml.nvmlDeviceGetName(handle)
    power = "GPU Power Readings"
    assert name == next(value for key, value in recorded.items() if key.endswith("/Product Name"))
    assert clocks == [
        number(recorded[key])
        for key in ("Clocks/SM", "Clocks/Memory", "Max Clocks/SM", "Max Clocks/Memory")
    ]
    assert [memory.total >> 20, memory.reserved >> 20, memory.used >> 20] == [
        number(recorded[f"FB Memory Usage/{key}"]) for key in ("Total", "Reserved", "Used")
    ]
    assert [low / 1000, high / 1000] == [
        number(recorded[f"{power}/{key} Power Limit"]) for key in ("Min", "Max")
    ]
    drawn_w = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
    assert drawn_w == pytest.approx(number(recorded[f"{power}/Average Power Draw"]), abs=1.5)
    heat_c = nvml.nvmlDeviceGetTemperature(handle, 0)
    assert heat_c == pytest.approx(number(recorded["Temperature/GPU Current Temp"]), abs=8)
    margin_c = nvml.nvmlDeviceGetMarginTemperature(handle)
    assert heat_c + margin_c == number(recorded["Temperature/GPU Current Temp"]) + number(
        recorded["Temperature/GPU T.Limit Temp"]
    )
