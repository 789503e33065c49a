"""What every screen of the room has: the host bar above, the key hints below, data by the pump."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.events import Key
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from tui import format as fmt
from tui.actions import changing, find, key_text
from tui.compositor import TightCompositor
from tui.keymap import keys_of
from tui.rows import Span
from tui.shell import Shell
from tui.widgets.footer import Footer
from tui.widgets.host_bar import HostBar, HostTab
from tui.widgets.host_state import ticking


class HubScreen(Screen[None]):
    """A screen that shows feeds. Subclasses give the body and `show_body`.

    Attributes:
        AREAS: Areas of the key table that belong to it, for its help.
        ABOUT: What it shows, in a few sentences, for its help.
    """

    AREAS: ClassVar[tuple[str, ...]] = ()
    ABOUT: ClassVar[str] = ""
    AUTO_FOCUS = "RowList"

    def __init__(self, shell: Shell) -> None:
        super().__init__()
        self.shell = shell
        self._locked: bool | None = None
        self._compositor = TightCompositor()
        self.bar = HostBar(shell.look)
        self.footer = Footer(shell.look)

    def compose(self) -> ComposeResult:
        """Bar, body, hints."""
        yield self.bar
        yield from self.compose_body()
        yield self.footer

    def compose_body(self) -> Sequence[Widget]:
        """The widgets between bar and hints."""
        raise NotImplementedError

    def show_body(self, now_s: float) -> None:
        """Hand the newest values to the widgets of the body."""
        raise NotImplementedError

    def crumbs(self) -> Sequence[str]:
        """Where in the host one is."""
        return ()

    def feed_version(self) -> object:
        """Counters of everything shown."""
        shell = self.shell
        if shell.hub is None:
            return (shell.settings_version, shell.look.version, shell.current)
        return (
            shell.settings_version,
            shell.look.version,
            shell.current,
            shell.hub.version,
            shell.journal.version,
            shell.alerts.version,
            None if shell.bench is None else shell.bench.version,
            None if shell.servers is None else shell.servers.version,
        )

    def ticking(self, now_s: float) -> bool:
        """Whether an age or a countdown is on screen."""
        return any(ticking(self.shell.snapshot(name), now_s) for name in self.shell.names)

    def show_newest(self, now_s: float) -> None:
        """One frame: bar and body."""
        shell = self.shell
        tabs = [
            HostTab(shell.snapshot(name), shell.host_config(name).production)
            for name in shell.names
        ]
        self.bar.show(tabs, shell.current, self._badges(), now_s, self.crumbs())
        self.show_body(now_s)
        locked = shell.host_read_only()
        if locked is not self._locked:
            self._locked = locked
            self.refresh_bindings()

    def show_hints(self) -> None:
        """Say which keys do something here."""
        box = self.focused
        if isinstance(box, Input):
            self.footer.show_input(box.placeholder, narrows=box.id == "filter")
            return
        active = [a.binding.id or "" for a in self.active_bindings.values() if a.enabled]
        if len(self.app.screen_stack) < 2:
            active = [action_id for action_id in active if action_id != "app.back"]
        self.footer.show(active, getattr(self.app, "keymap", {}))

    def _badges(self) -> list[Span]:
        shell = self.shell
        badges: list[Span] = []
        if shell.paused:
            badges.append((" PAUSED ", "badge"))
        alerts = shell.open_alerts
        if alerts:
            text = f"{shell.look.glyphs.warning} {alerts}"
            badges.append((text, "warning"))
        if shell.host_read_only():
            badges.append(("read-only", "warning"))
        badges.append((fmt.interval(shell.snapshot().interval_s), "dim"))
        badges.append(("", "text"))
        return badges

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whatever changes a host does not exist while the host is read-only."""
        return not (action in changing(self.AREAS) and self.shell.host_read_only())

    def on_key(self, event: Key) -> None:
        """Say why a key that would change the host does nothing while the host is read-only."""
        if not self.shell.host_read_only() or isinstance(self.focused, Input):
            return
        for _, bound in self._binding_chain:
            for binding in bound.key_to_bindings.get(event.key, ()):
                action = find(binding.id or "")
                if action is not None and action.changes_host:
                    self._say_read_only(action.label)
                    return

    def _say_read_only(self, label: str) -> None:
        if self.shell.read_only:
            why = "the room was opened with --read-only"
        else:
            unlock = find("host.unlock")
            keys = keys_of(unlock, getattr(self.app, "keymap", {})) if unlock is not None else ()
            why = f"{self.shell.current} is read-only: {'/'.join(map(key_text, keys))} unlocks it"
        self.notify(f"no {label}: {why}", severity="warning", timeout=4, markup=False)

    def back(self) -> bool:
        """Undo what is open on the screen (a filter, a mark); False when nothing is."""
        return False

    def on_mount(self) -> None:
        """Draw at once what is known."""
        self.call_after_refresh(self._first_frame)
        self.bindings_updated_signal.subscribe(self, lambda _: self.show_hints())

    def on_screen_resume(self) -> None:
        """Come back to the newest values, not to the ones from before."""
        self._first_frame()

    def _first_frame(self) -> None:
        if self.is_mounted:
            self.show_newest(self.shell.clock.monotonic_s())
            self.show_hints()
