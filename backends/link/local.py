"""This machine: programs are started directly, with the same channel as over SSH."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from backends.errors import LinkError
from backends.link.base import Channel
from backends.text import clean

STDERR_BYTES = 8192
EXIT_NOT_ALLOWED, EXIT_NOT_FOUND = 126, 127
"""What a shell answers for a program it can't start; the same here, so callers see one kind."""

_END_S = 0.5


class LocalTransport:
    """The way to this machine. There is nothing to connect, so nothing is lost either."""

    kind = "local"

    def __init__(self) -> None:
        self._channels: set[LocalChannel] = set()
        self._closed = asyncio.Event()

    async def connect(self) -> None:
        """Nothing to do."""
        self._closed.clear()

    async def open(self, argv: Sequence[str]) -> Channel:
        """Start a program in a session of its own, so that Ctrl-C here never reaches it.

        Raises:
            LinkError: The transport is closed, or the system starts no more programs.
        """
        if self._closed.is_set():
            raise LinkError("The way to this machine is closed")
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                limit=1 << 18,
            )
        except FileNotFoundError as error:
            return NeverStarted(f"{argv[0]}: {error.strerror}", EXIT_NOT_FOUND)
        except PermissionError as error:
            return NeverStarted(f"{argv[0]}: {error.strerror}", EXIT_NOT_ALLOWED)
        except OSError as error:
            raise LinkError(f"{argv[0]} could not be started here", str(error)) from error
        channel = LocalChannel(process)
        self._channels.add(channel)
        return channel

    async def closed(self) -> str:
        """Wait for `close`; this machine does not go away."""
        await self._closed.wait()
        return "closed"

    async def close(self) -> None:
        """End every program that was started here."""
        self._closed.set()
        channels, self._channels = self._channels, set()
        await asyncio.gather(*(channel.close() for channel in channels))


class LocalChannel:
    """A program on this machine."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._stderr = bytearray()
        self._drain = asyncio.create_task(self._keep_stderr(), name="local-stderr")

    async def _keep_stderr(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(65536):
            self._stderr += chunk
            del self._stderr[:-STDERR_BYTES]

    async def read(self, size: int = 65536) -> bytes:
        """The next bytes of standard output; empty at the end."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(size)

    async def write(self, data: bytes) -> None:
        """Send to standard input.

        Raises:
            LinkError: The program reads no more.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise LinkError("The program on this machine has ended", str(error)) from error

    async def stderr_tail(self) -> str:
        """The last 8 kB of standard error."""
        return tail_text(self._stderr)

    async def wait(self, timeout_s: float) -> int | None:
        """Its exit status, or None when it still runs then."""
        try:
            async with asyncio.timeout(timeout_s):
                status = await self._process.wait()
                await self._drain  # its last words are there before its status is told
                return status
        except TimeoutError:
            return self._process.returncode

    async def close(self) -> None:
        """End of input; a program that ignores it is killed."""
        stdin = self._process.stdin
        if stdin is not None:
            stdin.close()
        if await self.wait(_END_S) is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self.wait(_END_S)
        self._drain.cancel()
        await asyncio.gather(self._drain, return_exceptions=True)
        # Not public, but nothing else lets go of pipes that a grandchild still holds.
        self._process._transport.close()  # type: ignore[attr-defined]


class NeverStarted:
    """The channel of a program that does not exist: ended, with the status a shell gives."""

    def __init__(self, why: str, status: int) -> None:
        self._why = why
        self._status = status

    async def read(self, size: int = 65536) -> bytes:
        """Nothing."""
        return b""

    async def write(self, data: bytes) -> None:
        """Nobody reads it.

        Raises:
            LinkError: Always.
        """
        raise LinkError("The program could not be started", clean(self._why))

    async def stderr_tail(self) -> str:
        """Why it was not started."""
        return clean(self._why)

    async def wait(self, timeout_s: float) -> int | None:
        """127 or 126."""
        return self._status

    async def close(self) -> None:
        """Nothing to do."""


def tail_text(data: bytes | bytearray) -> str:
    """The end of a standard error stream as clean text, line feeds kept."""
    text = bytes(data[-STDERR_BYTES:]).decode("utf-8", "replace").rstrip()
    return "\n".join(clean(line.rstrip("\r")) for line in text.split("\n"))
