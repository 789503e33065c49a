"""A program on a host that the agent starts, where sshd allows no session beside the agent's."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Sequence
from typing import Final, Self

from backends.agent.remote.files import pack
from backends.errors import AgentError, RoomError
from backends.servers.host import Host, unpack
from backends.text import clean_lines

START_S: Final = 20.0
SAY_S: Final = 30.0
END_S: Final = 6.0
PIECE_BYTES: Final = 256 * 1024


class AgentChannel:
    """A `Channel` over the agent's own session: its output is a stream, its input are requests."""

    def __init__(
        self, host: Host, name: str, pieces: AsyncGenerator[object], *, asked_by: str, what: str
    ) -> None:
        self._host = host
        self._name = name
        self._pieces = pieces
        self._asked_by = asked_by
        self._what = what
        self._rest = b""
        self._over = False
        self._code: int | None = None
        self._words = ""

    @classmethod
    async def start(cls, host: Host, argv: Sequence[str], *, asked_by: str, what: str) -> Self:
        """Start the program.

        Raises:
            RoomError: The agent cannot be asked, or the program not be executed.
        """
        name = secrets.token_hex(8)
        params = {"argv": list(argv), "name": name}
        pieces = host.stream(
            "commands.talk", params, asked_by=asked_by, what=what, timeout_s=START_S
        )
        channel = cls(host, name, pieces, asked_by=asked_by, what=what)
        try:
            async with asyncio.timeout(START_S):
                await anext(pieces)
        except (StopAsyncIteration, TimeoutError) as error:
            await pieces.aclose()
            raise AgentError(f"{host.name} does not start a program", what) from error
        return channel

    async def read(self, size: int = 65536) -> bytes:
        """The next bytes of standard output, empty at the end. Raises RoomError."""
        while not self._rest and not self._over:
            self._take(await anext(self._pieces, None))
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def _take(self, piece: object) -> None:
        fields = piece if isinstance(piece, dict) else {}
        packed = fields.get("z")
        if isinstance(packed, str):
            self._rest += unpack(packed)
            return
        self._over = True
        code, words = fields.get("code"), fields.get("err")
        self._code = code if isinstance(code, int) else None
        if isinstance(words, str):
            self._words = "\n".join(clean_lines(words, max_lines=20)).strip()

    async def write(self, data: bytes) -> None:
        """Send to standard input, and wait until it was taken. Raises RoomError."""
        for at in range(0, len(data), PIECE_BYTES):
            await self._say(z=pack(data[at : at + PIECE_BYTES]))

    async def _say(self, **fields: object) -> None:
        await self._host.request(
            "commands.say", {"name": self._name, **fields},
            asked_by=self._asked_by, what=f"{self._what}: its input", timeout_s=SAY_S,
        )  # fmt: skip

    async def stderr_tail(self) -> str:
        """What it wrote to standard error last; known when it has ended."""
        return self._words

    async def wait(self, timeout_s: float) -> int | None:
        """Its exit status, once its output has been read to the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._over:
                    self._take(await anext(self._pieces, None))
        return self._code

    async def close(self) -> None:
        """End of its input; what then stays is killed."""
        try:
            with contextlib.suppress(RoomError, TimeoutError, RuntimeError):
                async with asyncio.timeout(END_S):
                    if not self._over:
                        await self._say(end=True)
                    while not self._over:
                        self._take(await anext(self._pieces, None))
                        self._rest = b""
        finally:
            with contextlib.suppress(RoomError, RuntimeError):
                await self._pieces.aclose()
