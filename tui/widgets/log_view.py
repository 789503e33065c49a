"""A log on screen: a window of its lines, a cursor, follow, wrap, folds. Reads nothing itself.

The screen that owns it feeds the window (`LogWindow`) as far as `needs` says and redraws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.message import Message

from backends.servers.logquery import Kind, Pattern, kind_of
from backends.servers.logtext import Item, LogText
from backends.servers.logwindow import LogWindow
from tui.bindings import bindings
from tui.rows import Line, Row
from tui.themes import Look
from tui.widgets.log_rows import rows_of
from tui.widgets.rows_view import RowsView

Shown = tuple[Item, int]
"""An item and how many lines are folded into it."""
SIDE_STEP = 20


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
        """The items of the window, tracebacks folded."""
        state = (id(self.window), self.window.version, self.fold, len(self._opened))
        if state != self._shown_for:
            self._shown_for = state
            self._shown = self._folded() if self.fold else [(i, 0) for i in self.window.items]
        return self._shown

    def _folded(self) -> list[Shown]:
        result: list[Shown] = []
        head = -1
        for item in self.window.items:
            kind = kind_of(item.line) if item.line is not None else Kind.PLAIN
            if kind is Kind.HEAD:
                head = len(result)
            elif kind is not Kind.FRAME:
                head = -1
            elif head >= 0 and result[head][0].offset not in self._opened:
                result[head] = (result[head][0], result[head][1] + 1)
                continue
            result.append((item, 0))
        return result

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
        """The items that are marked, or the one under the cursor."""
        shown = self.shown()
        if not shown:
            return []
        here = self.index(self.cursor)
        there = here if self.chosen_from is None else self.index(self.chosen_from)
        low, high = min(here, there), max(here, there)
        begin, end = shown[low][0].offset, shown[high][0].offset
        return [item for item in self.window.items if begin <= item.offset <= end]

    def needs(self) -> tuple[int, int]:
        """How many items more are wanted before and behind what the window holds."""
        height = max(1, self.size.height)
        shown = self.shown()
        if self.follow:
            before = 0 if self.window.at_start else max(0, height * 2 - len(shown))
            return before, 0 if self.window.at_end else height
        here = self.index(self.cursor)
        before = 0 if self.window.at_start else max(0, height * 2 - here)
        behind = 0 if self.window.at_end else max(0, height * 2 - (len(shown) - here))
        return before, behind

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
        """Fold tracebacks; on one that is folded, open it."""
        item = self.current
        shown = self.shown()
        if self.fold and item is not None and shown[self.index(self.cursor)][1]:
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
