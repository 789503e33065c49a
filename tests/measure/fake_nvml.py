# ruff: noqa: UP031 - it runs on the host's python
"""A pynvml for tests: GPUs whose links and clocks rise under load. `WORLD` is put in by the test.

The JSON file `WORLD` names: `gpus` (addresses), `rest` and `work` (values at rest and under load,
by name), `processes` (index -> pids), `used_mib`. A file beside it, `WORLD.load`, says that there
is load.
"""

import json
import os

WORLD = "@@WORLD@@"
NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC = 0, 1
NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_FUNCTION_NOT_FOUND = 3, 13
REST = {"link_gen": 1, "pstate": 8, "util": 0, "mem_mhz": 405, "sm_mhz": 210, "power_w": 70}
WORK = {"link_gen": 5, "pstate": 0, "util": 99, "mem_mhz": 3201, "sm_mhz": 1980, "power_w": 420}


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__("error %d" % value)
        self.value = value


class _Struct:
    def __init__(self, **values):
        self.__dict__.update(values)


def world():
    with open(WORLD) as file:
        return json.load(file)


def now(name):
    known = world()
    if os.path.exists(WORLD + ".load"):
        return dict(WORK, **known.get("work", {}))[name]
    return dict(REST, **known.get("rest", {}))[name]


def nvmlInit():
    pass


def nvmlShutdown():
    pass


def nvmlSystemGetDriverVersion():
    return "580.65.06"


def nvmlDeviceGetCount():
    return len(world()["gpus"])


def nvmlDeviceGetHandleByIndex(index):
    return index


def nvmlDeviceGetUUID(handle):
    return "GPU-%08d-0000-4000-8000-000000000000" % handle


def nvmlDeviceGetName(handle):
    return "NVIDIA H200"


def nvmlDeviceGetPciInfo(handle):
    return _Struct(busId="0000" + world()["gpus"][handle].upper())


def nvmlDeviceGetPowerUsage(handle):
    return now("power_w") * 1000


def nvmlDeviceGetEnforcedPowerLimit(handle):
    return 700000


def nvmlDeviceGetUtilizationRates(handle):
    return _Struct(gpu=now("util"), memory=0)


def nvmlDeviceGetMemoryInfo(handle, version=None):
    used = world().get("used_mib", 4) << 20
    return _Struct(total=141 << 30, used=used, free=(141 << 30) - used, reserved=0)


def nvmlDeviceGetTemperature(handle, sensor):
    return 40


def nvmlDeviceGetClockInfo(handle, kind):
    return now("sm_mhz") if kind == NVML_CLOCK_SM else now("mem_mhz")


def nvmlDeviceGetMaxClockInfo(handle, kind):
    return 1980 if kind == NVML_CLOCK_SM else 3201


def nvmlDeviceGetCurrentClocksEventReasons(handle):
    return 1


def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    return 1


def nvmlDeviceGetCurrPcieLinkGeneration(handle):
    return now("link_gen")


def nvmlDeviceGetMaxPcieLinkGeneration(handle):
    return 5


def nvmlDeviceGetCurrPcieLinkWidth(handle):
    return 16


def nvmlDeviceGetMaxPcieLinkWidth(handle):
    return 16


def nvmlDeviceGetPerformanceState(handle):
    return now("pstate")


def nvmlDeviceGetPcieReplayCounter(handle):
    return 0


def nvmlDeviceGetComputeRunningProcesses(handle):
    pids = world().get("processes", {}).get(str(handle), [])
    return [_Struct(pid=pid, usedGpuMemory=1 << 30) for pid in pids]


def nvmlDeviceGetGraphicsRunningProcesses(handle):
    return []
