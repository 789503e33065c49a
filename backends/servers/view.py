"""One server as whoever shows it sees it: a frozen picture, taken once a frame. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

from backends.servers.configuration import Comparison
from backends.servers.engines import PHASE_ORDER, Phase
from backends.servers.host import MemberFacts
from backends.servers.launchers.base import Run
from backends.servers.lifecycle import ANSWERING, OVER, Assessment, State
from backends.servers.profiles import Profile
from backends.servers.progress import Progress
from backends.servers.run import Place
from backends.servers.verdict import Verdict
from backends.storage.starts import Start


class Doing(StrEnum):
    """What an operator of this room is having done to a server."""

    CHECKING = "checking"
    STARTING = "starting"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """One phase of a start: how long it took, or takes so far, beside what is usual."""

    phase: Phase
    took_s: float | None
    usual_s: float | None
    now: bool = False
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class ServerView:
    """A server of a host.

    Attributes:
        key: What it is known by in its room: the profile's name, or the run's id where it was
            found.
        engine: Id of its engine.
        profile: How it is started; None where it was only found.
        run: Its newest run; None where it was never started.
        found: The state of that run; None until the first witness was heard.
        verdict: What its log shows.
        now_s: When this was taken, on the witnesses' clock.
        up_s: For how long the run has been there, by the host's clock.
        phases: Phases of this start so far, and those that usually follow.
        members: Its processes.
        port: The port that it should have.
        model: The model that it serves.
        doing: What is being done to it, with `step` in words.
        left_over: What a stop left behind, in words.
        last_lines: The newest lines of its log.
        complaints: Lines of its log that show something wrong, failure or not.
        silent: Part of the watch -> why it learns nothing right now.
        earlier: Earlier starts, the newest first.
        configuration: Asked beside effective.
        listed: Whether its host has been asked what runs there; before that no run means nothing.
    """

    key: str
    name: str
    host: str
    engine: str
    profile: Profile | None = None
    run: Run | None = None
    found: Assessment | None = None
    verdict: Verdict | None = None
    now_s: float = 0.0
    up_s: float | None = None
    phases: tuple[PhaseTime, ...] = ()
    members: tuple[MemberFacts, ...] = ()
    port: int | None = None
    model: str | None = None
    doing: Doing | None = None
    step: str = ""
    left_over: tuple[str, ...] = ()
    last_lines: tuple[str, ...] = ()
    complaints: tuple[Place, ...] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    earlier: tuple[Start, ...] = ()
    configuration: tuple[Comparison, ...] = ()
    listed: bool = True

    @property
    def word(self) -> str:
        """Its state in one word."""
        if self.doing is not None:
            return self.doing.value
        if self.found is None:
            if self.run is None:
                return "stopped" if self.listed else "unknown"
            return "being looked at"
        if self.found.stall is not None:
            return "stalled"
        return self.found.state.value

    @property
    def lives(self) -> bool:
        """Whether a process of it may be there."""
        return self.run is not None and (self.found is None or self.found.state not in OVER)

    @property
    def can_start(self) -> bool:
        """Whether a start makes sense now."""
        return self.profile is not None and not self.lives and self.doing is None

    @property
    def can_stop(self) -> bool:
        """Whether a stop makes sense now."""
        return self.lives and self.doing is None

    @property
    def can_restart(self) -> bool:
        """Whether a restart makes sense now."""
        return self.can_stop and self.profile is not None

    @property
    def answers(self) -> bool:
        """Whether requests are carried out."""
        return self.found is not None and self.found.state in ANSWERING

    @property
    def starts(self) -> bool:
        """Whether it is on its way up."""
        return self.found is not None and self.found.state in (
            State.LAUNCHING, State.LOADING, State.WARMING,
        )  # fmt: skip

    @property
    def failed(self) -> bool:
        """Whether there is a cause to show."""
        return self.found is not None and (
            self.found.state is State.CRASHED or self.found.failing_since_s is not None
        )


def phase_times(
    took: Mapping[Phase, float],
    history: Mapping[Phase, Sequence[float]],
    now: Phase | None,
    now_took_s: float | None,
    progress: Progress | None = None,
) -> tuple[PhaseTime, ...]:
    """The phases of a start in their order.

    Args:
        took: Seconds of the phases that are over.
        history: Seconds that each phase took in earlier starts.
        now: The phase it is in; None once the start is over.
        now_took_s: For how long.
        progress: The bar of that phase.
    """
    known = (set(took) | {phase for phase, past in history.items() if past}) - {Phase.READY}
    if now is not None and now is not Phase.READY:
        known.add(now)
    rows = []
    for phase in sorted(known, key=PHASE_ORDER.__getitem__):
        past = history.get(phase, ())
        seconds = took.get(phase)
        if phase is now and now_took_s is not None:
            seconds = (seconds or 0.0) + now_took_s
        rows.append(
            PhaseTime(
                phase, seconds, median(past) if past else None,
                now=phase is now, progress=progress if phase is now else None,
            )
        )  # fmt: skip
    return tuple(rows)


_URGENCY = {
    State.CRASHED: 1, State.DEGRADED: 1, State.UNRESPONSIVE: 1, State.STOPPING: 2,
    State.LAUNCHING: 2, State.LOADING: 2, State.WARMING: 2, State.LOST: 3,
    State.SERVING: 4, State.READY: 4, State.EXITED: 5, State.STOPPED: 6,
}  # fmt: skip


def most_notable(views: Sequence[ServerView]) -> ServerView | None:
    """The server to show where there is room for one.

    What is being done comes before what is wrong, what is on its way, and what serves.
    """

    def rank(view: ServerView) -> int:
        if view.doing is not None:
            return 0
        if view.found is None:
            return 7 if view.run is None else 4
        if view.found.stall is not None:
            return 1
        # A crash that nobody here saw is history; one of a configured server still matters.
        if view.found.state is State.CRASHED and view.profile is None:
            return 6
        return _URGENCY[view.found.state]

    return min(views, key=rank, default=None)
