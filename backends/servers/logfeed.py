"""Follows the log of a run, wherever it is kept, and hands on its bytes in order.

A file is followed by place (inode, offset, the bytes before it), so a lost link loses and doubles
nothing. What a command prints is followed from its beginning; after a lost link the part that was
seen already is passed over by counting bytes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from backends.errors import RoomError
from backends.servers.host import Host, run_command, unpack
from backends.servers.launchers.base import LogKind, LogPlace
from backends.servers.screenlog import ANCHOR_LINES, finished, last_line, new_lines

RETRY_S: Final = 1.0
TAIL_BYTES: Final = 64
ASKED_BY: Final = "log"


@dataclass(frozen=True, slots=True)
class LogData:
    """Bytes of the log, in order."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Something happened to the log: `rotated`, `truncated`, `deleted`, `missing`, `lost`, ..."""

    kind: str


LogSink = Callable[[LogData | LogEvent], None]


class LogFeed:
    """One follower of one log; its owner runs and cancels `run`.

    Args:
        host: Where the log is.
        place: The log.
        sink: Gets every piece and event, on the event loop.
        from_end_bytes: Begin that many bytes before the end; None: at the beginning.
    """

    def __init__(
        self, host: Host, place: LogPlace, sink: LogSink, *, from_end_bytes: int | None = None
    ) -> None:
        self._host = host
        self._place = place
        self._sink = sink
        self._offset = 0 if from_end_bytes is None else -from_end_bytes
        self._inode: int | None = None
        self._tail = b""
        self._seen = 0
        self._told: list[str] = []
        self._screen_end: str | None = None
        self.error = ""
        """Why nothing comes right now; empty while it flows."""

    async def run(self) -> None:
        """Follow until cancelled, through lost links."""
        while True:
            try:
                if self._place.kind is LogKind.FILE:
                    await self._follow_file()
                elif self._place.kind is LogKind.SCREEN:
                    await self._capture()
                else:
                    await self._follow_command()
                    return
            except RoomError as error:
                self.error = str(error)
            await asyncio.sleep(RETRY_S)

    async def _follow_file(self) -> None:
        params: dict[str, object] = {
            "path": self._place.path,
            "offset": self._offset,
            "least": self._place.begins_at,
        }
        if self._inode is not None:
            params.update(inode=self._inode, tail=base64.b64encode(self._tail).decode())
        pieces = self._host.stream(
            "files.follow", params, asked_by=ASKED_BY, what=f"follow {self._place.path}"
        )
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                self.error = ""
                if not isinstance(piece, dict):
                    continue
                if "event" in piece:
                    self._sink(LogEvent(str(piece["event"])[:40]))
                    continue
                data = await _unpack(str(piece.get("z", "")))
                offset = int(piece.get("o", 0))
                self._inode = int(piece.get("i", 0))
                if offset != self._offset:
                    self._tail = b""
                self._offset = offset + len(data)
                self._tail = (self._tail + data)[-TAIL_BYTES:]
                self._sink(LogData(offset, data))

    async def _capture(self) -> None:
        """Look at a screen once, and hand on the lines that are new since the last look."""
        argv = list(self._place.argv)
        told = await run_command(self._host, argv, asked_by=ASKED_BY, what="read a screen")
        if not told.ok:
            self.error = told.words
            return
        self.error = ""
        lines = new_lines(self._told, finished(told.out, self._screen_end))
        self._screen_end = last_line(told.out)
        if lines:
            self._told = [*self._told, *lines][-ANCHOR_LINES:]
            data = "".join(f"{line}\n" for line in lines).encode()
            self._sink(LogData(self._seen, data))
            self._seen += len(data)

    async def _follow_command(self) -> None:
        passed = 0
        pieces = self._host.stream(
            "commands.follow",
            {"argv": list(self._place.argv)},
            asked_by=ASKED_BY,
            what=f"follow with {self._place.argv[0]}",
        )
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                self.error = ""
                if not isinstance(piece, dict) or "z" not in piece:
                    continue
                data = await _unpack(str(piece["z"]))
                new = data[max(0, self._seen - passed) :] if passed < self._seen else data
                passed += len(data)
                if new:
                    self._sink(LogData(self._seen, new))
                    self._seen += len(new)


async def _unpack(piece: str) -> bytes:
    """Small pieces at once, large ones off the loop."""
    if len(piece) < 32768:
        return unpack(piece)
    return await asyncio.to_thread(unpack, piece)
