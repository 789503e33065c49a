"""Short notices of what has just happened: one at a time, however much happens at once."""

from __future__ import annotations

from typing import Literal, NamedTuple

from backends.model import Alert, Severity
from tui import format as fmt
from tui.shell import Shell

MOST_CHARS = 150
_RANKS = {severity: number for number, severity in enumerate(Severity)}

Loudness = Literal["information", "warning", "error"]
_LOUDNESS: dict[Severity, Loudness] = {
    Severity.INFO: "information", Severity.WARNING: "warning", Severity.CRITICAL: "error",
}  # fmt: skip


class Notice(NamedTuple):
    """What to show."""

    title: str
    text: str
    severity: Loudness


class Notices:
    """Picks the worst of the alerts that came since the last look."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.told = 0

    def new(self) -> Notice | None:
        """A notice of what is new, or None. What is over, or came while paused, is only listed."""
        alerts = self._shell.alerts
        fresh: list[Alert] = [a for a in alerts.since(self.told) if not a.ended]
        self.told = alerts.version
        if not fresh or self._shell.paused:
            return None
        worst = max(fresh, key=lambda alert: _RANKS[alert.severity])
        text = fmt.shorten(worst.detail or worst.title, MOST_CHARS)
        if len(fresh) > 1:
            text += f"\nand {len(fresh) - 1} more: A"
        where = f"{worst.host}: " if worst.host else ""
        return Notice(f"{where}{worst.title}", text, _LOUDNESS[worst.severity])
