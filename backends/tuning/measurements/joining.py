"""What was measured beside what was read: both as one document, for the rules."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from backends.tuning.facts import Fact, FactsDocument, merge

_LOADED: Final = frozenset(
    {
        "link_gen", "link_gen_max", "link_width", "link_width_max", "pstate", "util_pct",
        "clock_sm_mhz", "clock_mem_mhz", "power_w", "power_enforced_w", "reasons", "temp_c",
        "mem_temp_c",
    }
)  # fmt: skip
MINUTE_S: Final = 50.0
"""Errors are counted for a minute; a shorter load says nothing about them."""
_LINK: Final = frozenset({"speed_gts", "width"})


def joined(facts: FactsDocument, measured: FactsDocument) -> FactsDocument:
    """Both as one document, for the rules: what was read under load counts over what was at rest.

    Readings under load get the names of the readings at rest, with `gpu/ID/under_load`.
    """
    more = [*_under_load(measured), *_derived(measured)]
    whole = merge([facts, measured, FactsDocument(more)])
    return msgspec.structs.replace(whole, derived=facts.derived)


def _under_load(measured: FactsDocument) -> Iterator[Fact]:
    by_key = {fact.key: fact for fact in measured.facts}
    for fact in measured.facts:
        if throttle := re.fullmatch(r"bench/busy/throttle/(\w+)", fact.key):
            yield msgspec.structs.replace(fact, key=f"cpu/throttle_delta/{throttle[1]}")
        match = re.fullmatch(r"bench/load/([^/]+)/(\w+)", fact.key)
        if match is None or fact.value is None:
            continue
        id_, name = match.groups()
        if name in _LOADED:
            yield msgspec.structs.replace(fact, key=f"gpu/{id_}/{name}", source="read under load")
            yield Fact(
                f"gpu/{id_}/under_load", True, "read under load", None, fact.time, fact.vantage
            )
        elif name in _LINK:
            yield msgspec.structs.replace(fact, key=f"pci/{id_}/{name}", source="read under load")
        elif name == "replays_delta":
            seconds = by_key.get(f"bench/load/{id_}/seconds")
            if seconds is not None and _number(seconds) >= MINUTE_S:
                minutes = _number(seconds) / 60
                delta = math.ceil(_number(fact) / minutes)
                key = f"gpu/{id_}/replays_per_minute"
                yield msgspec.structs.replace(fact, key=key, value=delta)
        elif name == "link_changes":
            seconds = by_key.get(f"bench/load/{id_}/seconds")
            if seconds is not None:
                at = f"pcie_flaps/{id_}/"
                yield msgspec.structs.replace(fact, key=at + "changes")
                yield msgspec.structs.replace(seconds, key=at + "seconds")
                yield msgspec.structs.replace(fact, key=at + "under_load", value=True)


def _number(fact: Fact) -> float:
    return float(fact.value) if isinstance(fact.value, int | float) else 0.0


def _derived(measured: FactsDocument) -> Iterator[Fact]:
    """What rules ask for by other names, worked out of what was measured."""
    by_key = {fact.key: fact for fact in measured.facts}
    rates: dict[bool, list[float]] = {True: [], False: []}
    for fact in measured.facts:
        if match := re.fullmatch(r"bench/p2p/([^/]+/[^/]+)/gb_s", fact.key):
            pair = match[1]
            cross = by_key.get(f"bench/p2p/{pair}/cross_node")
            if cross is not None and isinstance(fact.value, int | float):
                rates[bool(cross.value)].append(fact.value)
            if f"bench/p2p_copy/{pair}/equal" in by_key:
                yield msgspec.structs.replace(fact, key=f"bench/p2p_copy/{pair}/gb_s")
                if (link := by_key.get(f"bench/p2p/{pair}/link_gb_s")) is not None:
                    yield msgspec.structs.replace(link, key=f"bench/p2p_copy/{pair}/link_gb_s")
        elif fact.key == "bench/read/gb_s" and isinstance(fact.value, int | float):
            yield msgspec.structs.replace(fact, key="bench/read_mb_s", value=fact.value * 1000)
    for cross_node, word in ((False, "same"), (True, "cross")):
        if found := rates[cross_node]:
            yield Fact(f"bench/p2p_{word}_node_gb_s", statistics.median(found), "measured")


def with_baselines(measured: FactsDocument, earlier: Sequence[FactsDocument]) -> FactsDocument:
    """Beside each all-reduce the median of what the same tool gave in earlier measurements."""
    before: dict[tuple[str, str], list[float]] = {}
    for document in earlier:
        for fact in document.facts:
            if isinstance(fact.value, int | float) and not isinstance(fact.value, bool):
                before.setdefault((fact.key, fact.source), []).append(fact.value)
    more = [
        Fact(
            fact.key.removesuffix("value") + "baseline",
            statistics.median(before[fact.key, fact.source]),
            f"{len(before[fact.key, fact.source])} earlier measurements",
            None,
            fact.time,
            fact.vantage,
        )
        for fact in measured.facts
        if re.fullmatch(r"bench/allreduce/[^/]+/value", fact.key)
        and (fact.key, fact.source) in before
    ]
    return msgspec.structs.replace(measured, facts=[*measured.facts, *more])
