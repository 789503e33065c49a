"""Keeps one host's link and agent alive: connect, start, watch, wait, again, for ever.

What can't get better by itself (a changed host key, nobody let in) waits for a person. Everything
else is tried again, with exponential back-off and jitter. The newest values stay where they are
meanwhile; only `link` says how old they may be.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from backends.agent.client import NotificationHandler, Source
from backends.backoff import Backoff
from backends.clock import Clock
from backends.errors import (
    AgentError,
    AuthenticationFailed,
    HostKeyChanged,
    HostKeyUnknown,
    LinkError,
    RoomError,
    UsageError,
)
from backends.events import (
    AgentRestarted,
    HostEvent,
    HostKeyRefused,
    LinkLost,
    LinkRefused,
    LinkRestored,
)
from backends.link.base import HostKeyQuestion, Prompter, SecretQuestion, Transport
from backends.model import LinkState, LinkStatus
from backends.telemetry.decode import Telemetry
from backends.text import clean

HEARTBEAT_S: Final = 2.0
HUNG_S: Final = 10.0
"""An agent that answers no heartbeat for this long is started again."""
STALE_INTERVALS: Final = 3.0
STALE_SLACK_S: Final = 0.5
"""On top of the missing intervals, so that a busy network alone is no news."""
STEADY_S: Final = 10.0
"""A link that was live for this long starts its back-off from the base again."""
CLOSE_S: Final = 1.2

Reach = Callable[[Prompter], Transport]
StartSource = Callable[[Transport, NotificationHandler, float], Awaitable[Source]]
"""Starts what tells the readings: transport, who takes notifications, seconds between samples."""


class WatchedPrompter:
    """Passes questions on, and lets it be seen that somebody is being asked."""

    def __init__(self, prompter: Prompter, waiting: Callable[[LinkState | None], None]) -> None:
        self._prompter = prompter
        self._waiting = waiting
        self.asked = False

    async def accept_host_key(self, question: HostKeyQuestion) -> bool:
        """Ask about a host key."""
        self.asked = True
        self._waiting(LinkState.HOST_KEY)
        try:
            return await self._prompter.accept_host_key(question)
        finally:
            self._waiting(None)

    async def secret(self, question: SecretQuestion) -> str | None:
        """Ask for a secret."""
        self.asked = True
        self._waiting(LinkState.AUTHENTICATING)
        try:
            return await self._prompter.secret(question)
        finally:
            self._waiting(None)


class Lifeline:
    """The life of one host's link.

    Args:
        host: Its name in the room.
        reach: Makes the transport; called once.
        start: Starts whatever tells the readings, over a connected transport.
        prompter: Whoever can be asked.
        telemetry: Is fed with what the host says.
        clock: Of durations and records.
        report: Is told what happened to the link.
        changed: Is called after every change of anything.
        interval_s: Wanted between samples.

    Attributes:
        link: The state now.
        version: Grows with every change of `link` or `interval_s`.
        source: What answers requests; None while there is none.
        interval_s: Between samples, as granted.
    """

    def __init__(
        self,
        host: str,
        reach: Reach,
        start: StartSource,
        prompter: Prompter,
        telemetry: Telemetry,
        clock: Clock,
        report: Callable[[HostEvent], None],
        changed: Callable[[], None],
        interval_s: float,
    ) -> None:
        self._host = host
        self._reach = reach
        self._start = start
        self._telemetry = telemetry
        self._clock = clock
        self._report = report
        self._changed = changed
        self._prompter = WatchedPrompter(prompter, self._person_asked)
        self._backoff = Backoff()
        self._wake = asyncio.Event()
        self._transport: Transport | None = None
        self._live_since_s: float | None = None
        self._lost_since_s: float | None = None
        self._fast_s = 0.0
        self.wanted_interval_s = interval_s
        self.interval_s = interval_s
        self.source: Source | None = None
        self.version = 0
        self.link = LinkStatus(LinkState.IDLE, clock.monotonic_s())

    async def run(self) -> None:
        """Live until cancelled."""
        try:
            while True:
                try:
                    await self._connect_and_serve()
                except RoomError as error:
                    await self._wait_after(error)
                except Exception as error:
                    # A mistake of ours: shown like any other reason, and not the end of the host.
                    await self._wait_after(_unexpected(error))
        finally:
            await self._let_go()
            self._set(LinkState.CLOSED, retry_at_s=None)

    def retry_now(self) -> None:
        """Try at once instead of waiting; also after a refusal."""
        self._wake.set()

    @property
    def transport(self) -> Transport | None:
        """The way there, while the host is live on it."""
        return self._transport if self.source is not None else None

    def granted(self, interval_s: float) -> None:
        """Take note of the interval that the host granted."""
        self.interval_s = interval_s
        self.version += 1
        self._changed()

    # The way there.

    async def _connect_and_serve(self) -> None:
        self._wake.clear()
        self._set(
            LinkState.CONNECTING, attempt=self.link.attempt + 1, retry_at_s=None, round_trip_s=None
        )
        if self._transport is None:
            self._transport = self._reach(self._prompter)
            self._set(self.link.state, transport=self._transport.kind)
        self._prompter.asked = False
        await self._transport.connect()
        await self._serve_connection(self._transport)

    async def _serve_connection(self, transport: Transport) -> None:
        """Keep an agent running over this connection, for as long as the connection lasts."""
        restarts = Backoff()
        ended_because = ""
        while True:
            self._set(LinkState.STARTING)
            source = await self._start(transport, self._take, self.wanted_interval_s)
            try:
                self._went_live(source, ended_because)
                await self._serve(transport, source)
            except AgentError as error:
                await self._raise_if_link_is_gone(transport)
                ended_because = str(error)
                if self._live_for_s() > STEADY_S:
                    restarts.reset()
                self._set(LinkState.STARTING, error=error.title, hint=error.hint or error.detail)
            finally:
                self.source = None
                await _bounded(source.close())
            await self._pause(restarts.next_s())

    async def _serve(self, transport: Transport, source: Source) -> None:
        """Take what the host says until something ends; raises why."""
        tasks = [
            asyncio.create_task(self._watch_source(source)),
            asyncio.create_task(self._beat(source)),
            asyncio.create_task(self._watch_age()),
            asyncio.create_task(self._watch_link(transport)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        errors = [task.exception() for task in done if not task.cancelled()]
        for error in sorted(filter(None, errors), key=lambda e: not isinstance(e, LinkError)):
            raise error

    def _take(self, method: str, params: Mapping[str, object]) -> None:
        if method == "fast":
            self._fast_s = self._clock.monotonic_s()
            if self.link.state is LinkState.STALE:
                self._set(LinkState.LIVE)
        self._telemetry.notify(method, params)
        self._changed()

    async def _watch_source(self, source: Source) -> None:
        why = await source.closed()
        raise AgentError(f"The agent on {self._host} has ended", why)

    async def _beat(self, source: Source) -> None:
        answered_s = self._clock.monotonic_s()
        while True:
            asked_s = self._clock.monotonic_s()
            try:
                await source.request("ping", timeout_s=HUNG_S / 2)
            except AgentError:
                if self._clock.monotonic_s() - answered_s >= HUNG_S:
                    raise AgentError(
                        f"The agent on {self._host} does not answer",
                        f"no heartbeat for {HUNG_S:.0f} s",
                    ) from None
                continue
            answered_s = self._clock.monotonic_s()
            self._set(self.link.state, round_trip_s=answered_s - asked_s)
            await asyncio.sleep(HEARTBEAT_S)

    async def _watch_age(self) -> None:
        while True:
            limit_s = STALE_INTERVALS * self.interval_s + STALE_SLACK_S
            left_s = self._fast_s + limit_s - self._clock.monotonic_s()
            if left_s <= 0 and self.link.state is LinkState.LIVE:
                self._set(LinkState.STALE)
            await asyncio.sleep(max(0.1, min(left_s, 1.0)))

    async def _watch_link(self, transport: Transport) -> None:
        why = await transport.closed()
        raise LinkError(f"The link to {self._host} was lost", why)

    async def _raise_if_link_is_gone(self, transport: Transport) -> None:
        """An agent ends with its link: then the link is the reason."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await self._watch_link(transport)

    # What becomes of it.

    def _went_live(self, source: Source, ended_because: str) -> None:
        now_s = self._clock.monotonic_s()
        self.source = source
        self._live_since_s = self._fast_s = now_s
        self._set(LinkState.LIVE, via=source.via, error="", hint="", attempt=0)
        if ended_because:
            self._report(AgentRestarted(self._host, self._clock.utc(), ended_because))
        elif self._lost_since_s is not None:
            down_s = now_s - self._lost_since_s
            self._report(LinkRestored(self._host, self._clock.utc(), down_s))
        self._lost_since_s = None

    async def _wait_after(self, error: RoomError) -> None:
        """Show what went wrong; wait for the next try, or for a person."""
        if self._live_since_s is not None:
            if self._live_for_s() > STEADY_S:
                self._backoff.reset()
            if self._lost_since_s is None:
                self._lost_since_s = self._clock.monotonic_s()
                self._report(LinkLost(self._host, self._clock.utc(), str(error)))
            self._live_since_s = None
        await self._let_go()
        hint = error.hint
        if self._needs_a_person(error):
            self._set(LinkState.REFUSED, error=str(error), hint=hint, retry_at_s=None)
            kind = (
                HostKeyRefused
                if isinstance(error, HostKeyChanged | HostKeyUnknown)
                else LinkRefused
            )
            self._report(kind(self._host, self._clock.utc(), error.title, error.hint))
            await self._wake.wait()
            return
        wait_s = self._backoff.next_s()
        retry_at_s = self._clock.monotonic_s() + wait_s
        self._set(LinkState.LOST, error=str(error), hint=hint, retry_at_s=retry_at_s)
        await self._pause(wait_s)

    def _needs_a_person(self, error: RoomError) -> bool:
        if isinstance(error, AuthenticationFailed) and self._lost_since_s is not None:
            # It let us in before: a host that is just coming up may not have its homes mounted.
            return self._prompter.asked
        return isinstance(
            error, HostKeyChanged | HostKeyUnknown | AuthenticationFailed | UsageError
        )

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _let_go(self) -> None:
        source, self.source = self.source, None
        if source is not None:
            await _bounded(source.close())
        if self._transport is not None:
            await _bounded(self._transport.close())

    def _live_for_s(self) -> float:
        since_s = self._live_since_s
        return 0.0 if since_s is None else self._clock.monotonic_s() - since_s

    def _person_asked(self, state: LinkState | None) -> None:
        self._set(state or LinkState.CONNECTING)

    def _set(self, state: LinkState, **changed: object) -> None:
        since_s = self.link.since_s
        if state is not self.link.state:
            since_s = self._clock.monotonic_s()
        link = replace(self.link, state=state, since_s=since_s, **changed)  # type: ignore[arg-type]
        if link != self.link:
            self.link = link
            self.version += 1
            self._changed()


async def _bounded(closing: Awaitable[None]) -> None:
    """Wait for something to close, but not for long."""
    with contextlib.suppress(TimeoutError, RoomError):
        async with asyncio.timeout(CLOSE_S):
            await closing


def _unexpected(error: Exception) -> RoomError:
    return RoomError(
        "Unexpected error",
        clean(f"{type(error).__name__}: {error}", 400),
        "This is a mistake in gpuroom; please report it. The host is tried again.",
    )
