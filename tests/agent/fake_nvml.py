# ruff: noqa: UP031 - it runs on the host's python
"""A pynvml for tests: eight GPUs that a control file makes ill. Python 3.8, standard library.

It takes the place of the real module in the payload. `gpuroom_settings.SETTINGS["control"]` names
a JSON file that is read again at each call, so that a test can change the world while the agent
runs: `gpus` (count), `hang` (names of calls that don't come back while listed, or "INDEX:name"),
`fail` (call name or "INDEX:name" -> error code), `init` (error code of nvmlInit), `order`
(uuid numbers by index), `mig`, `unified` (indices), `processes` ([[index, pid, bytes], ...]),
`memory` (bytes in use by index).
"""

import json
import os
import time

try:
    from gpuroom_settings import SETTINGS
except ImportError:
    SETTINGS = {}

CONTROL = SETTINGS.get("control", "")

_CODES = {
    "UNINITIALIZED": 1, "INVALID_ARGUMENT": 2, "NOT_SUPPORTED": 3, "NO_PERMISSION": 4,
    "DRIVER_NOT_LOADED": 9, "TIMEOUT": 10, "LIBRARY_NOT_FOUND": 12, "FUNCTION_NOT_FOUND": 13,
    "GPU_IS_LOST": 15, "RESET_REQUIRED": 16, "OPERATING_SYSTEM": 17,
    "LIB_RM_VERSION_MISMATCH": 18, "ARGUMENT_VERSION_MISMATCH": 25, "GPU_NOT_FOUND": 28,
    "UNKNOWN": 999,
}  # fmt: skip
for _name, _code in _CODES.items():
    globals()["NVML_ERROR_" + _name] = _code

NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1
NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
NVML_VOLATILE_ECC = 0
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
NVML_NVLINK_MAX_LINKS = 36
NVML_FI_DEV_POWER_INSTANT, NVML_FI_DEV_POWER_AVERAGE = 186, 185
NVML_FI_DEV_MEMORY_TEMP = 82
NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP = 74
NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST = 76
NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN = 269
NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN = 270
NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN = 271
NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL = 52
NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL = 59
nvmlMemory_v2 = 0x02000028

_initialised = 0


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(value)
        self.value = value

    def __str__(self):
        for name, code in _CODES.items():
            if code == self.value:
                return name.replace("_", " ").capitalize()
        return "error %d" % self.value


class _Struct:
    def __init__(self, **values):
        self.__dict__.update(values)


def world():
    if not CONTROL:
        return {}
    for _ in range(50):
        try:
            with open(CONTROL) as file:
                return json.load(file)
        except (OSError, ValueError):
            time.sleep(0.01)  # it is just being replaced
    return {}


def _call(name, index=None):
    if isinstance(index, tuple):
        index = index[0]
    names = [name] if index is None else [name, "%d:%s" % (index, name), "%d:*" % index]
    if index is not None:
        names.append("*")
    now = world()
    while any(n in now.get("hang", ()) for n in names):
        time.sleep(0.02)
        now = world()
    for n in names:
        code = now.get("fail", {}).get(n)
        if code is not None:
            raise NVMLError(code)
    if not _initialised and name != "nvmlInit":
        raise NVMLError(1)
    return now


def nvmlInit():
    global _initialised
    now = _call("nvmlInit")
    if now.get("calls"):
        with open(now["calls"], "a") as file:
            file.write("%d init\n" % os.getpid())
    if now.get("init"):
        raise NVMLError(now["init"])
    _initialised += 1


def nvmlShutdown():
    global _initialised
    _initialised = max(0, _initialised - 1)


def nvmlSystemGetDriverVersion():
    return _call("nvmlSystemGetDriverVersion").get("version", "580.65.06")


def nvmlSystemGetCudaDriverVersion():
    return 13000


def nvmlSystemGetNVMLVersion():
    return "13.580.65.06"


def nvmlDeviceGetCount():
    return _call("nvmlDeviceGetCount").get("gpus", 8)


def nvmlDeviceGetHandleByIndex(index):
    _call("nvmlDeviceGetHandleByIndex", index)
    return index


def nvmlDeviceGetUUID(handle):
    order = _call("nvmlDeviceGetUUID", handle).get("order")
    return "GPU-%08d-0000-4000-8000-000000000000" % (order[handle] if order else handle)


def nvmlDeviceGetName(handle):
    if isinstance(handle, tuple):
        return "NVIDIA Fake MIG 1g.24gb"
    return "NVIDIA Fake 6000"


def nvmlDeviceGetPciInfo(handle):
    return _Struct(busId="00000000:%02X:00.0" % (handle + 1))


def nvmlDeviceGetPowerUsage(handle):
    _call("nvmlDeviceGetPowerUsage", handle)
    return 87654 + handle


def nvmlDeviceGetFieldValues(handle, ids):
    now = _call("nvmlDeviceGetFieldValues", handle)
    known = {
        186: (1, "uiVal", 87654 + handle), 185: (1, "uiVal", 87012),
        82: (1, "uiVal", 61),
        74: (3, "ullVal", 5000000000), 76: (3, "ullVal", 0),
        269: (3, "ullVal", 1000000), 270: (3, "ullVal", 2000000), 271: (3, "ullVal", 0),
        52: (3, "ullVal", 3), 59: (3, "ullVal", 4),
    }  # fmt: skip
    if now.get("version", "580").startswith("575"):
        for identity in (269, 270, 271):
            known[identity - 18] = known.pop(identity)
    answers = []
    for identity in ids:
        if identity in known and identity not in now.get("no_fields", ()):
            kind, name, value = known[identity]
            answers.append(_Struct(nvmlReturn=0, valueType=kind, value=_Struct(**{name: value})))
        else:
            answers.append(_Struct(nvmlReturn=3, valueType=1, value=_Struct(uiVal=0)))
    return answers


