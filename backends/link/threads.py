"""Blocking work off the event loop, in a thread of its own.

The loop's default executor has few threads and also resolves names: one configuration line that
hangs (`Match exec`), or one name server that is silent, must not hold up another host, nor the
program's exit. So each call gets its own daemon thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[], T], *, name: str = "gpuroom-link") -> T:
    """Run `function` in a daemon thread and give its result.

    When the caller is cancelled the thread is left to finish alone and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # T itself may be None

    def body() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = function()
        except BaseException as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=body, name=name, daemon=True).start()
    return await future
