"""What stands above and below a log: what must not scroll by, and where one is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.servers.logpins import Pin, Pins
from tui import format as fmt
from tui.rows import Line, Row, Span
from tui.themes import Look
from tui.widgets.rows_view import RowsView

if TYPE_CHECKING:
    from screens.log import LogScreen

MAX_SHOWN = 4


class LogPins(RowsView):
    """Performance warnings and the newest errors; takes no room where there are none."""

    DEFAULT_CSS = "LogPins { height: 0; }"

    def __init__(self, look: Look, pins: Pins) -> None:
        super().__init__(look)
        self._pins = pins
        self._version = -1

    def show(self) -> None:
        """Draw what is new."""
        if self._version == self._pins.version:
            return
        self._version = self._pins.version
        wanted = len(self._chosen()) + 1 if self._pins.version else 0
        if self.styles.height is None or self.styles.height.value != wanted:
            self.styles.height = wanted
        self.redraw()

    def _chosen(self) -> list[Pin]:
        pins = list(self._pins.pins)
        warnings = [pin for pin in pins if not pin.error][-MAX_SHOWN + 1 :]
        errors = [pin for pin in pins if pin.error]
        return [*warnings, *errors[len(errors) - (MAX_SHOWN - len(warnings)) :]][:MAX_SHOWN]

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """A line each, then a rule."""
        glyphs = self.look.glyphs
        rows = []
        for pin in self._chosen():
            token = "critical" if pin.error else "warning"
            line = Line().add(f" {glyphs.critical if pin.error else glyphs.warning} ", token)
            line.add("error " if pin.error else "slow  ", token)
            if pin.count > 1:
                line.add(f"{pin.count:,}x ", "dim")
            rows.append(line.add(pin.title, "text").row(width))
        rows.append(Line().add(glyphs.rule * width, "faint").row(width))
        return rows


class LogStatus(RowsView):
    """One line: where one is, what is shown, what is going on."""

    DEFAULT_CSS = "LogStatus { height: 1; }"

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self._left: list[Span] = []
        self._right: Sequence[Sequence[Span]] = [()]

    def show(self, screen: LogScreen) -> None:
        """Draw the state of a screen."""
        store, view = screen.store, screen.view
        text, query = store.text, view.window.query
        left: list[Span] = []
        if view.follow:
            left.append((" FOLLOW ", "badge"))
        else:
            new = text.newlines - view.unfollowed_newlines
            left.append((f" +{new:,} new ", "badge") if new else (" ", "text"))
        if store.error:
            left.append((f" {store.error}", "warning"))
        elif store.state == "deleted":
            left.append((" the file was deleted", "warning"))
        elif store.state == "ended":
            left.append((" the log has ended", "dim"))
        parts = []
        if query.level is not None:
            parts.append(f"level {query.level.value}+")
        if query.rank is not None:
            parts.append(f"rank {query.rank}")
        if query.between is not None:
            parts.append("this phase")
        if query.pattern is not None:
            parts.append(("without " if query.without else "only ") + query.pattern.text)
        if parts:
            left.append((" only: " + ", ".join(parts), "accent"))
        if screen.jobs.note:
            left.append((f" {screen.jobs.note}", "text"))
        matches: list[Span] = []
        if screen.jobs.matches:
            matches.append((screen.jobs.matches + "  ", "dim"))
        errors: list[Span] = []
        if screen.pins.errors:
            count = f"{screen.pins.errors:,} error{'' if screen.pins.errors == 1 else 's'}"
            errors.append((f"{count} near the end  ", "critical"))
        size = text.end - text.start
        share = 100.0 if view.follow or not size else 100 * (view.cursor - text.start) / size
        lines = text.estimated_lines
        about = f"about {lines:,} lines, " if lines else ""
        place: Span = (f"{share:.0f} % of {about}{fmt.size(size)} ", "dim")
        short: Span = (f"{share:.0f} % ", "dim")
        # The newest errors are pinned above: their number makes way first.
        right = [
            (*matches, *errors, place), (*matches, place), (*matches, short), (short,), (),
        ]  # fmt: skip
        self._left, self._right = left, right
        self.redraw()

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """The line, with as much on its right as has room."""
        line = Line().extend(self._left)
        room = width - line.width - 1
        right = next((spans for spans in self._right if Line().extend(spans).width <= room), ())
        return [line.right(right, width).row(width, "bar-row")]