def nvmlDeviceGetEnforcedPowerLimit(handle):
    _call("nvmlDeviceGetEnforcedPowerLimit", handle)
    return 600000


def nvmlDeviceGetUtilizationRates(handle):
    if _call("nvmlDeviceGetUtilizationRates", handle).get("mig"):
        raise NVMLError(3)
    return _Struct(gpu=97, memory=41)


def nvmlDeviceGetMemoryInfo(handle, version=None):
    now = _call("nvmlDeviceGetMemoryInfo", handle)
    if isinstance(handle, tuple):
        return _Struct(total=24 * 2**30, used=2**30, free=23 * 2**30)
    if handle in now.get("unified", ()):
        if now.get("unified_how") == "zero":
            return _Struct(total=0, used=0, free=0, reserved=0)
        raise NVMLError(3)
    if handle < len(now.get("memory", ())):
        used = now["memory"][handle]
        return _Struct(total=96 * 2**30, used=used, free=96 * 2**30 - used, reserved=0)
    if version:
        if now.get("no_v2"):
            raise NVMLError(13)
        return _Struct(total=96 * 2**30, used=80 * 2**30, free=15 * 2**30, reserved=2**30)
    return _Struct(total=96 * 2**30, used=81 * 2**30, free=15 * 2**30)


def nvmlDeviceGetTemperatureV(handle, sensor):
    _call("nvmlDeviceGetTemperatureV", handle)
    return 55


def nvmlDeviceGetTemperature(handle, sensor):
    _call("nvmlDeviceGetTemperature", handle)
    return 54


def nvmlDeviceGetMarginTemperature(handle):
    _call("nvmlDeviceGetMarginTemperature", handle)
    return 35


def nvmlDeviceGetClockInfo(handle, kind):
    _call("nvmlDeviceGetClockInfo", handle)
    return 2430 if kind == NVML_CLOCK_SM else 13365


def nvmlDeviceGetMaxClockInfo(handle, kind):
    _call("nvmlDeviceGetMaxClockInfo", handle)
    return 2430 if kind == NVML_CLOCK_SM else 14001


def nvmlDeviceGetCurrentClocksEventReasons(handle):
    _call("nvmlDeviceGetCurrentClocksEventReasons", handle)
    return 4


def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    return 4


def nvmlDeviceGetCurrPcieLinkGeneration(handle):
    return 5


def nvmlDeviceGetCurrPcieLinkWidth(handle):
    return 16


def nvmlDeviceGetMaxPcieLinkGeneration(handle):
    return 5


def nvmlDeviceGetMaxPcieLinkWidth(handle):
    return 16


def nvmlDeviceGetPerformanceState(handle):
    return 1


def nvmlDeviceGetTotalEnergyConsumption(handle):
    _call("nvmlDeviceGetTotalEnergyConsumption", handle)
    return int(time.monotonic() * 87654)


def nvmlDeviceGetFanSpeed(handle):
    now = _call("nvmlDeviceGetFanSpeed", handle)
    if now.get("calls"):
        with open(now["calls"], "a") as file:
            file.write("fan\n")
    raise NVMLError(3)


def nvmlDeviceGetPcieReplayCounter(handle):
    return 1


def nvmlDeviceGetNvLinkState(handle, link):
    if not world().get("nvlink") or link >= 18:
        raise NVMLError(3 if not world().get("nvlink") else 2)
    return 1 if link < 17 else 0


def nvmlDeviceGetEccMode(handle):
    return [1, 1]


def nvmlDeviceGetTotalEccErrors(handle, kind, counter):
    return 7 if kind == 0 else 0


def nvmlDeviceGetRemappedRows(handle):
    return (1, 0, 1, 0)


def nvmlDeviceGetMigMode(handle):
    return [1, 1] if _call("nvmlDeviceGetMigMode", handle).get("mig") else [0, 0]


def nvmlDeviceGetMaxMigDeviceCount(handle):
    return 4


def nvmlDeviceGetMigDeviceHandleByIndex(handle, index):
    if index >= 2:
        raise NVMLError(6)
    return (handle, index)


def nvmlDeviceGetPersistenceMode(handle):
    return 1


def nvmlDeviceGetComputeMode(handle):
    return 0


def nvmlDeviceGetPcieThroughput(handle, counter):
    _call("nvmlDeviceGetPcieThroughput", handle)
    return 100 if counter == NVML_PCIE_UTIL_TX_BYTES else 200


def nvmlDeviceGetPowerManagementDefaultLimit(handle):
    return 600000


def nvmlDeviceGetPowerManagementLimitConstraints(handle):
    return [150000, 600000]


def nvmlDeviceGetTemperatureThreshold(handle, kind):
    return 90


def nvmlDeviceGetArchitecture(handle):
    return 10


def nvmlDeviceGetCudaComputeCapability(handle):
    return (12, 0)


def nvmlDeviceGetVbiosVersion(handle):
    return "98.02.81.00.07"


def nvmlDeviceGetNumaNodeId(handle):
    raise NVMLError(3)


def nvmlDeviceGetComputeRunningProcesses(handle):
    if isinstance(handle, tuple):
        return []
    listed = _call("nvmlDeviceGetComputeRunningProcesses", handle).get("processes", [])
    return [_Struct(pid=pid, usedGpuMemory=used) for index, pid, used in listed if index == handle]


def nvmlDeviceGetGraphicsRunningProcesses(handle):
    return []
