"""The room's pane of the servers: the most notable one in a line, or all of them in a box."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from screens import server_rows as rows
from screens import server_sections as sections
from screens.pane import Pane
from tui.rows import Line, Row
from tui.shell import Shell
from tui.widgets.host_state import wrap
from tui.widgets.row_list import RowList

if TYPE_CHECKING:
    from backends.servers.view import ServerView


class ServerPane(Pane, RowList):
    """See the module."""

    number, pane_id, title = 2, "server", "servers"

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self.views: tuple[ServerView, ...] = ()

    def version(self, now_s: float) -> object:
        """The board's; and seconds, while a time is shown."""
        board = self.shell.servers
        if board is None:
            return None
        self.views = board.views(self.shell.current)
        return (
            board.version, self.shell.current, board.trouble(self.shell.current),
            int(now_s) if any(view.run is not None for view in self.views) else 0,
        )  # fmt: skip

    @property
    def filled(self) -> bool:
        """Whether there is a server."""
        board = self.shell.servers
        return board is not None and bool(board.views(self.shell.current))

    def keys(self) -> Sequence[Hashable]:
        """What servers are known by."""
        return tuple(view.key for view in self.views)

    def chosen(self) -> ServerView | None:
        """The server that keys are for: under the cursor, or the only one."""
        if len(self.views) == 1:
            return self.views[0]
        if not self.views or not self.has_focus:
            return None
        return self.views[self.cursor_index(self.keys())]

    def line(self, width: int) -> Row:
        """One server, and how many more there are."""
        line = self.head().pad_to(14)
        view = self._shown()
        if view is None:
            return line.add(self._nothing(), "dim").row(width)
        more = len(self.views) - 1
        glyphs = self.look.glyphs
        return line.extend(rows.one_line(view, width - 15, glyphs, more).spans).row(width)

    def _shown(self) -> ServerView | None:
        from backends.servers.view import most_notable

        chosen = self.chosen() if self.has_focus else None
        return chosen or most_notable(self.views)

    def _nothing(self) -> str:
        board, host = self.shell.servers, self.shell.current
        if board is None:
            return "waits for the host"
        trouble = board.trouble(host)
        if trouble:
            return trouble
        if not board.listed(host):
            return "is being looked for"
        return "none runs, and none is configured ([[servers]])"

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The list, then more about the one under the cursor."""
        glyphs = self.look.glyphs
        if not self.views:
            return [
                Line().add("  ").add(piece, "dim").row(width)
                for piece in wrap(self._nothing(), width - 4)
            ]
        shown = self._shown()
        current = self.cursor_index(self.keys())
        below = self._below(shown, width) if shown is not None else []
        log = sections.log_rows(shown, width, glyphs) if shown is not None else []
        space = max(1, height - min(len(below) + len(log), max(3, height // 2)))
        self.top = min(max(self.top, current - space + 1, 0), current)
        found = [
            rows.list_row(
                view, width, glyphs, current=self.has_focus and number == current
            )
            for number, view in enumerate(self.views)
        ][self.top : self.top + space]  # fmt: skip
        # Of the log's lines the newest are those that must not fall off the pane's end.
        room = height - len(found) - len(below) - 1
        newest = [log[0], *log[1:][-room:]] if log and room > 0 else []
        return [*found, *below, *newest]

    def _below(self, view: ServerView, width: int) -> list[Row]:
        glyphs = self.look.glyphs
        found = [Line().add(f"  {glyphs.rule * max(0, width - 4)}", "faint").row(width)]
        line = Line().add("  ").add(view.name, "strong").add("  ")
        why = rows.why_line(view, glyphs)
        if line.width + why.width <= width:
            found.append(line.extend(why.spans).row(width))
        else:
            found.append(line.row(width))
            text = "".join(text for text, _ in why.spans)
            token = why.spans[0][1] if why.spans else "text"
            found += [Line().add("  ").add(p, token).row(width) for p in wrap(text, width - 4)]
        for text in view.found.disagreements if view.found is not None else ():
            found += sections.said(f"{glyphs.warning} {text}", width, "warning")
        if view.failed:
            found += sections.cause_rows(view, width, glyphs, headed=False)
        elif view.starts:
            found += sections.phase_rows(view, width, glyphs)
        return found + sections.warning_rows(view, width, glyphs)
