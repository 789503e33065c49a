"""A pynvml that answers with what a real host answered, recorded call by call."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

# Recorded name -> the calls that it was recorded from.
CALLS = {
    "name": "nvmlDeviceGetName",
    "uuid": "nvmlDeviceGetUUID",
    "pci": "nvmlDeviceGetPciInfo",
    "power_usage": "nvmlDeviceGetPowerUsage",
    "power_limit": "nvmlDeviceGetEnforcedPowerLimit",
    "power_constraints": "nvmlDeviceGetPowerManagementLimitConstraints",
    "power_default": "nvmlDeviceGetPowerManagementDefaultLimit",
    "energy": "nvmlDeviceGetTotalEnergyConsumption",
    "util": "nvmlDeviceGetUtilizationRates",
    "reasons": "nvmlDeviceGetCurrentClocksEventReasons",
    "link_gen": "nvmlDeviceGetCurrPcieLinkGeneration",
    "link_width": "nvmlDeviceGetCurrPcieLinkWidth",
    "link_gen_max": "nvmlDeviceGetMaxPcieLinkGeneration",
    "link_width_max": "nvmlDeviceGetMaxPcieLinkWidth",
    "replay": "nvmlDeviceGetPcieReplayCounter",
    "pstate": "nvmlDeviceGetPerformanceState",
    "persistence": "nvmlDeviceGetPersistenceMode",
    "compute_mode": "nvmlDeviceGetComputeMode",
    "ecc": "nvmlDeviceGetEccMode",
    "remapped": "nvmlDeviceGetRemappedRows",
    "mig": "nvmlDeviceGetMigMode",
    "fan": "nvmlDeviceGetFanSpeed",
    "numa_node": "nvmlDeviceGetNumaNodeId",
    "vbios": "nvmlDeviceGetVbiosVersion",
    "arch": "nvmlDeviceGetArchitecture",
    "cc": "nvmlDeviceGetCudaComputeCapability",
    "procs_compute": "nvmlDeviceGetComputeRunningProcesses",
    "driver": "nvmlSystemGetDriverVersion",
    "cuda": "nvmlSystemGetCudaDriverVersion",
    "nvml": "nvmlSystemGetNVMLVersion",
}


class RecordedNvml:
    """The real module's names and errors, a recording's answers; what was not recorded fails."""

    def __init__(self, path: Path) -> None:
        self._record = json.loads(path.read_text())

    def __getattr__(self, name: str) -> Any:
        real = getattr(pynvml, name)
        if not name.startswith(("nvmlDevice", "nvmlSystem")):
            return real
        return self._call(name)

    def _answer(self, key: str) -> Any:
        entry = self._record.get(key)
        if entry is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if entry["error"]:
            words = entry["error"].partition(":")[0]
            raise getattr(pynvml, words, pynvml.NVMLError_Unknown)
        value = entry["value"]
        return SimpleNamespace(**value) if isinstance(value, dict) else value

    def _call(self, name: str) -> Callable[..., Any]:
        special = getattr(self, f"_{name}", None) if f"_{name}" in dir(type(self)) else None
        if special is not None:
            return special  # type: ignore[no-any-return]
        key = next((key for key, call in CALLS.items() if call == name), name)
        return lambda *arguments: self._answer(key)

    def _nvmlDeviceGetMemoryInfo(self, handle: Any, version: Any = None) -> Any:
        if version:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return self._answer("mem")

    def _nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> Any:
        return self._answer("temp")

    def _nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> Any:
        return self._answer("clk_sm" if kind == pynvml.NVML_CLOCK_SM else "clk_mem")

    def _nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: int) -> Any:
        return self._answer("clk_sm_max" if kind == pynvml.NVML_CLOCK_SM else "clk_mem_max")

    def _nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: int, counter: int) -> Any:
        return self._answer("ecc_corr" if kind == 0 else "ecc_uncorr")

    def _nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> Any:
        return self._answer(f"nvlink{link}")

    def _nvmlDeviceGetPcieThroughput(self, handle: Any, counter: int) -> Any:
        return self._answer("pcie_tx" if counter == pynvml.NVML_PCIE_UTIL_TX_BYTES else "pcie_rx")

    def _nvmlDeviceGetFieldValues(self, handle: Any, ids: list[int]) -> Any:
        recorded = {
            identity: (status, value)
            for identity, status, value in self._record["field_values"]["value"]
        }
        answers = []
        for identity in ids:
            status, value = recorded.get(identity, (pynvml.NVML_ERROR_NOT_SUPPORTED, 0))
            answers.append(
                SimpleNamespace(nvmlReturn=status, valueType=3, value=SimpleNamespace(ullVal=value))
            )
        return answers
