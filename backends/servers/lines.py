"""Bytes of a log to lines: incremental, bounded, resumable.

Lines are counted from 1 by line feeds alone. A carriage return inside a line rewrites it, as on a
terminal: what was written before is counted as an update, the newest state is what the line says.
Colours and cursor movements are dropped, time stamps, levels and the names of processes and ranks
are recognised and taken off, in the forms that the engines (and docker, compose, the journal, srun
and kubectl around them) print. The same bytes give the same lines however they are cut into pieces.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

import msgspec

from backends.servers.prefixes import MAX_LINE_CHARS, Level, split_prefix
from backends.servers.progress import Progress, parse_progress
from backends.text import clean

MAX_LINE_BYTES: Final = 65_536
"""Longest line (or rewritten part of one) that is kept; the rest of it is counted, not stored."""
_MAX_OVERWRITTEN: Final = 4
_PRINTED_COLOURS: Final = re.compile(
    # As terminals take them, and as syslog, cat -v, JSON and a clipboard leave them in print.
    r"(?:\x1b|#033|\^\[|\\(?:x1b|u001b|033))?\[(?:\d{1,3}(?:;\d{1,3}){0,4})?m"
)


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """One line, ended by a line feed or by the end of the log."""

    number: int
    """From 1, by line feeds."""
    offset: int
    """Where its first byte lies in the log."""
    size: int
    """Its bytes, line feed included."""
    text: str
    """What a terminal would show, without colours; cleaned and cut to `MAX_LINE_CHARS`."""
    message: str
    """`text` without stamp, level, process and bar; keeps the indentation behind them."""
    level: Level | None = None
    stamp: str | None = None
    """Time as printed; engines differ in form, and some print no year or no time at all."""
    source: str | None = None
    """Process that wrote it, as printed: `TP0`, `EngineCore pid=41490`, `[rank2]`."""
    rank: int | None = None
    progress: Progress | None = None
    updates: int = 0
    """How often carriage returns rewrote it."""
    overwritten: tuple[str, ...] = ()
    """Text (not bars) that stood on the line before a carriage return, at most four pieces."""
    truncated: bool = False
    complete: bool = True


class LineUpdate(msgspec.Struct, frozen=True, gc=False):
    """A bar moved on the line that is being written; the line itself is not over."""

    number: int
    text: str
    progress: Progress


class Skimmed(msgspec.Struct, frozen=True, gc=False):
    """Lines that were passed over unread, since a pattern calls them routine."""

    count: int
    last: tuple[bytes, ...]
    """The newest of them, at most eight."""


Event = LogLine | LineUpdate | Skimmed


class LogReader:
    """Turns the bytes of one log, in pieces of any size, into lines and bar updates.

    Args:
        number: Line feeds before the first byte that will be fed, to resume where one stopped.
        offset: Bytes before it.
        updates: Whether bar updates are wanted as events of their own; following a log live
            does, reading one that is over does not.
    """

    def __init__(self, *, number: int = 0, offset: int = 0, updates: bool = True) -> None:
        self._number = number
        self._line_offset = offset
        self._offset = offset
        self._want_updates = updates
        self._part = b""
        self._part_cut = 0
        self._update_count = 0
        self._overwritten: list[str] = []
        self._visible = b""
        self._line_cut = False
        self._skimmed = 0
        self._skimmed_last: deque[bytes] = deque(maxlen=8)

    @property
    def lines(self) -> int:
        """Line feeds seen so far."""
        return self._number

    @property
    def offset(self) -> int:
        """Where the unfinished line begins: resume from here with `number=reader.lines`."""
        return self._line_offset

    def feed(self, data: bytes, skim: re.Pattern[bytes] | None = None) -> list[Event]:
        """Take the next bytes and give what they completed.

        Args:
            data: The bytes that follow those fed before.
            skim: Start of lines that need no reading: they are counted and passed over.
        """
        events: list[Event] = []
        pieces = data.split(b"\n")
        last = len(pieces) - 1
        for index, piece in enumerate(pieces):
            if skim is not None and 0 < index < last:
                if skim.match(piece) is not None and b"\r" not in piece[:-1]:
                    self._skimmed += 1
                    self._skimmed_last.append(piece)
                    self._number += 1
                    self._offset += len(piece) + 1
                    self._line_offset = self._offset
                    continue
                self._tell_skimmed(events)
            if b"\r" in piece:
                self._rewrite(piece, events)
            else:
                self._append(piece)
            self._offset += len(piece)
            if index < last:
                self._offset += 1
                events.append(self._end_line(complete=True))
        self._tell_skimmed(events)
        return events

    def _tell_skimmed(self, events: list[Event]) -> None:
        if self._skimmed:
            events.append(Skimmed(self._skimmed, tuple(self._skimmed_last)))
            self._skimmed = 0
            self._skimmed_last.clear()

    def finish(self) -> list[Event]:
        """The log has ended: give the line that no line feed closed, if there is one."""
        if self._offset == self._line_offset:
            return []
        return [self._end_line(complete=False)]

    def partial(self) -> LogLine | None:
        """The line that is being written, as far as it goes; None at the start of a line."""
        if self._offset == self._line_offset:
            return None
        return self._line(self._number + 1, complete=False)

    def _append(self, piece: bytes) -> None:
        room = MAX_LINE_BYTES - len(self._part)
        if len(piece) <= room:
            self._part = self._part + piece if self._part else piece
        else:
            self._part += piece[: max(room, 0)]
            self._part_cut += len(piece) - max(room, 0)
            self._line_cut = True

    def _rewrite(self, piece: bytes, events: list[Event]) -> None:
        parts = piece.split(b"\r")
        for part in parts[:-1]:
            self._append(part)
            self._return_carriage(events)
        self._append(parts[-1])

    def _return_carriage(self, events: list[Event]) -> None:
        """What stands on the line is about to be overwritten: remember what it said."""
        part, self._part, self._part_cut = self._part, b"", 0
        self._update_count += 1
        if not part.strip():
            return
        if self._visible:
            self._set_aside(self._visible)
        self._visible = part
        if not self._want_updates:
            return
        parsed = parse_progress(_decode(part))
        if parsed is not None:
            events.append(LineUpdate(self._number + 1, clean(_decode(part), 400), parsed[0]))

    def _set_aside(self, part: bytes) -> None:
        if len(self._overwritten) < _MAX_OVERWRITTEN:
            self._overwritten += _text_beside_bar(part)

    def _end_line(self, *, complete: bool) -> LogLine:
        line = self._line(self._number + 1, complete=complete)
        if complete:
            self._number += 1
        self._line_offset = self._offset
        self._part, self._part_cut, self._line_cut = b"", 0, False
        self._visible, self._update_count = b"", 0
        if self._overwritten:
            self._overwritten = []
        return line

    def _line(self, number: int, *, complete: bool) -> LogLine:
        size = self._offset - self._line_offset
        overwritten: tuple[str, ...] = ()
        shown = self._part
        updates = self._update_count
        if updates:
            if not shown.strip():
                # The line ended in CR LF, or the cursor was left at its start: the text stands.
                shown = self._visible
                updates -= 1 if complete else 0
                overwritten = tuple(self._overwritten)
            else:
                overwritten = (*self._overwritten, *_text_beside_bar(self._visible))
                overwritten = overwritten[:_MAX_OVERWRITTEN]
        text = _decode(shown)
        prefix = split_prefix(text)
        message, progress, level = prefix.message, None, prefix.level
        stamp, source, rank = prefix.stamp, prefix.source, prefix.rank
        parsed = parse_progress(message)
        if parsed is not None:
            progress, glued = parsed
            if glued:
                inner = split_prefix(glued)
                message, level = inner.message, inner.level
                stamp, source = inner.stamp or stamp, inner.source or source
                rank = inner.rank if inner.rank is not None else rank
            else:
                message = ""
        return LogLine(
            number=number,
            offset=self._line_offset,
            size=size,
            text=text,
            message=message,
            level=level,
            stamp=stamp,
            source=source,
            rank=rank,
            progress=progress,
            updates=updates,
            overwritten=overwritten,
            truncated=self._line_cut,
            complete=complete,
        )


def visible_text(part: bytes) -> str:
    """All that a line without carriage returns shows, however long it is."""
    return _decode(part, len(part) + 1)


def _decode(part: bytes, limit: int = MAX_LINE_CHARS) -> str:
    """Text of some bytes; NULs (a truncated file written on, or UTF-16) are dropped."""
    if b"\0" in part:
        part = part.replace(b"\0", b"")
    text = part.decode("utf-8", "replace")
    if "[0m" in text:
        text = _PRINTED_COLOURS.sub("", text)
    return text if text.isprintable() and len(text) <= limit else clean(text, limit)


def _text_beside_bar(part: bytes) -> list[str]:
    """What an overwritten state of a line said besides its bar and its prefix: nothing, mostly."""
    if not part:
        return []
    text = _decode(part)
    parsed = parse_progress(split_prefix(text).message)
    kept = text if parsed is None else parsed[1]
    return [kept] if split_prefix(kept).message.strip() else []
