"""What a run says while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backends.bench.results import Finding, StepResult


@dataclass(frozen=True, slots=True)
class Progress:
    """How a step is going; twice a second.

    Attributes:
        step: Position among all steps of the run.
        of: Number of steps.
        label: The step in words.
        phase: `prepare`, `warmup`, `measure` or `cooldown`.
        at_s: Seconds since the run began.
        output_tokens_per_s: Of the last second; likewise the other rates.
        ttft_s: Median of those of the last half a second, or None without any.
        e2e_s: Likewise.
        limited: Why the client is holding the load back just now, if it is.
    """

    step: int
    of: int
    label: str
    phase: str
    at_s: float
    in_flight: int
    sent: int
    succeeded: int
    failed: int
    output_tokens: int
    input_tokens: int
    output_tokens_per_s: float
    total_tokens_per_s: float
    requests_per_s: float
    ttft_s: float | None
    e2e_s: float | None
    limited: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """A request that was sent while measuring has succeeded; its latencies in seconds."""

    step: int
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A step is over, with its figures."""

    result: StepResult


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something was found out."""

    finding: Finding


@dataclass(frozen=True, slots=True)
class ToolSaid:
    """A line that another tool's benchmark printed."""

    step: int
    text: str


Event = ToolSaid | Progress | RequestEnded | StepEnded | Noticed
Listener = Callable[[Event], None]
