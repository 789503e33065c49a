"""The lines around the place one looks at, grown in slices as far as they are needed.

Pure: what must be read first is handed out as `Missing`.
"""

from __future__ import annotations

from typing import Final

from backends.servers.logquery import Query
from backends.servers.logtext import Item, LogText, Missing, each_line

SLICE_BYTES: Final = 32 * 1024
MAX_ITEMS: Final = 3000
"""Items that are held; beyond, the far side is let go."""


class LogWindow:
    """Wanted items of a stretch of the log.

    Attributes:
        items: In order.
        low: Everything from here ...
        high: ... to here has been looked through.
    """

    def __init__(self, text: LogText, query: Query | None = None) -> None:
        self._text = text
        self.query = query or Query()
        self.items: list[Item] = []
        self.low = self.high = 0
        self.version = 0

    def seek(self, offset: int) -> None:
        """Begin anew at the start of an item (`LogText.line_start`), or at the end."""
        self.items = []
        self.low = self.high = offset
        self.version += 1

    @property
    def at_start(self) -> bool:
        """Whether nothing is left before it."""
        between = self.query.between
        return self.low <= (self._text.start if between is None else between[0])

    @property
    def at_end(self) -> bool:
        """Whether nothing is left behind it."""
        between = self.query.between
        end = None if between is None else between[1]
        return self.high >= (self._text.end if end is None else end)

    def _drop_unfinished(self) -> None:
        """A line that had no line feed when it was looked at is looked at again, if it grew."""
        last = self.items[-1] if self.items else None
        if last is None or last.line is None or last.line.complete or last.end < self.high:
            return
        again = self._text.item_at(last.offset)
        if isinstance(again, Item) and again.end > last.end:
            self.items.pop()
            self.high = last.offset
            self.low = min(self.low, self.high)
            self.version += 1

    def extend_down(self, count: int) -> Missing | None:
        """Look for up to `count` more items behind; one slice of work.

        Returns:
            What must be read before one can go on.
        """
        self._drop_unfinished()
        if self.query:
            return self._scan_down()
        for _ in range(count):
            item = self._text.item_at(self.high)
            if item is None:
                break
            if isinstance(item, Missing):
                return item
            self._append(item)
            if item.line is not None and not item.line.complete and item.end >= self._text.end:
                break
        return None

    def extend_up(self, count: int) -> Missing | None:
        """The same before it."""
        if self.query:
            return self._scan_up()
        found: list[Item] = []
        missing = None
        low = self.low
        for _ in range(count):
            item = self._text.item_before(low)
            if item is None:
                break
            if isinstance(item, Missing):
                missing = item
                break
            found.append(item)
            low = item.offset
        self._prepend(found, low)
        return missing

    def _append(self, item: Item) -> None:
        self.items.append(item)
        self.high = item.end
        if len(self.items) > MAX_ITEMS:
            cut = len(self.items) - MAX_ITEMS * 2 // 3
            self.low = self.items[cut].offset
            del self.items[:cut]
        self.version += 1

    def _prepend(self, found: list[Item], low: int) -> None:
        """`found`: backwards."""
        self.low = low
        if not found:
            return
        self.items[:0] = reversed(found)
        if len(self.items) > MAX_ITEMS:
            keep = MAX_ITEMS * 2 // 3
            self.high = self.items[keep].offset
            del self.items[keep:]
        self.version += 1

    def _scan_down(self) -> Missing | None:
        chunk = self._text.chunk(self.high, SLICE_BYTES, back=False)
        if chunk is None or isinstance(chunk, Missing):
            return chunk
        offset, data = chunk
        if not data:
            self._append(Item(offset, 1, mark=self._text.segments[
                self._text.segment_at(offset)].mark))  # fmt: skip
            return None
        for item in self._wanted(offset, data):
            self._append(item)
        self.high = offset + len(data)
        if not data.endswith(b"\n") and self.high >= self._text.end:
            # The line goes on: look at it again from its start when it does.
            start = self._text.line_start(self.high)
            if isinstance(start, int) and not (self.items and self.items[-1].offset == start):
                self.high = start
                self.low = min(self.low, start)
        return None

    def _scan_up(self) -> Missing | None:
        chunk = self._text.chunk(self.low, SLICE_BYTES, back=True)
        if chunk is None or isinstance(chunk, Missing):
            return chunk
        offset, data = chunk
        if not data:
            mark = self._text.segments[self._text.segment_at(offset)].mark
            self._prepend([Item(offset, 1, mark=mark)], offset)
            return None
        self._prepend(self._wanted(offset, data)[::-1], offset)
        return None

    def _wanted(self, offset: int, data: bytes) -> list[Item]:
        found: list[Item] = []
        for at, raw in each_line(data, offset):
            if self.query.wants_raw(raw, at):
                item = self._text.item_at(at)
                if isinstance(item, Item):
                    found.append(item)
        return found
