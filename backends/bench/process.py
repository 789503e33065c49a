"""The generator's process: started, fed, read and ended, with a deadline on everything."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol

from backends.bench.job import argv, payload
from backends.errors import RoomError
from backends.text import clean_lines

START_S: Final = 20.0
END_S: Final = 6.0
READ_BYTES: Final = 1 << 18
MAX_LINE_BYTES: Final = 64 << 20
STDERR_BYTES: Final = 16_384


class GeneratorFailed(RoomError):
    """The load generator could not be started, or died."""

    exit_code = 4


class Generator(Protocol):
    """A running generator, wherever it runs: here, or on the server's host by the agent."""

    where: str
    """`host`, `local` or `tunnel`, as results say it."""

    async def start(self, job: bytes) -> None:
        """Start it with a job (one line). Raises GeneratorFailed."""
        ...

    def lines(self) -> AsyncIterator[bytes]:
        """What it writes, in batches of whole lines, until it ends."""
        ...

    async def command(self, line: bytes) -> None:
        """Send one more line."""
        ...

    async def end(self) -> str:
        """Close its input, wait, and if need be kill it; gives what it wrote to stderr."""
        ...


class LocalGenerator:
    """The generator on this machine, run by this Python as it would be by any other."""

    def __init__(
        self,
        python: str = sys.executable,
        where: str = "local",
        program: Callable[[], bytes] = payload,
    ) -> None:
        self.where = where
        self._python = python
        self._program = program
        self._process: asyncio.subprocess.Process | None = None
        self._errors: asyncio.Task[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process, for tests that kill it."""
        return self._process.pid if self._process is not None else None

    async def start(self, job: bytes) -> None:
        """Start it with a job. Raises GeneratorFailed."""
        try:
            process = await asyncio.create_subprocess_exec(
                *argv(self._python, self._program()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # A Ctrl-C is for the control room, which then ends it.
            )
        except OSError as error:
            raise GeneratorFailed("the load generator cannot be started", str(error)) from error
        self._process = process
        assert process.stdin is not None
        assert process.stderr is not None
        self._errors = asyncio.create_task(_tail(process.stderr), name="generator stderr")
        try:
            async with asyncio.timeout(START_S):
                process.stdin.write(self._program())
                process.stdin.write(job)
                await process.stdin.drain()
        except (OSError, TimeoutError) as error:
            words = await self.end()
            raise GeneratorFailed("the load generator does not take its job", words) from error

    async def lines(self) -> AsyncIterator[bytes]:
        """Batches of whole lines."""
        assert self._process is not None
        stdout = self._process.stdout
        assert stdout is not None
        async for batch in whole_lines(stdout.read):
            yield batch

    async def command(self, line: bytes) -> None:
        """Send one more line; one that has ended needs none."""
        process = self._process
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.write(line)
            await process.stdin.drain()

    async def end(self) -> str:
        """Close its input, wait, and kill it if it stays. Safe to call twice."""
        process = self._process
        if process is None:
            return ""
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                # It must be read to its end, or it would wait for its reader.
                if process.stdout is not None:
                    while await process.stdout.read(READ_BYTES):
                        pass
                await process.wait()
        except TimeoutError:
            pass
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if self._errors is None:
            return ""
        try:
            async with asyncio.timeout(1.0):
                data = await self._errors
        except TimeoutError:
            data = b""
        return "\n".join(clean_lines(data.decode("utf-8", "replace"), max_lines=20)).strip()


async def whole_lines(read: Callable[[int], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    """Batches of whole lines of what `read` gives, until it gives nothing."""
    rest = b""
    while data := await read(READ_BYTES):
        end = data.rfind(b"\n")
        if end < 0:
            rest += data
            if len(rest) > MAX_LINE_BYTES:
                raise GeneratorFailed("the load generator wrote a line without an end")
            continue
        yield rest + data[: end + 1]
        rest = data[end + 1 :]


async def _tail(stream: asyncio.StreamReader) -> bytes:
    kept = b""
    while data := await stream.read(4096):
        kept = (kept + data)[-STDERR_BYTES:]
    return kept
