"""The smallest transport there is: programs as children of the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence


class SubprocessTransport:
    kind = "local"

    def __init__(self) -> None:
        self.channels: list[SubprocessChannel] = []

    async def connect(self) -> None:
        pass

    async def open(self, argv: Sequence[str]) -> SubprocessChannel:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        channel = SubprocessChannel(process)
        self.channels.append(channel)
        return channel

    async def closed(self) -> str:
        return await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        for channel in self.channels:
            await channel.close()


class SubprocessChannel:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._stderr = b""
        self._reader = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(4096):
            self._stderr = (self._stderr + data)[-8192:]

    async def read(self, size: int = 65536) -> bytes:
        assert self.process.stdout is not None
        return await self.process.stdout.read(size)

    async def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await self.process.stdin.drain()

    async def stderr_tail(self) -> str:
        return self._stderr.decode("utf-8", "replace")

    async def wait(self, timeout_s: float) -> int | None:
        try:
            async with asyncio.timeout(timeout_s):
                status = await self.process.wait()
                await self._reader
                return status
        except TimeoutError:
            return None

    async def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        if await self.wait(5.0) is None:
            self.process.kill()
            await self.wait(5.0)
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self.process._transport.close()  # type: ignore[attr-defined]
