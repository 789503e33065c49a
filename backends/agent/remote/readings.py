"""What is read of a GPU, call by call, in lanes by what the calls cost.

The keys are those of `backends.model.GpuReadings`. A probe gives a dictionary of values; a value
may be `Absent(reason)`. Costs are those measured on an H200 (driver 580): most calls take 1 to 5
microseconds, an unsupported fan 156, MIG mode and ECC mode 160, energy 3,200, a maximum clock
1,400, PCIe throughput 21,000 a direction.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

UINT_UNKNOWN = 0xFFFFFFFF
ULONGLONG_UNKNOWN = 0xFFFFFFFFFFFFFFFF

ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada",
    9: "Hopper", 10: "Blackwell", 13: "Rubin",
}  # fmt: skip
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
UNIFIED = "unified memory: the GPU shares the host's"


class Absent(NamedTuple):
    """Why there is no value."""

    reason: str


Values = Dict[str, Any]
Convert = Callable[[Any], Any]


class Probe(NamedTuple):
    """A call, or some that belong together, and the keys that they give: it fails as one."""

    keys: Tuple[str, ...]
    read: Callable[[Any], Values]


def one(
    key: str, name: str, constants: Sequence[str] = (), convert: Optional[Convert] = None
) -> Probe:
    """The probe of a reading that is one call, with constants of pynvml by name."""

    def read(gpu: Any) -> Values:
        value = gpu.call(name, *[getattr(gpu.nvml, constant) for constant in constants])
        if value in (UINT_UNKNOWN, ULONGLONG_UNKNOWN):
            return {key: Absent("the driver gave no value")}
        return {key: value if convert is None else convert(value)}

    return Probe((key,), read)


def text(value: Any) -> str:
    """A string of NVML, which very old bindings give as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _thousandth(value: Any) -> Any:
    return round(value / 1000.0, 1)


def _first_is_on(pair: Any) -> bool:
    return bool(pair[0])


def _kibibytes(value: Any) -> Any:
    return 1024 * value


def _state(state: int) -> Any:
    return Absent("unknown to the driver") if state > 15 else state


def _compute_mode(mode: int) -> str:
    return COMPUTE_MODES.get(mode, "mode %d" % mode)


def _architecture(number: int) -> str:
    return ARCHITECTURES.get(number, "architecture %d" % number)


def _capability(pair: Any) -> str:
    return "%d.%d" % tuple(pair)


def _power(gpu: Any) -> Values:
    values: Values = gpu.fields(
        {"power_w": "NVML_FI_DEV_POWER_INSTANT", "power_average_w": "NVML_FI_DEV_POWER_AVERAGE"}
    )
    for key, value in values.items():
        if not isinstance(value, Absent):
            values[key] = _thousandth(value)
    if isinstance(values["power_w"], Absent):
        # Before these fields existed: the average on Ampere and newer, else the value of now.
        try:
            values["power_w"] = _thousandth(gpu.call("nvmlDeviceGetPowerUsage"))
        except gpu.nvml.NVMLError:
            if isinstance(values["power_average_w"], Absent):
                raise
    return values


def _utilization(gpu: Any) -> Values:
    try:
        rates = gpu.call("nvmlDeviceGetUtilizationRates")
    except gpu.nvml.NVMLError as error:
        if gpu.mig and code_of(error) == gpu.nvml.NVML_ERROR_NOT_SUPPORTED:
            reason = Absent("not measured while MIG is on: look at power")
            return {"utilization_gpu_pct": reason, "utilization_memory_pct": reason}
        raise
    return {"utilization_gpu_pct": rates.gpu, "utilization_memory_pct": rates.memory}


def _memory_info(gpu: Any) -> Any:
    """Memory by the newest call that works: version 2 tells what the driver reserves."""
    nvml = gpu.nvml
    version = getattr(nvml, "nvmlMemory_v2", None)
    if version is not None and gpu.memory_v2:
        try:
            return gpu.call("nvmlDeviceGetMemoryInfo", version)
        except nvml.NVMLError as error:
            if code_of(error) not in (
                nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
                nvml.NVML_ERROR_INVALID_ARGUMENT,
                nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            ):
                raise
            gpu.memory_v2 = False
    return gpu.call("nvmlDeviceGetMemoryInfo")


def _memory(gpu: Any, keys: Dict[str, str]) -> Values:
    try:
        info = _memory_info(gpu)
    except gpu.nvml.NVMLError as error:
        if code_of(error) == gpu.nvml.NVML_ERROR_NOT_SUPPORTED:
            return {key: Absent(UNIFIED) for key in keys}
        raise
    if not info.total:
        return {key: Absent(UNIFIED) for key in keys}
    values: Values = {}
    for key, attribute in keys.items():
        value = getattr(info, attribute, None)
        values[key] = Absent("driver too old to tell") if value is None else value
    return values


