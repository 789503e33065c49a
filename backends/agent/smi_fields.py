"""What `nvidia-smi --query-gpu` can tell: names, negotiation and values. Pure functions on text.

Names change with the driver (`clocks_throttle_reasons` became `clocks_event_reasons`), and one
unknown name makes it reject the whole query, so names are chosen from what
`nvidia-smi --help-query-gpu` of that host lists.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from backends.model import GPU_READINGS, Lane

Value = float | int | str | bool

NOT_TOLD: Final = "nvidia-smi does not tell it (needs python3 on the host)"
IDENTITY: Final = ("timestamp", "index", "uuid", "name", "pci.bus_id", "driver_version")
MIB: Final = 1024 * 1024
_LOST: Final = re.compile(r"gpu is lost|fallen off the bus", re.IGNORECASE)


class Absent(NamedTuple):
    """Why a cell has no value."""

    reason: str


def _number(text: str) -> float:
    return float(text)


def _integer(text: str) -> int:
    return int(float(text))


def _mebibytes(text: str) -> int:
    return int(float(text) * MIB)


def _hexadecimal(text: str) -> int:
    return int(text, 16)


def _enabled(text: str) -> bool:
    if text not in ("Enabled", "Disabled"):
        raise ValueError(text)
    return text == "Enabled"


def _state(text: str) -> int:
    return int(text.removeprefix("P"))


def _mode(text: str) -> str:
    return text.replace("_", " ").lower()


def _plain(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Field:
    """A reading, the names that it had over time (the best first), and how its text is read."""

    key: str
    names: tuple[str, ...]
    parse: Callable[[str], Value]


FIELDS: Final = (
    Field("power_w", ("power.draw.instant", "power.draw"), _number),
    Field("power_average_w", ("power.draw.average",), _number),
    Field("power_limit_enforced_w", ("enforced.power.limit", "power.limit"), _number),
    Field("utilization_gpu_pct", ("utilization.gpu",), _number),
    Field("utilization_memory_pct", ("utilization.memory",), _number),
    Field("memory_used_bytes", ("memory.used",), _mebibytes),
    Field("temperature_gpu_c", ("temperature.gpu",), _number),
    Field("sm_clock_mhz", ("clocks.current.sm", "clocks.sm"), _integer),
    Field("memory_clock_mhz", ("clocks.current.memory", "clocks.mem"), _integer),
    Field(
        "event_reasons",
        ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
        _hexadecimal,
    ),
    Field("pcie_generation", ("pcie.link.gen.current",), _integer),
    Field("pcie_width", ("pcie.link.width.current",), _integer),
    Field("performance_state", ("pstate",), _state),
    Field("memory_total_bytes", ("memory.total",), _mebibytes),
    Field("memory_reserved_bytes", ("memory.reserved",), _mebibytes),
    Field("temperature_memory_c", ("temperature.memory",), _number),
    Field("temperature_margin_c", ("temperature.gpu.tlimit",), _number),
    Field("fan_pct", ("fan.speed",), _number),
    Field("ecc_enabled", ("ecc.mode.current",), _enabled),
    Field("ecc_corrected_count", ("ecc.errors.corrected.volatile.total",), _integer),
    Field("ecc_uncorrected_count", ("ecc.errors.uncorrected.volatile.total",), _integer),
    Field("mig_enabled", ("mig.mode.current",), _enabled),
    Field("persistence_enabled", ("persistence_mode",), _enabled),
    Field("compute_mode", ("compute_mode",), _mode),
    Field(
        "time_power_cap_us",
        (
            "clocks_event_reasons_counters.sw_power_cap",
            "clocks_throttle_reasons_counters.sw_power_cap",
        ),
        _integer,
    ),
    Field(
        "time_power_brake_us",
        ("clocks_event_reasons_counters.hw_power_brake_slowdown",),
        _integer,
    ),
    Field("time_sync_boost_us", ("clocks_event_reasons_counters.sync_boost",), _integer),
    Field(
        "time_thermal_sw_us",
        (
            "clocks_event_reasons_counters.sw_thermal_slowdown",
            "clocks_event_reasons_counters.sw_therm_slowdown",
        ),
        _integer,
    ),
    Field(
        "time_thermal_hw_us",
        (
            "clocks_event_reasons_counters.hw_thermal_slowdown",
            "clocks_event_reasons_counters.hw_therm_slowdown",
        ),
        _integer,
    ),
    Field("power_limit_default_w", ("power.default_limit",), _number),
    Field("power_limit_min_w", ("power.min_limit",), _number),
    Field("power_limit_max_w", ("power.max_limit",), _number),
    Field("sm_clock_max_mhz", ("clocks.max.sm",), _integer),
    Field("memory_clock_max_mhz", ("clocks.max.memory", "clocks.max.mem"), _integer),
    Field("pcie_generation_max", ("pcie.link.gen.max",), _integer),
    Field("pcie_width_max", ("pcie.link.width.max",), _integer),
    Field("compute_capability", ("compute_cap",), _plain),
    Field("vbios_version", ("vbios_version",), _plain),
)
KEYS: Final = {
    lane: [spec.key for spec in GPU_READINGS if spec.lane is lane]
    for lane in (Lane.FAST, Lane.SLOW, Lane.PCIE, Lane.ONCE)
}


@dataclass(frozen=True, slots=True)
class Query:
    """The fields that one host's nvidia-smi is asked for, in order."""

    identity: tuple[str, ...]
    fields: tuple[tuple[str, Field], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names as they are asked for."""
        return (*self.identity, *(name for name, _ in self.fields))

    def without(self, name: str) -> Query:
        """The same query without a name that was rejected."""
        return Query(
            tuple(known for known in self.identity if known != name),
            tuple(pair for pair in self.fields if pair[0] != name),
        )


@dataclass(frozen=True, slots=True)
class SmiRow:
    """One line of output: one GPU at one moment.

    Attributes:
        values: Reading key -> value.
        absent: Reading key -> why there is none.
        lost: Whether the GPU is said to be lost.
    """

    index: int
    uuid: str
    name: str
    bus_id: str
    driver_version: str
    timestamp: str
    values: dict[str, Value]
    absent: dict[str, str]
    lost: bool = False


def names_of_help(text: str) -> frozenset[str]:
    """The field names of `nvidia-smi --help-query-gpu`: the quoted words of lines that begin so."""
    names: set[str] = set()
    for line in text.splitlines():
        if line.startswith('"'):
            names.update(re.findall(r'"([a-z][a-z0-9_.]*)"', line))
    return frozenset(names)


def negotiate(known: Iterable[str]) -> Query:
    """The query for a host whose nvidia-smi knows these names; the oldest where none is known."""
    names = frozenset(known)
    if not names:
        return Query(IDENTITY, tuple((field.names[-1], field) for field in FIELDS[:13]))
    chosen = []
    for field in FIELDS:
        name = next((name for name in field.names if name in names), None)
        if name is not None:
            chosen.append((name, field))
    identity = tuple(name for name in IDENTITY if name in names or name in ("index", "uuid"))
    return Query(identity, tuple(chosen))


def rejected_field(line: str) -> str | None:
    """The name in `Field "NAME" is not a valid field to query.`, or None."""
    match = re.search(r'[Ff]ield "([^"]+)" is not a valid field', line)
    return match.group(1) if match else None


def parse_row(line: str, query: Query) -> SmiRow | None:
    """One line as a row, or None where it is none."""
    try:
        cells = next(csv.reader([line], skipinitialspace=True))
    except (csv.Error, StopIteration):
        return None
    names = query.names
    if len(cells) != len(names):
        return None
    text = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
    if not text["index"].isdigit():
        return None
    values: dict[str, Value] = {}
    absent: dict[str, str] = {}
    for name, field in query.fields:
        value = parse_cell(text[name], field)
        if isinstance(value, Absent):
            absent[field.key] = value.reason
        else:
            values[field.key] = value
    _merge_thermal(values, absent)
    lost = bool(_LOST.search(line))
    return SmiRow(
        index=int(text["index"]),
        uuid=text["uuid"] if text["uuid"].startswith("GPU-") else f"unreadable-{text['index']}",
        name=text.get("name", ""),
        bus_id=short_bus_id(text.get("pci.bus_id", "")),
        driver_version=text.get("driver_version", ""),
        timestamp=text.get("timestamp", ""),
        values=values,
        absent=absent,
        lost=lost and not values,
    )


def parse_cell(text: str, field: Field) -> Value | Absent:
    """The value of a cell, or why there is none."""
    word = text.strip("[]").strip()
    if text.startswith("[") or word in ("N/A", "", "Unknown", "Not Active", "ERR!"):
        return Absent(reason_of(word))
    try:
        value = field.parse(text)
    except (ValueError, OverflowError):
        return Absent(f"not understood: {text[:60]}")
    if isinstance(value, float) and not -1e15 < value < 1e15:
        return Absent(f"not understood: {text[:60]}")
    return value


def reason_of(word: str) -> str:
    """Why a cell is empty, in an operator's words."""
    lowered = word.lower()
    if lowered in ("n/a", "not supported", ""):
        return "not supported by this GPU"
    if "permission" in lowered:
        return "no permission"
    if _LOST.search(lowered):
        return "GPU is lost"
    if "requires reset" in lowered or "reset required" in lowered:
        return "the GPU needs a reset"
    if "unknown error" in lowered or lowered == "err!":
        return "unknown error of the driver"
    return lowered[:100]


def short_bus_id(bus_id: str) -> str:
    """A bus id as the kernel writes it: four digits of domain, lower case."""
    bus_id = bus_id.lower()
    return bus_id[4:] if len(bus_id) == 16 and bus_id.startswith("0000") else bus_id


def _merge_thermal(values: dict[str, Value], absent: dict[str, str]) -> None:
    """Time held by temperature is one reading, made of two counters."""
    parts = [values.pop(key, None) for key in ("time_thermal_sw_us", "time_thermal_hw_us")]
    reasons = [absent.pop(key, None) for key in ("time_thermal_sw_us", "time_thermal_hw_us")]
    numbers = [part for part in parts if isinstance(part, int)]
    if numbers:
        values["time_thermal_us"] = sum(numbers)
    elif any(reasons):
        absent["time_thermal_us"] = next(reason for reason in reasons if reason)
