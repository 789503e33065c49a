"""A run and what to hold it to. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from backends.clock import Clock
from backends.servers.apikey import ApiKey
from backends.servers.engines import Engine, EngineId
from backends.servers.launchers.base import Run
from backends.servers.lifecycle import Requirements, requirements
from backends.servers.profiles import Readiness

FROM_START_S: Final = 10.0
"""A run this young is watched from its beginning."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A run and what to hold it to."""

    run: Run
    engine: Engine
    ready: Readiness = field(default_factory=Readiness)
    model: str | None = None
    """Model name that must be served, where it is known; used by the completion."""
    key: ApiKey | None = None
    """What it wants to see before it answers."""


def age_of(run: Run, clock: Clock) -> float:
    """How old a run is; the host's own word counts more than two clocks that may differ."""
    if run.age_s is not None:
        return max(0.0, run.age_s)
    if run.started_at is None:
        return FROM_START_S
    return max(0.0, clock.utc().timestamp() - run.started_at)


def needs_of(watched: Watched) -> Requirements:
    """Which witnesses must say ready before this run is called so."""
    ready, run = watched.ready, watched.run
    needs = requirements(watched.engine, completion=ready.prompt is not None)
    custom = watched.engine.id is EngineId.CUSTOM
    told = ready.log is not None or ready.prompt is not None
    return replace(
        needs,
        http=not (custom and told and ready.path is None),
        pattern=ready.log is not None and run.log is not None,
        port_owner=run.port is not None and run.port_visible,
    )
