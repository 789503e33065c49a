"""`nvidia-smi -q`, whole or in part, as text and as XML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from backends.tuning.facts import Fact, Value
from backends.tuning.readers.excerpt import Excerpt, Line
from backends.tuning.readers.pci_address import address, domain_as_printed

REASONS: Final = {
    "idle": 0x1,
    "applications clocks setting": 0x2,
    "sw power cap": 0x4,
    "hw slowdown": 0x8,
    "sync boost": 0x10,
    "sw thermal slowdown": 0x20,
    "hw thermal slowdown": 0x40,
    "hw power brake slowdown": 0x80,
    "display clock setting": 0x100,
}
"""Bits of NVML's clock event reasons, by the words nvidia-smi prints."""

_POWER: Final = ("gpu power readings", "power readings")
_FIELDS: Final[dict[tuple[str, ...], str]] = {
    ("product name",): "name",
    ("product architecture",): "architecture",
    ("gpu uuid",): "uuid",
    ("persistence mode",): "persistence",
    ("addressing mode",): "addressing_mode",
    ("mig mode", "current"): "mig_current",
    ("mig mode", "pending"): "mig_pending",
    ("gpu virtualization mode", "virtualization mode"): "virtualization_mode",
    ("gpu recovery action",): "recovery_action",
    ("gsp firmware version",): "gsp_version",
    ("pcie generation", "max"): "link_gen_max",
    ("pcie generation", "current"): "link_gen",
    ("pcie generation", "device max"): "link_gen_device_max",
    ("pcie generation", "host max"): "link_gen_host_max",
    ("link width", "max"): "link_width_max",
    ("link width", "current"): "link_width",
    ("pci", "replays since reset"): "replays",
    ("pci", "replay number rollovers"): "replay_rollovers",
    ("performance state",): "pstate",
    ("fb memory usage", "total"): "vram_mib",
    ("fb memory usage", "used"): "used_mib",
    ("bar1 memory usage", "total"): "bar1_mib",
    ("compute mode",): "compute_mode",
    ("utilization", "gpu"): "util_pct",
    ("ecc mode", "current"): "ecc_current",
    ("ecc mode", "pending"): "ecc_pending",
    ("retired pages", "single bit ecc"): "retired_single",
    ("retired pages", "double bit ecc"): "retired_double",
    ("retired pages", "pending page blacklist"): "retired_pending",
    ("retired pages", "pending"): "retired_pending",
    ("remapped rows", "correctable error"): "rows_correctable",
    ("remapped rows", "uncorrectable error"): "rows_uncorrectable",
    ("remapped rows", "pending"): "rows_pending",
    ("remapped rows", "remapping failure occurred"): "rows_failure",
    ("bank remap availability histogram", "none"): "rows_bank_none",
    ("aggregate", "sram threshold exceeded"): "ecc_sram_threshold",
    ("ecc errors", "unrepairable memory"): "ecc_unrepairable",
    ("temperature", "gpu current temp"): "temp_c",
    ("temperature", "gpu t.limit temp"): "temp_margin_c",
    ("temperature", "gpu slowdown t.limit temp"): "temp_slowdown_margin_c",
    ("temperature", "gpu slowdown temp"): "temp_slowdown_c",
    ("temperature", "gpu shutdown temp"): "temp_shutdown_c",
    ("temperature", "memory current temp"): "mem_temp_c",
    **{(p, w): "power_w" for p in _POWER for w in ("average power draw", "power draw")},
    **{(p, "instantaneous power draw"): "power_now_w" for p in _POWER},
    **{(p, w): "power_limit_w" for p in _POWER for w in ("current power limit", "power limit")},
    **{(p, "enforced power limit"): "power_enforced_w" for p in _POWER},
    **{(p, "requested power limit"): "power_requested_w" for p in _POWER},
    **{(p, "default power limit"): "power_default_w" for p in _POWER},
    **{(p, "min power limit"): "power_min_w" for p in _POWER},
    **{(p, "max power limit"): "power_max_w" for p in _POWER},
    ("clocks", "sm"): "clock_sm_mhz",
    ("clocks", "memory"): "clock_mem_mhz",
    ("max clocks", "sm"): "clock_sm_max_mhz",
    ("max clocks", "memory"): "clock_mem_max_mhz",
    ("applications clocks", "graphics"): "app_clock_sm_mhz",
    ("default applications clocks", "graphics"): "app_clock_sm_default_mhz",
    ("fabric", "state"): "fabric_state",
    ("fabric", "status"): "fabric_status",
    ("pci", "device id"): "pci_id",
}
_XML: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    ("product_name",): ("product name",),
    ("product_architecture",): ("product architecture",),
    ("uuid",): ("gpu uuid",),
    ("persistence_mode",): ("persistence mode",),
    ("addressing_mode",): ("addressing mode",),
    ("current_mig",): ("mig mode", "current"),
    ("pending_mig",): ("mig mode", "pending"),
    ("virtualization_mode",): ("gpu virtualization mode", "virtualization mode"),
    ("gpu_recovery_action",): ("gpu recovery action",),
    ("gsp_firmware_version",): ("gsp firmware version",),
    ("pcie_gen", "max_link_gen"): ("pcie generation", "max"),
    ("pcie_gen", "current_link_gen"): ("pcie generation", "current"),
    ("pcie_gen", "max_device_link_gen"): ("pcie generation", "device max"),
    ("pcie_gen", "max_host_link_gen"): ("pcie generation", "host max"),
    ("max_link_width",): ("link width", "max"),
    ("current_link_width",): ("link width", "current"),
    ("replay_counter",): ("pci", "replays since reset"),
    ("replay_rollover_counter",): ("pci", "replay number rollovers"),
    ("pci_device_id",): ("pci", "device id"),
    ("performance_state",): ("performance state",),
    ("fb_memory_usage", "total"): ("fb memory usage", "total"),
    ("fb_memory_usage", "used"): ("fb memory usage", "used"),
    ("bar1_memory_usage", "total"): ("bar1 memory usage", "total"),
    ("compute_mode",): ("compute mode",),
    ("gpu_util",): ("utilization", "gpu"),
    ("current_ecc",): ("ecc mode", "current"),
    ("pending_ecc",): ("ecc mode", "pending"),
    ("multiple_single_bit_retirement", "retired_count"): ("retired pages", "single bit ecc"),
    ("double_bit_retirement", "retired_count"): ("retired pages", "double bit ecc"),
    ("pending_blacklist",): ("retired pages", "pending page blacklist"),
    ("remapped_row_corr",): ("remapped rows", "correctable error"),
    ("remapped_row_unc",): ("remapped rows", "uncorrectable error"),
    ("remapped_row_pending",): ("remapped rows", "pending"),
    ("remapped_row_failure",): ("remapped rows", "remapping failure occurred"),
    ("row_remapper_histogram_none",): ("bank remap availability histogram", "none"),
    ("sram_threshold_exceeded",): ("aggregate", "sram threshold exceeded"),
    ("unrepairable_memory",): ("ecc errors", "unrepairable memory"),
    ("gpu_temp",): ("temperature", "gpu current temp"),
    ("gpu_temp_tlimit",): ("temperature", "gpu t.limit temp"),
    ("gpu_temp_slow_tlimit_threshold",): ("temperature", "gpu slowdown t.limit temp"),
    ("gpu_temp_slow_threshold",): ("temperature", "gpu slowdown temp"),
    ("memory_temp",): ("temperature", "memory current temp"),
    **{
        (section, tag): ("gpu power readings", words)
        for section in ("gpu_power_readings", "power_readings")
        for tag, words in {
            "average_power_draw": "average power draw",
            "power_draw": "power draw",
            "instant_power_draw": "instantaneous power draw",
            "current_power_limit": "current power limit",
            "power_limit": "power limit",
            "enforced_power_limit": "enforced power limit",
            "requested_power_limit": "requested power limit",
            "default_power_limit": "default power limit",
            "min_power_limit": "min power limit",
            "max_power_limit": "max power limit",
        }.items()
    },
    ("clocks", "sm_clock"): ("clocks", "sm"),
    ("clocks", "mem_clock"): ("clocks", "memory"),
    ("max_clocks", "sm_clock"): ("max clocks", "sm"),
    ("max_clocks", "mem_clock"): ("max clocks", "memory"),
    ("applications_clocks", "graphics_clock"): ("applications clocks", "graphics"),
    ("default_applications_clocks", "graphics_clock"): (
        "default applications clocks",
        "graphics",
    ),
    ("fabric", "state"): ("fabric", "state"),
    ("fabric", "status"): ("fabric", "status"),
}
_XML_REASONS: Final = {
    "gpu_idle": "idle",
    "applications_clocks_setting": "applications clocks setting",
    "sw_power_cap": "sw power cap",
    "hw_slowdown": "hw slowdown",
    "hw_thermal_slowdown": "hw thermal slowdown",
    "hw_power_brake_slowdown": "hw power brake slowdown",
    "sync_boost": "sync boost",
    "sw_thermal_slowdown": "sw thermal slowdown",
    "display_clocks_setting": "display clock setting",
}
_NUMBER_FIELD: Final = re.compile(
    r"(?:_(?:mib|w|c|mhz|pct)$)|^(?:link_|rows_(?:co|un|bank)|retired_[sd]"
    r"|replay)"
)
_UNIT: Final = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:x|MiB|W|C|MHz|%|bank\(s\))?$")
_GPU: Final = re.compile(r"^GPU\s+(?P<bdf>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_PAIR: Final = re.compile(
    r"^(?P<indent>\s*)(?P<name>[A-Za-z][\w ./()+-]*?)\s*:(?:\s+(?P<value>.*))?$"
)
_HEADING: Final = re.compile(r"^(?P<indent>\s*)(?P<name>[A-Za-z][A-Za-z0-9 ./()-]{1,60})$")
_KNOWN_HEADINGS: Final = frozenset(
    {
        "clocks event reasons",
        "clocks throttle reasons",
        "ecc errors",
        "remapped rows",
        "retired pages",
        "gpu power readings",
        "power readings",
        "fabric",
        "mig mode",
        "ecc mode",
        "pci",
        "temperature",
        "fb memory usage",
        "bar1 memory usage",
        "utilization",
        "clocks",
        "max clocks",
        "applications clocks",
        "default applications clocks",
        "gpu link info",
        "volatile",
        "aggregate",
        "pcie generation",
        "link width",
        "gpu virtualization mode",
        "bank remap availability histogram",
        "clocks event reasons counters",
    }
)
_LOG: Final = re.compile(r"NVSMI LOG|^\s*Attached GPUs\s*:|^GPU [0-9A-Fa-f]{8}:")
UNNAMED: Final = "unnamed"
MAX_ROW_CHARS: Final = 300
"""Rows of nvidia-smi are shorter; longer lines are something else."""


