"""What every launcher offers: start, find, look at, stop a run, and say where its log is.

A launcher may also have a run wait (a queue): then `RunLook.waiting` says for what, and there is no
process yet. Nothing else in the product asks which launcher it is.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from backends.errors import RoomError
from backends.model import Severity
from backends.servers.host import MemberFacts, PortFacts, StopAsked
from backends.servers.profiles import LauncherKind, Profile

ASK_AGAIN_S: Final = 60.0


class LogKind(StrEnum):
    """Where a log is kept."""

    FILE = "file"
    COMMAND = "command"
    """What a command prints that follows it: `journalctl -f`, `docker logs -f`."""
    SCREEN = "screen"
    """What a command prints each time anew: `tmux capture-pane`."""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where the log of a run is: a path on the host, or the command that follows it."""

    kind: LogKind
    path: str = ""
    argv: tuple[str, ...] = ()
    """A command that follows says so by the word `--follow`."""
    begins_at: int = 0
    """Where in the file this run's part begins: a log may hold earlier runs."""

    @property
    def argv_once(self) -> tuple[str, ...]:
        """The command that prints what there is now, and ends."""
        return tuple(word for word in self.argv if word != "--follow")

    @property
    def words(self) -> str:
        """Where it is, for a person."""
        return self.path or shlex.join(self.argv)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a server on a host. `place` is what its launcher knows it by."""

    run_id: str
    profile: str
    launcher: LauncherKind
    place: str
    log: LogPlace | None
    started_at: float | None = None
    """Epoch seconds, of the host's clock."""
    age_s: float | None = None
    """How long ago that was when it was looked at, by the host's clock, which may be wrong."""
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    port: int | None = None
    engine: str | None = None
    pid: int | None = None
    by: str | None = None
    origin: str | None = None
    port_visible: bool = True
    """Whether the host itself shows who listens; false behind a container's own network."""
    memory_before: Mapping[str, int] | None = None
    """Bytes in use on each GPU (UUID) before the start, where that was written down."""
    program: str | None = None
    """The whole path of what the first argument names, where it was looked up."""
    env_differs: tuple[str, ...] = ()
    """Variables of `env` that a login on the host sets otherwise, or not at all."""
    adopted: bool = False
    """Found running; gpuroom did not start it."""


@dataclass(frozen=True, slots=True)
class RunLook:
    """A run now."""

    alive: bool
    pid: int | None = None
    members: tuple[MemberFacts, ...] = ()
    exit_code: int | None = None
    """Negative: the signal that ended it."""
    oom_killed: bool = False
    cpu_s: float | None = None
    read_bytes: int | None = None
    port: PortFacts | None = None
    waiting: str = ""
    stop: StopAsked | None = None
    """An operator has had it stopped: its end is no crash."""


@dataclass(frozen=True, slots=True)
class StopStep:
    """One step of a stop, and how many processes were left before it."""

    words: str
    left: int

    @property
    def full_words(self) -> str:
        """With the number of processes."""
        if not self.left:
            return self.words
        return f"{self.words} ({self.left} process{'' if self.left == 1 else 'es'})"


@dataclass(frozen=True, slots=True)
class StopResult:
    """What remains after a stop; nothing, when it is complete."""

    left: tuple[MemberFacts, ...] = ()
    port: PortFacts | None = None
    gpu_memory_held: tuple[str, ...] = ()
    """GPUs whose memory was not given back, in words."""

    @property
    def complete(self) -> bool:
        """No process left, port free, GPU memory given back."""
        return not self.left and not self.gpu_memory_held and (self.port is None or self.port.free)


@dataclass(frozen=True, slots=True)
class StartFinding:
    """Something that is in the way of a start, or may be, and the way out."""

    id: str
    severity: Severity
    title: str
    way_out: str


def runs_already(profile: Profile, who: str) -> StartFinding:
    """That a server of the profile runs, and what can be done about it."""
    name = profile.name
    way_out = (
        f"`gpuroom wait-ready {name}` watches it, `gpuroom restart {name}` replaces it, "
        f"`gpuroom stop {name}` ends it"
    )
    return StartFinding("earlier-run", Severity.CRITICAL, f"{name} runs already: {who}", way_out)


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What a start would run, told before it is done."""

    commands: tuple[tuple[str, ...], ...]
    """Argument vectors, in the order in which they run."""
    env: Mapping[str, str]
    """Variables that are set for the server."""
    words: str
    """How it is kept, for a person."""


def env_unused(profile: Profile, where: str, way_out: str) -> list[StartFinding]:
    """That the variables of a profile do not reach its server, where it sets any."""
    if not profile.env:
        return []
    title = f"`env` does not reach {where}: {', '.join(profile.env)}"
    return [StartFinding("env-unused", Severity.WARNING, title, way_out)]


class LaunchError(RoomError):
    """A server could not be started or stopped."""


class ProfileBusy(LaunchError):
    """The profile runs already, or somebody else is at it: says who."""

    exit_code = 7


class Presence:
    """Whether a program is there to be asked at all; one that was not is tried again later."""

    def __init__(self) -> None:
        self._absent_until_s = 0.0

    @property
    def likely(self) -> bool:
        """Whether it is worth asking now."""
        return asyncio.get_running_loop().time() >= self._absent_until_s

    def note(self, *, answered: bool) -> None:
        """How it went."""
        if not answered:
            self._absent_until_s = asyncio.get_running_loop().time() + ASK_AGAIN_S


class Launcher(Protocol):
    """One way to run servers on one host."""

    kind: LauncherKind

    async def plan(self, profile: Profile, by: str, origin: str) -> StartPlan:
        """Exactly what `start` would run now.

        Raises:
            RoomError: It could not run anything, or the host does not answer.
        """
        ...

    async def stop_commands(self, run: Run, grace_s: float) -> tuple[tuple[str, ...], ...]:
        """The commands that `stop` runs; none where it sends signals itself."""
        ...

    async def start(self, profile: Profile, run_id: str, by: str, origin: str) -> Run:
        """Start it; returns once it is known to have been started (not: to be ready).

        Raises:
            ProfileBusy: It runs already.
            LaunchError: It can't be started, in the host's words.
        """
        ...

    async def runs(self) -> list[Run]:
        """The newest run of every profile of this launcher on the host, dead ones included."""
        ...

    async def look(self, run: Run, *, deep: bool = False) -> RunLook:
        """A run now; `deep` takes longer and finds processes that hide."""
        ...

    async def stop(
        self, run: Run, grace_s: float, by: str, origin: str, on_step: Callable[[StopStep], None],
        *, restart: bool = False,
    ) -> StopResult:  # fmt: skip
        """Stop it, wholly, and say what remains; `restart`: a start is to follow."""
        ...