def _memory_used(gpu: Any) -> Values:
    return _memory(gpu, {"memory_used_bytes": "used"})


def _memory_rest(gpu: Any) -> Values:
    return _memory(gpu, {"memory_total_bytes": "total", "memory_reserved_bytes": "reserved"})


def _temperature(gpu: Any) -> Values:
    value = gpu.first(("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"), 0)
    return {"temperature_gpu_c": value}


def _event_reasons(gpu: Any) -> Values:
    names = (
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    )
    return {"event_reasons": gpu.first(names)}


def _temperature_memory(gpu: Any) -> Values:
    values: Values = gpu.fields({"temperature_memory_c": "NVML_FI_DEV_MEMORY_TEMP"})
    if values["temperature_memory_c"] == 0:
        values["temperature_memory_c"] = Absent("no sensor")
    return values


def _margin(gpu: Any) -> Values:
    try:
        margin = gpu.call("nvmlDeviceGetMarginTemperature")
    except (gpu.nvml.NVMLError, AttributeError):
        threshold = gpu.call(
            "nvmlDeviceGetTemperatureThreshold", gpu.nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        )
        margin = threshold - _temperature(gpu)["temperature_gpu_c"]
    return {"temperature_margin_c": margin}


def _nvlink(gpu: Any) -> Values:
    nvml = gpu.nvml
    active = total = 0
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            active += 1 if gpu.call("nvmlDeviceGetNvLinkState", link) else 0
        except nvml.NVMLError as error:
            if link == 0 or code_of(error) not in (
                nvml.NVML_ERROR_INVALID_ARGUMENT,
                nvml.NVML_ERROR_NOT_SUPPORTED,
            ):
                raise
            break
        total += 1
    values: Values = {"nvlink_links_active": active, "nvlink_links_total": total}
    errors = [
        value
        for value in gpu.fields(
            {
                "replay": "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
                "recovery": "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
                "crc_flit": "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
                "crc_data": "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
            }
        ).values()
        if not isinstance(value, Absent)
    ]
    values["nvlink_error_count"] = sum(errors) if errors else Absent("not counted here")
    return values


def _remapped_rows(gpu: Any) -> Values:
    corrected, uncorrected, pending, failed = gpu.call("nvmlDeviceGetRemappedRows")
    return {
        "remapped_rows_corrected": corrected,
        "remapped_rows_uncorrected": uncorrected,
        "remapped_rows_pending": bool(pending),
        "remapped_rows_failed": bool(failed),
    }


def _mig(gpu: Any) -> Values:
    mig = bool(gpu.call("nvmlDeviceGetMigMode")[0])
    if mig != gpu.mig:
        gpu.mig = mig
        gpu.forget_unsupported()
    return {"mig_enabled": mig}


def _held(gpu: Any) -> Values:
    """Cumulative time that something held the clocks: nanoseconds there, microseconds here.

    The field ids of the thermal counters and of the power brake were renumbered with driver 580
    (nvml.h of CUDA 12.9 has 251 to 253, that of 13.0 has 269 to 271).
    """
    shift = -18 if 0 < gpu.driver_major < 580 else 0
    raw = gpu.fields(
        {
            "power": "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP",
            "sync": "NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST",
        }
    )
    raw.update(
        gpu.fields(
            {
                "sw": "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
                "hw": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
                "brake": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
            },
            shift,
        )
    )
    thermal = [raw[key] for key in ("sw", "hw") if not isinstance(raw[key], Absent)]
    raw["thermal"] = sum(thermal) if thermal else raw["sw"]
    keys = {
        "time_power_cap_us": "power",
        "time_thermal_us": "thermal",
        "time_power_brake_us": "brake",
        "time_sync_boost_us": "sync",
    }
    return {
        key: raw[name] if isinstance(raw[name], Absent) else int(raw[name]) // 1000
        for key, name in keys.items()
    }


def _limits(gpu: Any) -> Values:
    low, high = gpu.call("nvmlDeviceGetPowerManagementLimitConstraints")
    return {"power_limit_min_w": low / 1000.0, "power_limit_max_w": high / 1000.0}


def _numa_node(gpu: Any) -> Values:
    try:
        node = gpu.call("nvmlDeviceGetNumaNodeId")
    except (gpu.nvml.NVMLError, AttributeError):
        node = _numa_node_of_bus(gpu.bus_id)
        if node is None:
            raise
    return {"numa_node": Absent("the machine has one node") if node < 0 else node}


