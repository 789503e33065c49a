"""The keys of servers, for every screen that has one chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.events import Key
from textual.screen import Screen
from textual.widgets import Input

from backends.errors import RoomError
from tui.actions import find
from tui.intents import ImportServer, RestartServer, ServerIntent, StartServer, StopServer
from tui.keymap import keys_of
from tui.shell import Shell

if TYPE_CHECKING:
    from backends.servers.view import ServerView
    from tui.app import RoomApp

Test = Callable[["ServerView"], bool]
POSSIBLE: dict[str, Test] = {
    "server_start": lambda view: view.can_start,
    "server_stop": lambda view: view.can_stop,
    "server_restart": lambda view: view.can_restart,
    "server_log": lambda view: view.run is not None and view.run.log is not None,
    "server_bench": lambda view: view.port is not None,
    "server_import": lambda view: view.profile is None and view.run is not None,
}
"""When the action of a method makes sense."""


NOT_YET = "whether {name} runs is not known yet: the host has not said so"
ALIVE = "{name} runs already: x stops it, R restarts it"
WHY_NOT: dict[str, Callable[[ServerView], str]] = {
    "servers.start": lambda view: (
        f"{view.name} has no profile to start it by: a makes one of what runs"
        if view.profile is None
        else ALIVE.format(name=view.name)
    ),
    "servers.stop": lambda view: (
        f"{view.name} does not run" if view.listed else NOT_YET.format(name=view.name)
    ),
    "servers.restart": lambda view: (
        NOT_YET.format(name=view.name)
        if not view.listed
        else f"{view.name} does not run: s starts it"
        if not view.lives
        else f"{view.name} has no profile to start it by: a makes one of what runs"
    ),
    "servers.log": lambda view: f"no log of {view.name} is known",
}
"""What to say when the key of an action does nothing for a server now."""


def look_at(shell: Shell) -> None:
    """Have the servers of the host on screen watched."""
    board, session = shell.servers, shell.session()
    if board is not None and session is not None:
        from backends.servers.host import Host

        if isinstance(session, Host):
            board.look_at(session)


def possible(view: ServerView | None) -> tuple[str, ...]:
    """Methods of the actions that make sense for a server now."""
    if view is None:
        return ()
    return tuple(method for method, test in POSSIBLE.items() if test(view))


class ServerKeys(Screen[None]):
    """Mixed into a screen that knows which server is meant."""

    shell: Shell

    def chosen_server(self) -> ServerView | None:
        """The server that the keys are for; None where it is not clear which."""
        raise NotImplementedError

    def no_server(self, method: str) -> None:
        """A key was pressed, and it is not clear for which server."""

    def _order(self, kind: type[ServerIntent], asked_by: str) -> None:
        view = self.chosen_server()
        if view is None:
            self.no_server(asked_by)
        else:
            self.post_message(kind(view.host, asked_by, view.key))

    def on_key(self, event: Key) -> None:
        """Say why a key of servers does nothing just now."""
        view = self.chosen_server()
        if view is None or isinstance(self.focused, Input):
            return
        keymap = getattr(self.app, "keymap", {})
        for action_id, why in WHY_NOT.items():
            action = find(action_id)
            if action is None or event.key not in keys_of(action, keymap):
                continue
            if not POSSIBLE[action.method](view) and not self.shell.host_read_only():
                words = why(view) if view.doing is None else f"{view.name}: wait for what is done"
                self.notify(words, timeout=4, markup=False)

    def action_server_start(self) -> None:
        """Start it, after a yes."""
        self._order(StartServer, "servers.start")

    def action_server_stop(self) -> None:
        """Stop it, after a yes."""
        self._order(StopServer, "servers.stop")

    def action_server_restart(self) -> None:
        """Stop it and start it again, after a yes."""
        self._order(RestartServer, "servers.restart")

    def action_server_import(self) -> None:
        """Make a profile of what was found."""
        self._order(ImportServer, "servers.import")

    def action_server_log(self) -> None:
        """Open its log."""
        view = self.chosen_server()
        if view is None:
            self.no_server("servers.log")
        elif view.run is not None and view.run.log is not None:
            from screens.log import open_log

            app: RoomApp = self.app  # type: ignore[assignment]
            try:
                open_log(self.app, self.shell, view.host, view.run.log, view.name)
            except RoomError as error:
                app.controller.show_error(error)

    def action_server_bench(self) -> None:
        """Measure it."""
        from screens.bench import BenchScreen

        view = self.chosen_server()
        if view is not None:
            screen = BenchScreen(self.shell)
            if view.run is None or not view.run.adopted:
                screen.server = view.name
            else:
                screen.server = str(view.port)
            self.app.push_screen(screen)
