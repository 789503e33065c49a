"""A log of a host, of any size, as one looks at it: followed, read where it is needed, searched.

Memory is bounded whatever the size: blocks of a file come by `files.read` when somebody looks at
them, those of what a command printed from the spool; new bytes come from the feed, which waits
while they are not taken. Bytes, marks and lines are `logtext`'s business, which reads nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from backends.errors import AgentError, RoomError, UsageError
from backends.servers.host import Host, unpack
from backends.servers.launchers.base import LogKind, LogPlace
from backends.servers.logfeed import LogData, LogEvent, LogFeed
from backends.servers.logquery import Query
from backends.servers.logspool import LogSpool
from backends.servers.logtext import Item, LogText, Missing, each_line
from backends.servers.logtimes import TimeSearch
from backends.servers.logwindow import SLICE_BYTES

T = TypeVar("T")
OPEN_BYTES: Final = 128 * 1024
SLICE_S: Final = 0.006
"""Most work between two turns of the event loop."""
MARKS: Final = {
    "rotated": "rotated: a new file begins",
    "truncated": "cut: the file was emptied and begins anew",
    "lost": "lines may be missing here: the file was replaced while there was no link",
    "restarted": "read anew from the beginning: what was seen before is not there any more",
}
STATES: Final = ("missing", "deleted", "ended")


class LogStore:
    """One log of one host.

    Args:
        host: Where it is.
        place: The log; a path stands for the file.
        asked_by: Who opens it, for the journal.
        text: Where its bytes go.

    Attributes:
        state: `opening`, `missing`, `open`, `deleted` or `ended` (the command that prints it has).
    """

    def __init__(
        self, host: Host, place: LogPlace | str, *, asked_by: str = "log",
        text: LogText | None = None,
    ) -> None:  # fmt: skip
        self._host = host
        self.place = LogPlace(LogKind.FILE, place) if isinstance(place, str) else place
        self._asked_by = asked_by
        self.text = text or LogText()
        self.state = "opening"
        self.changed = asyncio.Event()
        self._feed = LogFeed(
            host, self.place, self._take, from_end_bytes=OPEN_BYTES, asked_by=asked_by
        )
        self._spool = None if self.place.kind is LogKind.FILE else LogSpool()
        self._read_error = ""
        self._inode: int | None = None
        self._offset = 0
        self._pending_mark = ""
        self._reads: dict[tuple[int, int, int], asyncio.Task[None]] = {}

    @property
    def error(self) -> str:
        """Why nothing comes right now; empty while it flows."""
        return self._feed.error or self._read_error

    # ---- following

    async def run(self) -> None:
        """Open the log at its end and follow it until cancelled, through lost links."""
        try:
            await self._feed.run()
        finally:
            await self.close()

    async def close(self) -> None:
        """End what is still being read, and let go of what was kept."""
        reads = list(self._reads.values())
        for task in reads:
            task.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
        if self._spool is not None:
            self._spool.close()

    def _take(self, piece: LogData | LogEvent) -> None:
        if isinstance(piece, LogData):
            self._take_data(piece)
        elif piece.kind in MARKS:
            self._pending_mark = piece.kind
        elif piece.kind in STATES:
            self.state = piece.kind
        self.changed.set()

    def _take_data(self, piece: LogData) -> None:
        text, inode, offset = self.text, piece.inode, piece.offset
        mark, self._pending_mark = self._pending_mark, ""
        if not text.segments:
            text.begin(inode, offset)
        elif mark or (inode, offset) != (self._inode, self._offset):
            mark = mark or ("rotated" if inode != self._inode else "lost")
            text.end_segment(MARKS[mark], gone=mark != "rotated" and inode == self._inode)
            # A writer that goes on where it was leaves a hole in a file that was emptied.
            text.begin(inode, offset, start=offset if mark == "truncated" else 0)
        text.append(piece.data)
        if self._spool is not None:
            self._spool.add(offset, piece.data)
        self._inode, self._offset = inode, offset + len(piece.data)
        self.state = "open"

    # ---- without following

    async def open_end(self) -> None:
        """Open the log as it is now, without following it; `run` goes on from there.

        Raises:
            UsageError: There is no such file.
            AgentError: It can't be read.
        """
        if self.place.kind is not LogKind.FILE:
            await self._feed.catch_up()
            return
        path = self.place.path
        answer = await self._host.request(
            "files.stat", {"path": path}, asked_by=self._asked_by, what=f"look at {path}"
        )
        facts = answer if isinstance(answer, dict) else {}
        if facts.get("missing"):
            raise UsageError(f"{self._host.name} has no file {path}")
        self._inode, self._offset = _number(facts, "inode"), _number(facts, "size")
        self.text.begin(self._inode, self._offset)
        self._feed.resume_at(self._inode, self._offset)
        self.state = "open"

    # ---- reading

    async def fetch(self, missing: Missing) -> None:
        """Read what is missing; what is gone for good is noted as gone.

        Raises:
            RoomError: There is no link, or the host can't read it.
        """
        if not missing.inode:
            self.text.forget(missing)
            return
        key = (missing.segment, missing.block, missing.size)
        task = self._reads.get(key)
        if task is None:
            task = asyncio.create_task(self._read(missing), name=f"read {self.place.words}")
            self._reads[key] = task
            task.add_done_callback(lambda _: self._reads.pop(key, None))
        try:
            await asyncio.shield(task)
        except RoomError as error:
            self._read_error = str(error)
            raise
        self._read_error = ""

    async def _read(self, missing: Missing) -> None:
        data = await (self._read_file(missing) if self._spool is None else self._read_kept(missing))
        if data is None:
            self.text.forget(missing)
        else:
            self.text.put(missing, data)

    async def _read_kept(self, missing: Missing) -> bytes | None:
        """Of what a command printed, the newest is kept; nothing from before it was read anew."""
        if self._spool is None or missing.inode != self._inode:
            return None
        return await asyncio.to_thread(self._spool.read, missing.offset, missing.size)

    async def _read_file(self, missing: Missing) -> bytes | None:
        path = self.place.path
        params = {
            "path": path, "offset": missing.offset, "size": missing.size, "inode": missing.inode,
        }  # fmt: skip
        try:
            answer = await self._host.request(
                "files.read", params, asked_by=self._asked_by, what=f"read {path}", timeout_s=30.0
            )
        except AgentError as error:
            if "replaced" not in str(error):
                raise
            return None
        piece = str(answer.get("z", "")) if isinstance(answer, dict) else ""
        return await asyncio.to_thread(unpack, piece)

    async def settle(self, look: Callable[[], T | Missing]) -> T:
        """Do a look, and read what it misses, until it misses nothing."""
        while isinstance(found := look(), Missing):
            await self.fetch(found)
        return found

    # ---- looking through it

    async def scan(
        self,
        query: Query,
        offset: int,
        *,
        back: bool,
        on_item: Callable[[Item], bool | Awaitable[bool]],
        on_progress: Callable[[int], None] = lambda _: None,
        until: int | None = None,
    ) -> bool:
        """Look through the log from a line's start, in slices, until `on_item` says False.

        Args:
            query: What is wanted.
            offset: Where to begin; with `back`, the line before it comes first.
            back: Towards the beginning.
            on_item: Gets each wanted item.
            on_progress: Gets the place reached, after each slice.
            until: Stop there.

        Returns:
            Whether the end (or `until`) was reached.

        Raises:
            RoomError: It can't be read on.
            PatternTooSlow: See `Pattern`.
        """
        text = self.text
        until = (text.start if back else text.end) if until is None else until
        while (offset > until) if back else (offset < until):
            look = partial(text.chunk, offset, SLICE_BYTES * 4, back=back)
            chunk = await self.settle(look)
            if chunk is None:
                return True
            begin, data = chunk
            found = [] if data else [self._mark_at(begin)]
            spent_s = time.perf_counter()
            for start, raw in each_line(data, begin):
                if query.wants_raw(raw, start):
                    item = text.item_at(start)
                    if isinstance(item, Item):
                        found.append(item)
                if time.perf_counter() - spent_s > SLICE_S:
                    await asyncio.sleep(0)
                    spent_s = time.perf_counter()
            for item in reversed(found) if back else found:
                answer = on_item(item)
                if not (answer if isinstance(answer, bool) else await answer):
                    return False
            offset = begin if back else begin + max(len(data), 1)
            on_progress(offset)
            await asyncio.sleep(0)
        return True

    def _mark_at(self, offset: int) -> Item:
        return Item(offset, 1, mark=self.text.segments[self.text.segment_at(offset)].mark)

    async def scan_complete(
        self, query: Query, offset: int, on_item: Callable[[Item], bool]
    ) -> int:
        """Look through what has come, up to the last line that is over.

        Returns:
            Where to go on.
        """
        text = self.text
        until = await self.settle(partial(text.line_start, text.end))
        if until > offset:
            await self.scan(query, offset, back=False, on_item=on_item, until=until)
            return until
        return offset

    async def phase_around(self, begins: Query, offset: int) -> tuple[int, int | None]:
        """Where the phase of a start begins that a place lies in, and where the next one does.

        Args:
            begins: Wants the lines that begin a phase.
            offset: Where the line that is asked for ends.

        Raises:
            RoomError: It can't be read.
        """
        found: list[int] = []

        def note(item: Item) -> bool:
            if item.line is not None:
                found.append(item.offset)
            return item.line is None

        await self.scan(begins, offset, back=True, on_item=note)
        begin = found.pop() if found else self.text.start
        await self.scan(begins, offset, back=False, on_item=note)
        return begin, found.pop() if found else None

    async def find_time(self, search: TimeSearch) -> int:
        """The first line at or after a moment.

        Raises:
            UsageError: See `TimeSearch.step`.
            RoomError: It can't be read.
        """
        while True:
            found = search.step()
            if isinstance(found, int):
                return found
            if found is not None:
                await self.fetch(found)
            await asyncio.sleep(0)

    async def last(self, query: Query, count: int, *, start: int, end: int) -> list[Item]:
        """The newest `count` wanted items between two starts of lines."""
        found: list[Item] = []

        def take(item: Item) -> bool:
            found.append(item)
            return len(found) < count

        if count:
            await self.scan(query, end, back=True, on_item=take, until=start)
        return [item for item in reversed(found) if item.offset >= start]


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) and value >= 0 else 0
