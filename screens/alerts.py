"""What happened and may have been missed."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widget import Widget

from screens.base import HubScreen
from screens.detail import Detail
from screens.lists import AlertList
from tui.rows import Line
from tui.shell import Shell
from tui.widgets.row_list import RowList


class AlertScreen(HubScreen):
    """Past alerts of all hosts, newest first, and the one under the cursor in full."""

    AREAS = ("nav",)
    ABOUT = (
        "Everything that was worth a notice since gpuroom was started, on every host, newest "
        "first. The line below has the whole text of the one under the cursor. Enter goes to its "
        "host. An alert that has `ended` is over."
    )

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self.list = AlertList(shell.look)
        self.detail = Detail(shell.look)

    def crumbs(self) -> Sequence[str]:
        """Alerts."""
        return ("alerts",)

    def compose_body(self) -> Sequence[Widget]:
        """List and detail."""
        return (self.list, self.detail)

    def show_body(self, now_s: float) -> None:
        """The newest."""
        if self.is_current:
            self.shell.alerts_seen = self.shell.alerts.version
        self.list.show(list(self.shell.alerts))
        self._show_detail()

    def _show_detail(self) -> None:
        keys = self.list.keys()
        if not keys:
            self.detail.show([])
            return
        alert = self.list.of(keys[self.list.cursor_index(keys)])
        self.detail.show(
            [Line().add(alert.title, "strong").spans, Line().add(alert.detail, "text").spans]
        )

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """Follow the cursor."""
        self._show_detail()

    def on_row_list_opened(self, message: RowList.Opened) -> None:
        """Go to the host."""
        alert = self.list.of(message.key)
        self.shell.select(alert.host)
        self.app.pop_screen()
