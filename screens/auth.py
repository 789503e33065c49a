"""A secret is asked for: typed once, handed on, kept nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from backends.link.base import SecretKind, SecretQuestion
from tui.bindings import bindings
from tui.widgets.edit_line import EditLine

KINDS = {
    SecretKind.PASSWORD: "Password",
    SecretKind.PASSPHRASE: "Passphrase of a key",
    SecretKind.CHALLENGE: "The host asks",
}


class AuthScreen(ModalScreen[str | None]):
    """Gives the answer, or None when the person declined."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings("dialog.cancel")

    def __init__(self, question: SecretQuestion) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        """Who asks, for what, a box that shows nothing."""
        asked = self.question
        with Vertical(id="dialog"):
            yield Static(f"{KINDS[asked.kind]}: {asked.host}", id="title", markup=False)
            if asked.prompt:
                yield Static(asked.prompt, markup=False)
            if asked.attempt > 1:
                yield Static(f"That was not accepted. Try {asked.attempt}.", classes="again")
            box = EditLine(id="answer", password=not asked.echo)
            box.cursor_blink = False
            yield box
            yield Static("Enter sends it. It is kept nowhere. Esc declines.", classes="ask")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Hand the answer on and forget it."""
        answer = event.value
        event.input.value = ""
        self.dismiss(answer)

    def action_cancel(self) -> None:
        """Decline."""
        self.dismiss(None)
