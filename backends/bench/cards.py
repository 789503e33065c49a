"""Figures of GPU cards: memory, bandwidth, arithmetic, link. Data lie in `cards.toml`."""

from __future__ import annotations

import difflib
import functools
import re
from pathlib import Path
from typing import Final

import msgspec

from backends.bench.quantization import Arithmetic
from backends.errors import UsageError
from backends.text import clean

CARDS_FILE: Final = Path(__file__).with_name("cards.toml")
MAX_CARDS: Final = 4096


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One figure with where it is from."""

    value: float
    source: str
    sure: bool = True


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How cards of one host reach each other."""

    name: str
    gbps: Figure
    """10^9 bytes a second, one direction."""
    all_reduce_us: Figure
    """The fastest known all-reduce of a few kilobytes, in microseconds."""


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of card."""

    name: str
    aliases: tuple[str, ...]
    architecture: str
    link: str
    power_w: Figure
    memory_gb: Figure
    bandwidth_gbps: Figure
    live_bandwidth_gbps: Figure | None = None
    bf16: Figure | None = None
    fp8: Figure | None = None
    fp4: Figure | None = None

    def arithmetic(self, kind: Arithmetic) -> tuple[Figure | None, Arithmetic]:
        """Rate in 10^12 operations a second, and what it is the rate of.

        A card without that kind of arithmetic multiplies in the next wider one that it has.
        """
        order = (Arithmetic.FP4, Arithmetic.FP8, Arithmetic.BF16)
        rates = {Arithmetic.FP4: self.fp4, Arithmetic.FP8: self.fp8, Arithmetic.BF16: self.bf16}
        for wider in order[order.index(kind) :]:
            if rates[wider] is not None:
                return rates[wider], wider
        return None, Arithmetic.BF16


class CardTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of `cards.toml`."""

    sources: dict[str, str]
    links: dict[str, Link]
    cards: tuple[Card, ...]

    def find(self, name: str) -> Card:
        """The card that `name` means: a name or alias, or as the driver reports it.

        Raises:
            UsageError: None; the nearest names are said.
        """
        wanted = _words(name)
        for card in self.cards:
            if wanted in [_words(alias) for alias in (card.name, *card.aliases)]:
                return card
        known = set(wanted)
        # A driver's longer name: the card whose whole name it contains, the longest one first.
        inside = [
            (len(alias), card)
            for card in self.cards
            for alias in (_words(text) for text in (card.name, *card.aliases))
            if known.issuperset(alias) and not any(map(_OTHER_CARD.search, known - set(alias)))
        ]
        if inside:
            return max(inside, key=lambda pair: pair[0])[1]
        names = [card.name for card in self.cards] + [a for c in self.cards for a in c.aliases]
        near = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=4, cutoff=0.4)
        original = {n.lower(): n for n in names}
        hint = f"Near it: {', '.join(original[n] for n in near)}." if near else ""
        raise UsageError(
            f"No figures of a card named {clean(name, 80)!r}",
            hint=f"{hint} `gpuroom roofline --list-cards` names all.".strip(),
        )


def _words(name: str) -> tuple[str, ...]:
    """A card's name without what makers and drivers add, for comparison."""
    words = re.findall(r"[a-z]+\d+[a-z]*|[a-z]+|\d+[a-z]*", name.lower())
    return tuple(sorted(word for word in words if word not in _NOISE))


_OTHER_CARD: Final = re.compile(r"^(\d+gb|pcie|nvl|laptop|mobile|max|ti|super|d|server|mig)$")
"""Words that make another card of a name, so that they must not be left over."""
_NOISE: Final = frozenset({"nvidia", "geforce", "amd", "instinct", "gpu", "edition", "generation"})


@functools.cache
def card_table() -> CardTable:
    """The shipped table."""
    return msgspec.toml.decode(CARDS_FILE.read_bytes(), type=CardTable)


def parse_gpus(text: str) -> tuple[int, str]:
    """Read `8x"RTX PRO 6000"`, `8 x H200` or `H200`: how many, and the name.

    Raises:
        UsageError: Neither of these.
    """
    match = re.fullmatch(r"\s*(?:(\d{1,5})\s*[xX*\u00d7]\s*)?(.+?)\s*", text)
    name = match.group(2).strip("\"' ") if match else ""
    count = int(match.group(1)) if match and match.group(1) else 1
    if not name or not 1 <= count <= MAX_CARDS:
        raise UsageError(
            f"No cards are meant by {clean(text, 80)!r}", hint='Write --gpus 8x"RTX PRO 6000".'
        )
    return count, name


def bandwidth_of_clock(memory_clock_mhz: float, bus_bits: int) -> float:
    """Memory bandwidth in 10^9 bytes a second at a memory clock.

    Clock x 2 (double data rate) x bus width / 8, with NVML's memory clock and bus width.
    """
    return memory_clock_mhz * 1e6 * 2 * bus_bits / 8 / 1e9
