"""Rows that are longer than the screen: read from the top, moved through by the keys of lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui.bindings import bindings
from tui.rows import Line, Row
from tui.themes import Look
from tui.widgets.rows_view import RowsView

Make = Callable[[int], Sequence[Row]]
"""Gives all rows for a width."""


class Report(RowsView, can_focus=True):
    """See the module."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(
        "nav.down", "nav.up", "nav.top", "nav.bottom", "nav.page-down", "nav.page-up"
    )

    def __init__(self, look: Look, make: Make) -> None:
        super().__init__(look, id="report")
        self._make = make
        self.top = 0
        self._count = 0

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """As many as fit; the last line says how many are left below."""
        rows = list(self._make(width))
        self._count = len(rows)
        self.top = max(0, min(self.top, len(rows) - height))
        below = len(rows) - self.top - height
        shown = rows[self.top : self.top + height]
        if below > 0 and shown:
            text = f" {below + 1} more lines below: j "
            rule = self.look.glyphs.rule * max(0, width - len(text) - 1)
            shown[-1] = Line().add(rule, "faint").add(text, "dim").row(width)
        return shown

    def _move(self, to: int) -> None:
        self.top = max(0, min(to, self._count - self.size.height))
        self.redraw()

    def action_down(self) -> None:
        """One line down."""
        self._move(self.top + 1)

    def action_up(self) -> None:
        """One line up."""
        self._move(self.top - 1)

    def action_top(self) -> None:
        """To the first line."""
        self._move(0)

    def action_bottom(self) -> None:
        """To the last line."""
        self._move(self._count)

    def action_page_down(self) -> None:
        """One page down."""
        self._move(self.top + max(1, self.size.height - 2))

    def action_page_up(self) -> None:
        """One page up."""
        self._move(self.top - max(1, self.size.height - 2))
