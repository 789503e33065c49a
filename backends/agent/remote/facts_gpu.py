"""What NVML and libcuda say of a host, raw, by the names of the probe table."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import facts_engine

Entry = Tuple[str, Any, Optional[str], str]
"""Key, value, error, source."""

ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere",
    8: "Ada Lovelace", 9: "Hopper", 10: "Blackwell", 13: "Rubin",
}  # fmt: skip
FABRIC_STATES = {0: "N/A", 1: "Not Started", 2: "In Progress", 3: "Completed"}
COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
UNKNOWN_VALUES = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)

CUDA_PROGRAM = """
import ctypes, json
r = {}
try:
    c = ctypes.CDLL("libcuda.so.1")
except OSError as e:
    r["load"] = str(e)
else:
    r["init"] = c.cuInit(0)
    v = ctypes.c_int(0)
    if c.cuDriverGetVersion(ctypes.byref(v)) == 0:
        r["driver_version"] = v.value
    if r["init"] == 0 and c.cuDeviceGetCount(ctypes.byref(v)) == 0:
        r["count"] = v.value
    m = [l.split()[-1] for l in open("/proc/self/maps") if "libcuda.so" in l]
    r["libraries"] = sorted(set(m))
print(json.dumps(r))
"""


def _word(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _switch(value: Any) -> str:
    return "Enabled" if value else "Disabled"


def _field(nvml: Any, handle: Any, name: str) -> Any:
    answer = nvml.nvmlDeviceGetFieldValues(handle, [getattr(nvml, name)])[0]
    if answer.nvmlReturn != 0:
        raise nvml.NVMLError(answer.nvmlReturn)
    kind = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[answer.valueType]
    return getattr(answer.value, kind)


def _reasons(n: Any, h: Any) -> Any:
    name = "nvmlDeviceGetCurrentClocksEventReasons"
    return getattr(n, name, n.nvmlDeviceGetCurrentClocksThrottleReasons)(h)


def _fabric(n: Any, h: Any) -> Any:
    info = n.c_nvmlGpuFabricInfo_v2_t()
    n.nvmlDeviceGetGpuFabricInfoV(h, n.byref(info))
    return FABRIC_STATES.get(info.state, str(info.state))


def _ecc(kind: str) -> Callable[[Any, Any], Any]:
    return lambda n, h: n.nvmlDeviceGetTotalEccErrors(
        h, n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, getattr(n, kind)
    )


CALLS: Dict[str, Callable[[Any, Any], Any]] = {
    "name": lambda n, h: _word(n.nvmlDeviceGetName(h)),
    "uuid": lambda n, h: _word(n.nvmlDeviceGetUUID(h)),
    "pci_bus_id": lambda n, h: _word(n.nvmlDeviceGetPciInfo(h).busId),
    "arch": lambda n, h: ARCHITECTURES.get(n.nvmlDeviceGetArchitecture(h), "unknown"),
    "persistence": lambda n, h: _switch(n.nvmlDeviceGetPersistenceMode(h)),
    "power_w": lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1000.0,
    "power_limit_w": lambda n, h: n.nvmlDeviceGetPowerManagementLimit(h) / 1000.0,
    "power_default_w": lambda n, h: n.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1000.0,
    "power_min_w": lambda n, h: n.nvmlDeviceGetPowerManagementLimitConstraints(h)[0] / 1000.0,
    "power_max_w": lambda n, h: n.nvmlDeviceGetPowerManagementLimitConstraints(h)[1] / 1000.0,
    "power_enforced_w": lambda n, h: n.nvmlDeviceGetEnforcedPowerLimit(h) / 1000.0,
    "temp_c": lambda n, h: n.nvmlDeviceGetTemperature(h, 0),
    "mem_temp_c": lambda n, h: _field(n, h, "NVML_FI_DEV_MEMORY_TEMP"),
    "temp_margin_c": lambda n, h: n.nvmlDeviceGetMarginTemperature(h),
    "util_pct": lambda n, h: n.nvmlDeviceGetUtilizationRates(h).gpu,
    "vram_mib": lambda n, h: n.nvmlDeviceGetMemoryInfo(h).total >> 20,
    "used_mib": lambda n, h: n.nvmlDeviceGetMemoryInfo(h).used >> 20,
    "bar1_mib": lambda n, h: n.nvmlDeviceGetBAR1MemoryInfo(h).bar1Total >> 20,
    "clock_sm_mhz": lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
    "clock_mem_mhz": lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM),
    "clock_sm_max_mhz": lambda n, h: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM),
    "clock_mem_max_mhz": lambda n, h: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_MEM),
    "reasons": _reasons,
    "pstate": lambda n, h: "P%d" % n.nvmlDeviceGetPerformanceState(h),
    "link_gen": lambda n, h: n.nvmlDeviceGetCurrPcieLinkGeneration(h),
    "link_gen_max": lambda n, h: n.nvmlDeviceGetMaxPcieLinkGeneration(h),
    "link_width": lambda n, h: n.nvmlDeviceGetCurrPcieLinkWidth(h),
    "link_width_max": lambda n, h: n.nvmlDeviceGetMaxPcieLinkWidth(h),
    "replays": lambda n, h: n.nvmlDeviceGetPcieReplayCounter(h),
    "compute_mode": lambda n, h: COMPUTE_MODES.get(n.nvmlDeviceGetComputeMode(h), "unknown"),
    "ecc_current": lambda n, h: _switch(n.nvmlDeviceGetEccMode(h)[0]),
    "ecc_pending": lambda n, h: _switch(n.nvmlDeviceGetEccMode(h)[1]),
    "ecc_volatile_uncorrectable": _ecc("NVML_VOLATILE_ECC"),
    "ecc_aggregate_uncorrectable": _ecc("NVML_AGGREGATE_ECC"),
    "rows_correctable": lambda n, h: n.nvmlDeviceGetRemappedRows(h)[0],
    "rows_uncorrectable": lambda n, h: n.nvmlDeviceGetRemappedRows(h)[1],
    "rows_pending": lambda n, h: "Yes" if n.nvmlDeviceGetRemappedRows(h)[2] else "No",
    "rows_failure": lambda n, h: "Yes" if n.nvmlDeviceGetRemappedRows(h)[3] else "No",
    "mig_current": lambda n, h: _switch(n.nvmlDeviceGetMigMode(h)[0]),
    "mig_pending": lambda n, h: _switch(n.nvmlDeviceGetMigMode(h)[1]),
    "recovery_action": lambda n, h: _field(n, h, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"),
    "fabric_state": _fabric,
}


REFUSALS: Dict[Optional[int], str] = {
    9: "Driver Not Loaded",
    12: "NVML Shared Library Not Found",
    18: "Driver/library version mismatch",
    999: "Unknown Error",
}
"""NVML's return codes, in the words of nvidia-smi, whatever the library's language."""


def nvml_facts(
    wanted: List[str], deadline_s: float, keep: Callable[[Entry], None]
) -> Optional[List[facts_engine.Holder]]:
    """Read these of every GPU, each GPU on a thread of its own, and hand each value to `keep`.

    Returns:
        The processes that hold a GPU; None where NVML does not answer.
    """
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except Exception as error:
        words = str(error)[:300] or type(error).__name__
        keep(("nvml/count", None, words, "NVML"))
        keep(("nvml/error", REFUSALS.get(getattr(error, "value", None), words), None, "NVML"))
        return None
    keep(("nvml/count", count, None, "nvmlDeviceGetCount"))
    holders: List[facts_engine.Holder] = []
    threads = [
        threading.Thread(target=_one, args=(nvml, index, wanted, keep, holders), daemon=True)
        for index in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(deadline_s)
    return list(holders)


def _one(
    nvml: Any,
    index: int,
    wanted: List[str],
    keep: Callable[[Entry], None],
    holders: List[facts_engine.Holder],
) -> None:
    base = "nvml/%d/" % index
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except Exception as error:
        keep((base + "name", None, str(error)[:300], "nvmlDeviceGetHandleByIndex"))
        return
    for name in wanted:
        call = CALLS.get(name)
        if call is None:
            continue
        source = "NVML %s of GPU %d" % (name, index)
        try:
            value = call(nvml, handle)
        except Exception as error:
            keep((base + name, None, reason(nvml, error), source))
            continue
        if value in UNKNOWN_VALUES:
            keep((base + name, None, "NotSupported", source))
        else:
            keep((base + name, value, None, source))
    for kind, name in (("C", "nvmlDeviceGetComputeRunningProcesses"),
                       ("G", "nvmlDeviceGetGraphicsRunningProcesses")):  # fmt: skip
        try:
            for process in getattr(nvml, name)(handle):
                used = process.usedGpuMemory
                used_mib = None if used is None or used in UNKNOWN_VALUES else int(used) >> 20
                holders.append(facts_engine.Holder(int(process.pid), index, used_mib, kind))
        except Exception:
            continue


def reason(nvml: Any, error: BaseException) -> str:
    """Why NVML gave no value: `NotSupported`, or its words."""
    code = getattr(error, "value", None)
    missing = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    if isinstance(error, AttributeError) or code in missing:
        return "NotSupported"
    return str(error)[:300] or type(error).__name__


def cuda_facts(python: Optional[str], deadline_s: float, keep: Callable[[Entry], None]) -> None:
    """CuInit and what follows, in a child process: it may hang, or end the process.

    Args:
        python: The host's python; None for the first of the PATH.
        deadline_s: For how long the child is waited for.
        keep: Gets each fact.
    """
    source = "libcuda.so.1 in a child process"
    try:
        child = subprocess.run(
            [python or "python3", "-c", CUDA_PROGRAM],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=deadline_s,
            env=dict(os.environ, LC_ALL="C"),
        )
        found = json.loads(child.stdout.decode("utf-8", "replace") or "{}")
        if not found:
            raise OSError("the child ended with status %d" % child.returncode)
    except subprocess.TimeoutExpired:
        keep(("cuda/init", None, "cuInit did not come back within %.0f s" % deadline_s, source))
        return
    except (OSError, ValueError) as error:
        keep(("cuda/init", None, str(error)[:300], source))
        return
    if "load" in found:
        keep(("cuda/init", None, found["load"][:300], source))
        keep(("cuda/libraries", [], None, source))
        return
    for name in ("init", "count", "driver_version", "libraries"):
        if name in found:
            keep(("cuda/" + name, found[name], None, source))
