"""What gpuroom made lasting on a host, by setting; marked ones are handed back for removal."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from backends.tuning.own_files import OwnFiles
from backends.tuning.plans.own import OwnSetting
from tui.bindings import bindings
from tui.rows import Line, Row
from tui.themes import Look
from tui.widgets.row_list import RowList


class OwnList(RowList):
    """Settings of our own files, each with the file it stands in."""

    opens = False

    def __init__(self, look: Look, found: OwnFiles) -> None:
        super().__init__(look, id="own")
        self.marked: set[str] = set()
        self.settings: dict[str, tuple[str, OwnSetting]] = {
            setting.setting_id: (file.host, setting)
            for file in found.files
            for setting in file.settings
        }

    def keys(self) -> Sequence[Hashable]:
        """Ids, file by file."""
        return tuple(self.settings)

    def empty_text(self) -> str:
        """Nothing of ours."""
        return "nothing of gpuroom's lies on the host"

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """Mark, line, file, machine."""
        host, setting = self.settings[str(key)]
        glyphs = self.look.glyphs
        line = Line().add((glyphs.cursor if current else " ") + " ", "accent")
        line.add((glyphs.marked if key in self.marked else " ") + " ", "accent")
        line.add(setting.line).add(f"  {host}: {setting.path}", "dim")
        return line.row(width, "cursor-row" if current else "text")


class OwnFilesScreen(ModalScreen[tuple[str, ...]]):
    """Gives the ids of what is to be removed; empty for nothing.

    Args:
        look: How it is drawn.
        found: What lies on the host.
        locked: Why nothing may be removed; empty where it may.
    """

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings("own", "dialog.cancel")
    AUTO_FOCUS = "#own"

    def __init__(self, look: Look, found: OwnFiles, locked: str = "") -> None:
        super().__init__()
        self.list = OwnList(look, found)
        self.found = found
        self.locked = locked

    def compose(self) -> ComposeResult:
        """Title, the list, what keys do."""
        with Vertical(id="dialog"):
            yield Static("What gpuroom made lasting here", id="title", markup=False)
            for note in self.found.unreadable:
                yield Static(note, classes="note", markup=False)
            yield self.list
            ask = (
                self.locked or "Space marks. x shows what removing the marked would be. Esc leaves."
            )
            yield Static(ask, classes="ask", markup=False)

    def action_mark(self) -> None:
        """Mark the setting under the cursor, or unmark it."""
        keys = self.list.keys()
        if keys:
            self.list.marked ^= {str(keys[self.list.cursor_index(keys)])}
            self.list.action_down()
            self.list.redraw()

    def action_remove(self) -> None:
        """Hand the marked back, or the one under the cursor."""
        keys = self.list.keys()
        if self.locked or not keys:
            return
        chosen = [str(key) for key in keys if key in self.list.marked]
        self.dismiss(tuple(chosen or [str(keys[self.list.cursor_index(keys)])]))

    def action_cancel(self) -> None:
        """Nothing."""
        self.dismiss(())
