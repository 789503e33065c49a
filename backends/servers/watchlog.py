"""The log of a watched run as a witness: what it shows, since when, and how long phases took."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from backends.clock import Clock
from backends.servers.catalogue import Catalogue
from backends.servers.configuration import EffectiveReader
from backends.servers.engines import PHASE_ORDER, EngineId, Phase
from backends.servers.judge import LogJudge
from backends.servers.lines import LogLine, LogReader
from backends.servers.logfeed import LogData
from backends.servers.timing import History, StepClock
from backends.servers.verdict import Outcome, Verdict, judge_run
from backends.servers.witnesses import LogSeen

JUDGE_EVERY_S: Final = 0.2
MAX_PATTERN_CHARS: Final = 4096
"""A profile's pattern is looked for so far into a line."""


@dataclass(frozen=True, slots=True)
class LogTask:
    """What is to be read out of a log.

    Attributes:
        pattern: A line that the profile demands before the server is ready.
        began_s: When the run began, on the watcher's clock.
        from_start: Whether the log is watched from its beginning.
        begins_at: Where this run's part of the log begins.
        history: Earlier starts.
    """

    engine: EngineId
    catalogue: Catalogue
    pattern: re.Pattern[str] | None = None
    began_s: float = 0.0
    from_start: bool = True
    begins_at: int = 0
    history: History = field(default_factory=dict)


class LogWitness:
    """Takes the log's bytes, judges them a few times a second, and says what they show.

    Args:
        task: What to look for.
        clock: Of durations.
        say: Is called with what the log shows whenever it was judged.

    Attributes:
        phases: Seconds that each phase took that is over.
        effective: What the log says the server runs with.
    """

    def __init__(self, task: LogTask, clock: Clock, say: Callable[[LogSeen], None]) -> None:
        self._task = task
        self._clock = clock
        self._say = say
        self._reader = LogReader()
        self.judge = LogJudge(task.catalogue, task.engine)
        self._steps = StepClock()
        self.effective = EffectiveReader(task.engine)
        self.phases: dict[Phase, float] = {}
        self._phase: Phase | None = None
        self._phase_since_s: float | None = None
        self._served = 0
        self._served_at_s: float | None = None
        self._pattern_line: int | None = None
        self._whole = True
        self._begun = False
        self._judged_s = -1e9
        self._judging: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Judge no more."""
        if self._judging is not None:
            self._judging.cancel()
            self._judging = None

    @property
    def phase_since_s(self) -> float | None:
        """Since when the start is in its phase; None before the log has told one."""
        return self._phase_since_s

    def durations(self) -> dict[Phase, float]:
        """Seconds that each phase took, the one that it is in included, up to now."""
        found = dict(self.phases)
        phase, since_s = self._phase, self._phase_since_s
        if phase is not None and phase is not Phase.READY and since_s is not None:
            found[phase] = found.get(phase, 0.0) + self._clock.monotonic_s() - since_s
        return found

    def take(self, piece: LogData) -> None:
        """The next bytes."""
        now_s = self._clock.monotonic_s()
        if not self._begun:
            self._begun, self._whole = True, piece.offset <= self._task.begins_at
        pattern = self._task.pattern
        for event in self._reader.feed(piece.data, self.judge.skim):
            self.judge.take_all((event,))
            if isinstance(event, LogLine):
                if self.judge.run.ready is None:
                    self.effective.take(event)
                wanted = pattern is not None and self._pattern_line is None
                if (
                    wanted
                    and pattern is not None
                    and pattern.search(event.text, 0, MAX_PATTERN_CHARS)
                ):
                    self._pattern_line = event.number
        progress = self.judge.run.progress
        if progress is not None:
            self._steps.note(progress, now_s)
        # Judging costs more than reading: a fast log is judged a few times a second.
        if now_s - self._judged_s >= JUDGE_EVERY_S:
            self._judge()
        elif self._judging is None:
            loop = asyncio.get_running_loop()
            self._judging = loop.call_later(JUDGE_EVERY_S, self._judge)

    def _judge(self) -> None:
        self.close()
        now_s = self._clock.monotonic_s()
        self._judged_s = now_s
        verdict = self._with_pattern(judge_run(self.judge))
        self._enter(verdict.phase, now_s)
        served = self.judge.run.served
        if served > self._served:
            self._served_at_s = now_s
        self._served = served
        self._say(
            LogSeen(
                now_s,
                verdict,
                phase_since_s=self._phase_since_s,
                grew_at_s=now_s,
                progress=self.judge.run.progress,
                step_s=self._steps.step_s,
                served_at_s=self._served_at_s,
                pattern_seen=self._pattern_seen,
            )
        )

    @property
    def _pattern_seen(self) -> bool | None:
        """None where there is none, or where it may lie before the part that was read."""
        if self._task.pattern is None:
            return None
        return True if self._pattern_line is not None else False if self._whole else None

    def _with_pattern(self, verdict: Verdict) -> Verdict:
        """A custom server is ready by its own log when the profile's line has come, not before."""
        seen = self._pattern_seen
        if seen is False and verdict.phase is Phase.READY:
            return replace(verdict, phase=Phase.WARMING)
        custom = self._task.engine is EngineId.CUSTOM
        if seen and custom and verdict.outcome is Outcome.LOADING:
            line = self._pattern_line
            return replace(verdict, outcome=Outcome.READY, phase=Phase.READY, ready_line=line)
        return verdict

    def _enter(self, phase: Phase, now_s: float) -> None:
        if phase is self._phase:
            return
        if self._phase is None:
            self._phase_since_s = self._first_phase_since(phase, now_s)
        else:
            if self._phase_since_s is not None:
                took_s = now_s - self._phase_since_s
                self.phases[self._phase] = self.phases.get(self._phase, 0.0) + took_s
            self._phase_since_s = now_s
        self._phase = phase

    def _first_phase_since(self, phase: Phase, now_s: float) -> float:
        """When the phase began that the log is found in.

        A start that is found again has been at it for a while: what came before took, as far as is
        known, what it took in earlier starts.
        """
        began_s = min(now_s, self._task.began_s)
        if self._task.from_start:
            return began_s
        before_s = sum(
            median(took)
            for earlier, took in self._task.history.items()
            if took and PHASE_ORDER[earlier] < PHASE_ORDER[phase]
        )
        return min(now_s, began_s + before_s)
