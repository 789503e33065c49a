"""What a pane of the room is: one line when there is little room, a box otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui.bindings import bindings
from tui.rows import Line, Row
from tui.shell import Shell
from tui.widgets.host_state import wrap
from tui.widgets.pane_title import pane_title
from tui.widgets.rows_view import RowsView


class Pane(RowsView, can_focus=True):
    """A pane of the room: one line when there is little room, a box otherwise.

    Attributes:
        number: The key that goes to it.
        pane_id: Its name in `hidden_panes`.
        title: What stands at its head.
    """

    number = 0
    pane_id = ""
    title = ""

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell.look, id=f"pane-{self.pane_id}")
        self.shell = shell

    _seen: object = None

    def show(self, now_s: float) -> None:
        """Draw the newest; the one call a frame."""
        seen = (self.version(now_s), self.look.version)
        if seen != self._seen:
            self._seen = seen
            self.redraw()

    def version(self, now_s: float) -> object:
        """What compares unequal as soon as the pane would look different."""
        return None

    @property
    def filled(self) -> bool:
        """Whether it has something to show of this host."""
        return False

    def line(self, width: int) -> Row:
        """Everything in one line."""
        raise NotImplementedError

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The box under the head."""
        raise NotImplementedError

    def head(self) -> Line:
        """Number and title."""
        return pane_title(self.number, self.title, self.look.glyphs, focused=self.has_focus)

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """One line, or head and box."""
        if height == 1:
            row = self.line(width)
            return [Row(row.spans, "cursor-row", row.cells) if self.has_focus else row]
        head = self.head()
        head.add(self.look.glyphs.rule * max(0, width - head.width - 1), "faint")
        return [head.row(width), *self.body(width, height - 1)]


class EmptyPane(Pane):
    """Says what will be there, and by which key one gets there.

    Attributes:
        opens: The action of the room that Enter stands for.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("nav.open")
    opens = ""
    purpose = ""
    detail = ""

    def line(self, width: int) -> Row:
        """What will be there."""
        line = self.head()
        return line.pad_to(14).add(self.purpose, "dim").row(width)

    def body(self, width: int, height: int) -> Sequence[Row]:
        """What will be there, at length."""
        rows = []
        for text, token in ((self.purpose, "text"), (self.detail, "dim")):
            for piece in wrap(text, width - 4):
                rows.append(Line().add("  ").add(piece, token).row(width))
        return rows

    async def action_open(self) -> None:
        """The whole of it, on a screen of its own."""
        await self.screen.run_action(self.opens)
