"""What is read of a GPU, call by call, in lanes by what the calls cost.

The keys are those of `backends.model.GpuReadings`. A probe gives a dictionary of values; a value
may be `Absent(reason)`. Costs are those measured on an H200 (driver 580): most calls take 1 to 5
microseconds, an unsupported fan 156, MIG mode and ECC mode 160, energy 3,200, a maximum clock
1,400, PCIe throughput 21,000 a direction.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Tuple

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


class Probe(NamedTuple):
    """One or a few calls, and the keys that they give."""

    keys: Tuple[str, ...]
    read: Callable[[Any], Values]


def _power(gpu: Any) -> Values:
    values: Values = gpu.fields(
        {"power_w": "NVML_FI_DEV_POWER_INSTANT", "power_average_w": "NVML_FI_DEV_POWER_AVERAGE"}
    )
    for key, value in values.items():
        if not isinstance(value, Absent):
            values[key] = round(value / 1000.0, 1)
    if isinstance(values["power_w"], Absent):
        # Before these fields existed: the average on Ampere and newer, else the value of now.
        values["power_w"] = round(gpu.call("nvmlDeviceGetPowerUsage") / 1000.0, 1)
    return values


def _power_limit(gpu: Any) -> Values:
    return {"power_limit_enforced_w": gpu.call("nvmlDeviceGetEnforcedPowerLimit") / 1000.0}


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


def _clocks(gpu: Any) -> Values:
    nvml = gpu.nvml
    return {
        "sm_clock_mhz": gpu.call("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": gpu.call("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
    }


def _event_reasons(gpu: Any) -> Values:
    names = (
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    )
    return {"event_reasons": gpu.first(names)}


def _link(gpu: Any) -> Values:
    return {
        "pcie_generation": gpu.call("nvmlDeviceGetCurrPcieLinkGeneration"),
        "pcie_width": gpu.call("nvmlDeviceGetCurrPcieLinkWidth"),
    }


def _performance_state(gpu: Any) -> Values:
    state = gpu.call("nvmlDeviceGetPerformanceState")
    return {"performance_state": Absent("unknown to the driver") if state > 15 else state}


def _energy(gpu: Any) -> Values:
    return {"energy_j": round(gpu.call("nvmlDeviceGetTotalEnergyConsumption") / 1000.0, 1)}


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


def _fan(gpu: Any) -> Values:
    return {"fan_pct": gpu.call("nvmlDeviceGetFanSpeed")}


def _replays(gpu: Any) -> Values:
    return {"pcie_replay_count": gpu.call("nvmlDeviceGetPcieReplayCounter")}


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


def _ecc(gpu: Any) -> Values:
    return {"ecc_enabled": bool(gpu.call("nvmlDeviceGetEccMode")[0])}


def _ecc_counts(gpu: Any) -> Values:
    nvml = gpu.nvml
    return {
        "ecc_corrected_count": gpu.call(
            "nvmlDeviceGetTotalEccErrors",
            nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
            nvml.NVML_VOLATILE_ECC,
        ),
        "ecc_uncorrected_count": gpu.call(
            "nvmlDeviceGetTotalEccErrors",
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        ),
    }


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


def _modes(gpu: Any) -> Values:
    return {"persistence_enabled": bool(gpu.call("nvmlDeviceGetPersistenceMode"))}


def _compute_mode(gpu: Any) -> Values:
    mode = gpu.call("nvmlDeviceGetComputeMode")
    return {"compute_mode": COMPUTE_MODES.get(mode, "mode %d" % mode)}


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


def _pcie(gpu: Any) -> Values:
    nvml = gpu.nvml
    return {
        "pcie_rx_bytes_per_s": 1024
        * gpu.call("nvmlDeviceGetPcieThroughput", nvml.NVML_PCIE_UTIL_RX_BYTES),
        "pcie_tx_bytes_per_s": 1024
        * gpu.call("nvmlDeviceGetPcieThroughput", nvml.NVML_PCIE_UTIL_TX_BYTES),
    }


def _limit_default(gpu: Any) -> Values:
    value = gpu.call("nvmlDeviceGetPowerManagementDefaultLimit")
    return {"power_limit_default_w": value / 1000.0}


def _limits(gpu: Any) -> Values:
    low, high = gpu.call("nvmlDeviceGetPowerManagementLimitConstraints")
    return {"power_limit_min_w": low / 1000.0, "power_limit_max_w": high / 1000.0}


def _clocks_max(gpu: Any) -> Values:
    nvml = gpu.nvml
    return {
        "sm_clock_max_mhz": gpu.call("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        "memory_clock_max_mhz": gpu.call("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
    }


def _link_max(gpu: Any) -> Values:
    return {
        "pcie_generation_max": gpu.call("nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_width_max": gpu.call("nvmlDeviceGetMaxPcieLinkWidth"),
    }


def _slowdown(gpu: Any) -> Values:
    value = gpu.call(
        "nvmlDeviceGetTemperatureThreshold", gpu.nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    )
    return {"temperature_slowdown_c": value}


def _architecture(gpu: Any) -> Values:
    number = gpu.call("nvmlDeviceGetArchitecture")
    return {"architecture": ARCHITECTURES.get(number, "architecture %d" % number)}


def _capability(gpu: Any) -> Values:
    return {"compute_capability": "%d.%d" % tuple(gpu.call("nvmlDeviceGetCudaComputeCapability"))}


def _vbios(gpu: Any) -> Values:
    return {"vbios_version": text(gpu.call("nvmlDeviceGetVbiosVersion"))}


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
    Probe(("power_limit_enforced_w",), _power_limit),
    Probe(("utilization_gpu_pct", "utilization_memory_pct"), _utilization),
    Probe(("memory_used_bytes",), _memory_used),
    Probe(("temperature_gpu_c",), _temperature),
    Probe(("sm_clock_mhz", "memory_clock_mhz"), _clocks),
    Probe(("event_reasons",), _event_reasons),
    Probe(("pcie_generation", "pcie_width"), _link),
    Probe(("performance_state",), _performance_state),
]
SLOW: List[Probe] = [
    Probe(("energy_j",), _energy),
    Probe(("memory_total_bytes", "memory_reserved_bytes"), _memory_rest),
    Probe(("temperature_memory_c",), _temperature_memory),
    Probe(("temperature_margin_c",), _margin),
    Probe(("fan_pct",), _fan),
    Probe(("pcie_replay_count",), _replays),
    Probe(("nvlink_links_active", "nvlink_links_total", "nvlink_error_count"), _nvlink),
    Probe(("ecc_enabled",), _ecc),
    Probe(("ecc_corrected_count", "ecc_uncorrected_count"), _ecc_counts),
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
    Probe(("persistence_enabled",), _modes),
    Probe(("compute_mode",), _compute_mode),
    Probe(
        ("time_power_cap_us", "time_thermal_us", "time_power_brake_us", "time_sync_boost_us"),
        _held,
    ),
]
PCIE: List[Probe] = [Probe(("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"), _pcie)]
ONCE: List[Probe] = [
    Probe(("mig_enabled",), _mig),  # also in the slow lane; first, since others depend on it
    Probe(("power_limit_default_w",), _limit_default),
    Probe(("power_limit_min_w", "power_limit_max_w"), _limits),
    Probe(("sm_clock_max_mhz", "memory_clock_max_mhz"), _clocks_max),
    Probe(("pcie_generation_max", "pcie_width_max"), _link_max),
    Probe(("temperature_slowdown_c",), _slowdown),
    Probe(("architecture",), _architecture),
    Probe(("compute_capability",), _capability),
    Probe(("vbios_version",), _vbios),
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


def text(value: Any) -> str:
    """A string of NVML, which very old bindings give as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
