"""What nvbandwidth prints, plain or as JSON: copies between host and GPUs, and between GPUs.

A matrix's description says which way its copies go (`CPU(row) -> GPU(column)`), and that is what is
believed, not the test's name. GPUs are known by the address that newer versions print, else by
index.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from backends.tuning.facts import Fact
from backends.tuning.readers.excerpt import Excerpt, Line
from backends.tuning.readers.pci_address import address

_RUNNING: Final = re.compile(r"^Running (\w+)\.$")
_DEVICE: Final = re.compile(r"^(?:Device )?(\d{1,3}): .+?(?:\(([0-9a-fA-F:.]+)\))?$")
_WAY: Final = re.compile(
    r"memcpy (?:CE|SM) (CPU|GPU)\(row\) (->|<-) (CPU|GPU)\(column\) bandwidth \(GB/s\)"
)
_COPY: Final = re.compile(
    r"^(?:host_to_device|device_to_host|device_to_device)_memcpy_(?:read_|write_)?(?:ce|sm)$"
)
_CELL: Final = re.compile(r"^(?:\d{1,6}(?:\.\d{1,6})?(?:e[+-]\d{1,2})?|N/A)$")
MAX_GPUS: Final = 64


class _Case(msgspec.Struct):
    name: str = ""
    bandwidth_description: str = ""
    bandwidth_matrix: list[list[str | float]] = []


class _Body(msgspec.Struct):
    testcases: list[_Case] = []
    devices: list[str] = msgspec.field(name="GPU Device list", default_factory=list)


class _Document(msgspec.Struct):
    nvbandwidth: _Body


def read(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts `bench/h2d/GPU/gb_s`, `bench/d2h/GPU/gb_s` and `bench/p2p/FROM/TO/gb_s`."""
    if any('"nvbandwidth"' in line.text for line in excerpt.lines):
        yield from _read_json(excerpt)
        return
    gpus: dict[int, str] = {}
    test = ""
    way: re.Match[str] | None = None
    columns = 0
    for line in excerpt.lines:
        text = line.text.strip()
        if match := _RUNNING.match(text):
            test, way, columns = match[1], None, 0
        elif text.startswith("Device ") and (match := _DEVICE.match(text)):
            _note(gpus, match)
        elif test and (match := _WAY.search(text)):
            way, columns = match, 0
        elif way is not None and text:
            cells = text.split()
            if not columns:
                heads = cells == [str(n) for n in range(len(cells))]
                columns = len(cells) if heads and len(cells) <= MAX_GPUS else 0
                way = way if columns else None
            elif len(cells) == columns + 1 and cells[0].isdecimal() and len(cells[0]) < 4:
                yield from _row(excerpt, test, way, int(cells[0]), cells[1:], gpus, line)
            else:
                way = None


def _read_json(excerpt: Excerpt) -> Iterator[Fact]:
    text = excerpt.text
    begin, end = text.find("{"), text.rfind("}")
    try:
        body = msgspec.json.decode(text[begin : end + 1], type=_Document).nvbandwidth
    except (msgspec.DecodeError, RecursionError):
        return
    gpus: dict[int, str] = {}
    for words in body.devices[:MAX_GPUS]:
        if match := _DEVICE.match(words):
            _note(gpus, match)
    for case in body.testcases:
        way = _WAY.search(case.bandwidth_description)
        if way is None:
            continue
        for row, cells in enumerate(case.bandwidth_matrix[:MAX_GPUS]):
            found = [str(cell) for cell in cells[:MAX_GPUS]]
            yield from _row(excerpt, case.name, way, row, found, gpus, None)


def _note(gpus: dict[int, str], match: re.Match[str]) -> None:
    if match[2] and (found := address(match[2])):
        gpus[int(match[1])] = found


def _row(
    excerpt: Excerpt,
    test: str,
    way: re.Match[str],
    row: int,
    cells: Sequence[str],
    gpus: dict[int, str],
    line: Line | None,
) -> Iterator[Fact]:
    if not _COPY.match(test):
        return  # copies both ways at once, and from one to all, are other figures
    first, arrow, second = way.groups()
    for column, cell in enumerate(cells):
        if not _CELL.match(cell) or cell == "N/A":
            continue
        rate = float(cell)
        if not (0 < rate < 100_000 and math.isfinite(rate)):
            continue
        ends = [
            _end(first, row, gpus),
            _end(second, column, gpus),
        ]
        source, target = ends if arrow == "->" else reversed(ends)
        if source and target:
            if source != target:
                yield excerpt.fact(f"bench/p2p/{source}/{target}/gb_s", rate, line)
        elif source or target:
            name, gpu = ("h2d", target) if target else ("d2h", source)
            yield excerpt.fact(f"bench/{name}/{gpu}/gb_s", rate, line)


def _end(kind: str, number: int, gpus: dict[int, str]) -> str:
    """Address or index of a GPU; empty for the host."""
    return gpus.get(number, f"index-{number}") if kind == "GPU" else ""
