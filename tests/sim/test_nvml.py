"""The simulated cards behave as cards do, and answer as NVML does."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import pytest

from backends.errors import UsageError
from backends.sim import nvml, scenarios


class Play:
    """A scenario at the test's own time."""

    def __init__(self, scenario: str, seed: int = 1) -> None:
        self.now_s = 0.0
        self.slept_s = 0.0
        self.world = nvml.configure(scenario, seed, lambda: self.now_s, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept_s += seconds

    def every(self, step_s: float, until_s: float) -> Iterator[float]:
        while self.now_s < until_s:
            yield self.now_s
            self.now_s += step_s

    def field(self, index: int, field_id: int) -> float:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        return float(nvml.nvmlDeviceGetFieldValues(handle, [field_id])[0].value.ullVal)

    def power_w(self, index: int) -> float:
        return self.field(index, nvml.NVML_FI_DEV_POWER_INSTANT) / 1000

    def busy(self) -> None:
        """Go on to a moment well inside a stretch of load."""
        while not all(self.world.load(self.now_s - back) > 0 for back in range(20)):
            self.now_s += 1.0


@pytest.fixture(autouse=True)
def clean_world() -> Iterator[None]:
    yield
    nvml._world = None


def test_constants_and_errors_are_those_of_pynvml() -> None:
    names = [
        name
        for name in vars(nvml)
        if name.startswith(("NVML_", "nvmlClocks", "nvmlMemory_v2")) and name != "NVML_SUCCESS"
    ]
    assert len(names) > 40
    differ = {n: (getattr(nvml, n), getattr(pynvml, n, None)) for n in names}
    assert {n: both for n, both in differ.items() if both[0] != both[1]} == {}
    for name in [n for n in vars(nvml) if n.startswith("NVMLError_")]:
        assert hasattr(pynvml, name), name
    error = nvml.NVMLError(15)
    assert (type(error).__name__, error.value, str(error)) == (
        "NVMLError_GpuIsLost",
        pynvml.NVML_ERROR_GPU_IS_LOST,
        "GPU is lost",
    )


def test_every_function_has_a_namesake_in_pynvml() -> None:
    functions = [n for n in vars(nvml) if n.startswith("nvml") and callable(getattr(nvml, n))]
    assert len(functions) > 40
    assert [n for n in functions if not hasattr(pynvml, n)] == []


def test_the_same_seed_plays_the_same() -> None:
    def run(seed: int) -> list[float]:
        play = Play("healthy", seed)
        return [play.power_w(3) for _ in play.every(1.0, 40.0)]

    assert run(7) == run(7)
    assert run(7) != run(8)


def test_power_follows_load_with_inertia_and_within_the_limit() -> None:
    play = Play("healthy")
    powers = [play.power_w(0) for _ in play.every(0.1, 120.0)]
    assert max(powers) > 450
    assert min(powers) < 100, "a lull"
    assert max(powers) <= 600.5
    steps = [abs(b - a) for a, b in itertools.pairwise(powers)]
    assert max(steps) < 350, "never all the way in a tenth of a second"


def test_energy_is_power_over_time() -> None:
    play = Play("healthy")
    start_mj = play.field(2, nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION)
    powers = [play.power_w(2) for _ in play.every(0.1, 60.0)]
    energy_j = (play.field(2, nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION) - start_mj) / 1000
    assert energy_j == pytest.approx(sum(powers) / len(powers) * 60.0, rel=0.02)


def test_a_capped_card_stays_at_its_cap_gives_up_clock_and_counts_the_time() -> None:
    play = Play("capped")
    play.busy()
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    counter = nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP
    before_ns = play.field(1, counter)
    for _ in play.every(0.5, play.now_s + 10.0):
        assert play.power_w(1) == pytest.approx(449, abs=4)
        assert nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) < 2300
        assert nvml.nvmlDeviceGetCurrentClocksEventReasons(handle) & 0x4
    assert (play.field(1, counter) - before_ns) / 1e9 == pytest.approx(10.0, abs=0.6)
    assert nvml.nvmlDeviceGetEnforcedPowerLimit(handle) == 450_000
    assert nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) == 600_000


def test_the_straggler_is_hot_and_slow_and_the_others_wait_at_less_power() -> None:
    play = Play("straggler")
    play.busy()
    hot, well = nvml.nvmlDeviceGetHandleByIndex(5), nvml.nvmlDeviceGetHandleByIndex(2)
    assert nvml.nvmlDeviceGetTemperature(hot, 0) > nvml.nvmlDeviceGetTemperature(well, 0) + 15
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(hot) & 0x20
    slow_mhz = nvml.nvmlDeviceGetClockInfo(hot, nvml.NVML_CLOCK_SM)
    assert slow_mhz < 0.9 * nvml.nvmlDeviceGetClockInfo(well, nvml.NVML_CLOCK_SM)
    assert nvml.nvmlDeviceGetUtilizationRates(well).gpu == 100


