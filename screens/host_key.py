"""A host shows a key that nobody has seen before: look, compare, say."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from backends.link.base import HostKeyQuestion
from tui.bindings import bindings


def kind_of(algorithm: str) -> str:
    """The kind of key as sshd's file names have it: `ed25519` of `ssh-ed25519`."""
    if algorithm.startswith(("ssh-rsa", "rsa-")):
        return "rsa"
    return "ecdsa" if algorithm.startswith("ecdsa-") else "ed25519"


class HostKeyScreen(ModalScreen[bool]):
    """Gives True when the key is to be trusted from now on."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings("dialog")

    def __init__(self, question: HostKeyQuestion) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        """Who, which key, what yes would mean."""
        asked = self.question
        with Vertical(id="dialog"):
            yield Static(f"{asked.host} shows an unknown host key", id="title", markup=False)
            yield Static(f"address      {asked.address} port {asked.port}", markup=False)
            yield Static(f"algorithm    {asked.algorithm}", markup=False)
            yield Static(f"fingerprint  {asked.fingerprint}", id="fingerprint", markup=False)
            yield Static(
                "Compare the fingerprint with what the host itself prints:\n"
                f"  ssh-keygen -lf /etc/ssh/ssh_host_{kind_of(asked.algorithm)}_key.pub\n"
                "Trusting it writes it to gpuroom's own known_hosts; yours is not touched.",
                classes="about",
                markup=False,
            )
            yield Static("Ctrl+Y trusts it. Esc refuses.", classes="ask", markup=False)

    def action_accept(self) -> None:
        """Trust it."""
        self.dismiss(True)

    def action_cancel(self) -> None:
        """Refuse."""
        self.dismiss(False)
