"""What the screens share: the hosts, which one is looked at, how it is drawn.

One object a session. Before the hub is there (it is imported after the first frame), hosts show
as not connected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backends.clock import SYSTEM_CLOCK, Clock
from backends.config import Config, HostConfig
from backends.errors import RoomError
from backends.feeds import Journal, Ring
from backends.model import Alert, HostSnapshot, LinkState, LinkStatus
from backends.telemetry.history import History, Window
from tui.room import HostView, RoomHub
from tui.secrets import Secrets
from tui.themes import Look

if TYPE_CHECKING:
    from backends.bench.desk import BenchDesk
    from backends.servers.board import ServerBoard
    from backends.storage.bench_tables import RunRow
    from backends.tuning.desk import Judged

WINDOWS = (Window.MINUTE, Window.TEN_MINUTES, Window.HOUR)
INTERVALS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


@dataclass
class Shell:
    """See the module.

    Attributes:
        hosts: What was asked for, in order.
        current: Name of the host looked at.
        read_only: Whether the room was opened with `--read-only`.
        sort: Column by which GPUs are ordered.
        hidden_panes: Panes that were put away.
        window: How far back histories look.
        paused: Whether the screen stands still.
        interval_s: Sampling interval chosen on screen; None until one was.
        theme: Theme chosen on screen; None until one was.
        settings_version: Grows with every change of the above.
        alerts_seen: How many alerts had come when their list was last looked at.
        judged: By host: the newest run of the tuning checklist.
        profiles: By host: the tuning profile chosen on screen, in the place of the configured one.
        secrets: Passwords that were typed, in memory alone.
        keep: Writes the state file.
        complain: Shows that it could not be written.
        past: By host: the newest benchmark run of the history, from before this room.
        bench: Benchmark runs of this room, once one was asked for.
        servers: The servers of the hosts, once the hub is there.
    """

    look: Look
    hosts: Sequence[HostConfig]
    config: Config = field(default_factory=Config)
    clock: Clock = SYSTEM_CLOCK
    read_only: bool = False
    sort: str = "index"
    hidden_panes: tuple[str, ...] = ()
    window: Window = Window.MINUTE
    paused: bool = False
    interval_s: float | None = None
    theme: str | None = None
    hub: RoomHub | None = None
    current: str = ""
    settings_version: int = 0
    alerts_seen: int = 0
    judged: dict[str, Judged] = field(default_factory=dict)
    profiles: dict[str, str] = field(default_factory=dict)
    secrets: Secrets = field(default_factory=Secrets, repr=False)
    past: dict[str, RunRow] = field(default_factory=dict)
    keep: Callable[[Shell], None] | None = None
    complain: Callable[[RoomError], None] | None = None
    bench: BenchDesk | None = None
    servers: ServerBoard | None = None
    _sessions: dict[str, HostView] = field(default_factory=dict)
    _empty_history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        if not self.current and self.hosts:
            self.current = self.hosts[0].name

    @property
    def names(self) -> list[str]:
        """Hosts in the order of the room."""
        return [host.name for host in self.hosts]

    def connect(self, hub: RoomHub) -> None:
        """Take the hub, once it is there."""
        self.hub = hub
        self._sessions = {session.name: session for session in hub.sessions}
        self.touch()

    def touch(self) -> None:
        """Say that a setting changed."""
        self.settings_version += 1

    def session(self, name: str | None = None) -> HostView | None:
        """A host, or None while the hub is not there."""
        return self._sessions.get(name or self.current)

    def host_config(self, name: str) -> HostConfig:
        """What is configured for a host."""
        session = self.session(name)
        if session is not None:
            return session.config
        return next((h for h in self.hosts if h.name == name), HostConfig(name=name))

    def snapshot(self, name: str | None = None) -> HostSnapshot:
        """What is known of a host now."""
        session = self.session(name)
        if session is not None:
            return session.snapshot
        status = LinkStatus(LinkState.IDLE, 0.0)
        return HostSnapshot(name or self.current, 0, status, self.config.refresh.interval_s)

    def history(self, name: str | None = None) -> History:
        """The past of a host."""
        session = self.session(name)
        return self._empty_history if session is None else session.history

    def host_read_only(self, name: str | None = None) -> bool:
        """Whether changes on a host are refused now."""
        session = self.session(name)
        if session is not None:
            return session.read_only
        return self.read_only or self.host_config(name or self.current).production

    @property
    def journal(self) -> Journal:
        """Everything asked of hosts."""
        return Journal(1) if self.hub is None else self.hub.journal

    @property
    def alerts(self) -> Ring[Alert]:
        """What happened."""
        return Ring(1) if self.hub is None else self.hub.alerts

    @property
    def open_alerts(self) -> int:
        """Alerts that came since the list of alerts was last looked at."""
        return self.alerts.version - self.alerts_seen

    def save(self) -> None:
        """Keep what was changed on screen, apart from the user's configuration."""
        self.touch()
        if self.keep is None:
            return
        try:
            self.keep(self)
        except RoomError as error:  # a full disk must not end the room: the change holds till then
            if self.complain is not None:
                self.complain(error)

    def select(self, name: str) -> bool:
        """Look at a host; False when there is none of that name or it is looked at already."""
        if name not in self.names or name == self.current:
            return False
        self.current = name
        self.touch()
        return True

    def step(self, by: int) -> bool:
        """Look at the next or previous host, round and round."""
        names = self.names
        if len(names) < 2:
            return False
        here = names.index(self.current) if self.current in names else 0
        return self.select(names[(here + by) % len(names)])

    def next_interval(self, *, faster: bool) -> float:
        """The next interval of the ladder for the host looked at."""
        now = self.snapshot().interval_s
        if faster:
            return max((s for s in INTERVALS_S if s < now * 0.999), default=INTERVALS_S[0])
        return min((s for s in INTERVALS_S if s > now * 1.001), default=INTERVALS_S[-1])

    def next_window(self) -> None:
        """Look further back; after the furthest, at the last minute again."""
        self.window = WINDOWS[(WINDOWS.index(self.window) + 1) % len(WINDOWS)]
        self.touch()
