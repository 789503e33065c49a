"""What a real H200 answered comes out right."""

from __future__ import annotations

import shutil
from pathlib import Path

import pynvml
import pytest

from backends.agent.remote import driver, readings
from backends.agent.remote.gpu import Gpu, Sample
from tests.agent.recorded_nvml import RecordedNvml

H200 = Path(__file__).parent / "h200_nvml.json"


@pytest.fixture
def gpu() -> Gpu:
    gpu = Gpu(RecordedNvml(H200), object(), 0, 580)
    gpu.identify()
    return gpu


def keyed(sample: Sample, lane: str) -> dict[str, object]:
    assert sample.values is not None
    assert sample.fault is None
    return dict(zip(readings.COLUMNS[lane], sample.values, strict=True))


def test_identity(gpu: Gpu) -> None:
    assert (gpu.name, gpu.bus_id) == ("NVIDIA H200", "0000:00:06.0")
    assert gpu.uuid == "GPU-00000000-0000-4000-8000-000000000001"


def test_fast(gpu: Gpu) -> None:
    values = keyed(gpu.read("fast"), "fast")
    assert values["power_w"] == 80.3
    assert values["power_average_w"] == 80.1
    assert values["power_limit_enforced_w"] == 700.0
    assert values["utilization_gpu_pct"] == 0
    assert values["memory_used_bytes"] == 644939776
    assert values["temperature_gpu_c"] == 36
    assert (values["sm_clock_mhz"], values["memory_clock_mhz"]) == (345, 3201)
    assert values["event_reasons"] == 1
    assert (values["pcie_generation"], values["pcie_width"]) == (5, 16)
    assert values["performance_state"] == 0
    assert None not in values.values()


def test_slow(gpu: Gpu) -> None:
    sample = gpu.read("slow")
    values = keyed(sample, "slow")
    assert values["energy_j"] == 2904.9
    assert values["memory_total_bytes"] == 150754820096
    assert values["temperature_memory_c"] == 39
    assert values["pcie_replay_count"] == 1
    assert values["ecc_enabled"] is True
    assert values["mig_enabled"] is False
    assert values["persistence_enabled"] is True
    assert values["remapped_rows_pending"] is False
    # What this host can't tell is absent with a reason, never 0.
    for key in ("fan_pct", "nvlink_links_total", "nvlink_links_active", "nvlink_error_count"):
        assert values[key] is None
        assert sample.absent[key] == "not supported by this GPU"
    assert sample.absent["memory_reserved_bytes"] == "driver too old to tell"


def test_once(gpu: Gpu) -> None:
    values, absent = gpu.read_once()
    assert values["power_limit_max_w"] == 700.0
    assert values["power_limit_min_w"] == 200.0
    assert values["sm_clock_max_mhz"] == 1980
    assert values["architecture"] == "Hopper"
    assert values["compute_capability"] == "9.0"
    assert values["vbios_version"] == "96.00.A5.00.1A"
    assert absent["numa_node"]


def test_pcie(gpu: Gpu) -> None:
    assert gpu.read("pcie").values == [518 * 1024, 1533 * 1024]


def test_no_process_is_no_process(gpu: Gpu) -> None:
    assert gpu.processes() == []


def test_the_library_of_the_kernel_module_is_taken_after_an_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real library under the new name: the old one is mapped, as after an upgrade."""
    with open("/proc/self/maps") as file:
        real = next(line.split()[-1] for line in file if "libc.so.6" in line or "/libc-" in line)
    shutil.copy(real, tmp_path / "libnvidia-ml.so.580.65.06")
    module = type("Module", (), {"nvmlLib": None, "_nvmlGetFunctionPointer_cache": {"a": 1}})
    old = str(tmp_path / "libnvidia-ml.so.575.57.08")
    monkeypatch.setattr(driver, "mapped_library", lambda: old)
    monkeypatch.setattr(driver, "kernel_module_version", lambda: "580.99")
    assert not driver.load_matching_library(module)
    monkeypatch.setattr(driver, "kernel_module_version", lambda: "580.65.06")
    assert driver.load_matching_library(module)
    assert module.nvmlLib._name.endswith("libnvidia-ml.so.580.65.06")
    assert module._nvmlGetFunctionPointer_cache == {}
    # The names that this rests on are pynvml's own.
    assert hasattr(pynvml, "nvmlLib")
    assert isinstance(pynvml._nvmlGetFunctionPointer_cache, dict)


def test_the_mapped_library_is_found_in_maps(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 0 08:01 77 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.575.57.08 (deleted)\n"
        "7f02-7f03 r-xp 0 08:01 78 /usr/lib/x86_64-linux-gnu/libc.so.6\n"
    )
    found = driver.mapped_library(str(maps))
    assert found == "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.575.57.08"
