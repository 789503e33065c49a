"""Follows the log of a run, wherever it is kept, and hands on its bytes in order. The one follower.

A file is followed by place (inode, offset, the bytes before it), so a lost link loses and doubles
nothing. What a command prints is followed from its beginning; after a lost link the part that was
seen already is passed over by counting bytes, and what stands at the seam must be what stood there.

The host waits while nobody takes what it sent, and what is taken is handed on in slices between
which the event loop gets its turn: neither a slow link nor a slow sink piles anything up.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from backends.errors import RoomError
from backends.servers.host import Host, run_command, unpack
from backends.servers.launchers.base import LogKind, LogPlace
from backends.servers.screenlog import ANCHOR_LINES, finished, last_line, new_lines

RETRY_S: Final = 1.0
TAIL_BYTES: Final = 64
SLICE_BYTES: Final = 16 * 1024
SLICE_LINES: Final = 200
"""A line costs something however short it is: reading and judging one takes up to 20 us."""
SLICE_S: Final = 0.005
"""Most work of a sink between two turns of the event loop, beyond one slice."""
QUIET_S: Final = 5.0
"""A command that prints nothing for so long has printed what there was."""
SMALL_PIECE: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class LogData:
    """Bytes of the log, in order.

    Attributes:
        offset: Where they begin in their file, or in what the command printed.
        data: They themselves, at most `SLICE_BYTES`.
        inode: Which file they are of; of a command, how often it was read anew, from 1.
    """

    offset: int
    data: bytes
    inode: int = 0


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Something happened to the log.

    Attributes:
        kind: Of a file `missing`, `resumed`, `rotated`, `truncated`, `deleted`, `lost`; of a
            command `restarted` (it is read from its beginning again), `ended`; of any `waiting`
            (nothing comes, `LogFeed.error` says why).
    """

    kind: str


LogSink = Callable[[LogData | LogEvent], None]


