"""Many hosts judged at once: each as soon as it answers, none held up by another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass

from backends.errors import RoomError
from backends.session import HostSession
from backends.tuning.custom import custom_probes
from backends.tuning.engine import Options, evaluate
from backends.tuning.findings import WORST_FIRST, Finding, Severity, Verdict
from backends.tuning.gather import Gathered, Reading, gather

Pair = tuple[HostSession, HostSession | None]
"""A host, and the hypervisor below it."""


@dataclass(frozen=True, slots=True)
class Audited:
    """One host of an audit.

    Attributes:
        host: Its name.
        gathered: What was read; None where it could not be.
        findings: In the catalogue's order.
        error: Why there are none.
    """

    host: str
    gathered: Gathered | None = None
    findings: tuple[Finding, ...] = ()
    error: RoomError | None = None

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """Checks by verdict, without instances, symptoms of another finding and waived ones."""
        checks = (f for f in self.findings if not (f.cause or f.waived) and not f.part)
        return Counter(f.verdict for f in checks)

    @property
    def worst(self) -> Finding | None:
        """The finding to begin with: the worst verdict, the most severe of those."""
        bad = [
            f
            for f in self.findings
            if f.verdict in (Verdict.FAIL, Verdict.WARN) and not (f.cause or f.waived)
        ]
        severities = list(Severity)
        return min(
            (f for f in bad if not f.part),
            key=lambda f: (WORST_FIRST.index(f.verdict), severities.index(f.severity)),
            default=None,
        )


async def audit(
    pairs: Sequence[Pair],
    options_of: Callable[[str], Options],
    *,
    reading: Reading | None = None,
    timeout_s: float = 30.0,
) -> AsyncGenerator[Audited, None]:
    """Gather and judge every host; each comes when it is done, one that fails with its reason.

    Args:
        pairs: Hosts, each with the hypervisor below it or None.
        options_of: How the host of a name is judged; may read files.
        reading: How facts are read.
        timeout_s: How long a host may take to answer.
    """
    tasks = [asyncio.create_task(_one(pair, options_of, reading, timeout_s)) for pair in pairs]
    try:
        for done in asyncio.as_completed(tasks):
            yield await done
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _one(
    pair: Pair, options_of: Callable[[str], Options], reading: Reading | None, timeout_s: float
) -> Audited:
    host, below = pair
    try:
        options = await asyncio.to_thread(options_of, host.name)
        gathered = await gather(
            host,
            hypervisor=below,
            reading=reading,
            timeout_s=timeout_s,
            asked_by="audit",
            also=custom_probes(options.checks),
        )
    except RoomError as error:
        return Audited(host.name, error=error)
    findings = await asyncio.to_thread(evaluate, gathered.document, options)
    return Audited(host.name, gathered, tuple(findings))
