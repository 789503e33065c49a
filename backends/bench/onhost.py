"""Load from the server's own host: the generator beside it, over the room's own connection.

A measured stream does not travel through SSH: a forwarded port adds 35 ms to a first token at 64
streams and passes half the load at 256. Only records and progress do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from backends.bench.endpoint import Endpoint, Fetch, Reply, Unreachable
from backends.bench.job import argv, payload
from backends.bench.process import START_S, GeneratorFailed, whole_lines
from backends.errors import NoSession, RoomError, UsageError
from backends.link.base import Channel

ASKED_BY: Final = "gpuroom bench"

SECOND_SESSION: Final = (
    "the load generator needs a session of its own beside the agent's: set MaxSessions to 2 or "
    "more in sshd_config there, or send the load from here: --from jumpbox, or --from tunnel"
)

Opener = Callable[[Sequence[str]], Awaitable[Channel]]


class Asker(Protocol):
    """What can ask the agent on the host: a session of the room."""

    async def request(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        asked_by: str,
        what: str,
        changes_host: bool = False,
        timeout_s: float = 10.0,
    ) -> object:
        """The agent's answer."""
        ...


class HostGenerator:
    """The generator on the host, over a channel of the connection that is there already.

    Nothing is installed and nothing is written there: it arrives on standard input, and the end of
    that input is its own end.
    """

    where = "host"

    def __init__(
        self,
        opener: Opener,
        python: str = "python3",
        program: Callable[[], bytes] = payload,
    ) -> None:
        self._open = opener
        self._python = python
        self._program = program
        self._channel: Channel | None = None
        self._ended = False

    async def start(self, job: bytes) -> None:
        """Send it and its job. Raises GeneratorFailed or LinkError."""
        try:
            self._channel = await self._open(argv(self._python, self._program()))
        except NoSession as error:
            raise NoSession(error.title, error.detail, SECOND_SESSION) from error
        try:
            async with asyncio.timeout(START_S):
                await self._channel.write(self._program())
                await self._channel.write(job)
        except TimeoutError as error:
            words = await self.end()
            raise GeneratorFailed(
                "the load generator on the host does not take its job", words
            ) from error

    async def lines(self) -> AsyncIterator[bytes]:
        """Batches of whole lines."""
        channel = self._channel
        assert channel is not None
        async for batch in whole_lines(channel.read):
            yield batch
        self._ended = True

    async def command(self, line: bytes) -> None:
        """Send one more line; one that has ended needs none."""
        if self._channel is not None:
            with contextlib.suppress(RoomError, OSError):
                await self._channel.write(line)

    async def end(self) -> str:
        """End its input; what it wrote to standard error."""
        channel, self._channel = self._channel, None
        if channel is None:
            return ""
        words = await channel.stderr_tail()
        await channel.close()
        return words.strip()


def through(session: Asker, endpoint: Endpoint) -> Fetch:
    """Requests made by the agent, on the host's own loopback. Raises UsageError for TLS."""
    if endpoint.tls:
        raise UsageError(
            "a server under TLS is measured from here, not from its host",
            hint="leave the host out: gpuroom bench --url https://...",
        )

    async def fetch(
        method: str, path: str, body: object = None, *, timeout_s: float = 10.0
    ) -> Reply:
        params: dict[str, object] = {
            "address": endpoint.host,
            "port": endpoint.port,
            "path": endpoint.base_path + path,
            "method": method,
            "timeout_s": timeout_s,
        }
        if endpoint.headers:
            params["headers"] = dict(endpoint.headers)
        if body is not None:
            params["body"] = body
        answer = await session.request(
            "http.ask",
            params,
            asked_by=ASKED_BY,
            what=f"{method} {path}",
            timeout_s=timeout_s + 5.0,
        )
        fields = answer if isinstance(answer, dict) else {}
        status, text = fields.get("status"), fields.get("body")
        if not isinstance(status, int):
            raise Unreachable(
                f"no answer from {endpoint.url} on the host",
                str(fields.get("error") or "no status"),
                "is the server up there, and is this its port?",
            )
        return Reply(status, str(text or "").encode(), {})

    return fetch