class LogFeed:
    """One follower of one log; its owner runs and cancels `run`.

    Args:
        host: Where the log is.
        place: The log.
        sink: Gets every piece and event, on the event loop.
        from_end_bytes: Begin that many bytes before the end of a file; None: at the beginning.
        asked_by: Who asks, for the journal.
    """

    def __init__(
        self, host: Host, place: LogPlace, sink: LogSink, *, from_end_bytes: int | None = None,
        asked_by: str = "log",
    ) -> None:  # fmt: skip
        self._host = host
        self._place = place
        self._sink = sink
        self._asked_by = asked_by
        self._offset = 0 if from_end_bytes is None else -from_end_bytes
        self._inode: int | None = None
        self._tail = b""
        if place.kind is not LogKind.FILE:
            self._inode, self._offset = 1, 0
        self._told: list[str] = []
        self._screen_end: str | None = None
        self.error = ""
        """Why nothing comes right now; empty while it flows."""

    def resume_at(self, inode: int, offset: int) -> None:
        """Go on in a file from there."""
        self._inode, self._offset, self._tail = inode, offset, b""

    async def run(self) -> None:
        """Follow until cancelled, through lost links; or until the command ends that prints it."""
        while True:
            try:
                match self._place.kind:
                    case LogKind.FILE:
                        await self._follow_file()
                    case LogKind.SCREEN:
                        await self._capture()
                    case LogKind.COMMAND:
                        if await self._follow_command(self._place.argv):
                            return
                        continue
            except RoomError as error:
                self._wait_for(str(error))
            await asyncio.sleep(RETRY_S)

    async def catch_up(self) -> None:
        """Hand on what a command has to print by now, without following it; `run` goes on there.

        Raises:
            RoomError: The host is out of reach, or the command could not be run.
        """
        if self._place.kind is LogKind.SCREEN:
            for _ in range(2):  # the last line counts once it stands still
                await self._capture()
        elif self._place.kind is LogKind.COMMAND:
            while not await self._follow_command(self._place.argv_once):
                pass

    # ---- a file

    async def _follow_file(self) -> None:
        params: dict[str, object] = {
            "path": self._place.path,
            "offset": self._offset,
            "least": self._place.begins_at,
        }
        if self._inode is not None:
            params.update(inode=self._inode, tail=base64.b64encode(self._tail).decode())
        pieces = self._host.stream(
            "files.follow", params, asked_by=self._asked_by, what=f"follow {self._place.path}"
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
                offset, inode = _number(piece, "o"), _number(piece, "i")
                if (offset, inode) != (self._offset, self._inode):
                    self._offset, self._inode, self._tail = offset, inode, b""
                await self._hand_on(data)

    # ---- what a command prints

    async def _follow_command(self, argv: tuple[str, ...]) -> bool:
        """Whether the command has ended; False: it must be read from its beginning again."""
        pieces = self._host.stream(
            "commands.follow", {"argv": list(argv)}, asked_by=self._asked_by,
            what=f"follow with {argv[0]}",
        )  # fmt: skip
        left, seam = self._offset, b""
        async with contextlib.aclosing(pieces):
            while True:
                try:
                    async with asyncio.timeout(QUIET_S if left else None):
                        piece = await anext(pieces, None)
                except TimeoutError:
                    return self._restart()  # it prints less than was seen
                self.error = ""
                if piece is None or (isinstance(piece, dict) and "code" in piece):
                    if left:
                        return self._restart()
                    self._end(piece, argv[0])
                    return True
                if not isinstance(piece, dict) or "z" not in piece:
                    continue
                data = await _unpack(str(piece["z"]))
                if left:
                    passed, data = data[:left], data[left:]
                    left -= len(passed)
                    seam = (seam + passed)[-TAIL_BYTES:]
                    if not left and seam != self._tail:
                        return self._restart()
                await self._hand_on(data)

    def _restart(self) -> bool:
        self._inode = (self._inode or 0) + 1
        self._offset, self._tail = 0, b""
        self._sink(LogEvent("restarted"))
        return False

    def _end(self, piece: object, program: str) -> None:
        code = piece.get("code") if isinstance(piece, dict) else None
        if code:
            said = self._tail.decode("utf-8", "replace").strip().rpartition("\n")[2]
            self.error = f"{program} ended with exit status {code}: {said}"
        self._sink(LogEvent("ended"))

    # ---- a screen

    async def _capture(self) -> None:
        """Look at a screen once, and hand on the lines that are new since the last look."""
        argv = list(self._place.argv)
        told = await run_command(self._host, argv, asked_by=self._asked_by, what="read a screen")
        if not told.ok:
            self._wait_for(told.words)
            return
        self.error = ""
        lines = new_lines(self._told, finished(told.out, self._screen_end))
        self._screen_end = last_line(told.out)
        if lines:
            self._told = [*self._told, *lines][-ANCHOR_LINES:]
            await self._hand_on("".join(f"{line}\n" for line in lines).encode())

    # ---- common

    def _wait_for(self, why: str) -> None:
        self.error = why
        self._sink(LogEvent("waiting"))

    async def _hand_on(self, data: bytes) -> None:
        began_s = time.perf_counter()
        for index, piece in enumerate(slices(data)):
            if index and time.perf_counter() - began_s > SLICE_S:
                await asyncio.sleep(0)
                began_s = time.perf_counter()
            offset = self._offset
            self._offset += len(piece)
            self._tail = (self._tail + piece)[-TAIL_BYTES:]
            self._sink(LogData(offset, piece, self._inode or 0))


def slices(data: bytes) -> Iterator[bytes]:
    """Cut data into pieces of at most `SLICE_BYTES` bytes and `SLICE_LINES` line feeds."""
    at = 0
    while at < len(data):
        end = at + SLICE_BYTES
        if data.count(b"\n", at, end) > SLICE_LINES:
            end = at
            for _ in range(SLICE_LINES):
                end = data.index(b"\n", end) + 1
        yield data[at:end]
        at = end


def _number(fields: Mapping[object, object], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) and value >= 0 else 0


async def _unpack(piece: str) -> bytes:
    """Small pieces at once, large ones off the loop."""
    if len(piece) < SMALL_PIECE:
        return unpack(piece)
    return await asyncio.to_thread(unpack, piece)
