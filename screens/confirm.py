"""Nothing changes on a host without this: what will run, on production its name typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from tui.bindings import bindings
from tui.themes import Look


class ConfirmScreen(ModalScreen[bool]):
    """Gives True only when it was confirmed: by Ctrl+Y, or by typing a name where one is asked for.

    Args:
        look: How it is drawn.
        title: What would be done.
        text: What that means.
        runs: Exactly what would run, one line each.
        type_this: Must be typed in full; empty asks for Ctrl+Y.
    """

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings("dialog")

    def __init__(
        self,
        look: Look,
        *,
        title: str,
        text: str = "",
        runs: Sequence[str] = (),
        type_this: str = "",
    ) -> None:
        super().__init__()
        self.look = look
        self.heading = title
        self.text = text
        self.runs = runs
        self.type_this = type_this

    def compose(self) -> ComposeResult:
        """Title, what it means, what runs, how to say yes."""
        with Vertical(id="dialog"):
            yield Static(self.heading, id="title", markup=False)
            if self.text:
                yield Static(self.text, markup=False)
            for line in self.runs:
                yield Static(f"  {line}", classes="runs", markup=False)
            if self.type_this:
                yield Static(
                    f"Type {self.type_this} and press Enter. Esc leaves it.", classes="ask"
                )
                box = Input(id="answer")
                box.cursor_blink = False
                yield box
            else:
                yield Static("Ctrl+Y does it. Esc leaves it.", classes="ask", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Only the name in full counts."""
        if event.value.strip() == self.type_this:
            self.dismiss(True)
        else:
            event.input.value = ""
            event.input.placeholder = f"that was not {self.type_this}"

    def action_accept(self) -> None:
        """Yes, where no name is asked for."""
        if not self.type_this:
            self.dismiss(True)

    def action_cancel(self) -> None:
        """No."""
        self.dismiss(False)
