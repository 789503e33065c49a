"""Measures a host from end to end: asked, judged with what it read, and kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from backends.errors import ReadOnlyError
from backends.storage.measurement_tables import MeasurementHistory
from backends.storage.tuning_tables import TuningHistory
from backends.tuning.desk import Desk, Judged
from backends.tuning.engine import evaluate
from backends.tuning.facts import Fact, FactsDocument, Vantage, encode
from backends.tuning.findings import Finding
from backends.tuning.gather import Gathered
from backends.tuning.measurements.figures import Row, rows
from backends.tuning.measurements.history import BASELINES, document_of, stored
from backends.tuning.measurements.joining import joined, with_baselines
from backends.tuning.measurements.parts import LOAD_S, Part, chosen, settling
from backends.tuning.measurements.run import Measured, measure
from backends.tuning.runs import boot_of, keep


@dataclass(frozen=True, slots=True)
class Wishes:
    """How to measure.

    Attributes:
        path: A model on the host, whose largest file is read.
        python: The python there that has torch; looked for when empty.
        beside: Also where processes hold the GPUs: it was confirmed.
        load_s: How long the load lasts beside which links are read.
    """

    path: str = ""
    python: str = ""
    beside: bool = False
    load_s: float = LOAD_S


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came of it.

    Attributes:
        judged: The checklist again, with what was measured.
        measured: The measured facts alone.
        rows: Figures against what is due.
        number: In the history.
    """

    judged: Judged
    measured: Measured
    rows: list[Row]
    number: int

    def settled(self, before: Sequence[Finding]) -> list[Finding]:
        """The findings whose verdict is another than before."""
        was = {finding.check: finding.verdict for finding in before}
        return [f for f in self.judged.findings if was.get(f.check, f.verdict) is not f.verdict]


def vantage_of(desk: Desk) -> Vantage:
    """From where a host is measured: a guest where a hypervisor lies below it."""
    return Vantage.HOST if desk.machines.hypervisor is None else Vantage.GUEST


async def ask(
    desk: Desk,
    parts: Sequence[Part],
    wishes: Wishes | None = None,
    told: Callable[[str], None] = lambda said: None,
) -> Measured:
    """Measure alone; see `backends.tuning.measurements.run.measure` for what it raises.

    Raises:
        ReadOnlyError: The host is marked production, and it was not confirmed.
    """
    wishes = wishes or Wishes()
    host = desk.machines.host
    if host.config.production and not wishes.beside and any(part.gpu for part in parts):
        raise ReadOnlyError(
            "nothing was measured", f"{host.name} is marked production", "add --yes"
        )
    root = desk.reading.root
    return await measure(
        desk.machines.host,
        parts,
        vantage=vantage_of(desk),
        path=wishes.path,
        python=wishes.python,
        root="" if root == "/" else root,
        beside=wishes.beside,
        load_s=wishes.load_s,
        told=told,
    )


async def measure_host(
    desk: Desk,
    judged: Judged,
    parts: Sequence[Part],
    wishes: Wishes | None = None,
    told: Callable[[str], None] = lambda said: None,
) -> Measurement:
    """Measure, judge the checklist again with what came of it, and keep both.

    Args:
        desk: Of the host.
        judged: The checklist as it was read; see `Desk.judge`.
        parts: What to measure; see `parts.chosen` and `parts.settling`.
        wishes: How.
        told: Is called with what the host is at.

    Raises:
        ReadOnlyError: Processes hold the GPUs, and it was not confirmed.
        AgentError: Nothing was measured.
        LinkError: The host went away.
        StorageError: It could not be kept.
    """
    measured = await ask(desk, parts, wishes, told)
    host, boot = desk.machines.host.name, boot_of(judged.gathered)

    def earlier(history: MeasurementHistory) -> list[FactsDocument]:
        return [document_of(one) for one in history.measurements(host, BASELINES)]

    facts = with_baselines(measured.facts, await stored(earlier))
    names = " ".join(part.name for part in parts)
    whole = await asyncio.to_thread(joined, judged.gathered.document, facts)
    gathered = replace(judged.gathered, document=whole)
    findings = await asyncio.to_thread(evaluate, whole, desk.options)
    # Links and names that were read make a later comparison say what was due then.
    body = encode(
        msgspec.structs.replace(facts, facts=[*facts.facts, *_context(judged.gathered)], host=host)
    )
    number = await stored(lambda history: history.add(host, boot, names, body))
    await asyncio.to_thread(_keep_run, gathered, findings)
    again = Judged(gathered, findings)
    return Measurement(again, replace(measured, facts=facts), rows(whole, vantage_of(desk)), number)


async def settle(
    desk: Desk,
    judged: Judged,
    *,
    beside: bool = False,
    told: Callable[[str], None] = lambda said: None,
) -> Measurement:
    """Measure what settles the INCONCLUSIVE findings; what the checklist's key does.

    Where none of them can be settled, links and clocks are read under the short load all the same.

    Args:
        desk: Of the host.
        judged: The checklist as it was read.
        beside: Also where processes hold the GPUs: it was confirmed.
        told: Is called with what the host is at.

    Raises:
        ReadOnlyError: Processes hold the GPUs, and it was not confirmed.
        AgentError: Nothing was measured.
    """
    parts = settling(judged.findings) or chosen(["link"])
    return await measure_host(desk, judged, parts, Wishes(beside=beside), told)


def _context(gathered: Gathered) -> list[Fact]:
    wanted = ("/name", "/index", "/link_gen_max", "/link_width_max")
    return [
        fact
        for fact in gathered.document.facts
        if fact.key.startswith("gpu/") and fact.key.endswith(wanted)
    ]


def _keep_run(gathered: Gathered, findings: Sequence[Finding]) -> None:
    with contextlib.closing(TuningHistory.at_home()) as history:
        keep(history, gathered, findings)
