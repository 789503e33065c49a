"""One server: its state and who says so, its way up, what it runs with, what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from screens import server_sections as sections
from screens.base import HubScreen
from screens.report import Report
from screens.server_keys import POSSIBLE, ServerKeys, look_at, possible
from tui.bindings import bindings
from tui.rows import Line, Row
from tui.shell import Shell

if TYPE_CHECKING:
    from backends.servers.view import ServerView

WIDE = 140
"""From so many columns on, two sections stand side by side."""


class ServerScreen(HubScreen, ServerKeys):
    """See the module.

    Args:
        shell: The room.
        key: What the server is known by on the host looked at.
    """

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings("servers")
    AREAS = ("servers", "nav")
    AUTO_FOCUS = "Report"
    ABOUT = (
        "Ready is only what every witness agrees on: the process and its workers, the log, the "
        "HTTP answer from the host's own loopback, and who owns the port. Each stands here with "
        "what it said and when; where they disagree, that is said. The time left comes from "
        "earlier starts of the same server: a first start has none. A stall is when log, CPU, "
        "disk and GPU memory are all silent for longer than it ever took. What was asked stands "
        "beside what it runs with. A server goes on when gpuroom ends, and is found again."
    )

    def __init__(self, shell: Shell, key: str) -> None:
        super().__init__(shell)
        self.key = key
        self.whole = False
        self.view: ServerView | None = None
        self.report = Report(shell.look, self._rows)
        self._host = shell.current
        self._possible: object = None

    def crumbs(self) -> Sequence[str]:
        """Which server."""
        name = self.view.name if self.view is not None else self.key
        return ("server", name, *(("configuration",) if self.whole else ()))

    def compose_body(self) -> Sequence[Widget]:
        """Everything, in one text to scroll."""
        return (self.report,)

    def ticking(self, now_s: float) -> bool:
        """Ages of what witnesses said pass by themselves."""
        return self.view is not None or super().ticking(now_s)

    def show_newest(self, now_s: float) -> None:
        """Take the newest picture before the bar is drawn."""
        self._take()
        super().show_newest(now_s)

    def _take(self) -> None:
        shell, board = self.shell, self.shell.servers
        if board is None:
            return
        look_at(shell)
        if shell.current != self._host:
            # Another host is looked at: what matters most there.
            from backends.servers.view import most_notable

            notable = most_notable(board.views(shell.current))
            self._host, self.key = shell.current, notable.key if notable is not None else ""
        self.view = board.view(shell.current, self.key)

    def show_body(self, now_s: float) -> None:
        """The newest."""
        self.report.redraw()
        can = possible(self.view)
        if can != self._possible:
            self._possible = can
            self.refresh_bindings()

    def chosen_server(self) -> ServerView | None:
        """The one shown."""
        return self.view

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys are there while they make sense."""
        test = POSSIBLE.get(action)
        if test is not None and (self.view is None or not test(self.view)):
            return False
        return super().check_action(action, parameters)

    def action_configuration(self) -> None:
        """All that was asked beside what it runs with, or back."""
        self.whole = not self.whole
        self.report.top = 0
        self._first_frame()

    def back(self) -> bool:
        """Esc leaves the configuration first."""
        if self.whole:
            self.action_configuration()
            return True
        return False

    def _rows(self, width: int) -> Sequence[Row]:
        view, glyphs = self.view, self.shell.look.glyphs
        if view is None:
            return [Line().add("  this host has no such server", "dim").row(width)]
        head = sections.head_rows(view, width, glyphs)
        if self.whole:
            return [*head, *sections.configuration_rows(view, width, glyphs, whole=True)]
        if width < WIDE:
            return [*head, *sections.sections(view, width, glyphs, sections.narrow(view))]
        half = width // 2
        left = sections.sections(view, half, glyphs, sections.LEFT)
        right = sections.sections(view, width - half, glyphs, sections.RIGHT)
        return [*head, *side_by_side(left, right, half, width - half)]


def side_by_side(
    left: Sequence[Row], right: Sequence[Row], left_width: int, right_width: int
) -> list[Row]:
    """Two columns of rows as one."""
    both = []
    for number in range(max(len(left), len(right))):
        line = Line().extend(left[number].spans if number < len(left) else ())
        line.pad_to(left_width).extend(right[number].spans if number < len(right) else ())
        both.append(line.row(left_width + right_width))
    return both
