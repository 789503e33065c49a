"""The table that plain `nvidia-smi` draws, and `nvidia-smi --query-gpu=... --format=csv`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from backends.tuning.facts import Fact
from backends.tuning.readers.excerpt import Excerpt, Line
from backends.tuning.readers.pci_address import address, domain_as_printed

_BDF = r"(?P<bdf>[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
_NAME: Final = re.compile(
    r"(?P<index>\d{1,3})\s+(?P<name>\S.*?)\s+(?P<mode>On|Off|N/A|ERR!|WDDM|TCC|MCDM)"
)
DRIVER_MODELS: Final = frozenset({"WDDM", "TCC", "MCDM"})
_BUS: Final = re.compile(rf"{_BDF}\s+(?P<display>On|Off|N/A)")
_STATE: Final = re.compile(
    r"(?P<fan>\S+)\s+(?P<temp>-?\d+C|N/A|ERR!)\s+(?P<pstate>P\d+|N/A|ERR!)\s+"
    r"(?P<power>[\d.]+W|N/A|ERR!)\s*/\s*(?P<cap>[\d.]+W|N/A|ERR!)"
)
_MEMORY: Final = re.compile(
    r"(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB|(?P<without>Not Supported|N/A|ERR!)(?:\s*/.*)?"
)
_LOAD: Final = re.compile(r"(?P<util>\d+%|N/A|ERR!)\s+(?P<mode>\S+(?:\s\S+)*)")
_INSTANCE: Final = re.compile(r"(?P<gpu>\d{1,3})(?:\s+(?:\d{1,4}|N/A)){3}")
_INSTANCE_LOAD: Final = re.compile(r"(?:\d{1,4}|N/A)\s+(?P<wrong>\d{1,15})")
_GONE: Final = frozenset({"ERR!", "Unknown Error", "[Unknown Error]", "[GPU is lost]"})
_MIG: Final = re.compile(r"Enabled\*?|Disabled\*?|N/A|ERR!")
_HEADER: Final = re.compile(
    r"(?:Driver|KMD) Version:\s*(?P<driver>\d[\d.]*)"
    r"(?:\s+CUDA (?:UMD )?Version:\s*(?P<cuda>\d[\d.]*))?"
)
_PROCESS: Final = re.compile(
    r"^\|\s*(?P<gpu>\d+)\s+(?:\S+\s+\S+\s+)?(?P<pid>\d{1,10})\s+(?P<type>[CG+M]+)\s+(?P<name>\S.*?)"
    r"\s+(?P<mib>\d+MiB|N/A)\s*\|"
)


def read_table(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts of the plain table: one or more GPUs, each in two or three rows.

    Rows that the terminal wrapped are put together again; of rows that were cut at its edge the
    cells that are whole are read.
    """
    id_ = ""
    framed: Line | None = None
    header = False
    seen: set[str] = set()
    numbered: dict[str, str] = {}
    instances: dict[str, int] = {}
    cut = False
    processes: list[tuple[str, Line]] = []
    for line, cells in _rows(excerpt.lines):
        text = line.text
        if match := _HEADER.search(text):
            if "NVIDIA-SMI" in text:
                # Another table: of one that is drawn again, the last is in force.
                seen, processes, framed, id_, cut = set(), [], None, "", False
                numbered, instances = {}, {}
                header = True
            if header:
                yield excerpt.fact("driver/version", match["driver"], line)
                if match["cuda"]:
                    yield excerpt.fact("driver/cuda", match["cuda"], line)
        elif (
            len(cells) >= 2
            and (named := _NAME.fullmatch(cells[0]))
            and (bus := _BUS.fullmatch(cells[1]))
        ):
            id_ = address(bus["bdf"]) or bus["bdf"]
            seen.add(id_)
            numbered[named["index"]] = id_
            yield from _first(excerpt, id_, named, bus["bdf"], cells[2:3], line)
        elif (
            len(cells) == 4
            and (instance := _INSTANCE.fullmatch(cells[0]))
            and (counted := _INSTANCE_LOAD.fullmatch(cells[2]))
            and (owner := numbered.get(instance["gpu"]))
        ):
            # With MIG on, the errors of a GPU stand at its instances.
            instances[owner] = instances.get(owner, 0) + int(counted["wrong"])
            yield excerpt.fact(f"gpu/{owner}/ecc_volatile_uncorrectable", instances[owner], line)
        elif id_ and len(cells) > 1 and cells[1] == "GPU is lost":
            yield _lost(excerpt, id_, cells[1], line)
        elif id_ and cells and (state := _STATE.fullmatch(cells[0])):
            yield from _second(excerpt, id_, state, cells[1:3], line)
        elif id_ and len(cells) == 3 and not cells[0] and not cells[1] and _MIG.fullmatch(cells[2]):
            mode = cells[2]
            pending = {"Enabled*": "Disabled", "Disabled*": "Enabled"}.get(mode, mode)
            yield _value(excerpt, id_, "mig_current", mode.rstrip("*"), line)
            yield _value(excerpt, id_, "mig_pending", pending, line)
        elif match := _PROCESS.match(text):
            told = match["mib"].removesuffix("MiB")
            row = f"{match['gpu']}|{match['pid']}|{match['type']}|{match['name']}|{told}"
            processes.append((row, line))
        elif "Processes:" in text and "|" in text:
            framed = line
            cut = cut or not text.endswith("|")
        elif framed is not None and text.startswith("|") and not text.endswith("|"):
            cut = True
    if header and framed is not None and seen and not cut:
        # The frame of the process list comes after the last GPU: the table is whole.
        yield excerpt.fact("gpu/complete", True, framed)
        yield excerpt.fact("gpu/attached", len(seen), framed)
    if processes and not cut:
        yield excerpt.fact("gpu/processes", [text for text, _ in processes], processes[0][1])


