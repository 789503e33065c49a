"""What goes on beside a log on screen: its window grows as far as one looks, its pins are found."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

from backends.errors import RoomError, UsageError
from backends.servers.logpins import Pins
from backends.servers.logstore import LogStore
from tui.widgets.log_view import LogView

PIN_BACK_BYTES: Final = 4 * 1024 * 1024
PIN_LAG_BYTES: Final = 16 * 1024 * 1024
PIN_SLICE_BYTES: Final = 16 * 1024
PIN_EVERY_S: Final = 0.25
RETRY_S: Final = 1.0
UNFINISHED_S: Final = 0.25


class LogFiller:
    """Reads what a view wants to show and what the pins must see, a slice at a time.

    Args:
        store: The log.
        view: Whose window is filled.
        pins: Get what is near the end, and what comes.
        refused: Is called with why the view's filter can't be carried out.
    """

    def __init__(
        self, store: LogStore, view: LogView, pins: Pins, refused: Callable[[UsageError], None]
    ) -> None:
        self._store = store
        self._view = view
        self._pins = pins
        self._refused = refused
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """The view moved, or something came: look again what is wanted."""
        self._wake.set()

    def catch_up(self) -> None:
        """Jump to the end instead of reading all that came since the last frame."""
        view, text = self._view, self._store.text
        window = view.window
        if view.follow and not window.query and window.high != text.end:
            window.seek(text.end)
            window.extend_up(max(1, view.size.height) * 2)
        self.wake()

    async def fill(self) -> None:
        """Grow the window as far as the view needs it, until cancelled."""
        while True:
            before, behind = self._view.needs()
            if not before and not behind:
                self._wake.clear()
                await self._wake.wait()
                continue
            window, version = self._view.window, self._view.window.version
            low, high = window.low, window.high
            try:
                # What is looked at first, what comes before it afterwards.
                down = behind and (not before or (not self._view.follow and not window.items))
                missing = window.extend_down(behind) if down else window.extend_up(before)
                if missing is not None:
                    await self._store.fetch(missing)
            except UsageError as error:
                self._refused(error)
                continue
            except RoomError:  # the store says which
                await asyncio.sleep(RETRY_S)
                continue
            if window.version != version:
                self._fresh()
            if (window.low, window.high) == (low, high) and missing is None:
                # Only an unfinished line is left.
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), UNFINISHED_S)
            await asyncio.sleep(0)

    def _fresh(self) -> None:
        """Draw at once what one waits for; the rest waits for the next frame."""
        view = self._view
        if len(view.shown()) <= view.size.height * 2 and not (view.follow and view.window.query):
            view.redraw()

    async def pin(self) -> None:
        """Look through what is near the end, and what comes, until cancelled."""
        text, at = self._store.text, -1
        while True:
            lags = at >= 0 and text.end - at > PIN_LAG_BYTES
            if text.segments and (at < 0 or lags):
                near = max(text.start, text.end - PIN_BACK_BYTES)
                at = await self._store.settle(partial(text.line_start, near))
            if at >= 0:
                at = await self._pin_up_to_date(at)
            await asyncio.sleep(PIN_EVERY_S)

    async def _pin_up_to_date(self, at: int) -> int:
        text = self._store.text
        until = await self._store.settle(partial(text.line_start, text.end))
        while at < until:
            look = partial(text.chunk, at, PIN_SLICE_BYTES, back=False)
            chunk = await self._store.settle(look)
            if chunk is None:
                break
            begin, data = chunk
            self._pins.take(data[: until - begin], begin)
            at = begin + max(1, len(data))
            await asyncio.sleep(0)
        return min(at, until)
