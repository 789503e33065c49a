"""A finding is accepted: why, and until when; the same form changes that, or takes it away."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from backends.errors import UsageError
from backends.tuning import waivers
from backends.tuning.custom import Waiver
from backends.tuning.findings import Finding
from tui.bindings import bindings
from tui.widgets.edit_line import EditLine

DAYS = 90
"""How long it is accepted for, unless another day is typed."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What was typed; no reason takes the waiver away."""

    reason: str
    until: datetime.date


class WaiverScreen(ModalScreen[Accepted | None]):
    """Gives what was typed, or None when it was left.

    Args:
        host: Where it is accepted.
        finding: What.
        kept: How it is accepted now.
    """

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    BINDINGS: ClassVar[list[BindingType]] = bindings("dialog.cancel")

    def __init__(self, host: str, finding: Finding, kept: Waiver | None = None) -> None:
        super().__init__()
        self.host = host
        self.finding = finding
        self.kept = kept

    def compose(self) -> ComposeResult:
        """What is accepted, two boxes, what keys do."""
        wrong = f"{self.finding.verdict.value}: {self.finding.evidence}"
        until = waivers.today() + datetime.timedelta(days=DAYS)
        reason = EditLine(self.kept.reason if self.kept else "", id="reason")
        day = EditLine((self.kept.until if self.kept else until).isoformat(), id="until")
        reason.cursor_blink = day.cursor_blink = False
        with Vertical(id="dialog"):
            yield Static(f"Accept {self.finding.check} on {self.host}", id="title", markup=False)
            yield Static(wrong, classes="what", markup=False)
            yield Static("Why, and who agreed:", classes="ask")
            yield reason
            yield Static("Until (2027-03-31, or 90d from today):", classes="ask")
            yield day
            yield Static("", id="wrong", markup=False)
            away = " An empty reason takes it away." if self.kept else ""
            yield Static(
                "It counts no more till then, and is listed with o." + away
                + " Enter goes on, then keeps it. Esc leaves."
            )  # fmt: skip

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """From the reason to the day; from there, done."""
        reason = self.query_one("#reason", Input)
        day = self.query_one("#until", Input)
        if event.input is reason and (reason.value.strip() or not self.kept):
            day.focus()
            return
        try:
            self.dismiss(self._read(reason.value, day.value))
        except UsageError as error:
            self.query_one("#wrong", Static).update(f"{error}; {error.hint}")

    def _read(self, reason: str, day: str) -> Accepted:
        reason = " ".join(reason.split())
        if not reason:
            if self.kept is None:
                raise UsageError("a waiver needs a reason", hint="say why, and who agreed")
            return Accepted("", self.kept.until)
        return Accepted(reason, waivers.ahead(waivers.end_of(day)))

    def action_cancel(self) -> None:
        """Leave it as it is."""
        self.dismiss(None)
