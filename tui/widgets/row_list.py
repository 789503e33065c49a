"""A list of rows with a cursor: only the visible ones are ever made."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.message import Message

from tui.bindings import bindings
from tui.rows import Line, Row
from tui.widgets.rows_view import RowsView


class RowList(RowsView, can_focus=True):
    """Subclasses give `keys` (identities in order) and `item_row`; the cursor stays on its item.

    Attributes:
        cursor_key: Identity under the cursor; it survives sorting and new data.
        opens: Whether Enter on an item leads anywhere.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings(
        "nav.down", "nav.up", "nav.top", "nav.bottom", "nav.page-down", "nav.page-up", "nav.open"
    )

    class Opened(Message):
        """Enter was pressed on an item."""

        def __init__(self, sender: RowList, key: Hashable) -> None:
            super().__init__()
            self.list = sender
            self.key = key

    class Moved(Message):
        """The cursor is on another item."""

        def __init__(self, sender: RowList, key: Hashable) -> None:
            super().__init__()
            self.list = sender
            self.key = key

    opens = True
    cursor_key: Hashable | None = None
    top = 0

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Where Enter leads nowhere it is not offered."""
        return self.opens or action != "open"

    def keys(self) -> Sequence[Hashable]:
        """Identities of all items, in order."""
        raise NotImplementedError

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """The row of one item."""
        raise NotImplementedError

    def head_rows(self, width: int) -> list[Row]:
        """Rows that stay above the items."""
        return []

    def empty_text(self) -> str:
        """What to say when there is no item."""
        return "nothing here yet"

    def empty_rows(self, width: int, height: int) -> Sequence[Row]:
        """What stands in the place of the items where there is none."""
        return [Line().add("  ").add(self.empty_text(), "dim").row(width)]

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """Head, then as many items as fit, so that the cursor is among them."""
        rows = self.head_rows(width)
        keys = self.keys()
        if not keys:
            return [*rows, *self.empty_rows(width, height - len(rows))]
        space = max(1, height - len(rows))
        current = self.cursor_index(keys)
        self.top = min(max(self.top, current - space + 1, 0), current, max(0, len(keys) - space))
        for key in keys[self.top : self.top + space]:
            rows.append(self.item_row(key, width, current=key == keys[current]))
        return rows

    def cursor_index(self, keys: Sequence[Hashable]) -> int:
        """Where the cursor is; on the nearest item when its own is gone."""
        try:
            index = keys.index(self.cursor_key)
        except ValueError:
            index = min(self._last_index, len(keys) - 1)
            self.cursor_key = keys[index]
        self._last_index = index
        return index

    _last_index = 0

    def move_to(self, index: int) -> None:
        """Put the cursor on an item by number, as far as there are items."""
        keys = self.keys()
        if not keys:
            return
        index = min(max(index, 0), len(keys) - 1)
        if keys[index] != self.cursor_key:
            self.cursor_key = keys[index]
            self._last_index = index
            self.redraw()
            self.post_message(self.Moved(self, self.cursor_key))

    def move_by(self, step: int) -> None:
        """Move the cursor."""
        keys = self.keys()
        if keys:
            self.move_to(self.cursor_index(keys) + step)

    def page(self) -> int:
        """Items on a page."""
        return max(1, self.size.height - len(self.head_rows(self.size.width)) - 1)

    def action_down(self) -> None:
        """One down."""
        self.move_by(1)

    def action_up(self) -> None:
        """One up."""
        self.move_by(-1)

    def action_top(self) -> None:
        """To the first."""
        self.move_to(0)

    def action_bottom(self) -> None:
        """To the last."""
        self.move_to(len(self.keys()) - 1)

    def action_page_down(self) -> None:
        """One page down."""
        self.move_by(self.page())

    def action_page_up(self) -> None:
        """One page up."""
        self.move_by(-self.page())

    def action_open(self) -> None:
        """Open what is under the cursor."""
        keys = self.keys()
        if keys:
            self.post_message(self.Opened(self, keys[self.cursor_index(keys)]))
