"""The two sides of a comparison: facts of a file, of a stored run, or of a host as it is now."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from backends.errors import UsageError
from backends.storage.tuning_tables import StoredRun, TuningHistory
from backends.tuning.facts import FactsDocument, decode

LAST = "last"


@dataclass(frozen=True, slots=True)
class StoredSide:
    """A run of the history."""

    host: str
    run: StoredRun
    document: FactsDocument

    @property
    def label(self) -> str:
        """As an operator would name it."""
        return f"{self.host}@{self.run.run_id} ({self.run.at_utc[:19]})"


def is_stored(name: str) -> bool:
    """Whether it names a run: `HOST@NUMBER`, `HOST@last`, `HOST@-2`."""
    host, at, wanted = name.rpartition("@")
    return bool(host and at) and (wanted == LAST or wanted.lstrip("-").isdecimal())


def stored(name: str) -> StoredSide:
    """The facts of a run: by number, `last`, or counted back from the last (`-1` before it).

    Raises:
        UsageError: There is no such run.
        StorageError: The history cannot be read.
    """
    host, _, wanted = name.rpartition("@")
    with contextlib.closing(TuningHistory.at_home()) as history:
        runs = history.runs(host)
        run: StoredRun | None = None
        if wanted == LAST or wanted.startswith("-"):
            back = 0 if wanted == LAST else int(wanted[1:])
            run = runs[back] if back < len(runs) else None
        else:
            run = next((one for one in runs if one.run_id == int(wanted)), None)
        facts = None if run is None else history.facts_of(run.run_id)
    if run is None or facts is None:
        known = ", ".join(str(one.run_id) for one in runs[:8])
        raise UsageError(
            f"no run {wanted} of {host}",
            hint=f"there are {known}" if known else f"`gpuroom tuning {host}` makes one",
        )
    return StoredSide(host, run, decode(facts))