def _numa_node_of_bus(bus_id: str) -> Any:
    """The kernel's own word: NVML tells it only where the GPU's memory is a node itself."""
    try:
        with open("/sys/bus/pci/devices/%s/numa_node" % bus_id.lower()[-12:]) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


FAST: List[Probe] = [
    Probe(("power_w", "power_average_w"), _power),
    one("power_limit_enforced_w", "nvmlDeviceGetEnforcedPowerLimit", convert=_thousandth),
    Probe(("utilization_gpu_pct", "utilization_memory_pct"), _utilization),
    Probe(("memory_used_bytes",), _memory_used),
    Probe(("temperature_gpu_c",), _temperature),
    one("sm_clock_mhz", "nvmlDeviceGetClockInfo", ["NVML_CLOCK_SM"]),
    one("memory_clock_mhz", "nvmlDeviceGetClockInfo", ["NVML_CLOCK_MEM"]),
    Probe(("event_reasons",), _event_reasons),
    one("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    one("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    one("performance_state", "nvmlDeviceGetPerformanceState", convert=_state),
]
SLOW: List[Probe] = [
    one("energy_j", "nvmlDeviceGetTotalEnergyConsumption", convert=_thousandth),
    Probe(("memory_total_bytes", "memory_reserved_bytes"), _memory_rest),
    Probe(("temperature_memory_c",), _temperature_memory),
    Probe(("temperature_margin_c",), _margin),
    one("fan_pct", "nvmlDeviceGetFanSpeed"),
    one("pcie_replay_count", "nvmlDeviceGetPcieReplayCounter"),
    Probe(("nvlink_links_active", "nvlink_links_total", "nvlink_error_count"), _nvlink),
    one("ecc_enabled", "nvmlDeviceGetEccMode", convert=_first_is_on),
    one(
        "ecc_corrected_count",
        "nvmlDeviceGetTotalEccErrors",
        ["NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_VOLATILE_ECC"],
    ),
    one(
        "ecc_uncorrected_count",
        "nvmlDeviceGetTotalEccErrors",
        ["NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"],
    ),
    Probe(
        (
            "remapped_rows_corrected",
            "remapped_rows_uncorrected",
            "remapped_rows_pending",
            "remapped_rows_failed",
        ),
        _remapped_rows,
    ),
    Probe(("mig_enabled",), _mig),
    one("persistence_enabled", "nvmlDeviceGetPersistenceMode", convert=bool),
    one("compute_mode", "nvmlDeviceGetComputeMode", convert=_compute_mode),
    Probe(
        ("time_power_cap_us", "time_thermal_us", "time_power_brake_us", "time_sync_boost_us"),
        _held,
    ),
]
PCIE: List[Probe] = [
    one(
        "pcie_rx_bytes_per_s",
        "nvmlDeviceGetPcieThroughput",
        ["NVML_PCIE_UTIL_RX_BYTES"],
        _kibibytes,
    ),
    one(
        "pcie_tx_bytes_per_s",
        "nvmlDeviceGetPcieThroughput",
        ["NVML_PCIE_UTIL_TX_BYTES"],
        _kibibytes,
    ),
]
ONCE: List[Probe] = [
    Probe(("mig_enabled",), _mig),  # also in the slow lane; first, since others depend on it
    one("power_limit_default_w", "nvmlDeviceGetPowerManagementDefaultLimit", convert=_thousandth),
    Probe(("power_limit_min_w", "power_limit_max_w"), _limits),
    one("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", ["NVML_CLOCK_SM"]),
    one("memory_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", ["NVML_CLOCK_MEM"]),
    one("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    one("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
    one(
        "temperature_slowdown_c",
        "nvmlDeviceGetTemperatureThreshold",
        ["NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"],
    ),
    one("architecture", "nvmlDeviceGetArchitecture", convert=_architecture),
    one("compute_capability", "nvmlDeviceGetCudaComputeCapability", convert=_capability),
    one("vbios_version", "nvmlDeviceGetVbiosVersion", convert=text),
    Probe(("numa_node",), _numa_node),
]
LANES: Dict[str, List[Probe]] = {"fast": FAST, "slow": SLOW, "pcie": PCIE}
COLUMNS: Dict[str, List[str]] = {
    lane: [key for probe in probes for key in probe.keys] for lane, probes in LANES.items()
}


def code_of(error: BaseException) -> int:
    """The NVML error code of an exception; -1 for any other exception."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else -1
