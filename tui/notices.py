"""Notices of what has just happened: one line at a time, however much happens at once."""

from __future__ import annotations

from typing import Literal, NamedTuple

from backends.model import Alert, Severity
from tui import format as fmt
from tui.shell import Shell

MOST_CHARS = 300
_RANKS = {severity: number for number, severity in enumerate(Severity)}

Loudness = Literal["information", "warning", "error"]
_LOUDNESS: dict[Severity, Loudness] = {
    Severity.INFO: "information", Severity.WARNING: "warning", Severity.CRITICAL: "error",
}  # fmt: skip


class Notice(NamedTuple):
    """What to show."""

    text: str
    severity: Loudness


class Notices:
    """Picks the worst of the alerts that came since the last look."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.told = 0

    def new(self, width: int = MOST_CHARS) -> Notice | None:
        """A notice of what is new, or None. What is over, or came while paused, is only listed.

        Args:
            width: Cells; it is one line of at most as many.
        """
        alerts = self._shell.alerts
        fresh: list[Alert] = [a for a in alerts.since(self.told) if not a.ended]
        self.told = alerts.version
        if not fresh or self._shell.paused:
            return None
        worst = max(fresh, key=lambda alert: _RANKS[alert.severity])
        where = f"{worst.host}: " if worst.host else ""
        text = f"{where}{worst.title}"
        if worst.detail:
            text += f": {worst.detail}"
        more = f", and {len(fresh) - 1} more: A" if len(fresh) > 1 else ""
        text = fmt.shorten(" ".join(text.split()), max(10, width - len(more))) + more
        return Notice(text, _LOUDNESS[worst.severity])
