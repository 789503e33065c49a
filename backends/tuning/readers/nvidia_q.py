"""`nvidia-smi -q`, whole or in part, as text and as XML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from backends.tuning.facts import Fact, Value
from backends.tuning.readers.excerpt import Excerpt, Line
from backends.tuning.readers.nvidia_fields import (
    FIELDS,
    KNOWN_HEADINGS,
    REASONS,
    XML,
    XML_REASONS,
)
from backends.tuning.readers.pci_address import address, domain_as_printed

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
_TOP: Final = re.compile(r"(?:Timestamp|Driver Version|CUDA Version|Attached GPUs) *:")
_LOG: Final = re.compile(r"NVSMI LOG|^\s*Attached GPUs\s*:|^GPU [0-9A-Fa-f]{8}:")
_PROCESS: Final = re.compile(
    r"^\s*(?P<key>Attached GPUs|Processes|Process ID|Type|Name|Used GPU Memory)\s*"
    r"(?::(?P<value>.*))?$"
)
_INSTANCE: Final = "mig device"
_LOST: Final = re.compile(r"\bGPU is lost\b")
UNNAMED: Final = "unnamed"
MAX_ROW_CHARS: Final = 300
"""Rows of nvidia-smi are shorter; longer lines are something else."""


class _Gpu:
    """The fields of one GPU as they are met."""

    def __init__(self, excerpt: Excerpt, id_: str) -> None:
        self._excerpt = excerpt
        self.id = id_
        self.facts: dict[str, Fact] = {}
        self._instance = ""
        self._mask: int | None = None
        self._mask_seen = 0
        self._uncorrectable: dict[str, dict[str, int]] = {"volatile": {}, "aggregate": {}}
        self._correctable: dict[str, dict[str, int]] = {"volatile": {}, "aggregate": {}}

    def put(self, field: str, value: Value | None, line: Line, error: str | None = None) -> None:
        key = f"gpu/{self.id}/{field}"
        self.facts[key] = self._excerpt.fact(key, value, line, error)

    def lost(self, line: Line) -> None:
        """The driver says that it no longer answers."""
        key = f"nvml/unreached/{self.id}"
        self.facts[key] = self._excerpt.fact(key, "GPU is lost", line)

    def meet(self, path: tuple[str, ...], value: str, line: Line) -> None:
        """One `name : value` line below the headings of `path`."""
        parent = path[-2] if len(path) > 1 else ""
        name = path[-1]
        if any(p in ("clocks event reasons", "clocks throttle reasons") for p in path[:-1]):
            self._reason(name, value, line)
            return
        if _INSTANCE in path[:-1] and name == "index":
            self._instance = f"{_INSTANCE} {value[:4]} "
        if "ecc errors" in path[:-1] and self._errors(path, name, value, line):
            return
        if _INSTANCE in path[:-1]:
            return  # memory and modes of a part, not of the GPU
        if _LOST.search(value):
            self.lost(line)
        if parent == "gpu reset status" and value == "Yes":
            # Before "GPU Recovery Action" the driver said it so.
            self.put("recovery_action", {"reset required": 1}.get(name, 4), line)
            return
        field = FIELDS.get((parent, name)) or FIELDS.get((name,))
        if field is None and len(path) > 2:
            field = FIELDS.get((path[-3], name))
        if field is None:
            return
        if field == "pci_id":
            if match := re.match(r"0?x?([0-9A-Fa-f]{4})10DE$", value, re.IGNORECASE):
                self.put("device_id", match[1].lower(), line)
        elif value in ("N/A", "[N/A]", "Not Supported", "[Not Supported]") or value.startswith(
            "Requested functionality"
        ):
            self.put(field, None, line, "NotSupported")
        elif value in ("", "Unknown Error", "[Unknown Error]", "ERR!", "[GPU requires reset]") or (
            _LOST.search(value)
        ):
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
        if _INSTANCE in path:
            where = self._instance + where
        wrong = "uncorrectable" in name or "double bit" in where
        kept = (self._uncorrectable if wrong else self._correctable)[scope]
        if name == "total" and len(kept):
            return True
        word = "uncorrectable" if wrong else "correctable"
        if value.isdecimal():
            kept[where] = max(int(value[:18]), kept.get(where, 0))
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
    flat = _is_flat(excerpt, is_log=is_log)
    order = 0
    for line in excerpt.lines:
        text = _set_in(line.text) if flat else line.text
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
            while stack and stack[-1][0] >= indent:
                stack.pop()
            if gpu is None and not stack:
                yield from _top(excerpt, name, value, line)
            path = (*(part for _, part in stack), name)
            if gpu is None and stack and _is_known(path):
                gpu = _Gpu(excerpt, UNNAMED)
            if gpu is not None:
                gpu.meet(path, value, line)
            stack.append((indent, name))
        elif gpu is not None and _LOST.search(text):
            gpu.lost(line)
        elif match := _HEADING.match(text):
            name = _name(match["name"])
            if gpu is None and not is_log and name not in KNOWN_HEADINGS:
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
    if is_log:
        yield from _processes(excerpt)


_DEPTHS: Final = {
    "mig device": 2,  # what follows may be of the instance: nothing is claimed of the GPU
    "volatile": 8,
    "aggregate": 8,
    "gpu link info": 8,
    "bank remap availability histogram": 8,
    "pcie generation": 12,
    "link width": 12,
    "single bit": 12,
    "double bit": 12,
}
"""How far headings are set in that stand below another one."""
_PAIR_DEPTH: Final = 16


def _is_flat(excerpt: Excerpt, *, is_log: bool) -> bool:
    """Whether a paste lost what set its rows in."""
    if not is_log and not any(_name(line.text) in KNOWN_HEADINGS for line in excerpt.lines):
        return False
    rows = [line.text for line in excerpt.lines if _PAIR.match(line.text)]
    return len(rows) > 1 and not any(row[0].isspace() for row in rows)


def _set_in(text: str) -> str:
    """A row of a flat paste where it belongs, as far as its name tells; not the log's own."""
    if _GPU.match(text) or _LOG.search(text) or _TOP.match(text):
        return text
    if _PAIR.match(text):
        return " " * _PAIR_DEPTH + text
    if _HEADING.match(text):
        return " " * _DEPTHS.get(_name(text), 4) + text
    return text


