"""Runs of the checklist in the history: what was seen when, and what a boot took back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from backends.storage.tuning_tables import StoredRun, TuningHistory
from backends.tuning.facts import encode
from backends.tuning.findings import WORST_FIRST, Finding, Verdict
from backends.tuning.gather import Gathered


@dataclass(frozen=True, slots=True)
class FellBack:
    """A check that is worse than it was before the boot."""

    check: str
    before: Verdict
    now: Verdict
    evidence: str


def boot_of(gathered: Gathered) -> str:
    """The boots of all machines that were read, as one word."""
    return " ".join(gathered.boot_ids[v] for v in sorted(gathered.boot_ids))


def keep(history: TuningHistory, gathered: Gathered, findings: Sequence[Finding]) -> int:
    """Store a run; gives its number."""
    verdicts = {finding.check: finding.verdict.value for finding in findings}
    return history.add_run(
        gathered.document.host,
        boot_of(gathered),
        msgspec.json.encode(verdicts).decode(),
        encode(gathered.document),
    )


def verdicts_of(run: StoredRun) -> dict[str, Verdict]:
    """Verdict by check."""
    known = {verdict.value: verdict for verdict in Verdict}
    found = msgspec.json.decode(run.verdicts, type=dict[str, str])
    return {check: known[word] for check, word in found.items() if word in known}


def fell_back(
    runs: Iterable[StoredRun], gathered: Gathered, findings: Sequence[Finding]
) -> list[FellBack] | None:
    """What is worse than in the last run of an earlier boot; None where there was no boot since.

    Args:
        runs: Of this host, newest first, this one not among them.
        gathered: This run.
        findings: Its findings.
    """
    last = next(iter(runs), None)
    if last is None or last.boot_id == boot_of(gathered):
        return None
    before = verdicts_of(last)
    worse = []
    for finding in findings:
        was = before.get(finding.check)
        wrong = finding.verdict in (Verdict.FAIL, Verdict.WARN)
        if (
            was is not None
            and wrong
            and WORST_FIRST.index(finding.verdict) < WORST_FIRST.index(was)
        ):
            worse.append(FellBack(finding.check, was, finding.verdict, finding.evidence))
    return worse
