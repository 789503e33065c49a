"""Everything that was asked of a host or changed on it: when, by which key, with what result."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widget import Widget

from backends.feeds import LEFT
from screens.base import HubScreen
from screens.detail import Detail
from screens.lists import JournalList
from tui.rows import Line
from tui.shell import Shell
from tui.widgets.row_list import RowList


class JournalScreen(HubScreen):
    """Newest first; below, exactly what was sent."""

    AREAS = ("nav",)
    ABOUT = (
        "Every request of this session, newest first: when, to which host, by which key and action "
        "or by the room itself, how long it took, how it ended. Below the list stands exactly what "
        "was sent. `CHANGES` marks what could change something on the host. Secrets never come "
        "here."
    )

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self.list = JournalList(shell.look)
        self.detail = Detail(shell.look)

    def crumbs(self) -> Sequence[str]:
        """Journal."""
        return ("journal",)

    def compose_body(self) -> Sequence[Widget]:
        """List and detail."""
        return (self.list, self.detail)

    def show_body(self, now_s: float) -> None:
        """The newest."""
        journal = self.shell.journal
        self.list.show(list(journal), journal.version, getattr(self.app, "keymap", {}))
        self._show_detail()

    def _show_detail(self) -> None:
        keys = self.list.keys()
        if not keys:
            self.detail.show([])
            return
        entry = self.list.of(keys[self.list.cursor_index(keys)])
        paragraphs = [Line().add(entry.request, "accent").spans]
        if entry.result == LEFT:
            paragraphs.append(Line().add("ended from here: nobody looks at it any more").spans)
        elif entry.result and not entry.result.startswith("ok"):
            paragraphs.append(Line().add(entry.result, "critical").spans)
        self.detail.show(paragraphs)

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        """Follow the cursor."""
        self._show_detail()