def test_an_idle_card_is_as_a_real_one_was() -> None:
    Play("idle")
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetPowerUsage(handle) == pytest.approx(39_000, abs=1500)
    assert nvml.nvmlDeviceGetPerformanceState(handle) == 8
    assert nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle) == 1
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    assert (memory.used, memory.reserved >> 20, memory.total >> 20) == (0, 636, 97887)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []


def test_the_lost_card_goes_and_comes_back_and_the_server_dies_of_it() -> None:
    play = Play("lost-gpu")
    handle = nvml.nvmlDeviceGetHandleByIndex(3)
    other = nvml.nvmlDeviceGetHandleByIndex(0)
    assert len(nvml.nvmlDeviceGetComputeRunningProcesses(other)) == 1
    play.now_s = 30.0
    with pytest.raises(nvml.NVMLError, match="lost"):
        nvml.nvmlDeviceGetPowerUsage(handle)
    with pytest.raises(nvml.NVMLError, match="lost"):
        nvml.nvmlDeviceGetHandleByIndex(3)
    assert nvml.nvmlDeviceGetUtilizationRates(other).gpu < 5
    assert nvml.nvmlDeviceGetComputeRunningProcesses(other) == []
    play.now_s = 71.0
    assert nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(3)) < 60_000
    play.now_s = 100.0
    assert len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)) == 1


def test_the_kernel_log_tells_of_each_loss_once() -> None:
    now_s = 0.0
    lines: list[str] = []
    nvml.configure("lost-gpu", 1, lambda: now_s, log=lines.append)
    for step in range(200):
        now_s = float(step)
        nvml.nvmlDeviceGetHandleByIndex(0)
    assert lines == ["NVRM: Xid (PCI:0000:36:00): 79, GPU has fallen off the bus."] * 2


def test_a_hung_driver_blocks_the_call_and_then_answers() -> None:
    play = Play("hung-driver")
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    play.now_s = 25.0
    assert nvml.nvmlDeviceGetPowerUsage(handle) > 0
    assert play.slept_s == pytest.approx(25.0, abs=0.6)


def test_mig_cards_have_power_and_instances_but_no_utilisation() -> None:
    play = Play("mig")
    play.busy()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError) as refused:
        nvml.nvmlDeviceGetUtilizationRates(handle)
    assert refused.value.value == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert play.power_w(0) > 200
    part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 1)
    assert "MIG" in nvml.nvmlDeviceGetName(part)
    assert [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(part)] == [52_311]


def test_sixteen_cards_have_distinct_identities() -> None:
    Play("sixteen")
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    assert len({nvml.nvmlDeviceGetUUID(h) for h in handles}) == 16
    assert len({nvml.nvmlDeviceGetPciInfo(h).busId for h in handles}) == 16
    assert nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(handles[9])).index == 9


@pytest.mark.parametrize("name", [scenario.name for scenario in scenarios.SCENARIOS])
def test_every_scenario_plays_alone_from_its_source(name: str) -> None:
    program = scenarios.nvml_source(name) + "\nnvmlInit(); print(nvmlDeviceGetCount())\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-"],
        input=program,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == ("16" if name == "sixteen" else "8")


def test_every_setup_is_listed_and_an_unknown_name_says_what_there_is() -> None:
    assert {scenario.name for scenario in scenarios.SCENARIOS} == set(nvml.SETUPS)
    with pytest.raises(UsageError) as error:
        scenarios.nvml_source("helthy")
    assert "healthy" in error.value.hint


@pytest.mark.parametrize(
    "call",
    [nvml.nvmlDeviceGetFanSpeed, lambda h: nvml.nvmlDeviceGetNvLinkState(h, 0)],
    ids=["fan", "nvlink"],
)
def test_what_the_card_lacks_is_not_supported(call: Callable[[Any], Any]) -> None:
    Play("idle")
    with pytest.raises(nvml.NVMLError, match="Not Supported"):
        call(nvml.nvmlDeviceGetHandleByIndex(0))


def test_the_source_is_python_3_8_and_standard_library_alone() -> None:
    tree = ast.parse(scenarios.nvml_source("healthy"), feature_version=(3, 8))
    modules = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert modules <= sys.stdlib_module_names | {"gpuroom_settings"}, "and what travels along"


def test_a_limit_that_was_set_lets_the_card_work() -> None:
    now_s = 0.0
    limits: dict[int, float] = {}
    world = nvml.configure("capped", 1, lambda: now_s, limits=lambda: limits)
    first, second = (nvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    limits[first.bus] = 600.0
    now_s = next(at for at in itertools.count(10.0) if all(world.load(at - b) for b in range(9)))
    drawn = [nvml.nvmlDeviceGetPowerUsage(card) for card in (first, second)]
    assert drawn[1] <= 450_000 < drawn[0]
    assert nvml.nvmlDeviceGetEnforcedPowerLimit(first) == 600_000
