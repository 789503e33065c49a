"""The one way from feeds to the screen.

A timer compares version counters. When something new is there, the screen on top is told the
newest, once, in one batch. So a slow screen gives fewer frames and never a longer queue; when
nothing changed, nothing is drawn and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from textual.app import App

from tui.shell import Shell


class DataScreen(Protocol):
    """A screen that shows feeds."""

    def feed_version(self) -> object:
        """What compares unequal as soon as something shown has changed."""
        ...

    def ticking(self, now_s: float) -> bool:
        """Whether time alone changes what is shown (an age, a countdown)."""
        ...

    def show_newest(self, now_s: float) -> None:
        """Hand the newest values to the widgets."""
        ...


def terminal_backlog(app: App[int]) -> int:
    """Writes that the terminal has not taken yet; 0 where the driver does not say."""
    thread = getattr(getattr(app, "_driver", None), "_writer_thread", None)
    queue = getattr(thread, "_queue", None)
    return queue.qsize() if queue is not None else 0


class Pump:
    """Draws at most once a tick.

    Attributes:
        frames: How many were drawn.
        skipped: How many were left out because the terminal did not keep up.
    """

    def __init__(
        self,
        app: App[int],
        shell: Shell,
        top_screen: Callable[[], DataScreen | None],
        backlog: Callable[[App[int]], int] = terminal_backlog,
    ) -> None:
        self._app = app
        self._shell = shell
        self._top_screen = top_screen
        self._backlog = backlog
        self._seen: tuple[object, ...] = ()
        self.frames = 0
        self.skipped = 0

    def tick(self) -> None:
        """Draw what is new, unless the terminal is behind."""
        if self._backlog(self._app):
            # Whatever waits is old already when it is shown. Textual itself would go on until 30
            # writes wait, and then stop the event loop.
            self.skipped += 1
            return
        self.draw()

    def draw(self, *, force: bool = False) -> None:
        """Show the newest where something changed; `force` draws in any case."""
        screen = self._top_screen()
        if screen is None or (self._shell.paused and not force):
            return
        now_s = self._shell.clock.monotonic_s()
        seen = (screen, screen.feed_version(), int(now_s) if screen.ticking(now_s) else -1)
        if seen == self._seen and not force:
            return
        self._seen = seen
        self.frames += 1
        with self._app.batch_update():
            screen.show_newest(now_s)
