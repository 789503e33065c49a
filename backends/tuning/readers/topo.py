"""`nvidia-smi topo -m` and `topo -p2p`: which GPU reaches which, and how."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from backends.tuning.facts import Fact
from backends.tuning.readers.excerpt import PROMPT, Excerpt, Line

_COLUMN: Final = re.compile(r"^(?:GPU|NIC|mlx\d+_)\d+$|^mlx\d+_\w+$")
_LINKS: Final = re.compile(r"^(?:SYS|NODE|PHB|PXB|PIX|NV\d+|X)$")
_P2P: Final = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U", "X"})
_COMMAND: Final = re.compile(r"topo\s+(?:-p2p|--p2pstatus)[ =]?([rwnap]+)\b")
_IN_NAME: Final = re.compile(r"p2p[-_.]?(?:matrix[-_.])?([rwnap])(?:[-_.]|$)")


def read(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts of the matrices: `topo/link/0/1`, `topo/numa/0`, `p2p/r/0/1` (r, w, n, a, p or `?`)."""
    columns: list[str] = []
    affinity = False
    named = _IN_NAME.search(excerpt.name.lower())
    asked = named[1] if named else "?"
    for line in excerpt.lines:
        if match := _COMMAND.search(line.text):
            # Of several letters that nvidia-smi takes, it prints the first.
            asked = match[1][0]
        elif PROMPT.match(line.text):
            asked = named[1] if named else "?"
        tokens = line.text.split()
        heads = [token for token in tokens if _COLUMN.match(token)]
        if heads and tokens[: len(heads)] == heads and len(tokens) != 1:
            rest = " ".join(tokens[len(heads) :])
            if not rest or "Affinity" in rest:
                columns, affinity = heads, "Affinity" in rest
                continue
        if columns == [] and tokens == ["GPU0"]:
            columns, affinity = tokens, False
            continue
        if not columns or not tokens or not _COLUMN.match(tokens[0]):
            continue
        cells = tokens[1 : 1 + len(columns)]
        if len(cells) != len(columns):
            continue
        if all(_LINKS.match(cell) for cell in cells) and (affinity or set(cells) != {"X"}):
            yield from _links(excerpt, tokens, columns, line)
        elif all(cell in _P2P for cell in cells):
            yield from _status(excerpt, asked, tokens[0], columns, cells, line)


def _number(name: str) -> str:
    return name.removeprefix("GPU") if name.startswith("GPU") else name


def _links(excerpt: Excerpt, tokens: list[str], columns: list[str], line: Line) -> Iterator[Fact]:
    row = _number(tokens[0])
    for name, cell in zip(columns, tokens[1:], strict=False):
        if cell != "X":
            yield excerpt.fact(f"topo/link/{row}/{_number(name)}", cell, line)
    rest = tokens[1 + len(columns) :]
    if tokens[0].startswith("GPU") and len(rest) >= 2:
        if re.fullmatch(r"[\d,-]+", rest[0]):
            yield excerpt.fact(f"topo/cpus/{row}", rest[0], line)
        if re.fullmatch(r"[\d,-]+|N/A", rest[1]):
            yield excerpt.fact(f"topo/numa/{row}", rest[1], line)


def _status(
    excerpt: Excerpt, asked: str, row: str, columns: list[str], cells: list[str], line: Line
) -> Iterator[Fact]:
    for name, cell in zip(columns, cells, strict=True):
        if cell != "X":
            yield excerpt.fact(f"p2p/{asked}/{_number(row)}/{_number(name)}", cell, line)
    if len(columns) == 1:
        yield excerpt.fact("gpu/attached", 1, line)
