"""What was measured, against what link and card can give, and what of that is usually reached."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backends.bench.cards import card_table
from backends.tuning.facts import FactsDocument, Vantage
from backends.tuning.interconnect import REALISTIC, card_of, pair_link, pcie_gb_s
from backends.tuning.view import FactTable, View

LAUNCH_US: Final = 10.0
"""A launch from Python that costs more is worth a look; ours, not a vendor's."""
SMALL_BYTES: Final = 64 << 10
"""Up to here the fastest known all-reduces are known."""
WAKE_UP_US: Final = 20.0
"""See `cpu_wakeup_good_us` in the profiles."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure against what link or card should give.

    Attributes:
        key: Of the fact: the same figure has the same key in every measurement.
        due: What it should be at best; None where nothing says.
        source: Where `due` is from.
        usual: What of that is usually reached, in the unit of the value.
    """

    key: str
    what: str
    value: float
    unit: str
    due: float | None = None
    source: str = ""
    usual: float | None = None

    @property
    def lower_is_better(self) -> bool:
        """Whether it is a time."""
        return self.unit == "us"

    @property
    def share_pct(self) -> float | None:
        """Of what is due; for latencies this is not asked."""
        return None if not self.due or self.lower_is_better else 100.0 * self.value / self.due


def rows(document: FactsDocument, vantage: Vantage = Vantage.HOST) -> list[Row]:
    """What was measured, against what it should be."""
    view = View(FactTable(f for f in document.facts if f.vantage is vantage), vantage)
    found = [*_host(view)]
    names = gpu_names(view)
    for gpu in names:
        found += _gpu(view, gpu, names[gpu])
    found += _pairs(view, names)
    found += _all_reduces(view, list(names))
    return found


def gpu_names(view: View) -> dict[str, str]:
    """The GPUs that were measured, by address: `GPU 0` in the order in which all tools count."""
    ids = {reading.name for reading in view.each("bench/name/*")}
    for name in ("h2d", "d2h", "membw", "matmul", "launch", "p2p"):
        pattern = f"bench/{name}/*/*" + ("/*" if name == "p2p" else "")
        for reading in view.each(pattern):
            ids.update(reading.names[: 2 if name == "p2p" else 1])
    names = {}
    for place, gpu in enumerate(sorted(ids)):
        index = view.peek_integer(f"gpu/{gpu}/index")
        names[gpu] = f"GPU {place if index is None else index}"
    return names


def _host(view: View) -> Iterator[Row]:
    for name, words in (("wakeup_p50_us", "median"), ("wakeup_p99_us", "99th percentile")):
        if (took := view.number(f"bench/{name}")) is not None:
            due = WAKE_UP_US if name == "wakeup_p50_us" else None
            said = "ours: at most" if due else ""
            yield Row(f"bench/{name}", f"wake-up of a CPU, {words}", took, "us", due, said)
    if (rate := view.number("bench/read/gb_s")) is not None:
        yield Row("bench/read/gb_s", "read the model's path", rate, "GB/s")


def _gpu(view: View, gpu: str, name: str) -> Iterator[Row]:
    link = pcie_gb_s(view, gpu)
    label = "PCIe link" if link else ""
    usual = link * REALISTIC["pcie"].share if link else None
    for way, words in (("h2d", f"host to {name}"), ("d2h", f"{name} to host")):
        for far, where in (("", ""), ("far_", ", another node")):
            key = f"bench/{way}/{gpu}/{far}gb_s"
            if (rate := view.number(key)) is not None:
                expected = None if far else usual
                yield Row(key, f"{words}{where}", rate, "GB/s", link, label, expected)
    key = f"bench/membw/{gpu}/gb_s"
    if (rate := view.number(key)) is not None:
        due = view.number(f"bench/membw/{gpu}/theory_gb_s")
        usual = due * REALISTIC["memory"].share if due else None
        yield Row(key, f"memory of {name}", rate, "GB/s", due, "memory clock and bus width", usual)
    key = f"bench/matmul/{gpu}/tflop_s"
    if (rate := view.number(key)) is not None:
        card = card_of(view, gpu)
        peak = card.bf16.value if card is not None and card.bf16 is not None else None
        source = f"{card.name}, dense bf16" if card is not None and peak else ""
        usual = peak * REALISTIC["matmul"].share if peak else None
        yield Row(key, f"bf16 product on {name}", rate, "TFLOP/s", peak, source, usual)
    for kind, words in (("submit_us", "launch"), ("round_trip_us", "launch and wait")):
        key = f"bench/launch/{gpu}/{kind}"
        if (cost := view.number(key)) is not None:
            due = LAUNCH_US if kind == "submit_us" else None
            yield Row(key, f"{words}, {name}", cost, "us", due, "ours: at most" if due else "")


