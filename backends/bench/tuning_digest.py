"""The host's tuning in a result: its newest checklist, from the history, in short."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Final

from backends.bench.results import Finding, Severity
from backends.errors import RoomError
from backends.storage.tuning_tables import StoredRun, TuningHistory
from backends.tuning.findings import WORST_FIRST, Verdict
from backends.tuning.runs import verdicts_of

OLD_S: Final = 24 * 3600.0
SHOWN: Final = 6


def newest(host: str) -> StoredRun | None:
    """The newest run of the checklist of a host. Reads a file: not from the event loop.

    Raises:
        RoomError: The history cannot be read.
        OSError: Likewise.
    """
    history = TuningHistory.at_home()
    try:
        return next(iter(history.runs(host)), None)
    finally:
        history.close()


def digest(run: StoredRun) -> dict[str, str]:
    """FAIL and WARN by check, with counts (`summary`), the boot and the time of reading."""
    verdicts = verdicts_of(run)
    counts = Counter(verdicts.values())
    told = {
        "summary": ", ".join(f"{counts[word]} {word.value}" for word in WORST_FIRST if counts[word])
    }
    told |= {"boot_id": run.boot_id, "read_utc": run.at_utc}
    for word in (Verdict.FAIL, Verdict.WARN):
        told |= {check: word.value for check, of in sorted(verdicts.items()) if of is word}
    return told


def findings_of(
    run: StoredRun | None, host: str, boot_id: str | None, now: datetime
) -> list[Finding]:
    """What an operator should know of the host's tuning before a run.

    Args:
        run: The newest of the checklist.
        host: Its name.
        boot_id: Of the host now.
        now: UTC.
    """
    remedy = f"`gpuroom tuning {host}` reads it now"
    if run is None:
        text = f"the host's tuning is not known: no checklist was run there; {remedy}"
        return [Finding(key="tuning_unknown", severity=Severity.INFO, text=text)]
    found = []
    age_s = _age_s(run, now)
    if boot_id and run.boot_id and boot_id not in run.boot_id.split():
        text = f"the host has booted since its checklist was run ({_age(age_s)} ago); {remedy}"
        found.append(Finding(key="tuning_old", severity=Severity.WARNING, text=text))
    elif age_s is not None and age_s > OLD_S:
        text = f"the host's checklist was run {_age(age_s)} ago; {remedy}"
        found.append(Finding(key="tuning_old", severity=Severity.INFO, text=text))
    failed = sorted(check for check, word in verdicts_of(run).items() if word is Verdict.FAIL)
    if failed:
        more = f" and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
        text = (
            f"{len(failed)} checks of the host's tuning failed {_age(age_s)} ago: "
            f"{', '.join(failed[:SHOWN])}{more}"
        )
        found.append(Finding(key="tuning_fails", severity=Severity.WARNING, text=text))
    return found


def unreadable(error: RoomError | OSError) -> Finding:
    """The history that holds checklists cannot be read."""
    text = f"the host's tuning is not known: {error}"
    return Finding(key="tuning_unknown", severity=Severity.INFO, text=text)


def _age_s(run: StoredRun, now: datetime) -> float | None:
    try:
        at = datetime.fromisoformat(run.at_utc)
    except ValueError:
        return None
    return max(0.0, (now - (at if at.tzinfo else at.replace(tzinfo=UTC))).total_seconds())


def _age(age_s: float | None) -> str:
    if age_s is None:
        return "at an unknown time"
    if age_s < 5400:
        return f"{age_s / 60:.0f} min"
    return f"{age_s / 3600:.0f} h" if age_s < 2 * 86400 else f"{age_s / 86400:.0f} days"
