"""Verdicts over time: none at one odd sample, none that flickers, and a notice when one changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from backends.model import Alert, DriverState, GpuState, HostSnapshot, Severity, Verdict
from backends.verdicts import rank, worst_first

HOLD_IN_S: Final[Mapping[str, float]] = {
    "STRAGGLER": 5.0,
    "DOWN-TRAINED": 5.0,
    "SPINNING": 5.0,
    "GHOST": 10.0,
}
"""For how long a verdict must have been due before it is given; at once where not named."""

HOLD_ON_S: Final = 5.0
"""For how long a warning stays after its cause has gone, so that nothing flickers."""


class Steady:
    """Verdicts that neither jump at one odd sample nor flicker.

    A verdict is given once it has been due for its `HOLD_IN_S`; a warning is withdrawn once its
    cause has been gone for `HOLD_ON_S`. What a GPU does at the moment follows at once.
    """

    def __init__(self) -> None:
        self._due_since: dict[tuple[str, str | None], float] = {}
        self._last_due: dict[tuple[str, str | None], tuple[float, Verdict]] = {}

    def update(
        self, due: Iterable[Verdict], now_s: float, *, stale: bool = False
    ) -> tuple[Verdict, ...]:
        """The verdicts to give now.

        Args:
            due: What `judge` found now.
            now_s: Monotonic seconds here.
            stale: Nothing new is known: earlier verdicts about GPUs stay as they are.
        """
        due_now = {(verdict.word, verdict.gpu_uuid): verdict for verdict in due}
        for key in [
            key for key in self._due_since if key not in due_now and key not in self._last_due
        ]:
            del self._due_since[key]
        for key, verdict in due_now.items():
            since_s = self._due_since.setdefault(key, now_s)
            if now_s - since_s >= HOLD_IN_S.get(key[0], 0.0):
                self._last_due[key] = (now_s, verdict)
        for key, (last_s, verdict) in list(self._last_due.items()):
            held_on = verdict.severity is not Severity.INFO and now_s - last_s < HOLD_ON_S
            if key not in due_now and not held_on and not (stale and key[1]):
                del self._last_due[key]
                self._due_since.pop(key, None)
        return worst_first(verdict for _, verdict in self._last_due.values())


def alerts(old: HostSnapshot | None, new: HostSnapshot, at: datetime) -> list[Alert]:
    """What began or ended between two snapshots and may have been missed.

    Args:
        old: The snapshot before, or None at first.
        new: The one now; its verdicts are steady already.
        at: Now.

    Returns:
        One a warning or critical verdict that came, and one (`ended`) a verdict that went. While
        a GPU or its driver does not answer, nothing about it has ended.
    """
    before = {(v.word, v.gpu_uuid): v for v in old.verdicts} if old else {}
    after = {(v.word, v.gpu_uuid): v for v in new.verdicts}
    driver_answers = new.driver is None or new.driver.state is DriverState.OK
    driver_stuck = new.driver is not None and new.driver.state is DriverState.STUCK
    found = []
    for key, verdict in after.items():
        old_verdict = before.get(key)
        worse = old_verdict is None or rank(verdict.severity) < rank(old_verdict.severity)
        if verdict.severity is Severity.INFO or not worse:
            continue
        if verdict.word == "STUCK" and driver_stuck:
            continue  # said once, of the driver
        found.append(_alert(verdict, new, at))
    for key, verdict in before.items():
        if verdict.severity is Severity.INFO or key in after:
            continue
        if verdict.gpu_uuid is not None:
            gpu = new.gpu(verdict.gpu_uuid)
            answers = gpu is not None and gpu.state is GpuState.OK and driver_answers
            if not answers:
                continue
        found.append(replace(_alert(verdict, new, at), ended=True))
    return found


def _alert(verdict: Verdict, snapshot: HostSnapshot, at: datetime) -> Alert:
    gpu = snapshot.gpu(verdict.gpu_uuid) if verdict.gpu_uuid else None
    where = f"GPU {gpu.index} " if gpu else ""
    return Alert(
        at=at,
        host=snapshot.host,
        severity=verdict.severity,
        title=f"{where}{verdict.word}",
        detail=verdict.evidence,
        gpu_uuid=verdict.gpu_uuid,
    )
