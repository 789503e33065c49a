"""From intents to the hub: each in a worker of its own, each failure shown in one place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from textual.app import App
from textual.worker import Worker, WorkerState

from backends.errors import RoomError
from tui.intents import Intent, RetryNow, ServerIntent, SetInterval, Unlock
from tui.server_orders import ServerOrders
from tui.shell import Shell


class Controller:
    """Carries out what screens ask for."""

    def __init__(self, app: App[int], shell: Shell) -> None:
        self._app = app
        self._shell = shell
        self._servers = ServerOrders(app, shell)

    def carry_out(self, intent: Intent) -> None:
        """Start a worker for an intent; the result comes back as a change of the feeds."""
        self._app.run_worker(
            self._run(intent),
            name=intent.asked_by,
            group=f"host-{intent.host}",
            exit_on_error=False,
        )

    async def _run(self, intent: Intent) -> None:
        session = self._shell.session(intent.host)
        if session is None:
            raise RoomError(f"{intent.host} is not there yet", hint="wait until it is connected")
        match intent:
            case SetInterval():
                await session.set_interval(intent.seconds, asked_by=intent.asked_by)
            case RetryNow():
                session.retry_now()
            case Unlock():
                session.unlock(asked_by=intent.asked_by)
                self._shell.touch()
            case ServerIntent():
                await self._servers.carry_out(intent)
            case _:
                raise TypeError(f"nobody carries out {type(intent).__name__}")

    def background(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run something of the shell's own with the same care for its failure."""
        self._app.run_worker(work(), name=name, exit_on_error=False)

    def worker_changed(self, worker: Worker[object], state: WorkerState) -> None:
        """Show a failed worker. The one place for that."""
        if state is WorkerState.ERROR and worker.error is not None:
            self.show_error(worker.error)

    def show_error(self, error: BaseException) -> None:
        """Say an error on screen: what, where, what to do."""
        if isinstance(error, RoomError):
            title, text = error.title, "\n".join(t for t in (error.detail, error.hint) if t)
        else:
            title, text = f"{type(error).__name__}", str(error) or "no further words"
        self._app.notify(text or title, title=title, severity="error", timeout=10, markup=False)
