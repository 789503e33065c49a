"""A log on screen: a window of its lines, a cursor, follow, wrap, folds. Reads nothing itself.

The screen that owns it feeds the window (`LogWindow`) as far as `needs` says and redraws.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.events import Resize
from textual.message import Message

from backends.servers.logfolds import Shown, folded_bars, folded_tracebacks
from backends.servers.logquery import Pattern
from backends.servers.logtext import Item, LogText
from backends.servers.logwindow import MAX_ITEMS, LogWindow
from tui.bindings import bindings
from tui.rows import Line, Row
from tui.themes import Look
from tui.widgets.log_rows import rows_of
from tui.widgets.rows_view import RowsView

SIDE_STEP = 20
MAX_AROUND = MAX_ITEMS // 3
"""Items that are wanted above or below the cursor at most, however few of them are shown."""


class LogView(RowsView, can_focus=True):
    """See the module.

    Attributes:
        window: Lines around the place looked at.
        follow: Stay at the end.
        wrap: Long lines go on below.
        fold: Show tracebacks by their head and exception alone.
        left: First column shown, where lines are not wrapped.
        pattern: Marked where it fits.
        cursor: Place of the line under the cursor.
        chosen_from: Where a selection began; None where there is none.
        empty: What to say while there is no line.
    """

    class Moved(Message):
        """A key has changed what is looked at."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(
        "nav.down", "nav.up", "nav.top", "nav.bottom", "nav.page-down", "nav.page-up",
        "nav.right", "nav.left", "log.follow", "log.wrap", "log.fold", "log.mark",
    )  # fmt: skip

    def __init__(self, look: Look, text: LogText) -> None:
        super().__init__(look)
        self.text = text
        self.window = LogWindow(text)
        self.follow = True
        self.wrap = False
        self.fold = False
        self.left = 0
        self.pattern: Pattern | None = None
        self.cursor = 0
        self.chosen_from: int | None = None
        self.empty = ""
        self.unfollowed_newlines = 0
        self._top = 0
        self._jumped = False
        self._opened: set[int] = set()
        self._shown: list[Shown] = []
        self._shown_for: object = None

    # ---- what is there

    def shown(self) -> list[Shown]:
        """The items of the window: bars that were printed a line a step folded, and tracebacks."""
        state = (id(self.window), self.window.version, self.fold, len(self._opened))
        if state != self._shown_for:
            self._shown_for = state
            shown = folded_bars(self.window.items, self._opened)
            self._shown = folded_tracebacks(shown, self._opened) if self.fold else shown
        return self._shown

    def index(self, offset: int) -> int:
        """The shown item that holds a place, or the nearest before it."""
        shown = self.shown()
        low, high = 0, len(shown)
        while low < high:
            middle = (low + high) // 2
            if shown[middle][0].offset <= offset:
                low = middle + 1
            else:
                high = middle
        return max(0, low - 1)

    @property
    def current(self) -> Item | None:
        """The item under the cursor."""
        shown = self.shown()
        return shown[self.index(self.cursor)][0] if shown else None

    def selection(self) -> list[Item]:
        """The items that are marked, or the one under the cursor, with what is folded into them."""
        shown = self.shown()
        if not shown:
            return []
        here = self.index(self.cursor)
        there = here if self.chosen_from is None else self.index(self.chosen_from)
        low, high = min(here, there), max(here, there)
        begin = shown[low][0].offset
        end = shown[high + 1][0].offset if high + 1 < len(shown) else self.window.high
        return [item for item in self.window.items if begin <= item.offset < max(end, begin + 1)]

    def needs(self) -> tuple[int, int]:
        """How many items more are wanted before and behind what the window holds."""
        height = max(1, self.size.height)
        shown, items = self.shown(), self.window.items
        if self.follow:
            enough = self.window.at_start or len(items) >= MAX_AROUND
            before = 0 if enough else max(0, height * 2 - len(shown))
            return before, 0 if self.window.at_end else height
        here = self.index(self.cursor)
        above = bisect_left(items, self.cursor, key=lambda item: item.offset)
        below = len(items) - above
        before = 0 if self.window.at_start else max(0, height * 2 - here)
        behind = 0 if self.window.at_end else max(0, height * 2 - (len(shown) - here))
        # What is folded takes room in the window and none on screen.
        return before if above < MAX_AROUND else 0, behind if below < MAX_AROUND else 0

    def on_resize(self, event: Resize) -> None:
        """Another size shows more; the rows are fitted by the base."""
        self.post_message(self.Moved())

    # ---- drawing

    def rows_for(self, width: int, height: int) -> Sequence[Row]:
        """The rows around the cursor; while following, the last ones."""
        shown = self.shown()
        if not shown:
            return [Line().add("  ").add(self.empty, "dim").row(width)]
        if self.follow:
            self.cursor = shown[-1][0].offset
        here = self.index(self.cursor)
        self.cursor = shown[here][0].offset
        chosen = self.index(self.chosen_from) if self.chosen_from is not None else here
        marked = range(min(here, chosen), max(here, chosen) + 1) if chosen != here else range(0)

        def rows(number: int) -> list[Row]:
            item, folded = shown[number]
            return rows_of(
                item, width, self.look, left=self.left, wrap=self.wrap,
                most=max(1, min(20, height - 1)), pattern=self.pattern, current=number == here,
                marked=number in marked, folded=folded,
            )  # fmt: skip

        made: dict[int, list[Row]] = {}
        top = min(self.index(self._top), here)
        if self._jumped:
            top = max(0, here - height // 3)  # with what came before it
        if self.follow:
            top = here
        # Back from the cursor: the furthest top with which the cursor is still on screen.
        used, lowest = 0, here
        for number in range(here, -1, -1):
            made[number] = rows(number)
            used += len(made[number])
            if used > height:
                break
            lowest = number
        top = lowest if self.follow else max(top, lowest)
        result: list[Row] = []
        for number in range(top, len(shown)):
            if len(result) >= height:
                break
            result += made[number] if number in made else rows(number)
        if len(result) < height and self.window.at_end and top > lowest:
            # The end is on screen: fill it from above.
            for number in range(top - 1, lowest - 1, -1):
                if len(result) + len(made[number]) > height:
                    break
                result[:0] = made[number]
                top = number
        self._top = shown[top][0].offset
        return result

    # ---- moving

    def _show_moved(self) -> None:
        self.redraw()
        self.post_message(self.Moved())

    def go(self, offset: int) -> None:
        """Put the cursor on a place, which need not be in the window yet."""
        self.unfollow()
        window = self.window
        if not window.low <= offset < max(window.high, window.low + 1):
            window.seek(offset)
        self.cursor = self._top = offset
        self._jumped = True
        self._show_moved()

    def open_at(self, offset: int) -> None:
        """Unfold what holds a place, so that its line is seen."""
        self._opened.add(offset)

    def unfollow(self) -> None:
        """Stay where one is."""
        if self.follow:
            self.follow = False
            self.unfollowed_newlines = self.text.newlines

    def _move(self, step: int) -> None:
        shown = self.shown()
        if not shown:
            return
        here = self.index(self.cursor)
        if step < 0:
            self.unfollow()
        there = min(max(here + step, 0), len(shown) - 1)
        if self.follow:
            return
        self._jumped = False
        self.cursor = shown[there][0].offset
        self._show_moved()

    def action_down(self) -> None:
        """Next line."""
        self._move(1)

    def action_up(self) -> None:
        """Previous line."""
        self._move(-1)

    def action_page_down(self) -> None:
        """One page down."""
        self._move(max(1, self.size.height - 1))

    def action_page_up(self) -> None:
        """One page up."""
        self._move(-max(1, self.size.height - 1))

    def action_right(self) -> None:
        """Further right."""
        self.left += SIDE_STEP
        self._show_moved()

    def action_left(self) -> None:
        """Back to the left."""
        self.left = max(0, self.left - SIDE_STEP)
        self._show_moved()

    def action_top(self) -> None:
        """To the first line of the log."""
        self.go(self.text.start)

    def action_bottom(self) -> None:
        """To the end, and stay there."""
        self.start_following()

    def start_following(self) -> None:
        """Stay at the end."""
        self.follow = True
        self.chosen_from = None
        if not self.window.at_end:
            self.window.seek(self.text.end)
        self._show_moved()

    def action_follow(self) -> None:
        """Follow, or stay."""
        if self.follow:
            self.unfollow()
            self._show_moved()
        else:
            self.start_following()

    def action_wrap(self) -> None:
        """Wrap or cut."""
        self.wrap = not self.wrap
        self.left = 0
        self._show_moved()

    def action_fold(self) -> None:
        """On something that is folded, open it; else fold tracebacks, or all as it was."""
        item = self.current
        shown = self.shown()
        if item is not None and shown[self.index(self.cursor)][1]:
            self._opened.add(item.offset)
        else:
            self.fold = not self.fold
            self._opened.clear()
        self._shown_for = None
        self._show_moved()

    def action_mark(self) -> None:
        """Begin a selection, or end it."""
        self.unfollow()
        self.chosen_from = self.cursor if self.chosen_from is None else None
        self._show_moved()