def _pairs(view: View, names: Mapping[str, str]) -> Iterator[Row]:
    for reading in view.each("bench/p2p/*/*/gb_s"):
        a, b = reading.names
        link = pair_link(view, a, b)
        for plain, words in (("", ""), ("plain_", ", no peer")):
            base = f"bench/p2p/{a}/{b}/{plain}"
            rate, latency = view.number(base + "gb_s"), view.number(base + "latency_us")
            if rate is not None:
                what = f"{names[a]} to {names[b]}{words}"
                if plain:
                    yield Row(base + "gb_s", what, rate, "GB/s")
                else:
                    yield Row(
                        base + "gb_s", what, rate, "GB/s", link.gb_s, link.source, link.usual_gb_s
                    )
            if latency is not None:
                what = f"{names[a]} to {names[b]}, 4 bytes{words}"
                yield Row(base + "latency_us", what, latency, "us")


def _all_reduces(view: View, gpus: Sequence[str]) -> Iterator[Row]:
    card = card_of(view, gpus[0]) if gpus else None
    best = card_table().links.get(card.link) if card is not None else None
    over = pair_link(view, gpus[0], gpus[1]) if len(gpus) > 1 else None
    found = [(_size(reading.name), reading) for reading in view.each("bench/allreduce/*/value")]
    for size, reading in sorted(found, key=lambda item: item[0]):
        words, _, unit = reading.name.partition("_")
        value = view.number(reading.fact.key)
        if value is None:
            continue
        if unit == "us":
            fast = best is not None and size <= SMALL_BYTES
            due = best.all_reduce_us.value if best is not None and fast else None
            said = "the fastest known" if due else ""
            yield Row(reading.fact.key, f"all-reduce of {words}", value, "us", due, said)
        else:
            what = f"all-reduce of {words}, busbw"
            due = over.gb_s if over is not None else None
            source = over.source if over is not None else ""
            yield Row(reading.fact.key, what, value, "GB/s", due, source)


def _size(name: str) -> float:
    """Bytes of `8KiB_us`; last of all what is no size."""
    match = re.match(r"(\d{1,9})(B|KiB|MiB|GiB)_", name)
    if match is None:
        return math.inf
    return float(int(match[1]) << {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30}[match[2]])


def table(found: Sequence[Row]) -> str:
    """The rows for people; pairs of GPUs as matrices, since there are many of them."""
    matrices: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    dues: dict[tuple[str, str], Row] = {}
    lines = []
    for row in found:
        if match := _PAIR.fullmatch(row.what):
            kind = (match[3] or "", row.unit)
            matrices.setdefault(kind, {})[match[1], match[2]] = row.value
            dues.setdefault(kind, row)
        else:
            lines.append(f"{row.what:<30} {row.value:>8.1f} {row.unit:<7} {_due(row)}".rstrip())
    for (words, unit), cells in matrices.items():
        lines += ["", *_matrix(f"copies between GPUs{words}, {unit}", cells, dues[words, unit])]
    return "\n".join(lines) + "\n"


_PAIR: Final = re.compile(r"(GPU \d+) to (GPU \d+)(,.*)?")


def _due(row: Row) -> str:
    if row.due is None:
        return ""
    share = f" ({row.share_pct:.0f} %)" if row.share_pct is not None else ""
    usual = f"; {row.usual:.0f} is usual" if row.usual is not None else ""
    return f"of {row.due:.0f}{share}, {row.source}{usual}"


def _matrix(title: str, cells: Mapping[tuple[str, str], float], due: Row) -> Iterator[str]:
    """From the GPU of the row to the GPU of the column."""
    names = sorted({name for pair in cells for name in pair}, key=lambda n: int(n[4:]))
    said = f": {due.source} {due.due:.0f}" if due.due is not None else ""
    usual = f", {due.usual:.0f} is usual" if due.usual is not None else ""
    yield f"{title}{said}{usual}"
    yield "from  to" + "".join(f"{name[4:]:>7}" for name in names)
    for source in names:
        values = [cells.get((source, target)) for target in names]
        yield f"{source[4:]:>8}" + "".join(
            f"{'-':>7}" if value is None else f"{value:>7.1f}" for value in values
        )
