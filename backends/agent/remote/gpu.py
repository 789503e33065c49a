"""One GPU as NVML shows it: how its probes are called, and what their errors mean.

Everything here runs on the GPU's own worker, so that a call that hangs hangs nobody else.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import readings
from .readings import Absent, Probe, code_of, text
from .worker import Worker

RETRY_UNSUPPORTED_S = 60.0
"""An unsupported call can be dear (a fan: 0.16 ms), and may be supported later (MIG off)."""


class Fault(NamedTuple):
    """Why a GPU gave no sample: `lost`, `error`, or `driver` where all of the driver is gone."""

    kind: str
    detail: str
    code: int = -1


class Sample(NamedTuple):
    """One lane of one GPU: values in the order of its columns, None where absent."""

    values: Optional[List[Any]]
    absent: Dict[str, str]
    fault: Optional[Fault]


class Gpu:
    """One GPU.

    Attributes:
        mig: Whether MIG was on when last looked.
    """

    def __init__(self, nvml: Any, handle: Any, index: int, driver_major: int) -> None:
        self.nvml = nvml
        self.handle = handle
        self.index = index
        self.driver_major = driver_major
        self.uuid = ""
        self.name = ""
        self.bus_id = ""
        self.mig = False
        self.memory_v2 = True
        self.worker: Optional[Worker] = None
        self.doing: Any = None
        self._chosen: Dict[Tuple[str, ...], str] = {}
        self._unsupported: Dict[Tuple[str, ...], Tuple[float, Dict[str, str]]] = {}

    def identify(self) -> None:
        """Read what it is known by."""
        self.uuid = text(self.call("nvmlDeviceGetUUID"))
        self.name = text(self.call("nvmlDeviceGetName"))
        bus_id = text(self.call("nvmlDeviceGetPciInfo").busId).lower()
        # NVML writes eight digits of domain, the kernel four.
        self.bus_id = bus_id[4:] if len(bus_id) == 16 and bus_id.startswith("0000") else bus_id

    def call(self, name: str, *arguments: Any) -> Any:
        """Call NVML about this GPU; the name of the call is left where a watcher sees it."""
        doing = self.doing
        if doing is not None:
            doing.doing = name
        return getattr(self.nvml, name)(self.handle, *arguments)

    def first(self, names: Tuple[str, ...], *arguments: Any) -> Any:
        """The first of several names of a call that the driver knows; it is remembered."""
        chosen = self._chosen.get(names)
        if chosen is not None:
            return self.call(chosen, *arguments)
        for name in names[:-1]:
            try:
                result = self.call(name, *arguments)
            except AttributeError:
                continue
            except self.nvml.NVMLError as error:
                if code_of(error) in (
                    self.nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
                    self.nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
                    self.nvml.NVML_ERROR_INVALID_ARGUMENT,
                ):
                    continue
                raise
            self._chosen[names] = name
            return result
        self._chosen[names] = names[-1]
        return self.call(names[-1], *arguments)

    def fields(self, wanted: Dict[str, str], shift: int = 0) -> Dict[str, Any]:
        """Several field values in one call: key -> number, or `Absent`."""
        nvml = self.nvml
        known = {
            key: getattr(nvml, name) + shift
            for key, name in wanted.items()
            if getattr(nvml, name, None) is not None
        }
        values: Dict[str, Any] = {key: Absent("not known to this pynvml") for key in wanted}
        if not known:
            return values
        try:
            answers = self.call("nvmlDeviceGetFieldValues", list(known.values()))
        except nvml.NVMLError as error:
            if code_of(error) not in (
                nvml.NVML_ERROR_NOT_SUPPORTED,
                nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
                nvml.NVML_ERROR_INVALID_ARGUMENT,
            ):
                raise
            reason = Absent(self.reason(error))
            return dict.fromkeys(wanted, reason)
        for key, answer in zip(known, answers):
            values[key] = self._field_value(answer)
        return values

    def _field_value(self, answer: Any) -> Any:
        if answer.nvmlReturn != 0:
            return Absent(self.reason(self.nvml.NVMLError(answer.nvmlReturn)))
        name = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[answer.valueType]
        value = getattr(answer.value, name)
        if value in (readings.UINT_UNKNOWN, readings.ULONGLONG_UNKNOWN):
            return Absent("the driver gave no value")
        return value

    def read(self, lane: str) -> Sample:
        """Read one lane; errors become reasons, and what they say of the GPU."""
        return self._read(readings.LANES[lane])

    def read_once(self) -> Tuple[Dict[str, Any], Dict[str, str]]:
        """What doesn't change: values by key, and reasons by key."""
        sample = self._read(readings.ONCE)
        keys = [key for probe in readings.ONCE for key in probe.keys]
        found = dict(zip(keys, sample.values or []))
        absent = dict(sample.absent)
        for key in readings.COLUMNS["slow"]:
            found.pop(key, None)
            absent.pop(key, None)
        return {key: value for key, value in found.items() if value is not None}, absent

    def forget_unsupported(self) -> None:
        """Ask again for what was not supported: something changed."""
        self._unsupported.clear()

    def mig_instances(self) -> List[str]:
        """One line a MIG instance: profile, memory used and total."""
        nvml = self.nvml
        lines: List[str] = []
        if not self.mig:
            return lines
        for index in range(self.call("nvmlDeviceGetMaxMigDeviceCount")):
            try:
                handle = self.call("nvmlDeviceGetMigDeviceHandleByIndex", index)
                name = text(nvml.nvmlDeviceGetName(handle)).rpartition("MIG ")[2]
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
                used, total = memory.used / 2.0**30, memory.total / 2.0**30
                lines.append("%s %.1f of %.1f GiB" % (name, used, total))
            except nvml.NVMLError:
                continue  # a free slot
        return lines

    def processes(self) -> List[Tuple[int, str, Optional[int]]]:
        """(pid, kind, bytes or None) of each process that holds this GPU."""
        nvml = self.nvml
        handles = [self.handle]
        if self.mig:
            for index in range(self.call("nvmlDeviceGetMaxMigDeviceCount")):
                try:
                    handles.append(self.call("nvmlDeviceGetMigDeviceHandleByIndex", index))
                except nvml.NVMLError:
                    continue
        found: Dict[Tuple[int, str], Optional[int]] = {}
        for handle in handles:
            for kind, name in (
                ("compute", "nvmlDeviceGetComputeRunningProcesses"),
                ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
            ):
                try:
                    listed = getattr(nvml, name)(handle)
                except (nvml.NVMLError, AttributeError):
                    continue
                for process in listed:
                    memory = process.usedGpuMemory
                    if memory is not None and not 0 <= memory < 2**60:
                        memory = None
                    key = (int(process.pid), kind)
                    if memory is not None and found.get(key) is not None:
                        memory += found[key]
                    found[key] = memory
        return [(pid, kind, memory) for (pid, kind), memory in sorted(found.items())]

    def reason(self, error: BaseException) -> str:
        """Why a value is absent, in an operator's words."""
        nvml = self.nvml
        code = code_of(error)
        if isinstance(error, AttributeError):
            return "not known to this pynvml"
        words = {
            nvml.NVML_ERROR_NOT_SUPPORTED: "not supported by this GPU",
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND: "driver too old to tell",
            nvml.NVML_ERROR_NO_PERMISSION: "no permission",
            nvml.NVML_ERROR_GPU_IS_LOST: "GPU is lost",
            nvml.NVML_ERROR_TIMEOUT: "the driver timed out",
            nvml.NVML_ERROR_UNKNOWN: "unknown error of the driver",
        }
        return words.get(code) or str(error)[:200] or error.__class__.__name__

    def fault_of(self, error: BaseException) -> Optional[Fault]:
        """What an error says of the GPU as a whole; None where it is about one reading."""
        nvml = self.nvml
        code = code_of(error)
        if code in (
            nvml.NVML_ERROR_UNINITIALIZED,
            nvml.NVML_ERROR_DRIVER_NOT_LOADED,
            nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        ):
            return Fault("driver", str(error), code)
        if code in (nvml.NVML_ERROR_GPU_IS_LOST, getattr(nvml, "NVML_ERROR_GPU_NOT_FOUND", 28)):
            return Fault("lost", str(error), code)
        if code == nvml.NVML_ERROR_RESET_REQUIRED:
            return Fault("error", "needs a reset", code)
        return None

    def _read(self, probes: Sequence[Probe]) -> Sample:
        values: List[Any] = []
        absent: Dict[str, str] = {}
        now = time.monotonic()
        last_error: Optional[BaseException] = None
        failed = tried = 0
        for probe in probes:
            known = self._unsupported.get(probe.keys)
            if known is not None and now < known[0]:
                absent.update(known[1])
                values.extend([None] * len(probe.keys))
                continue
            tried += 1
            try:
                answer = probe.read(self)
            except Exception as error:
                fault = self.fault_of(error)
                if fault is not None:
                    return Sample(None, {}, fault)
                if code_of(error) not in (
                    self.nvml.NVML_ERROR_NOT_SUPPORTED,
                    self.nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
                    self.nvml.NVML_ERROR_NO_PERMISSION,
                ):
                    last_error = error
                    failed += 1
                reason = self.reason(error)
                answer = {key: Absent(reason) for key in probe.keys}
                if code_of(error) in (
                    self.nvml.NVML_ERROR_NOT_SUPPORTED,
                    self.nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
                ) or isinstance(error, AttributeError):
                    again = now + RETRY_UNSUPPORTED_S
                    self._unsupported[probe.keys] = (again, dict.fromkeys(probe.keys, reason))
            for key in probe.keys:
                value = answer[key]
                if isinstance(value, Absent):
                    absent[key] = value.reason
                    values.append(None)
                elif value in (readings.UINT_UNKNOWN, readings.ULONGLONG_UNKNOWN):
                    absent[key] = "the driver gave no value"
                    values.append(None)
                else:
                    values.append(value)
        if last_error is not None and failed > tried / 2:
            detail = "most readings fail: " + self.reason(last_error)
            return Sample(None, {}, Fault("error", detail, code_of(last_error)))
        return Sample(values, absent, None)
