"""What a screen shows and which keys work on it, made from the table of actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.widget import Widget

from screens.base import HubScreen
from screens.gpu import Facts
from tui.actions import AREAS, in_area, keys_text
from tui.rows import Line, Row, text_row
from tui.shell import Shell
from tui.widgets.host_state import wrap


class HelpScreen(HubScreen):
    """Help for one kind of screen."""

    AREAS = ("nav",)
    AUTO_FOCUS = "#facts"
    ABOUT = "Explains the screen it was opened on. Esc goes back."

    def __init__(self, shell: Shell, about: type[HubScreen], keymap: Mapping[str, str]) -> None:
        super().__init__(shell)
        self.about = about
        self.keymap_used = keymap
        self.text = Facts(shell.look)

    def crumbs(self) -> Sequence[str]:
        """Help."""
        return ("help",)

    def compose_body(self) -> Sequence[Widget]:
        """The text."""
        return (self.text,)

    def show_body(self, now_s: float) -> None:
        """Nothing here changes."""
        self.text.show(self._rows)

    def _rows(self, width: int) -> list[Row]:
        rows = [text_row("", width)]
        for piece in wrap(self.about.ABOUT, min(width - 4, 96)):
            rows.append(Line().add("  ").add(piece).row(width))
        for area in dict.fromkeys((*self.about.AREAS, "host", "app")):
            rows.append(text_row("", width))
            rows.append(Line().add(f"  {AREAS[area]}", "title").row(width))
            for action in in_area(area):
                keys = keys_text(self.keymap_used.get(action.id, action.keys))
                room = max(20, min(60, width - 42))
                first, *others = wrap(action.help, room)
                line = Line().add("  ").cell(keys, 16, "key").add(" ")
                line.cell(first, room, "text").add(" ").add(action.id, "faint")
                rows.append(line.row(width))
                rows += [Line().pad_to(19).add(piece, "text").row(width) for piece in others]
        return rows
