"""Changes and roll backs whose end nobody wrote down: cut, or still at work elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from backends.storage.tuning_tables import StoredSnapshot
from backends.tuning.snapshot import Outcome, decode_results

NOT_JUDGED: Final = "done and read back; the check is not judged again yet"
"""What is said of a fix between its last step and the checklist's word."""


def how_left(stored: StoredSnapshot) -> str:
    """In which state a change was left, in words; empty where it came to its end."""
    if stored.rolled_back_utc is not None:
        return ""
    back = decode_results(stored.back)
    for result in back:
        if result.outcome is Outcome.BEGUN:
            return f"taking it back was cut, or is still at work: {result.detail}"
    if back:
        return "not all of it was taken back"
    results = decode_results(stored.results)
    if not results:
        return "nothing was begun"
    for result in results:
        if result.outcome is Outcome.BEGUN:
            return f"it was cut, or is still at work: {result.check} was begun"
    if any(result.detail == NOT_JUDGED for result in results):
        return "cut before the checks were judged again"
    return ""


def left_in_the_middle(snapshots: Sequence[StoredSnapshot]) -> StoredSnapshot | None:
    """The newest change, where it or its way back was cut in the middle.

    Args:
        snapshots: Of a host, newest first.
    """
    made = next((one for one in snapshots if one.results), None)
    if made is None or made.rolled_back_utc is not None:
        return None
    both = (*decode_results(made.results), *decode_results(made.back))
    return made if any(result.outcome is Outcome.BEGUN for result in both) else None


def say(made: StoredSnapshot, way_back: str) -> str:
    """One sentence for those who look at the host next."""
    return f"the change of {made.at_utc[:19]} by {made.operator}: {how_left(made)}; {way_back}"
