"""What must agree before a server is called ready, and how long to wait for what."""

from __future__ import annotations

from dataclasses import dataclass, field

from backends.servers.engines import Engine, EngineId
from backends.servers.timing import MIN_QUIET_S, UNKNOWN_QUIET_S, History


@dataclass(frozen=True, slots=True)
class Requirements:
    """Which witnesses must say yes before a server is called ready."""

    log: bool = False
    """The log's readiness line, too: where HTTP answers 200 before the warm-up is over."""
    completion: bool = False
    """One real completion, too: where the profile asks for it."""
    port_owner: bool = True
    """The listener must be ours. False where the host does not tell who listens."""
    http: bool = True
    """An endpoint must answer well. False for a custom server whose profile names another sign."""
    pattern: bool = False
    """The line of the log that the profile names must have come."""


def requirements(engine: Engine, *, completion: bool = False) -> Requirements:
    """What an engine needs to be ready, with what a profile adds.

    SGLang before 0.5 answers 200 on /health while it still warms up, so its log must agree.
    """
    return Requirements(log=engine.id is EngineId.SGLANG, completion=completion)


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits of patience, in seconds."""

    requirements: Requirements = field(default_factory=Requirements)
    fresh_s: float = 15.0
    """How old an answer may be and still count."""
    lost_s: float = 30.0
    """Without word from the host for this long, the server is lost from sight."""
    unresponsive_s: float = 30.0
    """Once ready, without a good answer for this long, it does not respond."""
    serving_s: float = 10.0
    """A request this long ago still counts as serving."""
    dying_s: float = 30.0
    """After the log has shown a failure, how long its process may take to end."""
    least_quiet_s: float = MIN_QUIET_S
    """No silence shorter than this is a stall."""
    unknown_quiet_s: float = UNKNOWN_QUIET_S
    """Silence that is a stall where no earlier start is known."""
    memory_back_s: float = 30.0
    """How long a driver may take to give the memory of a stopped server back."""
    history: History = field(default_factory=dict)
