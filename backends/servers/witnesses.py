"""What each witness of a server says, and when it said it.

Times are monotonic seconds of one clock, the watcher's. A witness that was not asked, or cannot
answer, is None; that is never taken for a no.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from backends.servers.engines import Phase
from backends.servers.progress import Progress
from backends.servers.verdict import Verdict


class Witness(StrEnum):
    """Who says something about a server."""

    LINK = "link"
    PROCESS = "process"
    LOG = "log"
    HTTP = "http"
    PORT = "port"
    ACTIVITY = "activity"
    COMPLETION = "completion"
    KERNEL = "kernel"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """Whether the host can be reached."""

    at_s: float
    up: bool


@dataclass(frozen=True, slots=True)
class ProcessSeen:
    """The main process and those under it."""

    at_s: float
    alive: bool
    pid: int | None = None
    members: int = 0
    """Processes that belong to the server, the main one included."""
    dead_workers: tuple[str, ...] = ()
    """Names of workers that ended (or are zombies) while the main process lives."""
    exit_code: int | None = None
    """Of the main process; negative: the signal that ended it."""
    oom_killed: bool = False
    """The kernel or the cgroup says that it killed one of them for want of memory."""
    unkillable: tuple[str, ...] = ()
    """Processes that survived SIGKILL (in the driver)."""


@dataclass(frozen=True, slots=True)
class LogSeen:
    """What the log shows, and when it last grew (bars that move count)."""

    at_s: float
    verdict: Verdict
    phase_since_s: float | None = None
    grew_at_s: float | None = None
    progress: Progress | None = None
    step_s: float | None = None
    """Median time of a step of the bar, once some have been seen."""
    served_at_s: float | None = None
    """When a request was last carried out."""
    pattern_seen: bool | None = None
    """Whether the line has come that the profile waits for; None: it waits for none."""

    @property
    def phase(self) -> Phase:
        """The phase the log is in."""
        return self.verdict.phase


@dataclass(frozen=True, slots=True)
class HttpSeen:
    """The answer of one endpoint, asked from the host's own loopback."""

    at_s: float
    path: str
    code: int | None
    """None: no answer; `reason` says why."""
    reason: str = ""
    """`refused`, `timeout`, or the error's words."""
    proves_ready: bool = True
    """Whether a good code of this endpoint means that the model can serve."""
    ready_codes: tuple[int, ...] = (200,)
    latency_s: float | None = None
    running: int | None = None
    """Requests in work, where the metrics tell."""

    @property
    def good(self) -> bool:
        """Whether the code is one of readiness."""
        return self.code in self.ready_codes


class PortOwner(StrEnum):
    """Who listens on the server's port."""

    OURS = "ours"
    STRANGER = "stranger"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class PortSeen:
    """Who listens on the port."""

    at_s: float
    port: int
    owner: PortOwner
    holder: str = ""
    """Pid and command of the listener."""


@dataclass(frozen=True, slots=True)
class ActivitySeen:
    """When each sign of work last moved; None: never, or not measured."""

    at_s: float
    cpu_at_s: float | None = None
    disk_at_s: float | None = None
    network_at_s: float | None = None
    gpu_memory_at_s: float | None = None
    gpu_busy_at_s: float | None = None

    def last(self) -> tuple[float, str] | None:
        """The newest movement and what it was."""
        seen = [
            (when, name)
            for name, when in (
                ("CPU time", self.cpu_at_s),
                ("disk reads", self.disk_at_s),
                ("network", self.network_at_s),
                ("GPU memory", self.gpu_memory_at_s),
                ("GPU utilisation", self.gpu_busy_at_s),
            )
            if when is not None
        ]
        return max(seen, default=None)


@dataclass(frozen=True, slots=True)
class CompletionSeen:
    """One real completion, if it was asked for."""

    at_s: float
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class KernelSeen:
    """A line of the kernel log that speaks of this server: of its processes, or of its GPUs."""

    at_s: float
    text: str
    oom: bool = False
    """It says that one of its processes was killed for want of memory."""
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Witnesses:
    """Everything that is known of one run of one server."""

    run_id: str = ""
    """Changes with every start."""
    started_at_s: float | None = None
    """When this run was started or found; None: it was never started."""
    stop_asked_at_s: float | None = None
    stop_asked_by: str = ""
    """Who asked for it, where it was not whoever watches."""
    restart_by: str = ""
    """Who had it stopped to start it again."""
    link: LinkSeen | None = None
    process: ProcessSeen | None = None
    log: LogSeen | None = None
    http: HttpSeen | None = None
    port: PortSeen | None = None
    activity: ActivitySeen | None = None
    completion: CompletionSeen | None = None
    kernel: KernelSeen | None = None
