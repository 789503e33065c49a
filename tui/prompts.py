"""Asking the person through dialogs, one at a time, from wherever a link needs an answer."""

from __future__ import annotations

import asyncio
from typing import Any

from textual.app import App
from textual.message import Message
from textual.screen import Screen

from backends.link.base import HostKeyQuestion, SecretQuestion


class Ask(Message):
    """A dialog is wanted."""

    def __init__(self, screen: Screen[Any], future: asyncio.Future[Any]) -> None:
        super().__init__()
        self.screen = screen
        self._future = future

    def answer(self, result: object) -> None:
        """Pass on what the person said."""
        if not self._future.done():
            self._future.set_result(result)


class DialogPrompter:
    """A `backends.link.base.Prompter` that shows dialogs."""

    def __init__(self, app: App[int]) -> None:
        self._app = app
        self._one_at_a_time = asyncio.Lock()
        self._open: asyncio.Future[Any] | None = None

    async def accept_host_key(self, question: HostKeyQuestion) -> bool:
        """Show the fingerprint and ask."""
        from screens.host_key import HostKeyScreen

        return bool(await self._ask(HostKeyScreen(question)))

    async def secret(self, question: SecretQuestion) -> str | None:
        """Ask for a secret; it is kept nowhere."""
        from screens.auth import AuthScreen

        answer = await self._ask(AuthScreen(question))
        return answer if isinstance(answer, str) else None

    async def _ask(self, screen: Screen[Any]) -> object:
        async with self._one_at_a_time:
            self._open = asyncio.get_running_loop().create_future()
            try:
                self._app.post_message(Ask(screen, self._open))
                return await self._open
            except asyncio.CancelledError:
                # Nobody waits for the answer any more (the link timed out, the room closes).
                if screen.is_attached and screen.is_current:
                    self._app.call_later(screen.dismiss, None)
                raise
            finally:
                self._open = None

    def close(self) -> None:
        """Answer what is open with no."""
        if self._open is not None and not self._open.done():
            self._open.set_result(None)
