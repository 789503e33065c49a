"""What NVIDIA's CUDA samples print: p2pBandwidthLatencyTest, simpleP2P and deviceQuery.

CUDA's own word on peer access is `p2p/c/FROM/TO`: OK or NO. A pair's rate and latency are taken
with peer access on, and only where CUDA grants it: without, the sample copies through the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from backends.tuning.facts import Fact
from backends.tuning.readers.excerpt import Excerpt, Line
from backends.tuning.readers.pci_address import address

_DEVICE: Final = re.compile(
    r"^Device: (?P<index>\d{1,3}), (?P<name>.{1,80}?), pciBusID: (?P<bus>[0-9a-f]{1,2}), "
    r"pciDeviceID: (?P<device>[0-9a-f]{1,2}), pciDomainID: ?(?P<domain>[0-9a-f]{1,8})$"
)
_ACCESS: Final = re.compile(r"^Device=(\d{1,3}) (CAN|CANNOT) Access Peer Device=(\d{1,3})$")
_PEER: Final = re.compile(
    r"^>? ?Peer access from .{1,80}? \(GPU(\d{1,3})\) -> .{1,80}? \(GPU(\d{1,3})\) ?: (Yes|No)$"
)
_MATRICES: Final = {
    "Unidirectional P2P=Enabled Bandwidth": "gb_s",
    "Unidirectional P2P=Disabled Bandwidth": "plain_gb_s",
    "P2P=Enabled Latency": "latency_us",
}
_ROW: Final = re.compile(r"^\d{1,3}(?:\s+\d{1,7}\.\d{1,3})+$")


def read(excerpt: Excerpt) -> Iterator[Fact]:
    """Facts `p2p/c/0/1`, `bench/p2p/FROM/TO/gb_s` and `.../latency_us`, `cuda/init`."""
    gpus: dict[str, str] = {}
    granted: set[tuple[str, str]] = set()
    field = ""
    pair = ("0", "1")
    for line in excerpt.lines:
        text = line.text.strip()
        if match := _DEVICE.match(text):
            place = f"{match['domain']:0>4}:{match['bus']:0>2}:{match['device']:0>2}.0"
            id_ = gpus[match["index"]] = address(place) or f"index-{match['index']}"
            yield excerpt.fact(f"gpu/{id_}/index", int(match["index"]), line)
            yield excerpt.fact(f"gpu/{id_}/name", match["name"], line)
        elif match := _ACCESS.match(text):
            yield from _access(excerpt, match[1], match[3], match[2] == "CAN", granted, line)
        elif match := _PEER.match(text):
            pair = (match[1], match[2])
            yield from _access(excerpt, match[1], match[2], match[3] == "Yes", granted, line)
        elif text.startswith("Verification error @ element"):
            first, second = (gpus.get(index, f"index-{index}") for index in pair)
            yield excerpt.fact(f"bench/p2p_copy/{first}/{second}/equal", False, line)
        elif named := next((n for head, n in _MATRICES.items() if text.startswith(head)), ""):
            field = named
        elif "Matrix" in text or text.startswith("CPU"):
            field = ""
        elif field and _ROW.match(text):
            yield from _row(excerpt, field, text.split(), gpus, granted, line)
        elif match := re.match(r"^cudaGetDeviceCount returned (\d{1,4})$", text):
            yield excerpt.fact("cuda/init", {"38": 100}.get(match[1], int(match[1])), line)
        elif match := re.match(r"^Detected (\d{1,3}) CUDA Capable device\(s\)$", text):
            yield excerpt.fact("cuda/init", 0, line)
            yield excerpt.fact("cuda/count", int(match[1]), line)


def _access(
    excerpt: Excerpt, first: str, second: str, can: bool, granted: set[tuple[str, str]], line: Line
) -> Iterator[Fact]:
    if can:
        granted.add((first, second))
    yield excerpt.fact(f"p2p/c/{first}/{second}", "OK" if can else "NO", line)


def _row(
    excerpt: Excerpt,
    field: str,
    cells: list[str],
    gpus: dict[str, str],
    granted: set[tuple[str, str]],
    line: Line,
) -> Iterator[Fact]:
    for column, cell in enumerate(cells[1:]):
        pair = (cells[0], str(column))
        if pair in granted:
            first, second = (gpus.get(index, f"index-{index}") for index in pair)
            yield excerpt.fact(f"bench/p2p/{first}/{second}/{field}", float(cell), line)
