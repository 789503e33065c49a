"""A log of a host, of any size, as one looks at it: followed, read where it is needed, searched.

Memory is bounded whatever the size: blocks come by `files.read` when somebody looks at them, new
bytes come by `files.follow`, which waits while they are not taken. Bytes, marks and lines are
`logtext`'s business, which reads nothing itself.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol, TypeVar, runtime_checkable

from backends.errors import AgentError, RoomError, UsageError
from backends.servers.logquery import Query
from backends.servers.logtext import Item, LogText, Missing, each_line
from backends.servers.logtimes import TimeSearch
from backends.servers.logwindow import SLICE_BYTES

T = TypeVar("T")
TAIL_BYTES: Final = 64
OPEN_BYTES: Final = 128 * 1024
RETRY_S: Final = 1.0
SLICE_S: Final = 0.006
"""Most work between two turns of the event loop."""
MAX_PIECE_BYTES: Final = 16 * 1024 * 1024
MARKS: Final = {
    "rotated": "rotated: a new file begins",
    "truncated": "cut: the file was emptied and begins anew",
    "lost": "lines may be missing here: the file was replaced while there was no link",
}


@runtime_checkable
class LogHost(Protocol):
    """What is needed of a host; `backends.session.HostSession` fits."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    async def request(
        self, method: str, params: Mapping[str, object] | None = None, *, asked_by: str,
        what: str, changes_host: bool = False, timeout_s: float = 10.0,
    ) -> object:  # fmt: skip
        """Ask the agent."""
        ...

    def stream(
        self, method: str, params: Mapping[str, object] | None = None, *, asked_by: str,
        what: str, changes_host: bool = False, timeout_s: float = 10.0,
    ) -> AsyncGenerator[object, None]:  # fmt: skip
        """Ask for something that comes in pieces."""
        ...


class LogStore:
    """One log file of one host.

    Args:
        host: Where it lies.
        path: The file.
        asked_by: Who opens it, for the journal.
        text: Where its bytes go.

    Attributes:
        error: Why nothing comes right now; empty while it flows.
        state: `opening`, `missing`, `open` or `deleted`.
    """

    def __init__(
        self, host: LogHost, path: str, *, asked_by: str = "log", text: LogText | None = None
    ) -> None:
        self._host = host
        self.path = path
        self._asked_by = asked_by
        self.text = text or LogText()
        self.error = ""
        self.state = "opening"
        self.changed = asyncio.Event()
        self._inode: int | None = None
        self._offset = 0
        self._tail = b""
        self._pending_mark = ""
        self._reads: dict[tuple[int, int, int], asyncio.Task[None]] = {}

    # ---- following

    async def run(self) -> None:
        """Open the log at its end and follow it until cancelled, through lost links."""
        try:
            while True:
                try:
                    await self._follow()
                except RoomError as error:
                    self.error = str(error)
                    self._tell()
                await asyncio.sleep(RETRY_S)
        finally:
            for task in self._reads.values():
                task.cancel()

    async def _follow(self) -> None:
        params: dict[str, object] = {"path": self.path, "offset": -OPEN_BYTES}
        if self._inode is not None:
            tail = base64.b64encode(self._tail).decode()
            params |= {"offset": self._offset, "inode": self._inode, "tail": tail}
        pieces = self._host.stream(
            "files.follow", params, asked_by=self._asked_by, what=f"follow {self.path}"
        )
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                self.error = ""
                if isinstance(piece, dict):
                    await self._take(piece)

    async def _take(self, piece: Mapping[str, object]) -> None:
        if "event" in piece:
            self._take_event(str(piece["event"]))
        else:
            data = await _unpack(str(piece.get("z", "")))
            self._take_data(_number(piece, "o"), _number(piece, "i"), data)
        self._tell()

    def _take_event(self, kind: str) -> None:
        if kind in MARKS:
            self._pending_mark = kind
        elif kind in ("missing", "deleted"):
            self.state = kind

    def _take_data(self, offset: int, inode: int, data: bytes) -> None:
        text = self.text
        new = inode != self._inode or offset != self._offset
        mark, self._pending_mark = self._pending_mark, ""
        if not text.segments:
            text.begin(inode, offset)
        elif new or mark:
            mark = mark or ("rotated" if inode != self._inode else "lost")
            text.end_segment(MARKS[mark], gone=mark != "rotated" and inode == self._inode)
            text.begin(inode, offset)
        text.append(data)
        self._tail = data[-TAIL_BYTES:] if new else (self._tail + data)[-TAIL_BYTES:]
        self._inode, self._offset = inode, offset + len(data)
        self.state = "open"

    def _tell(self) -> None:
        self.changed.set()

    # ---- without following

    async def open_end(self, *, whole_lines: bool = False) -> None:
        """Open the log as it is now, without following it.

        Args:
            whole_lines: Leave out a last line that has no line feed yet.

        Raises:
            UsageError: There is no such file.
            AgentError: It can't be read.
        """
        answer = await self._host.request(
            "files.stat", {"path": self.path}, asked_by=self._asked_by, what=f"look at {self.path}"
        )
        facts = answer if isinstance(answer, dict) else {}
        if facts.get("missing"):
            raise UsageError(f"{self._host.name} has no file {self.path}")
        self.text.begin(_number(facts, "inode"), _number(facts, "size"))
        if whole_lines:
            end = await self.settle(partial(self.text.line_start, self.text.end))
            self.text.segments[-1].size = end
        self.text.end_segment(" ")
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
            task = asyncio.create_task(self._read(missing), name=f"read {self.path}")
            self._reads[key] = task
            task.add_done_callback(lambda _: self._reads.pop(key, None))
        await asyncio.shield(task)

    async def _read(self, missing: Missing) -> None:
        params = {
            "path": self.path, "offset": missing.offset, "size": missing.size,
            "inode": missing.inode,
        }  # fmt: skip
        try:
            answer = await self._host.request(
                "files.read", params, asked_by=self._asked_by, what=f"read {self.path}",
                timeout_s=30.0,
            )  # fmt: skip
        except AgentError as error:
            if "replaced" not in str(error):
                raise
            self.text.forget(missing)
            return
        data = await _unpack(str(answer.get("z", "")) if isinstance(answer, dict) else "")
        self.text.put(missing, data)

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

    async def last(self, query: Query, count: int, *, start: int | None = None) -> list[Item]:
        """The newest `count` wanted items, none of them before `start`."""
        start = self.text.start if start is None else start
        found: list[Item] = []

        def take(item: Item) -> bool:
            found.append(item)
            return len(found) < count

        if count:
            await self.scan(query, self.text.end, back=True, on_item=take, until=start)
        return [item for item in reversed(found) if item.offset >= start]

    def resume_after(self, other: LogStore) -> None:
        """Follow from where another one, that was opened by `open_end`, has its end."""
        segment = other.text.segments[-1]
        self.text.begin(segment.inode, segment.size)
        self._inode, self._offset = segment.inode, segment.size


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) and value >= 0 else 0


async def _unpack(piece: str) -> bytes:
    if len(piece) < 32768:
        return _inflate(piece)
    return await asyncio.to_thread(_inflate, piece)


def _inflate(piece: str) -> bytes:
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(piece), MAX_PIECE_BYTES)
    except (ValueError, zlib.error) as error:
        raise AgentError("a piece of a file came damaged", str(error)) from None
    return data
