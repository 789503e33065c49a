"""The states of a server, and an assessment: the state with everything that led to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from backends.servers.engines import Phase
from backends.servers.progress import Progress
from backends.servers.testimony import Testimony


class State(StrEnum):
    """What a server is doing."""

    STOPPED = "stopped"
    LAUNCHING = "launching"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    SERVING = "serving"
    DEGRADED = "degraded"
    UNRESPONSIVE = "unresponsive"
    STOPPING = "stopping"
    EXITED = "exited"
    CRASHED = "crashed"
    LOST = "lost"


ANSWERING: Final = frozenset({State.READY, State.SERVING})
"""States in which requests are carried out."""
OVER: Final = frozenset({State.STOPPED, State.EXITED, State.CRASHED})
"""States that a run does not leave."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing has moved for longer than it ever took."""

    quiet_s: float
    limit_s: float
    last: str
    """What moved last."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """The state of one run, with everything that led to it."""

    run_id: str
    state: State
    why: str
    since_s: float
    testimonies: tuple[Testimony, ...] = ()
    disagreements: tuple[str, ...] = ()
    phase: Phase | None = None
    progress: Progress | None = None
    left_s: float | None = None
    stall: Stall | None = None
    cause: str | None = None
    """Id in the failure catalogue of a crash, where it is known."""
    exit_code: int | None = None
    was_ready: bool = False
    good_at_s: float | None = None
    """When the server was last seen to answer well."""
    failing_since_s: float | None = None
    """Since when the log has shown a failure although the process lives."""
    last_known: State | None = None
    """What it was before it was lost."""
