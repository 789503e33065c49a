"""The table that plain `nvidia-smi` draws, and `nvidia-smi --query-gpu=... --format=csv`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from backends.tuning.facts import Fact
from backends.tuning.readers.excerpt import Excerpt, Line
from backends.tuning.readers.pci_address import address, domain_as_printed

_BDF = r"(?P<bdf>[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
_FIRST: Final = re.compile(
    rf"^\|\s*(?P<index>\d{{1,3}})\s+(?P<name>\S.*?)\s+(?P<persistence>On|Off|N/A|ERR!)\s*"
    rf"\|\s*{_BDF}\s+(?P<display>On|Off|N/A)\s*\|\s*(?P<ecc>\S+)\s*\|"
)
_SECOND: Final = re.compile(
    r"^\|\s*(?P<fan>\S+)\s+(?P<temp>-?\d+C|N/A|ERR!)\s+(?P<pstate>P\d+|N/A)\s+"
    r"(?P<power>[\d.]+W|N/A|ERR!)\s*/\s*(?P<cap>[\d.]+W|N/A|ERR!)\s*"
    r"\|\s*(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB\s*"
    r"\|\s*(?P<util>\d+%|N/A|ERR!)\s+(?P<mode>\S+(?:\s\S+)*?)\s*\|"
)
_THIRD: Final = re.compile(r"^\|\s*\|\s*\|\s*(?P<mig>Enabled\*?|Disabled\*?|N/A)\s*\|")
_HEADER: Final = re.compile(
    r"Driver Version:\s*(?P<driver>[\d.]+)\s+CUDA Version:\s*(?P<cuda>[\d.]+)"
)
_PROCESS: Final = re.compile(
    r"^\|\s*(?P<gpu>\d+)\s+(?:\S+\s+\S+\s+)?(?P<pid>\d{1,10})\s+(?P<type>[CG+M]+)\s+(?P<name>\S.*?)"
    r"\s+(?P<mib>\d+)MiB\s*\|"
)
_NUMBERS: Final = {"index", "temp_c", "mem_temp_c", "power_w", "power_limit_w"}


def read_table(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts of the plain table: one or more GPUs, each in two or three rows."""
    id_ = ""
    framed: Line | None = None
    header = False
    count = 0
    processes: list[tuple[str, Line]] = []
    for line in excerpt.lines:
        text = line.text
        if match := _HEADER.search(text):
            header = True
            yield excerpt.fact("driver/version", match["driver"], line)
            yield excerpt.fact("driver/cuda", match["cuda"], line)
        elif match := _FIRST.match(text):
            id_ = address(match["bdf"]) or match["bdf"]
            count += 1
            yield from _first(excerpt, id_, match, line)
        elif id_ and (match := _SECOND.match(text)):
            yield from _second(excerpt, id_, match, line)
        elif id_ and (match := _THIRD.match(text)):
            mode = match["mig"]
            pending = {"Enabled*": "Disabled", "Disabled*": "Enabled"}.get(mode, mode)
            yield _value(excerpt, id_, "mig_current", mode.rstrip("*"), line)
            yield _value(excerpt, id_, "mig_pending", pending, line)
        elif match := _PROCESS.match(text):
            processes.append(
                (
                    f"{match['gpu']}|{match['pid']}|{match['type']}|{match['name']}|{match['mib']}",
                    line,
                )
            )
        elif "Processes:" in text:
            framed = line
    if header and framed is not None and count:
        # The frame of the process list comes after the last GPU: the table is whole.
        yield excerpt.fact("gpu/complete", True, framed)
        yield excerpt.fact("gpu/attached", count, framed)
    if processes:
        yield excerpt.fact("gpu/processes", [text for text, _ in processes], processes[0][1])


def _first(excerpt: Excerpt, id_: str, match: re.Match[str], line: Line) -> Iterator[Fact]:
    yield excerpt.fact(f"gpu/{id_}/index", int(match["index"]), line)
    yield excerpt.fact(f"gpu/{id_}/name", match["name"], line)
    yield excerpt.fact(f"gpu/{id_}/printed_domain", domain_as_printed(match["bdf"]), line)
    yield _value(excerpt, id_, "persistence", match["persistence"], line)
    ecc = match["ecc"]
    if ecc.isdecimal():
        yield excerpt.fact(f"gpu/{id_}/ecc_volatile_uncorrectable", int(ecc[:18]), line)
    elif ecc == "Off":
        yield excerpt.fact(f"gpu/{id_}/ecc_current", "Disabled", line)
    else:
        yield _value(excerpt, id_, "ecc_volatile_uncorrectable", ecc, line)


def _second(excerpt: Excerpt, id_: str, match: re.Match[str], line: Line) -> Iterator[Fact]:
    for field, text in (
        ("temp_c", match["temp"].rstrip("C")),
        ("power_w", match["power"].rstrip("W")),
        ("power_limit_w", match["cap"].rstrip("W")),
        ("used_mib", match["used"]),
        ("vram_mib", match["total"]),
        ("util_pct", match["util"].rstrip("%")),
        ("pstate", match["pstate"]),
        (
            "compute_mode",
            {"E.": "Exclusive_Process", "E. Process": "Exclusive_Process"}.get(
                match["mode"], match["mode"]
            ),
        ),
    ):
        yield _value(excerpt, id_, field, text, line)