def _rows(lines: Sequence[Line]) -> Iterator[tuple[Line, list[str]]]:
    """Each line with the cells between its bars; a wrapped row as one line."""
    width = max((len(line.text) for line in lines if line.text.startswith(("+-", "|="))), default=0)
    held: Line | None = None
    for line in lines:
        if held is not None:
            if line.text[:1] not in ("|", "+") and line.text.endswith("|"):
                line = Line(held.text.ljust(width) + line.text, held.number)
            else:
                yield held, _cells(held.text)
            held = None
        if line.text.startswith("|") and len(line.text) <= width:
            held = line
        else:
            yield line, _cells(line.text)
    if held is not None:
        yield held, _cells(held.text)


def _cells(text: str) -> list[str]:
    if not text.startswith("|"):
        return []
    cells = [cell.strip() for cell in text[1:].split("|")]
    # After the last bar there is nothing, or a cell that was cut.
    return cells[:-1]


def _first(
    excerpt: Excerpt, id_: str, named: re.Match[str], printed: str, rest: list[str], line: Line
) -> Iterator[Fact]:
    yield excerpt.fact(f"gpu/{id_}/index", int(named["index"]), line)
    if named["name"] in _GONE:
        yield _lost(excerpt, id_, named["name"], line)
    else:
        yield excerpt.fact(f"gpu/{id_}/name", named["name"], line)
    yield excerpt.fact(f"gpu/{id_}/printed_domain", domain_as_printed(printed), line)
    # On Windows the column says which model of driver the card has.
    field = "driver_model" if named["mode"] in DRIVER_MODELS else "persistence"
    yield _value(excerpt, id_, field, named["mode"], line)
    for ecc in rest:
        if ecc.isdecimal():
            yield excerpt.fact(f"gpu/{id_}/ecc_volatile_uncorrectable", int(ecc[:18]), line)
        elif ecc == "Off":
            yield excerpt.fact(f"gpu/{id_}/ecc_current", "Disabled", line)
        elif ecc != "On":  # With MIG on, the mode stands here and the counts at the instances.
            yield _value(excerpt, id_, "ecc_volatile_uncorrectable", ecc, line)


def _lost(excerpt: Excerpt, id_: str, told: str, line: Line) -> Fact:
    return excerpt.fact(f"nvml/unreached/{id_}", told.strip("[]"), line)


def _second(
    excerpt: Excerpt, id_: str, state: re.Match[str], rest: list[str], line: Line
) -> Iterator[Fact]:
    told = {
        "temp_c": state["temp"].rstrip("C"),
        "power_w": state["power"].rstrip("W"),
        "power_limit_w": state["cap"].rstrip("W"),
        "pstate": state["pstate"],
    }
    if rest and (memory := _MEMORY.fullmatch(rest[0])):
        without = {"Not Supported": "N/A"}.get(memory["without"], memory["without"])
        told["used_mib"] = memory["used"] or without
        told["vram_mib"] = memory["total"] or without
    if len(rest) > 1 and (load := _LOAD.fullmatch(rest[1])):
        told["util_pct"] = load["util"].rstrip("%")
        told["compute_mode"] = {"E.": "Exclusive_Process", "E. Process": "Exclusive_Process"}.get(
            load["mode"], load["mode"]
        )
    for field, text in told.items():
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
_ASKED: Final = re.compile(r"--query-gpu[= ]([a-z_.,]{3,2000}) .*--format[= ]\S*\bnoheader\b", re.I)
_BARE: Final = re.compile(r"^(-?[\d.]+)\s*(?:W|MiB|MHz|%|C)$")


def read_csv(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts of `--query-gpu` with its header line; the header tells the columns."""
    columns: list[str] = []
    rows = 0
    for line in excerpt.lines:
        if not line.text.strip():
            continue
        if asked := _ASKED.search(line.text):
            # With `noheader` the command alone names the columns.
            columns, rows = asked[1].lower().split(","), 0
            continue
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
    if any("GPU is lost" in text for text in row.values()):
        yield _lost(excerpt, id_, "GPU is lost", line)
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
