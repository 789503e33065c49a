"""A log as offsets: blocks of bytes in a bounded cache, from which lines are cut where one looks.

Nothing here reads a file: what is missing is named (`Missing`), and whoever owns the text brings it
(`put`). Every position is on one axis of bytes over all files that the log has been, oldest first;
between two of them lies one byte that stands for what happened there (rotated, truncated, lost).

Lines are the same from wherever one looks: they end at line feeds, and where a whole block holds
none, also at its end, so that the longest line that is ever looked for is two blocks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from backends.servers.lines import LogLine, LogReader, visible_text

BLOCK_BYTES: Final = 256 * 1024
CACHE_BYTES: Final = 32 * 1024 * 1024
MAX_PARSED: Final = 4096
_BIG_LINE_CHARS: Final = 8192


@dataclass(frozen=True, slots=True)
class Missing:
    """Bytes that must be brought before one can look on."""

    segment: int
    block: int
    inode: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Item:
    """What one looks at: a line, or a mark between two files.

    Attributes:
        offset: Where it begins on the axis.
        size: Its bytes.
        line: The line; None for a mark.
        mark: What happened here; empty for a line.
    """

    offset: int
    size: int
    line: LogLine | None = None
    mark: str = ""

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.offset + self.size


@dataclass(slots=True)
class Segment:
    """One file (or one life of it, where it was cut).

    Attributes:
        base: Where its byte 0 lies on the axis.
        size: Bytes known so far.
        start: First byte that can be looked at; those before it are gone.
        inode: Which file it is; 0 where it can't be read again.
        mark: What happened after it; empty while it is the newest.
    """

    base: int
    size: int
    start: int
    inode: int
    mark: str = ""

    @property
    def begin(self) -> int:
        """Where what can be looked at begins on the axis."""
        return self.base + self.start

    @property
    def end(self) -> int:
        """Where it ends on the axis."""
        return self.base + self.size


class LogText:
    """See the module.

    Args:
        block_bytes: Unit of reading and keeping.
        cache_bytes: Most that is kept.
    """

    def __init__(self, *, block_bytes: int = BLOCK_BYTES, cache_bytes: int = CACHE_BYTES) -> None:
        self.block_bytes = block_bytes
        self._most_blocks = max(4, cache_bytes // block_bytes)
        self.segments: list[Segment] = []
        self._blocks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._open = bytearray()
        self._open_at = 0
        self._parsed: OrderedDict[int, Item] = OrderedDict()
        self.version = 0
        self.newlines = 0
        """Line feeds that came by following."""
        self._sampled_bytes = 0
        self._sampled_lines = 0

    # ---- what comes in

    @property
    def start(self) -> int:
        """Where the log begins on the axis."""
        return self.segments[0].begin if self.segments else 0

    @property
    def end(self) -> int:
        """Where it ends now."""
        return self.segments[-1].end if self.segments else 0

    @property
    def estimated_lines(self) -> int:
        """About how many lines there are, from the length of those that were seen."""
        if not self._sampled_lines:
            return 0
        total = sum(segment.size - segment.start for segment in self.segments)
        return round(total * self._sampled_lines / self._sampled_bytes)

    @property
    def held_bytes(self) -> int:
        """Bytes of blocks in memory."""
        return sum(len(block) for block in self._blocks.values()) + len(self._open)

    def begin(self, inode: int, size: int, *, start: int = 0) -> None:
        """A file whose `size` bytes can be brought where they are looked at, from `start` on."""
        base = 0
        if self.segments:
            base = self.segments[-1].end + 1
        self.segments.append(Segment(base, size, start, inode))
        self._open, self._open_at = bytearray(), size
        self.version += 1

    def end_segment(self, mark: str, *, gone: bool = False) -> None:
        """The newest file is over; `gone`: what is not kept of it can't be brought any more."""
        if not self.segments or self.segments[-1].mark:
            return
        segment = self.segments[-1]
        if segment.size % self.block_bytes:
            self._close_block(len(self.segments) - 1, segment)
        segment.mark = mark
        if gone:
            segment.inode = 0
        self.version += 1

    def append(self, data: bytes) -> None:
        """What the newest file has grown by."""
        segment = self.segments[-1]
        number = len(self.segments) - 1
        count = data.count(b"\n")
        self.newlines += count
        self._sample(len(data), count)
        view = memoryview(data)
        while view:
            piece = view[: self.block_bytes - segment.size % self.block_bytes]
            self._open += piece
            segment.size += len(piece)
            view = view[len(piece) :]
            if segment.size % self.block_bytes == 0:
                self._close_block(number, segment)
        self.version += 1

    def _close_block(self, number: int, segment: Segment) -> None:
        """Keep the block that was being written, unless only its end was seen."""
        block = (segment.size - 1) // self.block_bytes
        if self._open and self._open_at == block * self.block_bytes:
            self._keep((number, block), bytes(self._open))
        self._open, self._open_at = bytearray(), segment.size

    def put(self, missing: Missing, data: bytes) -> None:
        """Bring what was missing. Fewer bytes than asked for: the file is shorter than it was."""
        segment = self.segments[missing.segment]
        if len(data) < missing.size:
            self.forget(missing)
            return
        self._sample(len(data), data.count(b"\n"))
        live = missing.segment == len(self.segments) - 1 and not segment.mark
        end = missing.offset + len(data)
        if live and end == self._open_at and missing.block == segment.size // self.block_bytes:
            self._open[:0] = data
            self._open_at = missing.offset
        elif len(data) == self.block_bytes or (segment.mark and end == segment.size):
            self._keep((missing.segment, missing.block), data)
        self.version += 1

    def forget(self, missing: Missing) -> None:
        """What was missing can't be brought: it and all before it are gone."""
        segment = self.segments[missing.segment]
        segment.start = min(segment.size, missing.offset + missing.size)
        for number in range(missing.segment):
            earlier = self.segments[number]
            earlier.start = earlier.size
        self._parsed.clear()
        self.version += 1

    def _sample(self, size: int, lines: int) -> None:
        self._sampled_bytes += size
        self._sampled_lines += lines

    def _keep(self, key: tuple[int, int], data: bytes) -> None:
        self._blocks[key] = data
        self._blocks.move_to_end(key)
        while len(self._blocks) > self._most_blocks:
            self._blocks.popitem(last=False)

    # ---- where things are

    def segment_at(self, offset: int) -> int:
        """Number of the segment that holds a place (or the mark after it)."""
        for number in range(len(self.segments) - 1, -1, -1):
            if offset >= self.segments[number].base:
                return number
        return 0

    def block(self, number: int, block: int) -> bytes | Missing:
        """A block of a segment, as long as it is now."""
        segment = self.segments[number]
        at = block * self.block_bytes
        size = min(self.block_bytes, segment.size - at)
        live = number == len(self.segments) - 1 and not segment.mark
        if live and block == segment.size // self.block_bytes:
            if self._open_at == at:
                return bytes(self._open)
            size = self._open_at - at
        else:
            held = self._blocks.get((number, block))
            if held is not None:
                self._blocks.move_to_end((number, block))
                return held
        return Missing(number, block, segment.inode, at, size)

    def line_start(self, offset: int) -> int | Missing:
        """Where the item begins that holds the byte at `offset` (at most `end`)."""
        offset = max(self.start, min(offset, self.end))
        number = self.segment_at(offset)
        segment = self.segments[number]
        local = offset - segment.base
        if local >= segment.size:
            if segment.mark or local == segment.start:
                return segment.end
            local = segment.size
            if segment.size == segment.start:
                return segment.begin
        return self._start_of(number, local)

    def _start_of(self, number: int, local: int) -> int | Missing:
        """The first byte of the line that holds `local`, or that would begin there."""
        segment = self.segments[number]
        if local <= segment.start:
            return segment.begin
        block = (local - 1) // self.block_bytes
        data = self.block(number, block)
        if isinstance(data, Missing):
            return data
        at = block * self.block_bytes
        found = data.rfind(b"\n", 0, local - at)
        if found >= 0:
            return segment.base + max(segment.start, at + found + 1)
        if local - at == self.block_bytes and len(data) == self.block_bytes:
            return segment.base + local  # a whole block without a line feed: it ends a line
        if at <= segment.start:
            return segment.begin
        before = self.block(number, block - 1)
        if isinstance(before, Missing):
            return before
        found = before.rfind(b"\n")
        start = at if found < 0 else at - self.block_bytes + found + 1
        return segment.base + max(segment.start, start)

    def _end_of(self, number: int, local: int) -> int | Missing:
        """Where the line ends that begins at `local`, line feed included."""
        segment = self.segments[number]
        block = local // self.block_bytes
        while block * self.block_bytes < segment.size:
            data = self.block(number, block)
            if isinstance(data, Missing):
                return data
            at = block * self.block_bytes
            found = data.find(b"\n", max(0, local - at))
            if found >= 0:
                return at + found + 1
            if local <= at and len(data) == self.block_bytes:
                return at + self.block_bytes
            block += 1
        return segment.size

    # ---- lines

    def item_at(self, offset: int) -> Item | Missing | None:
        """The item that begins at `offset`; None at the end of the log."""
        if not self.segments or offset >= self.end:
            return None
        number = self.segment_at(offset)
        segment = self.segments[number]
        local = offset - segment.base
        if local < segment.start:
            local, offset = segment.start, segment.begin
        if local >= segment.size:
            return Item(segment.end, 1, mark=segment.mark) if segment.mark else None
        known = self._parsed.get(offset)
        if known is not None:
            self._parsed.move_to_end(offset)
            return known
        end = self._end_of(number, local)
        if isinstance(end, Missing):
            return end
        data = self.raw(number, local, end)
        if isinstance(data, Missing):
            return data
        item = Item(offset, end - local, parse_line(data, offset))
        if data.endswith(b"\n") and item.line is not None and len(item.line.text) < _BIG_LINE_CHARS:
            self._parsed[offset] = item
            if len(self._parsed) > MAX_PARSED:
                self._parsed.popitem(last=False)
        return item

    def item_before(self, offset: int) -> Item | Missing | None:
        """The item that ends at `offset`, which must be where one begins or the end."""
        if not self.segments or offset <= self.start:
            return None
        number = self.segment_at(offset)
        segment = self.segments[number]
        if offset <= segment.begin:
            # Behind the mark of the file before; where its lines are gone, the mark is all of it.
            return Item(segment.base - 1, 1, mark=self.segments[number - 1].mark)
        start = self._start_of(number, offset - segment.base - 1)
        if isinstance(start, Missing):
            return start
        return self.item_at(start)

    def _chunk_before(self, offset: int, most: int) -> tuple[int, bytes] | Missing | None:
        if not self.segments or offset <= self.start:
            return None
        number = self.segment_at(offset)
        segment = self.segments[number]
        if offset <= segment.begin:
            return segment.base - 1, b""
        local = offset - segment.base
        floor = max(segment.start, local - most)
        start = self._start_of(number, floor)
        if isinstance(start, Missing):
            return start
        start -= segment.base
        if start < floor:
            # The line that is cut by `most` comes next time, unless it is all there is.
            end = self._end_of(number, start)
            if isinstance(end, Missing):
                return end
            start = end if end < local else start
        data = self.raw(number, start, local)
        return data if isinstance(data, Missing) else (segment.base + start, data)

    def raw(self, number: int, local: int, end: int) -> bytes | Missing:
        """Bytes of a segment."""
        pieces = []
        for block in range(local // self.block_bytes, (end - 1) // self.block_bytes + 1):
            data = self.block(number, block)
            if isinstance(data, Missing):
                return data
            at = block * self.block_bytes
            pieces.append(data[max(0, local - at) : end - at])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def chunk(self, offset: int, most: int, *, back: bool) -> tuple[int, bytes] | Missing | None:
        """Whole lines around a line's start, for scanning without making items.

        Args:
            offset: Where a line begins; the lines behind it, or with `back` those before it.
            most: About how many bytes; a line is never cut.
            back: Look before `offset`.

        Returns:
            Where the bytes begin and they themselves (empty for a mark), or None at the end.
        """
        most = min(most, self.block_bytes)
        if back:
            return self._chunk_before(offset, most)
        if not self.segments or offset >= self.end:
            return None
        number = self.segment_at(offset)
        segment = self.segments[number]
        local = max(segment.start, offset - segment.base)
        if local >= segment.size:
            return (segment.end, b"") if segment.mark else None
        ceiling = min(segment.size, local + most)
        if ceiling < segment.size:
            start = self._start_of(number, ceiling)
            if isinstance(start, Missing):
                return start
            end: int | Missing = start - segment.base
            if isinstance(end, int) and end <= local:
                end = self._end_of(number, local)
        else:
            end = ceiling
        if isinstance(end, Missing):
            return end
        data = self.raw(number, local, end)
        return data if isinstance(data, Missing) else (segment.base + local, data)


def parse_line(data: bytes, offset: int) -> LogLine:
    """The line of some bytes, its progress folded to the newest state."""
    reader = LogReader(offset=offset, updates=False)
    for event in (*reader.feed(data), *reader.finish()):
        if isinstance(event, LogLine):
            return event
    return LogLine(number=1, offset=offset, size=len(data), text="", message="")


def text_of(data: bytes) -> str:
    """All that a line shows, however long: what a search looks through."""
    shown = data.rstrip(b"\r\n")
    return parse_line(data, 0).text if b"\r" in shown else visible_text(shown)


def each_line(data: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """The lines of whole lines, each with its place."""
    at = 0
    while at < len(data):
        found = data.find(b"\n", at)
        end = len(data) if found < 0 else found + 1
        yield offset + at, data[at:end]
        at = end
