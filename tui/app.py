"""The application: puts the parts together and answers the keys that work everywhere."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual import on
from textual.app import App
from textual.binding import BindingType
from textual.dom import DOMNode
from textual.notifications import Notify
from textual.screen import ModalScreen, Screen
from textual.widgets import Input
from textual.widgets._toast import ToastHolder
from textual.worker import Worker

from backends.errors import RoomError
from screens.base import HubScreen
from screens.room import RoomScreen
from tui import format as fmt
from tui.bindings import bindings
from tui.controller import Controller
from tui.glyphs import ascii_only
from tui.intents import Intent, RetryNow, SetInterval, Unlock
from tui.notices import Loudness, Notices
from tui.prompts import Ask, DialogPrompter
from tui.pump import Pump
from tui.room import HubMaker
from tui.shell import Shell
from tui.themes import THEME_NAMES, textual_theme

if TYPE_CHECKING:
    from backends.servers.board import ServerBoard


def board_of(shell: Shell) -> ServerBoard:
    """The board of servers of a room."""
    from tui import server_board

    return server_board.board_of(shell)


if TYPE_CHECKING:
    from backends.storage.bench_tables import RunRow


def newest_runs(hosts: Sequence[str]) -> dict[str, RunRow]:
    """The newest benchmark run of each host, for its pane; none where it can't be read."""
    from backends import paths
    from backends.storage.database import FILE_NAME
    from backends.storage.history import History

    if not (paths.data_dir() / FILE_NAME).exists():
        return {}  # reading makes no file
    try:
        with History.at_home() as history:
            found = {host: history.last_of(host) for host in hosts}
    except (OSError, RoomError):
        return {}
    return {host: row for host, row in found.items() if row is not None}


TOAST_FRAME_CELLS = 3
"""Cells of a notice that hold no text: its border and the padding on both sides."""


