"""What one run of a server has shown in its log so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from backends.servers.catalogue import Cause, Match
from backends.servers.engines import Phase
from backends.servers.progress import Progress
from backends.servers.tracebacks import PyException


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the log and what it says."""

    line: int
    text: str


@dataclass(slots=True)
class Evidence:
    """A cause that was found, and the lines that show it."""

    cause: Cause
    first_line: int
    places: dict[int, tuple[Place, Match]] = field(default_factory=dict)
    """First place of each signature."""
    loud: bool = False
    """Some line that shows it is more than information or a warning."""

    @property
    def best(self) -> tuple[Place, Match]:
        """The place that says it most plainly."""
        return self.places[min(self.places)]


@dataclass(slots=True)
class Warned:
    """A performance warning, pinned."""

    id: str
    title: str
    line: int
    text: str
    count: int = 1


@dataclass(slots=True)
class PhaseEntry:
    """When a phase was entered."""

    phase: Phase
    line: int
    stamp: str | None
    text: str


@dataclass(slots=True)
class Run:
    """What one run of a server, in a log that may hold several, has shown so far."""

    first_line: int = 1
    phases: list[PhaseEntry] = field(default_factory=list)
    loaded: bool = False
    """The weights of the newest load phase are in memory."""
    progress: Progress | None = None
    ready: Place | None = None
    presumed: bool = False
    """Ready only so far as no phase of a start follows: nothing more was to be expected."""
    expecting: set[int] = field(default_factory=set)
    """Presumptions of its engine whose condition was seen."""
    serving: Place | None = None
    """First line that only serving prints, where the log begins after readiness."""
    dead: Place | None = None
    stops: dict[int, Place] = field(default_factory=dict)
    stop_line: int | None = None
    causes: dict[str, Evidence] = field(default_factory=dict)
    overcome: dict[str, Evidence] = field(default_factory=dict)
    """What was complained about and gone past in this start, and may explain a later failure."""
    exceptions: list[PyException] = field(default_factory=list)
    last_exception: PyException | None = None
    warnings: dict[str, Warned] = field(default_factory=dict)
    last: list[Place] = field(default_factory=list)
    waits: int = 0
    """How often, without a break, processes said that they wait for each other."""
    first_wait: Place | None = None
    served: int = 0
    prompt_line: int | None = None
    """A shell's prompt that came back: the program in the foreground has ended."""

    @property
    def phase(self) -> Phase:
        """The phase entered last; ready outranks what serving prints."""
        if self.up:
            return Phase.READY
        return self.phases[-1].phase if self.phases else Phase.LAUNCHING

    @property
    def up(self) -> bool:
        """Whether the server was seen to be ready, or to serve."""
        return self.ready is not None or self.serving is not None

    @property
    def over(self) -> bool:
        """Whether the start has ended, well or badly."""
        return self.up or self.dead is not None or self.stop_line is not None

    @property
    def memory_phase(self) -> Phase:
        """The phase it is in: weights that are loaded are behind it."""
        if self.phase is Phase.LOADING and self.loaded:
            return Phase.MEMORY
        return self.phase

    def pass_over(self) -> None:
        """The start goes on: what was complained about is not its end, but perhaps its cause."""
        explaining = {
            name: found for name, found in self.causes.items() if found.cause.entry.refines
        }
        overcome = explaining | self.overcome
        self.forgive()
        self.overcome = overcome

    def withdraw(self) -> None:
        """It was not ready after all."""
        self.ready, self.presumed = None, False
        while self.phases and self.phases[-1].phase is Phase.READY:
            self.phases.pop()

    def forgive(self) -> None:
        """The server came up, or serves: what it complained about before was not the end."""
        self.overcome.clear()
        self.causes.clear()
        self.exceptions.clear()
        self.last_exception = None