def _processes(excerpt: Excerpt) -> Iterator[Fact]:
    """What the process lists say; complete where every attached GPU has one."""
    attached: int | None = None
    gpus = lists = 0
    id_, pid, type_, name = "", "", "", ""
    rows: list[str] = []
    last: Line | None = None
    for line in excerpt.lines:
        if match := _GPU.match(line.text):
            gpus += 1
            id_ = address(match["bdf"]) or match["bdf"]
        elif match := _PROCESS.match(line.text):
            key, value = match["key"], (match["value"] or "").strip()
            if key == "Attached GPUs":
                attached = int(value[:6]) if value.isdecimal() else None
                gpus, lists, rows = 0, 0, []
            elif key == "Processes":
                lists, last = lists + 1, line
            elif key == "Process ID":
                pid = value
            elif key == "Type":
                type_ = value
            elif key == "Name":
                name = value
            elif pid:
                rows.append(f"{id_}|{pid}|{type_}|{name}|{value.removesuffix('MiB').strip()}")
                pid = ""
    if last is not None and attached is not None and lists == gpus == attached:
        yield excerpt.fact("gpu/complete", True, last)
        yield excerpt.fact("gpu/processes", rows, last)


def _name(printed: str) -> str:
    name = printed.strip().lower().replace("throttle", "event")
    return {"gpu idle": "idle"}.get(name, name)


def _is_known(path: tuple[str, ...]) -> bool:
    return path[-2:] in FIELDS or any(part in KNOWN_HEADINGS for part in path[:-1])


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
        if words := XML_REASONS.get(reason[1]):
            gpu.meet(("clocks event reasons", words), value, line)
        return
    if "ecc_errors" in stack and re.search(r"correctable", tag):
        path = tuple(part.replace("_", " ") for part in stack[stack.index("ecc_errors") :])
        gpu.meet(path, value, line)
        return
    path_words = XML.get(stack[-2:]) or XML.get((tag,))
    if path_words:
        gpu.meet(path_words, value, line)


def fields_of(facts: Iterable[Fact]) -> Mapping[str, Fact]:
    """Facts by key; for tests and for those who read one block."""
    return {fact.key: fact for fact in facts}
