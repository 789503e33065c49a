"""How many logins are begun at once.

An sshd drops connections beyond a number of unfinished logins (MaxStartups), and many handshakes
at once would stall this program. But a host that is slow or dead must not keep others waiting, so
a slot is given back after a while even though its login is not done.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Slot:
    """The right to log in; given back in parts, early or at the end."""

    def __init__(self) -> None:
        self._held: list[asyncio.Semaphore] = []
        self._timers: list[asyncio.TimerHandle] = []

    async def take(self, semaphore: asyncio.Semaphore, patience_s: float) -> None:
        """Wait for one more part, and keep it for at most `patience_s`."""
        await semaphore.acquire()
        self._held.append(semaphore)
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(patience_s, self._give_back, semaphore))

    def release(self) -> None:
        """Give all of it back; more than once does no harm."""
        for timer in self._timers:
            timer.cancel()
        for semaphore in list(self._held):
            self._give_back(semaphore)

    def _give_back(self, semaphore: asyncio.Semaphore) -> None:
        if semaphore in self._held:
            self._held.remove(semaphore)
            semaphore.release()


class Limiter:
    """At most `at_once` logins in their first `patience_s` seconds; with jitter between them."""

    def __init__(self, at_once: int = 5, *, patience_s: float = 1.0, jitter_s: float = 0.1) -> None:
        self._at_once = at_once
        self._patience_s = patience_s
        self._jitter_s = jitter_s
        self._all = asyncio.Semaphore(at_once)
        self._endpoints: dict[Hashable, asyncio.Semaphore] = {}
        self._busy = 0

    @asynccontextmanager
    async def slot(self, endpoint: Hashable | None) -> AsyncIterator[Slot]:
        """Wait for a slot, and for one at `endpoint` (address and port of the sshd dialled).

        The endpoint's own slot lasts five times as long: its sshd counts until the login is done.
        """
        if self._busy:
            await asyncio.sleep(random.random() * self._jitter_s)
        self._busy += 1
        slot = Slot()
        try:
            if endpoint is not None:
                at_endpoint = self._endpoints.setdefault(endpoint, asyncio.Semaphore(self._at_once))
                await slot.take(at_endpoint, self._patience_s * 5)
            await slot.take(self._all, self._patience_s)
            yield slot
        finally:
            slot.release()
            self._busy -= 1
