"""`nvidia-smi dmon`: one row a GPU and second, its columns named by the heading.

Of several samples the last counts; what is printed as `-` the card does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from backends.tuning.facts import Fact
from backends.tuning.readers.excerpt import Excerpt

_COLUMNS: Final = {
    "pwr": "power_w",
    "gtemp": "temp_c",
    "mtemp": "mem_temp_c",
    "sm": "util_pct",
    "mclk": "clock_mem_mhz",
    "pclk": "clock_sm_mhz",
    "fb": "used_mib",
    "sbecc": "ecc_aggregate_correctable",
    "dbecc": "ecc_aggregate_uncorrectable",
}
THERMAL: Final = 0x20
"""`tviol` does not say which thermal slowdown it was: the driver's own, at least."""


def read(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts `gpu/index-0/temp_c` and so on."""
    heads: list[str] = []
    for line in excerpt.lines:
        words = line.text.split()
        if words[:2] == ["#", "gpu"]:
            heads = words[1:] if len(set(words) & _COLUMNS.keys()) > 1 else []
        elif words[:1] == ["#Time"] or words[:1] == ["#Date"]:
            heads = []  # with its time in front (-o T) the columns stand elsewhere
        elif heads and len(words) == len(heads) and words[0].isdecimal() and len(words[0]) < 4:
            base = f"gpu/index-{int(words[0])}"
            for head, cell in zip(heads[1:], words[1:], strict=True):
                if head == "tviol" and cell == "1":
                    yield excerpt.fact(f"{base}/reasons", THERMAL, line)
                    yield excerpt.fact(f"{base}/reasons_seen", THERMAL, line)
                elif (field := _COLUMNS.get(head)) and re.fullmatch(r"\d{1,9}", cell):
                    yield excerpt.fact(f"{base}/{field}", int(cell), line)
                elif field and cell == "-":
                    yield excerpt.fact(f"{base}/{field}", None, line, "NotSupported")