class RoomApp(App[int]):
    """The control room.

    Attributes:
        shell: What screens share.
        keymap: The user's own keys.
        pump: The way from feeds to the screen.
        notices: What has just happened.
        board_maker: Makes the board of servers, once the hub is there.
    """

    TITLE = "gpuroom"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = RoomScreen.CSS_PATH
    BINDINGS: ClassVar[list[BindingType]] = bindings("app", "host")
    CSS = """
    Screen { background: $background; color: $foreground; }
    ToastRack { margin-bottom: 0; align: left bottom; max-height: 4; overflow-y: hidden; }
    Toast { width: 100%; max-width: 100%; padding: 0 1; margin: 0; }
    RoomApp.-ascii-set Toast.-information { border-left: ascii $success; }
    RoomApp.-ascii-set Toast.-warning { border-left: ascii $warning; }
    RoomApp.-ascii-set Toast.-error { border-left: ascii $error; }
    RoomApp.-ascii-set #dialog { border: ascii $primary; }
    RoomApp.-ascii-set #goto { border: ascii $primary; }
    """

    def __init__(
        self,
        shell: Shell,
        make_hub: HubMaker,
        *,
        keymap: Mapping[str, str] | None = None,
        frames_per_second: float = 4.0,
    ) -> None:
        name = shell.look.palette.name
        # Set before Textual looks at NO_COLOR, so that it drops colours instead of greying them.
        super().__init__(ansi_color=True if name in ("ansi", "mono") else None)
        for theme in THEME_NAMES:
            self.register_theme(textual_theme(theme))
        self.theme = f"gpuroom-{name}"
        self.set_class(shell.look.glyphs.is_ascii, "-ascii-set")
        self.shell = shell
        self.keymap = dict(keymap or {})
        self.controller = Controller(self, shell)
        shell.complain = self.controller.show_error
        self.pump = Pump(self, shell, self.data_screen)
        self.crashed: BaseException | None = None
        self._make_hub = make_hub
        self._frame_s = 1 / frames_per_second
        self.notices = Notices(shell)
        self.board_maker: Callable[[Shell], ServerBoard] = board_of
        self._prompter = DialogPrompter(self)

    def get_default_screen(self) -> Screen[None]:
        """The room is the bottom of the stack."""
        return RoomScreen(self.shell)

    def on_mount(self) -> None:
        """Paint first; bring in what is behind the screen afterwards."""
        self._leave_on_signals()
        if self.keymap:
            self.set_keymap(self.keymap)
        self.call_after_refresh(self._open_hub)
        self.set_interval(self._frame_s, self._tick)

    def _open_hub(self) -> None:
        self.controller.background(self._start_hub, "room.start")

    async def _start_hub(self) -> None:
        # Its imports (asyncssh) take as long as the whole screen: in a thread, once, early.
        await asyncio.to_thread(self._make_hub.prepare)
        hub = self._make_hub(self._prompter)
        self.shell.connect(hub)
        await hub.start()
        # Another tenth of a second of imports; the links are being made meanwhile.
        await asyncio.to_thread(importlib.import_module, "tui.server_board")
        self.shell.servers = self.board_maker(self.shell)
        self.shell.past = await asyncio.to_thread(newest_runs, self.shell.names)
        self.shell.touch()

    def _leave_on_signals(self) -> None:
        """A closed terminal or `kill` ends the room as `q` does: hosts let go, screen restored."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self.exit, None, 128 + number)

    async def on_unmount(self) -> None:
        """Let go of the hosts."""
        self._prompter.close()
        if self.shell.bench is not None:
            await self.shell.bench.close()
        if self.shell.servers is not None:
            await self.shell.servers.close()
        if self.shell.hub is not None:
            await self.shell.hub.stop()

    def _tick(self) -> None:
        if not self.screen_stack:
            return  # the room closes: its screens are gone, its hosts are being let go
        self.pump.tick()
        if isinstance(self.screen, ModalScreen):
            return  # a notice would lie over the question, say a fingerprint; it comes afterwards
        notice = self.notices.new(max(20, self.size.width - TOAST_FRAME_CELLS))
        if notice is not None:
            self.notify(notice.text, severity=notice.severity, timeout=6, markup=False)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: Loudness = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a notice over the keys at the foot of the screen, in one line where it fits there.

        A title then stands before the message, with a colon.
        """
        together = f"{title}: {message}"
        room = self.size.width - TOAST_FRAME_CELLS
        if title and all(cell_len(line) <= room for line in together.splitlines()):
            message, title = together, ""
        if self.shell.look.glyphs.is_ascii:
            message, title = ascii_only(message), ascii_only(title)
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    def on_notify(self, event: Notify) -> None:
        """A new notice takes the place of the last, so that they don't grow over what is read.

        Errors stay for their time. Textual's own handler adds the new one afterwards.
        """
        for earlier in list(self._notifications):
            if earlier.severity != "error":
                self._unnotify(earlier, refresh=False)
        shown = {f"--textual-toast-{notification.identity}" for notification in self._notifications}
        for holder in self.screen.query(ToastHolder) if self.screen_stack else ():
            if holder.id not in shown:
                holder.remove()  # else Textual keeps an empty line of it

    def data_screen(self) -> HubScreen | None:
        """The topmost screen that shows feeds; it may lie under a dialog."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, HubScreen):
                return screen
        return None

    # ---- what screens ask for

    @on(Intent)
    def carry_out(self, intent: Intent) -> None:
        """Hand it to the controller."""
        self.controller.carry_out(intent)

    def on_ask(self, message: Ask) -> None:
        """A question from the link: show its dialog, with nothing over it."""
        self.clear_notifications()
        self.push_screen(message.screen, message.answer)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """The one place that shows failures."""
        self.controller.worker_changed(event.worker, event.state)

    # ---- keys that work everywhere

    def action_pause(self) -> None:
        """Hold the screen still, or let it go on."""
        self.shell.paused = not self.shell.paused
        self.shell.touch()
        self.pump.draw(force=True)

    async def action_back(self) -> None:
        """Undo what is open on the screen, else leave it; the room itself stays."""
        screen = self.screen
        if isinstance(screen, HubScreen) and screen.back():
            return
        if len(self.screen_stack) > 1 and not isinstance(screen, ModalScreen):
            self.pop_screen()

    def action_help_quit(self) -> None:
        """Ctrl-C: say how to leave. It never reaches a host."""
        self.notify("q quits. Hosts are left as they are.", title="Ctrl-C does nothing here")

    async def action_quit(self) -> None:
        """Leave."""
        self.exit(0)

    def action_help(self) -> None:
        """Explain the screen on top."""
        from screens.help import HelpScreen

        top = self.data_screen()
        if top is not None:
            self.push_screen(HelpScreen(self.shell, type(top), self.keymap))

    async def action_goto(self) -> None:
        """Ask where to go; what is typed from now on goes there."""
        from screens.goto import GotoScreen
        from tui.palette import entries

        dialog = GotoScreen(self.shell.look, entries(self.shell, self.screen))
        await self.push_screen(dialog, self._go)
        dialog.set_focus(dialog.box)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A colon that is typed into an input is a colon."""
        return not (action == "goto" and isinstance(self.focused, Input))

    def _go(self, work: Callable[[RoomApp], None] | None) -> None:
        if work is not None:
            work(self)

    def run_later(self, action: str, node: DOMNode) -> None:
        """Run an action of a screen as if its key had been pressed."""
        self.call_later(self.run_action, action, node)

    def _show(self, kind: type[HubScreen]) -> None:
        if not isinstance(self.screen, kind):
            self.push_screen(kind(self.shell))

    def action_alerts(self) -> None:
        """Show what happened."""
        from screens.alerts import AlertScreen

        self._show(AlertScreen)

    def action_journal(self) -> None:
        """Show what was asked of hosts."""
        from screens.journal import JournalScreen

        self._show(JournalScreen)

    def action_runs(self) -> None:
        """Show benchmark runs of the past."""
        from screens.history import HistoryScreen

        self._show(HistoryScreen)

    def action_fleet(self) -> None:
        """Show all hosts."""
        from screens.fleet import FleetScreen

        self._show(FleetScreen)

    def select_host(self, name: str) -> None:
        """Look at a host."""
        if self.shell.select(name):
            self.pump.draw(force=True)

    def action_next_host(self) -> None:
        """The next host."""
        if self.shell.step(1):
            self.pump.draw(force=True)

    def action_previous_host(self) -> None:
        """The previous host."""
        if self.shell.step(-1):
            self.pump.draw(force=True)

    def _set_interval(self, asked_by: str, *, faster: bool) -> None:
        seconds = self.shell.next_interval(faster=faster)
        self.shell.interval_s = seconds
        self.shell.save()
        self.post_message(SetInterval(self.shell.current, asked_by, seconds))
        self.notify(f"{self.shell.current}: {fmt.interval(seconds)}", timeout=2, markup=False)

    def action_faster(self) -> None:
        """Sample more often."""
        self._set_interval("host.faster", faster=True)

    def action_slower(self) -> None:
        """Sample less often."""
        self._set_interval("host.slower", faster=False)

    def action_retry(self) -> None:
        """Connect now."""
        self.post_message(RetryNow(self.shell.current, "host.retry"))

    def action_unlock(self) -> None:
        """Allow changes on a production host, once its name was typed."""
        from screens.confirm import ConfirmScreen

        name = self.shell.current
        if self.shell.read_only:
            self.controller.show_error(
                RoomError("the room was opened read-only", hint="start it without --read-only")
            )
        elif self.shell.host_read_only(name):
            dialog = ConfirmScreen(
                self.shell.look,
                title=f"Unlock {name}",
                text="Changes to this production host will be possible until gpuroom ends.",
                type_this=name,
            )
            self.push_screen(dialog, lambda yes: self._unlock(name, yes=bool(yes)))

    def _unlock(self, name: str, *, yes: bool) -> None:
        if yes:
            self.post_message(Unlock(name, "host.unlock"))

    def set_look(self, name: str) -> None:
        """Change the theme."""
        self.shell.look.set_theme(name)
        self.theme = f"gpuroom-{name}"
        self.shell.theme = name
        self.shell.save()
        self.pump.draw(force=True)

    # ---- when it goes wrong

    def _handle_exception(self, error: Exception) -> None:
        """End with what `tui.crash` makes of it instead of pages of local values."""
        self._return_code = 1
        if self._exception is None:
            self._exception = self.crashed = error
            self._exception_event.set()
        self._close_messages_no_wait()
