"""What links a pair of GPUs, and how much of a theoretical figure is usually reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from backends.bench.cards import Card, card_table
from backends.errors import UsageError
from backends.tuning.view import View

LANE_GB_S: Final = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""Payload rate of one PCIe lane and direction, GB/s, after line coding, by generation."""


@dataclass(frozen=True, slots=True)
class Share:
    """How much of a theoretical figure is usually reached."""

    share: float
    source: str


REALISTIC: Final = {
    # https://github.com/voipmonitor/rtx6kpro; Azure's gate for an H100 is 52 GB/s.
    "pcie": Share(0.84, "53 of 63 GB/s on Gen5 x16"),
    "pair": Share(0.79, "50 of 63 GB/s on Gen5 x16"),
    # https://github.com/ashalliants/ninfer-3090/issues/50
    "memory": Share(0.91, "91 to 92 % of the data sheet"),
    # https://github.com/stas00/ml-engineering: maximum achievable matmul FLOPS.
    "matmul": Share(0.80, "about 80 % on Hopper"),
    "nvlink": Share(0.80, "ours"),
}


@dataclass(frozen=True, slots=True)
class PairLink:
    """The link between two GPUs; None is not known.

    Attributes:
        gb_s: What it carries in one direction.
        usual_gb_s: What of that is usually reached.
        source: What link it is.
        nvlink: Whether it is NVLink, which knows no sockets.
    """

    gb_s: float | None
    usual_gb_s: float | None
    source: str
    nvlink: bool = False


def pair_link(view: View, a: str, b: str) -> PairLink:
    """What links two GPUs, by the topology and the card, else by the slower PCIe link of both."""
    ends = [view.peek_integer(f"gpu/{one}/index") for one in (a, b)]
    topology = view.peek(f"topo/link/{ends[0]}/{ends[1]}") or ""
    card = card_of(view, a)
    if topology.startswith("NV") and card is not None and not card.link.startswith("pcie"):
        link = card_table().links[card.link]
        rate = link.gbps.value
        return PairLink(rate, rate * REALISTIC["nvlink"].share, link.name, nvlink=True)
    found = view.number(f"bench/p2p/{a}/{b}/link_gb_s", 0.1, 10_000)
    if found is None:
        sides = [pcie_gb_s(view, one) for one in (a, b)]
        known = [side for side in sides if side is not None]
        found = min(known) if len(known) == 2 else None
    usual = found * REALISTIC["pair"].share if found else None
    return PairLink(found, usual, "PCIe link")


def pcie_gb_s(view: View, gpu: str) -> float | None:
    """What a GPU's PCIe link carries at most in one direction; for context only."""
    width = view.peek_integer(f"gpu/{gpu}/link_width_max")
    width = width or view.peek_integer(f"pci/{gpu}/max_width")
    generation = view.peek_integer(f"gpu/{gpu}/link_gen_max")
    if not width or not generation or not 1 <= generation <= 7:
        return None
    return width * LANE_GB_S[min(generation, 6)]


def card_of(view: View, gpu: str) -> Card | None:
    """The card that a GPU is, where it is known."""
    name = view.peek(f"bench/name/{gpu}") or view.peek(f"gpu/{gpu}/name") or ""
    try:
        return card_table().find(name)
    except UsageError:
        return None
