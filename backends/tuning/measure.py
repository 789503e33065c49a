"""Micro-measurements of a host: facts for the `bench.*` checks, and a table against what is due."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from backends.bench.cards import card_table
from backends.errors import AgentError, UsageError
from backends.session import HostSession
from backends.text import clean
from backends.tuning.facts import Fact, FactsDocument, Value, Vantage, clean_fact, merge
from backends.tuning.rules.devices import LANE_GB_S
from backends.tuning.view import FactTable, View

LIMIT_S: Final = 300.0
MAX_RESULTS: Final = 10_000
LAUNCH_US: Final = 10.0
"""A launch from Python that costs more is worth a look; ours, not a vendor's."""


class _Message(msgspec.Struct):
    key: str = ""
    value: Value | None = None
    said: str = ""
    status: int | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure against what link or card should give.

    Attributes:
        due: What it should be at best; None where nothing says.
        source: Where `due` is from.
    """

    what: str
    value: float
    unit: str
    due: float | None = None
    source: str = ""

    @property
    def share_pct(self) -> float | None:
        """Of what is due; for latencies this is not asked."""
        return None if not self.due or self.unit == "us" else 100.0 * self.value / self.due


async def measure(
    session: HostSession,
    *,
    vantage: Vantage = Vantage.HOST,
    path: str = "",
    python: str = "",
    told: Callable[[str], None] = lambda said: None,
) -> FactsDocument:
    """Measure on a host; takes a minute or so, and the GPUs are busy meanwhile.

    Args:
        session: The host.
        vantage: From where it is seen.
        path: A model on the host, whose largest file is read.
        python: The python there that has torch; looked for when left out.
        told: Is called with what it is at.

    Raises:
        AgentError: There is no torch, or the program failed.
    """
    facts: list[Fact] = []
    now = datetime.now(UTC).isoformat(timespec="seconds")
    params = {"path": path, "python": python, "limit_s": LIMIT_S}
    stream = session.stream(
        "measure.run", params, asked_by="tuning", what="measure GPUs", timeout_s=60.0
    )
    end: _Message | None = None
    async with contextlib.aclosing(stream):
        async for piece in stream:
            message = parse(piece)
            if message is None or len(facts) >= MAX_RESULTS:
                continue
            if message.said:
                told(clean(message.said, 200))
            elif message.status is not None:
                end = message
            elif message.key.startswith("bench/") and message.value is not None:
                fact = Fact(message.key, message.value, "measured with torch", None, now, vantage)
                facts.append(clean_fact(fact))
    if end is None or end.status != 0:
        words = clean(end.words, 300) if end is not None else "it ended early"
        raise AgentError(
            f"nothing was measured on {session.name}" if not facts else "measured in part",
            words,
            "name the python that has torch with --python",
        )
    return FactsDocument(facts, session.name)


def parse(piece: object) -> _Message | None:
    """One line of the measuring program; None where it is none."""
    try:
        return msgspec.convert(piece, _Message)
    except msgspec.ValidationError:
        return None


def joined(facts: FactsDocument, measured: FactsDocument) -> FactsDocument:
    """Both as one document, for the rules."""
    whole = merge([facts, measured])
    return msgspec.structs.replace(whole, derived=facts.derived)


def rows(document: FactsDocument, vantage: Vantage = Vantage.HOST) -> list[Row]:
    """What was measured, against what it should be."""
    view = View(FactTable(f for f in document.facts if f.vantage is vantage), vantage)
    found: list[Row] = []
    gpus = [reading.names[0] for reading in view.each("bench/name/*")]
    for gpu in gpus:
        found += _of_gpu(view, gpu)
    for reading in view.each("bench/p2p/*/*/gb_s"):
        a, b = reading.names
        rate = view.number(reading.fact.key)
        link = view.number(f"bench/p2p/{a}/{b}/link_gb_s")
        if rate is not None:
            found.append(Row(f"copy {a} to {b}", rate, "GB/s", link, "PCIe link"))
        latency = view.number(f"bench/p2p/{a}/{b}/latency_us")
        if latency is not None:
            found.append(Row(f"copy 4 bytes {a} to {b}", latency, "us"))
    if (rate := view.number("bench/read/gb_s")) is not None:
        found.append(Row("read the model's path", rate, "GB/s"))
    return found


def _of_gpu(view: View, gpu: str) -> Sequence[Row]:
    result: list[Row] = []
    width = view.integer(f"gpu/{gpu}/link_width_max") or view.integer(f"pci/{gpu}/max_width")
    generation = view.integer(f"gpu/{gpu}/link_gen_max")
    link = width * LANE_GB_S[min(generation, 6)] if width and generation else None
    label = f"PCIe {generation} x{width}" if link else ""
    for name, words in (("h2d", "host to GPU"), ("d2h", "GPU to host")):
        if (rate := view.number(f"bench/{name}/{gpu}/gb_s")) is not None:
            result.append(Row(f"copy {words} {gpu}", rate, "GB/s", link, label))
    if (rate := view.number(f"bench/membw/{gpu}/gb_s")) is not None:
        due = view.number(f"bench/membw/{gpu}/theory_gb_s")
        result.append(Row(f"memory {gpu}", rate, "GB/s", due, "memory clock and bus width"))
    if (rate := view.number(f"bench/matmul/{gpu}/tflop_s")) is not None:
        peak, source = _bf16(view.text(f"bench/name/{gpu}") or "")
        result.append(Row(f"bf16 matrix product {gpu}", rate, "TFLOP/s", peak, source))
    for name, words in (("submit_us", "launch"), ("round_trip_us", "launch and wait")):
        if (cost := view.number(f"bench/launch/{gpu}/{name}")) is not None:
            due = LAUNCH_US if name == "submit_us" else None
            result.append(Row(f"{words} {gpu}", cost, "us", due, "ours: at most" if due else ""))
    return result


def _bf16(name: str) -> tuple[float | None, str]:
    try:
        card = card_table().find(name)
    except UsageError:
        return None, ""
    if card.bf16 is None:
        return None, ""
    return card.bf16.value, f"{card.name}, dense bf16"


def table(found: Sequence[Row]) -> str:
    """The rows for people."""
    lines = []
    for row in found:
        due = ""
        if row.due is not None:
            share = f" ({row.share_pct:.0f} %)" if row.share_pct is not None else ""
            due = f"of {row.due:.0f} {row.unit}{share}, {row.source}"
        lines.append(f"{row.what:<44} {row.value:>9.1f} {row.unit:<8} {due}".rstrip())
    return "\n".join(lines) + "\n"
