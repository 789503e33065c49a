"""Lists that only need rows: what happened, what was asked of hosts, text to read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from backends.feeds import LEFT, JournalEntry
from backends.model import Alert, Severity
from tui import format as fmt
from tui.actions import find, key_text
from tui.rows import Line, Row
from tui.themes import Look
from tui.widgets.gpu_items import SEVERITY_TOKENS
from tui.widgets.row_list import RowList

SEVERITY_WORDS = {
    Severity.INFO: "info",
    Severity.WARNING: "warning",
    Severity.CRITICAL: "critical",
}


class AlertList(RowList):
    """Alerts, newest first."""

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self.alerts: list[Alert] = []

    def show(self, alerts: Sequence[Alert]) -> None:
        """Draw; the one call a frame."""
        self.alerts = list(reversed(alerts))
        self.redraw()

    def keys(self) -> Sequence[Hashable]:
        """Numbers counted from the oldest, so that the cursor stays on its alert."""
        return range(len(self.alerts) - 1, -1, -1)

    def of(self, key: Hashable) -> Alert:
        """The alert of a key."""
        return self.alerts[len(self.alerts) - 1 - int(str(key))]

    def empty_text(self) -> str:
        """Good news."""
        return "nothing has happened since gpuroom was started"

    def head_rows(self, width: int) -> list[Row]:
        """Column titles."""
        line = Line().add("  ").cell("time", 9, "dim").cell("", 11, "dim").cell("host", 15, "dim")
        return [line.add("what", "dim").row(width)]

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """When, how bad, where, what."""
        alert = self.of(key)
        glyphs = self.look.glyphs
        token = "dim" if alert.ended else SEVERITY_TOKENS[alert.severity]
        glyph = {
            Severity.INFO: glyphs.info,
            Severity.WARNING: glyphs.warning,
            Severity.CRITICAL: glyphs.critical,
        }[alert.severity]
        line = Line().add((glyphs.cursor if current else " ") + " ", "accent")
        line.cell(fmt.clock_time(alert.at), 9, "dim")
        word = "ended" if alert.ended else SEVERITY_WORDS[alert.severity]
        line.add(f"{glyph} ", token).cell(word, 9, token)
        line.cell(alert.host, 14, "strong").add(" ").add(alert.title, "text")
        if alert.detail:
            line.add(f"  {alert.detail}", "dim")
        return line.row(width, "cursor-row" if current else "text")


class JournalList(RowList):
    """Journal entries, newest first."""

    opens = False

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self.entries: list[JournalEntry] = []
        self.first = 0
        self.keymap: Mapping[str, str] = {}

    def show(self, entries: Sequence[JournalEntry], total: int, keymap: Mapping[str, str]) -> None:
        """Draw; the one call a frame.

        Args:
            entries: What is still held, oldest first.
            total: How many there ever were.
            keymap: The user's own keys.
        """
        self.keymap = keymap
        self.entries = list(reversed(entries))
        self.first = total - len(entries)
        self.redraw()

    def keys(self) -> Sequence[Hashable]:
        """Numbers counted from the first entry ever."""
        return range(self.first + len(self.entries) - 1, self.first - 1, -1)

    def of(self, key: Hashable) -> JournalEntry:
        """The entry of a key."""
        return self.entries[self.first + len(self.entries) - 1 - int(str(key))]

    def _key_of(self, entry: JournalEntry) -> str:
        """The key of the action that asked; nothing where it was a command or the room itself."""
        action = find(entry.asked_by)
        if action is None:
            return ""
        return key_text(self.keymap.get(action.id, action.keys).split(",")[0])

    def empty_text(self) -> str:
        """Nothing yet."""
        return "nothing has been asked of a host yet"

    def head_rows(self, width: int) -> list[Row]:
        """Column titles."""
        line = Line().add("  ").cell("time", 9, "dim").cell("host", 13, "dim")
        line.cell("key", 4, "dim").cell("asked by", 15, "dim").cell("took", 8, "dim").cell(
            "result", 10, "dim"
        )
        return [line.add("what", "dim").row(width)]

    def item_row(self, key: Hashable, width: int, *, current: bool) -> Row:
        """When, where, by what, how it ended, what."""
        entry = self.of(key)
        line = Line().add((self.look.glyphs.cursor if current else " ") + " ", "accent")
        line.cell(fmt.clock_time(entry.at), 9, "dim").cell(entry.host, 12, "strong").add(" ")
        line.cell(self._key_of(entry), 3, "accent").add(" ")
        line.cell(entry.asked_by, 14, "dim").add(" ")
        took = fmt.ABSENT if entry.took_s is None else f"{entry.took_s * 1000:.0f} ms"
        line.cell(took, 7, "dim").add(" ")
        if not entry.result:
            result, token = "running", "accent"
        elif entry.result.startswith("ok"):
            result, token = "ok", "good"
        elif entry.result == LEFT:
            result, token = LEFT, "dim"
        else:
            result, token = "failed", "critical"
        line.cell(result, 9, token).add(" ")
        if entry.changes_host:
            line.add("CHANGES ", "warning")
        if entry.times > 1:
            line.add(f"{entry.times:,}x ", "dim")
        return line.add(entry.what).row(width, "cursor-row" if current else "text")
