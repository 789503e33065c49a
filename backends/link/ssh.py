"""The way to a host over SSH. asyncssh is imported by the first connect, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from backends.config import SshConfig
from backends.errors import LinkError, NoSession
from backends.link.base import Channel, Forward, Prompter
from backends.link.limiter import Limiter
from backends.link.quoting import command_line
from backends.link.target import SshTarget
from backends.link.threads import in_thread

if TYPE_CHECKING:
    import asyncssh

    from backends.link.route import Route

_OPEN_S: Final = 10.0
_OPEN_AGAIN_S: Final = (0.1, 0.3, 0.6, 1.0)
"""A server that allows one session needs a moment to notice that the last one has ended."""


class SshForward:
    """A forwarded port."""

    def __init__(self, listener: asyncssh.SSHListener) -> None:
        self._listener = listener
        self.port = listener.get_port()

    async def close(self) -> None:
        """End it. Never raises."""
        self._listener.close()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_OPEN_S):
                await self._listener.wait_closed()


class SshTransport:
    """One connection to one host.

    Args:
        host: What the room calls it, for messages.
        target: Where it is.
        settings: Deadlines, keepalive, compression, configuration file.
        prompter: Whoever can be asked for a secret or about a host key.
        limiter: Shared by all hosts of a room.
    """

    kind = "ssh"

    def __init__(
        self,
        host: str,
        target: SshTarget,
        settings: SshConfig,
        prompter: Prompter,
        limiter: Limiter | None = None,
    ) -> None:
        self._host = host
        self._target = target
        self._settings = settings
        self._prompter = prompter
        self._limiter = limiter or Limiter()
        self._route: Route | None = None

    async def connect(self) -> None:
        """Get there, through every jump host, and log in.

        Raises:
            LinkError: With what to do about it.
        """
        await self.close()
        await in_thread(lambda: importlib.import_module("backends.link.route"))
        from backends.link.route import Way

        way = Way(self._host, self._settings, self._prompter, self._limiter)
        self._route = await way.go(self._target)

    async def open(self, argv: Sequence[str]) -> Channel:
        """Start a program; its arguments arrive as they are, whatever the login shell.

        Raises:
            LinkError: Not connected, or the host opens no (more) sessions.
        """
        route = self._route
        if route is None:
            raise LinkError(f"There is no link to {self._host}")
        import asyncssh

        from backends.link.channel import SessionEnds, SshChannel

        command = command_line(argv)
        for pause_s in (*_OPEN_AGAIN_S, None):
            try:
                async with asyncio.timeout(_OPEN_S):
                    channel, session = await route.connection.create_session(
                        SessionEnds, command, encoding=None, request_pty=False
                    )
            except asyncssh.ChannelOpenError as error:
                if route.client.is_lost or pause_s is None:
                    raise NoSession(
                        f"{self._host} opens no session",
                        str(error),
                        "sshd there limits sessions (MaxSessions), or its login shell is missing.",
                    ) from error
                await asyncio.sleep(pause_s)
            except TimeoutError as error:
                raise LinkError(f"{self._host} opens no session in time") from error
            except (OSError, asyncssh.Error) as error:
                raise LinkError(f"The link to {self._host} was lost", str(error)) from error
            else:
                return SshChannel(channel, cast(SessionEnds, session), self._host)
        raise AssertionError("the last try returns or raises")

    @property
    def peer(self) -> str | None:
        """The host's address, as the connection reached it; None behind a jump host."""
        route = self._route
        if route is None or route.through or route.proxies:
            return None
        found = route.connection.get_extra_info("peername")
        return str(found[0]) if isinstance(found, tuple) and found else None

    async def forward(self, address: str, port: int) -> Forward:
        """Listen on a free loopback port here; what connects is sent on from the host.

        Raises:
            LinkError: Not connected, or it cannot be listened.
        """
        route = self._route
        if route is None:
            raise LinkError(f"There is no link to {self._host}")
        import asyncssh

        try:
            listener = await route.connection.forward_local_port("127.0.0.1", 0, address, port)
        except (OSError, asyncssh.Error) as error:
            raise LinkError(f"No port can be forwarded to {self._host}", str(error)) from error
        return SshForward(listener)

    async def closed(self) -> str:
        """Wait until the connection is gone and say why."""
        if self._route is None:
            return "not connected"
        return await self._route.client.wait_lost()

    async def close(self) -> None:
        """Let go of the connection and of everything it goes through."""
        route, self._route = self._route, None
        if route is not None:
            await route.close()