class _Gpu:
    """The fields of one GPU as they are met."""

    def __init__(self, excerpt: Excerpt, id_: str) -> None:
        self._excerpt = excerpt
        self.id = id_
        self.facts: dict[str, Fact] = {}
        self._mask: int | None = None
        self._mask_seen = 0
        self._uncorrectable: dict[str, dict[str, int]] = {"volatile": {}, "aggregate": {}}
        self._correctable: dict[str, dict[str, int]] = {"volatile": {}, "aggregate": {}}

    def put(self, field: str, value: Value | None, line: Line, error: str | None = None) -> None:
        key = f"gpu/{self.id}/{field}"
        self.facts[key] = self._excerpt.fact(key, value, line, error)

    def meet(self, path: tuple[str, ...], value: str, line: Line) -> None:
        """One `name : value` line below the headings of `path`."""
        parent = path[-2] if len(path) > 1 else ""
        name = path[-1]
        if any(p in ("clocks event reasons", "clocks throttle reasons") for p in path[:-1]):
            self._reason(name, value, line)
            return
        if "ecc errors" in path[:-1] and self._errors(path, name, value, line):
            return
        field = _FIELDS.get((parent, name)) or _FIELDS.get((name,))
        if field is None and len(path) > 2:
            field = _FIELDS.get((path[-3], name))
        if field is None:
            return
        if field == "pci_id":
            if match := re.match(r"0?x?([0-9A-Fa-f]{4})10DE$", value, re.IGNORECASE):
                self.put("device_id", match[1].lower(), line)
        elif value in ("N/A", "[N/A]", "Not Supported", "[Not Supported]") or value.startswith(
            "Requested functionality"
        ):
            self.put(field, None, line, "NotSupported")
        elif value in ("", "Unknown Error", "[Unknown Error]", "ERR!", "[GPU requires reset]"):
            self.put(field, None, line, value.strip("[]") or "empty")
        elif _NUMBER_FIELD.search(field) and (match := _UNIT.match(value)):
            text = match[1]
            self.put(field, float(text) if "." in text else int(text), line)
        else:
            self.put(field, value, line)

    def _reason(self, name: str, value: str, line: Line) -> None:
        bit = REASONS.get(name)
        if bit is None or value not in ("Active", "Not Active", "N/A"):
            return
        self._mask = (self._mask or 0) | (bit if value == "Active" else 0)
        self._mask_seen |= bit
        self.put("reasons", self._mask, line)
        self.put("reasons_seen", self._mask_seen, line)
        self.put(f"reason_{name.replace(' ', '_')}", value == "Active", line)

    def _errors(self, path: tuple[str, ...], name: str, value: str, line: Line) -> bool:
        scope = next((s for s in ("volatile", "aggregate") if s in path), None)
        if scope is None or not re.search(r"correctable|^total$|^double bit|^single bit", name):
            return False
        if "threshold" in name:
            return False
        where = f"{' '.join(path[path.index(scope) + 1 :])}"
        wrong = "uncorrectable" in name or "double bit" in where
        kept = (self._uncorrectable if wrong else self._correctable)[scope]
        if name == "total" and len(kept):
            return True
        word = "uncorrectable" if wrong else "correctable"
        if value.isdecimal():
            kept[where] = int(value[:18])
            if wrong:
                # Of both memories, or as a total: anything less says nothing about the rest.
                parts = " ".join(kept)
                whole = ("sram" in parts and "dram" in parts) or "total" in parts
                self.put(f"ecc_{scope}_complete", whole, line)
            self.put(f"ecc_{scope}_{word}", sum(kept.values()), line)
            self.put(
                f"ecc/{scope}/{where.replace(' ', '_').replace('/', '_')}", int(value[:18]), line
            )
        elif f"gpu/{self.id}/ecc_{scope}_{word}" not in self.facts:
            self.put(f"ecc_{scope}_{word}", None, line, "NotSupported")
        return True


