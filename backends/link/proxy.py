"""A ProxyCommand: the user's own program that carries the connection."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket

from backends.link.local import STDERR_BYTES, tail_text

_LAST_WORDS_S = 1.0


class ProxyProcess:
    """The running program; its standard error is kept for error messages, not shown."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._stderr = bytearray()
        self._drain = asyncio.create_task(self._keep_stderr(), name="proxy-stderr")

    @classmethod
    async def start(cls, command: str) -> tuple[ProxyProcess, socket.socket]:
        """Start the command and give our end of its standard input and output.

        It is the text of the user's own configuration, with the tokens that ssh_config(5) names
        expanded, and runs as that says: by the user's shell, with `exec` before it.

        Raises:
            OSError: The shell cannot be started.
        """
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                os.environ.get("SHELL") or "/bin/sh",
                "-c",
                f"exec {command}",
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        return cls(process), ours

    async def _keep_stderr(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(65536):
            self._stderr += chunk
            del self._stderr[:-STDERR_BYTES]

    async def last_words(self) -> str:
        """What it said, at most 8 kB; one that is about to end is let finish."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await asyncio.shield(self._drain)
        return tail_text(self._stderr)

    async def close(self) -> None:
        """End it, with whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(0.3):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        self._drain.cancel()
        await asyncio.gather(self._drain, return_exceptions=True)
        # Not public, but nothing else lets go of a pipe that a grandchild still holds.
        self._process._transport.close()  # type: ignore[attr-defined]
