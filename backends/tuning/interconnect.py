"""What links a pair of GPUs, and how much of a theoretical figure is usually reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from backends.bench.cards import Card, card_table
from backends.errors import UsageError
from backends.tuning.view import View


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
    usual = found * REALISTIC["pair"].share if found else None
    return PairLink(found, usual, "PCIe link")


def card_of(view: View, gpu: str) -> Card | None:
    """The card that a GPU is, where it is known."""
    name = view.peek(f"bench/name/{gpu}") or view.peek(f"gpu/{gpu}/name") or ""
    try:
        return card_table().find(name)
    except UsageError:
        return None