def read_text(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts of `nvidia-smi -q` text, of one or many GPUs, whole or a part of it."""
    gpu: _Gpu | None = None
    stack: list[tuple[int, str]] = []
    is_log = any(_LOG.search(line.text) for line in excerpt.lines)
    order = 0
    for line in excerpt.lines:
        text = line.text
        if match := _GPU.match(text):
            if gpu:
                yield from gpu.facts.values()
            id_ = address(match["bdf"]) or match["bdf"]
            gpu = _Gpu(excerpt, id_)
            gpu.put("order", order, line)
            gpu.put("printed_domain", domain_as_printed(match["bdf"]), line)
            order += 1
            stack = []
            continue
        if not text.strip() or len(text) > MAX_ROW_CHARS:
            continue
        if match := _PAIR.match(text):
            name = _name(match["name"])
            indent = len(match["indent"])
            value = (match["value"] or "").strip()
            if gpu is None and not stack:
                yield from _top(excerpt, name, value, line)
            while stack and stack[-1][0] >= indent:
                stack.pop()
            path = (*(part for _, part in stack), name)
            if gpu is None and stack and _is_known(path):
                gpu = _Gpu(excerpt, UNNAMED)
            if gpu is not None:
                gpu.meet(path, value, line)
            stack.append((indent, name))
        elif match := _HEADING.match(text):
            name = _name(match["name"])
            if gpu is None and not is_log and name not in _KNOWN_HEADINGS:
                stack = []
                continue
            indent = len(match["indent"])
            while stack and stack[-1][0] >= indent:
                stack.pop()
            stack.append((indent, name))
        elif gpu is None or not text[0].isspace():
            stack = []
    if gpu:
        yield from gpu.facts.values()


def _name(printed: str) -> str:
    name = printed.strip().lower().replace("throttle", "event")
    return {"gpu idle": "idle"}.get(name, name)


def _is_known(path: tuple[str, ...]) -> bool:
    return path[-2:] in _FIELDS or any(part in _KNOWN_HEADINGS for part in path[:-1])


def _top(excerpt: Excerpt, name: str, value: str, line: Line) -> Iterator[Fact]:
    if name == "attached gpus" and value.isdecimal():
        yield excerpt.fact("gpu/attached", int(value[:6]), line)
    elif name == "driver version" and re.fullmatch(r"\d+\.\d+(?:\.\d+)?", value):
        yield excerpt.fact("driver/version", value, line)
    elif name == "cuda version" and re.fullmatch(r"\d+\.\d+", value):
        yield excerpt.fact("driver/cuda", value, line)


_TAG: Final = re.compile(r"<(/?)([A-Za-z_][\w.-]{0,80})([^<>]{0,200}?)(/?)>([^<]{0,400})")


def read_xml(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts of `nvidia-smi -q -x`. Tags are taken one by one; no entity is ever expanded."""
    gpu: _Gpu | None = None
    stack: list[str] = []
    order = 0
    seen = False
    for line in excerpt.lines:
        if "<" not in line.text:
            continue
        for close, tag, attributes, empty, content in _TAG.findall(line.text):
            if tag == "nvidia_smi_log":
                seen = not close
                stack = []
                continue
            if not seen:
                continue
            if close:
                if tag in stack:
                    del stack[len(stack) - 1 - stack[::-1].index(tag) :]
                if tag == "gpu" and gpu:
                    yield from gpu.facts.values()
                    gpu = None
                continue
            if tag == "gpu" and (match := re.search(r'id="([0-9A-Fa-f:.]{8,20})"', attributes)):
                id_ = address(match[1]) or match[1]
                gpu = _Gpu(excerpt, id_)
                gpu.put("order", order, line)
                gpu.put("printed_domain", domain_as_printed(match[1]), line)
                order += 1
            if empty:
                continue
            stack.append(tag)
            value = content.strip()
            if not value:
                continue
            if gpu is None:
                name = tag.replace("_", " ")
                yield from _top(excerpt, name, value, line)
            else:
                _meet_xml(gpu, tuple(stack), value, line)
    if gpu:
        yield from gpu.facts.values()


def _meet_xml(gpu: _Gpu, stack: tuple[str, ...], value: str, line: Line) -> None:
    tag = stack[-1]
    reason = re.fullmatch(r"clocks_(?:event|throttle)_reasons?_(\w+)", tag)
    if reason:
        if words := _XML_REASONS.get(reason[1]):
            gpu.meet(("clocks event reasons", words), value, line)
        return
    if "ecc_errors" in stack and re.search(r"correctable", tag):
        path = tuple(part.replace("_", " ") for part in stack[stack.index("ecc_errors") :])
        gpu.meet(path, value, line)
        return
    path_words = _XML.get(stack[-2:]) or _XML.get((tag,))
    if path_words:
        gpu.meet(path_words, value, line)


def fields_of(facts: Iterable[Fact]) -> Mapping[str, Fact]:
    """Facts by key; for tests and for those who read one block."""
    return {fact.key: fact for fact in facts}
