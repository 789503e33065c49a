"""What was measured, against what link and card can give, and what of that is usually reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from backends.bench.cards import card_table
from backends.tuning.facts import FactsDocument, Vantage
from backends.tuning.interconnect import REALISTIC, card_of, pair_link
from backends.tuning.rules.devices import LANE_GB_S
from backends.tuning.view import FactTable, View

LAUNCH_US: Final = 10.0
"""A launch from Python that costs more is worth a look; ours, not a vendor's."""
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
    ids = {reading.name: None for reading in view.each("bench/name/*")}
    for name in ("h2d", "membw", "matmul", "launch"):
        ids.update({reading.name: None for reading in view.each(f"bench/{name}/*/*")})
    for gpu in ids:
        found += _gpu(view, gpu)
    found += _pairs(view)
    found += _all_reduces(view, list(ids))
    return found


def _host(view: View) -> Iterator[Row]:
    for name, words in (("wakeup_p50_us", "median"), ("wakeup_p99_us", "99th percentile")):
        if (took := view.number(f"bench/{name}")) is not None:
            due = WAKE_UP_US if name == "wakeup_p50_us" else None
            said = "ours: at most" if due else ""
            yield Row(f"bench/{name}", f"wake-up of a CPU, {words}", took, "us", due, said)
    if (rate := view.number("bench/read/gb_s")) is not None:
        yield Row("bench/read/gb_s", "read the model's path", rate, "GB/s")


def _gpu(view: View, gpu: str) -> Iterator[Row]:
    width = view.integer(f"gpu/{gpu}/link_width_max") or view.integer(f"pci/{gpu}/max_width")
    generation = view.integer(f"gpu/{gpu}/link_gen_max")
    link = width * LANE_GB_S[min(generation, 6)] if width and generation else None
    label = f"PCIe {generation} x{width}" if link else ""
    usual = link * REALISTIC["pcie"].share if link else None
    for name, words in (("h2d", "host to GPU"), ("d2h", "GPU to host")):
        for far, where in (("", ""), ("far_", ", from another node")):
            key = f"bench/{name}/{gpu}/{far}gb_s"
            if (rate := view.number(key)) is not None:
                expected = None if far else usual
                yield Row(key, f"copy {words} {gpu}{where}", rate, "GB/s", link, label, expected)
    key = f"bench/membw/{gpu}/gb_s"
    if (rate := view.number(key)) is not None:
        due = view.number(f"bench/membw/{gpu}/theory_gb_s")
        usual = due * REALISTIC["memory"].share if due else None
        yield Row(key, f"memory {gpu}", rate, "GB/s", due, "memory clock and bus width", usual)
    key = f"bench/matmul/{gpu}/tflop_s"
    if (rate := view.number(key)) is not None:
        card = card_of(view, gpu)
        peak = card.bf16.value if card is not None and card.bf16 is not None else None
        source = f"{card.name}, dense bf16" if card is not None and peak else ""
        usual = peak * REALISTIC["matmul"].share if peak else None
        yield Row(key, f"bf16 matrix product {gpu}", rate, "TFLOP/s", peak, source, usual)
    for name, words in (("submit_us", "launch"), ("round_trip_us", "launch and wait")):
        key = f"bench/launch/{gpu}/{name}"
        if (cost := view.number(key)) is not None:
            due = LAUNCH_US if name == "submit_us" else None
            yield Row(key, f"{words} {gpu}", cost, "us", due, "ours: at most" if due else "")


def _pairs(view: View) -> Iterator[Row]:
    for reading in view.each("bench/p2p/*/*/gb_s"):
        a, b = reading.names
        link = pair_link(view, a, b)
        for plain, words in (("", ""), ("plain_", " without peer access")):
            base = f"bench/p2p/{a}/{b}/{plain}"
            rate, latency = view.number(base + "gb_s"), view.number(base + "latency_us")
            if rate is not None:
                what = f"copy {a} to {b}{words}"
                if plain:
                    yield Row(base + "gb_s", what, rate, "GB/s")
                else:
                    yield Row(
                        base + "gb_s", what, rate, "GB/s", link.gb_s, link.source, link.usual_gb_s
                    )
            if latency is not None:
                what = f"copy 4 bytes {a} to {b}{words}"
                yield Row(base + "latency_us", what, latency, "us")


def _all_reduces(view: View, gpus: Sequence[str]) -> Iterator[Row]:
    card = card_of(view, gpus[0]) if gpus else None
    link = card_table().links.get(card.link) if card is not None else None
    for reading in view.each("bench/allreduce/*/value"):
        name = reading.name
        value = view.number(reading.fact.key)
        if value is None:
            continue
        if name.endswith("_us"):
            size = name.removesuffix("_us")
            small = size.endswith("KiB") and len(size) < 6
            due = link.all_reduce_us.value if link is not None and small else None
            said = "the fastest known over this link" if due else ""
            yield Row(reading.fact.key, f"all-reduce of {size}", value, "us", due, said)
        else:
            size = name.partition("_")[0]
            due = link.gbps.value if link is not None else None
            said = link.name if link is not None else ""
            what = f"all-reduce of {size}, bus bandwidth"
            yield Row(reading.fact.key, what, value, "GB/s", due, said)


def table(found: Sequence[Row]) -> str:
    """The rows for people."""
    lines = []
    for row in found:
        due = ""
        if row.due is not None:
            share = f" ({row.share_pct:.0f} %)" if row.share_pct is not None else ""
            due = f"of {row.due:.0f} {row.unit}{share}, {row.source}"
            if row.usual is not None:
                due += f"; {row.usual:.0f} is usual"
        lines.append(f"{row.what:<52} {row.value:>9.1f} {row.unit:<8} {due}".rstrip())
    return "\n".join(lines) + "\n"
