"""The palette: type a few letters of a host, screen or command."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from tui.bindings import bindings
from tui.palette import Entry, Work
from tui.rows import Line, Row
from tui.themes import Look
from tui.widgets.edit_line import EditLine
from tui.widgets.row_list import RowList


def rank(entry: Entry, query: str) -> int | None:
    """How well an entry fits, lowest best; None when it does not."""
    query = query.lower().strip()
    name = entry.name.lower()
    if not query:
        return 0
    if name.startswith(query):
        return 0
    if query in name:
        return 1
    if all(word in f"{name} {entry.kind} {entry.about}".lower() for word in query.split()):
        return 2
    letters = iter(name)
    return 3 if all(letter in letters for letter in query) else None


class EntryList(RowList, can_focus=False):
    """The entries that fit."""

    def __init__(self, look: Look, entries: Sequence[Entry]) -> None:
        super().__init__(look)
        self.all = entries
        self.found = list(entries)

    def search(self, query: str) -> None:
        """Show what fits, best first."""
        ranked = [(rank(entry, query), number, entry) for number, entry in enumerate(self.all)]
        self.found = [e for r, _, e in sorted((r, n, e) for r, n, e in ranked if r is not None)]
        self.cursor_key = 0
        self.redraw()

    def keys(self) -> Sequence[Hashable]:
        """Places in the list."""
        return range(len(self.found))

    def empty_text(self) -> str:
        """Nothing fits."""
        return "nothing fits"

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """Name, kind, what it does."""
        entry = self.found[int(str(key))]
        line = Line().add(self.look.glyphs.cursor if current else " ", "accent").add(" ")
        line.cell(entry.name, 18, "strong").add(" ").cell(entry.kind, 11, "accent").add(" ")
        return line.add(entry.about, "dim").row(width, "cursor-row" if current else "text")


class GotoScreen(ModalScreen[Work | None]):
    """Gives back what to do, or None."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("dialog.cancel"),
        Binding("down,ctrl+n,tab", "move(1)", show=False),
        Binding("up,ctrl+p,shift+tab", "move(-1)", show=False),
    ]

    def __init__(self, look: Look, entries: Sequence[Entry]) -> None:
        super().__init__()
        self.list = EntryList(look, entries)
        self.box = EditLine(placeholder="host, screen or command", id="query")
        self.box.cursor_blink = False

    def compose(self) -> ComposeResult:
        """Input above, entries below."""
        with Vertical(id="goto"):
            yield self.box
            yield self.list

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while typing."""
        self.list.search(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go."""
        keys = self.list.keys()
        if not keys:
            self.dismiss(None)
            return
        self.dismiss(self.list.found[self.list.cursor_index(keys)].work)

    def action_move(self, step: int) -> None:
        """Move the cursor while typing."""
        self.list.move_by(step)

    def action_cancel(self) -> None:
        """Go nowhere."""
        self.dismiss(None)
