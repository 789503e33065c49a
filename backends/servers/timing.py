"""How long starts take: when silence is a stall, and how much time is left.

Both are learned from earlier starts of the same profile. A log's silence alone proves nothing:
healthy starts were seen to print nothing for forty minutes while they downloaded or compiled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from backends.servers.engines import PHASE_ORDER, Phase
from backends.servers.progress import Progress

MIN_QUIET_S: Final = 120.0
"""No silence shorter than this is a stall."""
UNKNOWN_QUIET_S: Final = 600.0
"""Silence, with nothing moving, that is a stall where no earlier start is known."""
_TIMES_MEDIAN: Final = 3.0
_OUTLASTED: Final = 1.5
_OUTLASTED_S: Final = 5.0
"""Beyond half as long again as the longest, and this much, a phase has no honest estimate."""
_STEPS_NEEDED: Final = 3
_STEPS_KEPT: Final = 64

History = Mapping[Phase, Sequence[float]]
"""Durations in seconds of each phase, in earlier starts that became ready."""


def phase_durations(
    entries: Sequence[tuple[Phase, float]], ready_at_s: float
) -> dict[Phase, float]:
    """How long each phase of a start took, for the history.

    Args:
        entries: Phases and when each was entered, in that order. A phase that comes again, as with
            a draft model, adds to its time.
        ready_at_s: When the start was over.
    """
    durations: dict[Phase, float] = {}
    ends = [*(at_s for _, at_s in entries[1:]), ready_at_s]
    for (phase, begun_at_s), ended_at_s in zip(entries, ends, strict=False):
        if phase is not Phase.READY:
            took_s = max(0.0, ended_at_s - begun_at_s)
            durations[phase] = durations.get(phase, 0.0) + took_s
    return durations


def quiet_limit_s(
    history: History,
    phase: Phase,
    *,
    least_s: float = MIN_QUIET_S,
    unknown_s: float = UNKNOWN_QUIET_S,
) -> float:
    """How long nothing may move in a phase before it counts as a stall.

    Three times the phase's median in earlier starts, at least two minutes; ten minutes where the
    phase has never been seen.
    """
    earlier = [duration for duration in history.get(phase, ()) if duration >= 0]
    if not earlier:
        return unknown_s
    return max(least_s, _TIMES_MEDIAN * median(earlier))


def time_left_s(
    history: History,
    phase: Phase,
    phase_elapsed_s: float,
    *,
    progress: Progress | None = None,
    step_s: float | None = None,
) -> float | None:
    """Seconds until ready, as far as earlier starts and the bar can tell.

    Args:
        history: Earlier starts of the same profile.
        phase: Where the start is now.
        phase_elapsed_s: For how long it has been there.
        progress: The bar of this phase, if one is shown.
        step_s: Median time of one of its steps.

    Returns:
        None where no earlier start is known, since the bar of one phase says nothing about the
        rest; and where this phase has, without a bar, outlasted all that is known of it.
    """
    if not any(history.values()):
        return None
    earlier, has_bar = history.get(phase, ()), progress is not None and step_s is not None
    if earlier and not has_bar and phase_elapsed_s > _OUTLASTED * max(earlier) + _OUTLASTED_S:
        return None
    here = _rest_of_phase(history, phase, phase_elapsed_s, progress, step_s)
    later = sum(
        median(durations)
        for other, durations in history.items()
        if durations and PHASE_ORDER[other] > PHASE_ORDER[phase] and other is not Phase.READY
    )
    return here + later


def _rest_of_phase(
    history: History,
    phase: Phase,
    elapsed_s: float,
    progress: Progress | None,
    step_s: float | None,
) -> float:
    if progress is not None and progress.total and step_s is not None:
        return max(0.0, progress.total - progress.done) * step_s
    earlier = history.get(phase, ())
    return max(0.0, median(earlier) - elapsed_s) if earlier else 0.0


@dataclass(slots=True)
class StepClock:
    """Times the steps of a bar.

    The bar's own estimate is useless on the first steps, which may take thirty times as long as
    the others; the median is not.
    """

    _total: float | None = None
    _done: float = 0.0
    _at_s: float = 0.0
    _steps: deque[float] = field(default_factory=lambda: deque(maxlen=_STEPS_KEPT))

    def note(self, progress: Progress, at_s: float) -> None:
        """Take a state of the bar; another total, or a count that went back, begins anew.

        The label is no sign of another bar: some name the step that is being done.
        """
        if self._total is None or progress.total != self._total or progress.done < self._done:
            self._steps.clear()
        elif progress.done == self._done:
            return
        else:
            self._steps.append((at_s - self._at_s) / (progress.done - self._done))
        self._total, self._done, self._at_s = progress.total, progress.done, at_s

    @property
    def step_s(self) -> float | None:
        """Median time of a step; None until three have been seen."""
        return median(self._steps) if len(self._steps) >= _STEPS_NEEDED else None