def _value(excerpt: Excerpt, id_: str, field: str, text: str, line: Line) -> Fact:
    key = f"gpu/{id_}/{field}"
    if text in ("N/A", "[N/A]", "[Not Supported]", "[Not Found]"):
        return excerpt.fact(key, None, line, "NotSupported")
    if text in ("ERR!", "[Unknown Error]", "[GPU is lost]", "", "[Insufficient Permissions]"):
        return excerpt.fact(key, None, line, text.strip("[]") or "empty")
    if re.fullmatch(r"-?\d{1,15}", text):
        return excerpt.fact(key, int(text), line)
    if re.fullmatch(r"-?\d{1,15}\.\d{1,9}", text):
        return excerpt.fact(key, float(text), line)
    return excerpt.fact(key, text, line)


_COLUMNS: Final = {
    "index": "index",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "name": "name",
    "gpu_name": "name",
    "driver_version": "driver_version",
    "persistence_mode": "persistence",
    "pstate": "pstate",
    "power.draw": "power_w",
    "power.draw.average": "power_w",
    "power.draw.instant": "power_now_w",
    "power.limit": "power_limit_w",
    "enforced.power.limit": "power_enforced_w",
    "power.default_limit": "power_default_w",
    "power.min_limit": "power_min_w",
    "power.max_limit": "power_max_w",
    "utilization.gpu": "util_pct",
    "memory.used": "used_mib",
    "memory.total": "vram_mib",
    "temperature.gpu": "temp_c",
    "temperature.memory": "mem_temp_c",
    "clocks.current.sm": "clock_sm_mhz",
    "clocks.sm": "clock_sm_mhz",
    "clocks.current.memory": "clock_mem_mhz",
    "clocks.mem": "clock_mem_mhz",
    "clocks.max.sm": "clock_sm_max_mhz",
    "clocks.max.memory": "clock_mem_max_mhz",
    "clocks.max.mem": "clock_mem_max_mhz",
    "pcie.link.gen.current": "link_gen",
    "pcie.link.gen.gpucurrent": "link_gen",
    "pcie.link.gen.max": "link_gen_max",
    "pcie.link.gen.gpumax": "link_gen_device_max",
    "pcie.link.gen.hostmax": "link_gen_host_max",
    "pcie.link.width.current": "link_width",
    "pcie.link.width.max": "link_width_max",
    "clocks_event_reasons.active": "reasons",
    "clocks_throttle_reasons.active": "reasons",
    "ecc.mode.current": "ecc_current",
    "ecc.mode.pending": "ecc_pending",
    "ecc.errors.uncorrected.volatile.total": "ecc_volatile_uncorrectable",
    "ecc.errors.uncorrected.aggregate.total": "ecc_aggregate_uncorrectable",
    "ecc.errors.corrected.volatile.total": "ecc_volatile_correctable",
    "retired_pages.single_bit_ecc.count": "retired_single",
    "retired_pages.double_bit.count": "retired_double",
    "retired_pages.pending": "retired_pending",
    "mig.mode.current": "mig_current",
    "mig.mode.pending": "mig_pending",
    "compute_mode": "compute_mode",
    "addressing_mode": "addressing_mode",
    "gpu_recovery_action": "recovery_action",
    "gsp_firmware_version": "gsp_version",
    "fabric.state": "fabric_state",
    "fabric.status": "fabric_status",
}
_PER_REASON: Final = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
_BARE: Final = re.compile(r"^(-?[\d.]+)\s*(?:W|MiB|MHz|%|C)$")


def read_csv(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts of `--query-gpu` with its header line; the header tells the columns."""
    columns: list[str] = []
    rows = 0
    for line in excerpt.lines:
        if "," not in line.text:
            columns = []
            continue
        cells = [cell.strip() for cell in line.text.split(",")]
        names = [cell.partition("[")[0].strip().lower() for cell in cells]
        if sum(name in _COLUMNS or "pci.bus_id" in name for name in names) >= max(
            2, (len(names) + 1) // 2
        ):
            columns, rows = names, 0
            continue
        if not columns:
            continue
        if len(cells) != len(columns):
            columns = []
            continue
        row = dict(zip(columns, cells, strict=True))
        yield from _csv_row(excerpt, row, rows, line)
        rows += 1


def _csv_row(excerpt: Excerpt, row: dict[str, str], order: int, line: Line) -> Iterator[Fact]:
    bus = row.get("pci.bus_id") or row.get("gpu_bus_id") or ""
    index = row.get("index", "")
    id_ = address(bus) or (f"index-{index}" if index.isdecimal() else f"index-{order}")
    if bus:
        yield excerpt.fact(f"gpu/{id_}/printed_domain", domain_as_printed(bus), line)
    mask: int | None = None
    seen = 0
    for name, text in row.items():
        if reason := re.fullmatch(r"clocks_(?:event|throttle)_reasons\.(\w+)", name):
            bit = _PER_REASON.get(reason[1])
            if bit is not None and text in ("Active", "Not Active", "[N/A]"):
                mask = (mask or 0) | (bit if text == "Active" else 0)
                seen |= bit
        field = _COLUMNS.get(name)
        if field is None:
            continue
        if match := _BARE.match(text):
            text = match[1]
        if field == "driver_version":
            yield excerpt.fact("driver/version", text, line)
        elif field == "reasons" and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text):
            yield excerpt.fact(f"gpu/{id_}/reasons", int(text, 16), line)
        else:
            yield _value(excerpt, id_, field, text, line)
    if mask is not None:
        yield excerpt.fact(f"gpu/{id_}/reasons", mask, line)
        yield excerpt.fact(f"gpu/{id_}/reasons_seen", seen, line)
