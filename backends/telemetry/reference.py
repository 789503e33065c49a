"""The tables of docs/readings.md, made from `backends.model`.

`python -m backends.telemetry.reference` writes them anew; a test holds that they are current.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from backends.model import GPU_READINGS, HOST_READINGS, ReadingSpec
from backends.telemetry.cells import GPU_CELLS, HOST_CELLS, Cell

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "readings.md"

_TYPES: Final = {float: "number", int: "integer", bool: "truth value", str: "text"}


def table(specs: tuple[ReadingSpec, ...], cells: dict[str, Cell]) -> str:
    """A Markdown table of those readings."""
    lines = ["| key | unit | type | lane | what it is |", "| --- | --- | --- | --- | --- |"]
    for spec in specs:
        kind = _TYPES[cells[spec.key].kind]
        lines.append(f"| `{spec.key}` | {spec.unit} | {kind} | {spec.lane} | {spec.title} |")
    return "\n".join(lines)


def updated(text: str) -> str:
    """The document with its tables made anew; everything outside of the markers stays."""
    for name, made in (
        ("gpu", table(GPU_READINGS, GPU_CELLS)),
        ("host", table(HOST_READINGS, HOST_CELLS)),
    ):
        start, end = f"<!-- readings: {name} -->\n", "<!-- end -->"
        before, rest = text.split(start, 1)
        text = f"{before}{start}{made}\n{end}{rest.split(end, 1)[1]}"
    return text


def main() -> int:
    """Write the tables anew."""
    DOCUMENT.write_text(updated(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
