"""Nothing changes on a host without this: what will run, on production its name typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from screens.gpu import Facts
from tui.bindings import bindings
from tui.format import width_of
from tui.rows import Line, Row
from tui.themes import Look
from tui.widgets.edit_line import EditLine

WIDTH, WIDEST = 76, 130
FRAME = 12
"""Columns and rows that are not for what runs: border, padding, title, text, question."""


class ConfirmScreen(ModalScreen[bool]):
    """Gives True only when it was confirmed: by Ctrl+Y, or by typing a name where one is asked for.

    Args:
        look: How it is drawn.
        title: What would be done.
        text: What that means.
        runs: Exactly what would run, one line each, differences of files as such; it scrolls.
        type_this: Must be typed in full; empty asks for Ctrl+Y.
        locked: Why it cannot be confirmed; empty where it can.
    """

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings("dialog")
    AUTO_FOCUS = ""

    def __init__(
        self,
        look: Look,
        *,
        title: str,
        text: str = "",
        runs: Sequence[str] = (),
        type_this: str = "",
        locked: str = "",
    ) -> None:
        super().__init__()
        self.look = look
        self.heading = title
        self.text = text
        self.runs = runs
        self.type_this = type_this
        self.locked = locked
        self.view = Facts(look)
        self.view.more_key = "PgDn"

    def compose(self) -> ComposeResult:
        """Title, what it means, what runs, how to say yes."""
        with Vertical(id="dialog"):
            yield Static(self.heading, id="title", markup=False)
            if self.text:
                yield Static(self.text, markup=False)
            if self.runs:
                yield self.view
            if self.locked:
                yield Static(f"{self.locked} Esc leaves.", classes="ask", markup=False)
            elif self.type_this:
                yield Static(
                    f"Type {self.type_this} and press Enter. Esc leaves it.",
                    classes="ask",
                    markup=False,
                )
                box = EditLine(id="answer")
                box.cursor_blink = False
                yield box
            else:
                yield Static("Ctrl+Y does it. Esc leaves it.", classes="ask", markup=False)

    def on_mount(self) -> None:
        """As wide and high as what runs needs, as far as there is room."""
        self._fit()
        self.view.show(self._rows)
        if self.type_this and not self.locked:
            self.query_one(Input).focus()
        elif self.runs:
            self.view.focus()

    def on_resize(self, event: Resize) -> None:
        """Another terminal size."""
        self._fit()

    def _fit(self) -> None:
        size = self.app.size
        longest = max((width_of(line) for line in self.runs), default=0)
        width = min(max(WIDTH, longest + FRAME), WIDEST, max(20, size.width * 96 // 100))
        self.query_one("#dialog").styles.width = width
        rows = len(self._rows(width - 6))
        self.view.styles.height = max(1, min(rows, size.height - FRAME))

    def _rows(self, width: int) -> list[Row]:
        """What runs, long lines broken and never cut; what goes and what comes in their colours."""
        rows = []
        for line in self.runs:
            token = token_of(line)
            room = max(10, width - 2)
            pieces = broken(line, room)
            rows += [Line().add("  ").add(piece, token).row(width) for piece in pieces]
        return rows

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Only the name in full counts."""
        if event.value.strip() == self.type_this:
            self.dismiss(True)
        else:
            event.input.value = ""
            event.input.placeholder = f"that was not {self.type_this}"

    def action_accept(self) -> None:
        """Yes, where no name is asked for."""
        if not self.type_this and not self.locked:
            self.dismiss(True)

    def action_cancel(self) -> None:
        """No."""
        self.dismiss(False)

    def action_more(self) -> None:
        """Further down in what runs."""
        self.view.action_page_down()

    def action_less(self) -> None:
        """Further up."""
        self.view.action_page_up()


def broken(line: str, room: int) -> list[str]:
    """A line in pieces of at most `room` characters, at spaces where there are; nothing is lost."""
    pieces = []
    while len(line) > room:
        indent = len(line) - len(line.lstrip())
        at = line.rfind(" ", indent + room // 3, room) + 1 or room
        pieces.append(line[:at])
        line = line[at:]
    return [*pieces, line]


def token_of(line: str) -> str:
    """How a line of what runs is painted: differences by their first sign."""
    text = line.strip()
    if text.startswith(("+++", "---", "@@")):
        return "dim"
    if text.startswith("+"):
        return "good"
    if text.startswith("-"):
        return "critical"
    if text.startswith(("cannot be done", "takes effect", "afterwards")):
        return "warning"
    return "accent" if line.startswith(" ") else "text"
