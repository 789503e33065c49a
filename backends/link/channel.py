"""A program on the far side of an SSH connection, as a byte channel with flow control."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

import asyncssh

from backends.errors import LinkError
from backends.link.local import STDERR_BYTES, tail_text

BUFFER_BYTES = 1 << 20
"""Output held here before the far side is made to wait."""

_END_S = 0.5


class SessionEnds(asyncssh.SSHClientSession[bytes]):
    """What asyncssh calls: collects output, remembers how it ended."""

    def __init__(self) -> None:
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._paused = False
        self._eof = False
        self._news = asyncio.Event()
        self.ended = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.stderr = bytearray()
        self.error: Exception | None = None

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """Called first."""
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Called with output; standard error is kept apart, and only its end."""
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            self.stderr += data
            del self.stderr[:-STDERR_BYTES]
            return
        self._chunks.append(data)
        self._held += len(data)
        if self._held > BUFFER_BYTES and not self._paused and self._channel is not None:
            self._paused = True
            self._channel.pause_reading()
        self._news.set()

    def eof_received(self) -> bool:
        """Called at the end of output; the channel closes once its status has come."""
        self._eof = True
        self._news.set()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the channel is gone, whatever the reason."""
        self.error = exc
        self._eof = True
        self._news.set()
        self.writable.set()
        self.ended.set()

    def pause_writing(self) -> None:
        """Called when the far side takes no more."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Called when it does again."""
        self.writable.set()

    async def take(self, size: int) -> bytes:
        """The next bytes, at most `size`; empty at the end."""
        while not self._chunks:
            if self._eof:
                return b""
            self._news.clear()
            await self._news.wait()
        data = self._chunks.popleft()
        if len(data) > size:
            self._chunks.appendleft(data[size:])
            data = data[:size]
        self._held -= len(data)
        if self._paused and self._held < BUFFER_BYTES // 2 and self._channel is not None:
            self._paused = False
            self._channel.resume_reading()
        return data


class SshChannel:
    """A running program on the host (`backends.link.base.Channel`)."""

    def __init__(
        self, channel: asyncssh.SSHClientChannel[bytes], session: SessionEnds, host: str
    ) -> None:
        self._channel = channel
        self._session = session
        self._host = host

    async def read(self, size: int = 65536) -> bytes:
        """The next bytes of standard output; empty at the end.

        Raises:
            LinkError: The link was lost.
        """
        data = await self._session.take(size)
        if not data and self._session.error is not None:
            raise self._lost()
        return data

    async def write(self, data: bytes) -> None:
        """Send to standard input, waiting while the far side does not take it.

        Raises:
            LinkError: The program or the link is gone.
        """
        await self._session.writable.wait()
        if self._session.ended.is_set() or self._channel.is_closing():
            raise self._lost()
        try:
            self._channel.write(data)
        except OSError as error:
            raise self._lost() from error
        await self._session.writable.wait()

    async def stderr_tail(self) -> str:
        """The last 8 kB of standard error."""
        return tail_text(self._session.stderr)

    async def wait(self, timeout_s: float) -> int | None:
        """The exit status; None where it is not known (still running, or the link was lost)."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._session.ended.wait()
        return self._channel.get_returncode()

    async def close(self) -> None:
        """End of input first, since a root login ignores signals; then drop the channel."""
        with contextlib.suppress(OSError, asyncssh.Error):
            if not self._session.ended.is_set():
                self._channel.write_eof()
                await self.wait(_END_S)
            self._channel.close()
            await self.wait(_END_S)
        if not self._session.ended.is_set():
            self._channel.abort()

    def _lost(self) -> LinkError:
        error = self._session.error
        if error is None:
            return LinkError(f"The program on {self._host} has ended")
        return LinkError(f"The link to {self._host} was lost", str(error))
