"""What looks through much of a log: searches, counts, phases, times, saving. One at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

from backends.errors import RoomError, UsageError
from backends.servers.logquery import Pattern, Query
from backends.servers.logstore import LogStore
from backends.servers.logtext import Item
from backends.servers.logtimes import TimeSearch

COUNT_BYTES: Final = 16 * 1024 * 1024
MAX_SAVE_BYTES: Final = 1 << 30


class LogJobs:
    """Each job says in `note` how far it is, until it has ended or is given up.

    Args:
        store: The log.
        failed: Is called with why a job could not be carried out.
        changed: Is called when a job has ended.

    Attributes:
        note: What is going on, or came of it.
        matches: How many lines fit the pattern that is looked for.
    """

    def __init__(
        self, store: LogStore, failed: Callable[[RoomError], None], changed: Callable[[], None]
    ) -> None:
        self._store = store
        self._failed = failed
        self._changed = changed
        self._job: asyncio.Task[None] | None = None
        self._counting: asyncio.Task[None] | None = None
        self.note = ""
        self.matches = ""

    @property
    def running(self) -> bool:
        """Whether something is under way, counting included."""
        return any(task is not None and not task.done() for task in (self._job, self._counting))

    def start(self, work: Awaitable[None]) -> None:
        """Do this instead of what is under way."""
        if self._job is not None:
            self._job.cancel()
        self._job = asyncio.create_task(self._run(work))

    async def _run(self, work: Awaitable[None]) -> None:
        try:
            await work
        except RoomError as error:
            self.note = error.title
            self._failed(error)
        self._changed()

    def give_up(self) -> bool:
        """End the job that is under way; False where there is none."""
        if self._job is None or self._job.done():
            return False
        self._job.cancel()
        self.note = "given up"
        return True

    async def close(self) -> None:
        """End everything that was begun."""
        tasks = [task for task in (self._job, self._counting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- counting, beside the other jobs

    def count(self, pattern: Pattern | None) -> None:
        """Count the lines that fit; None: no more."""
        if self._counting is not None:
            self._counting.cancel()
        self.matches = ""
        if pattern is not None:
            self._counting = asyncio.create_task(self._count(pattern))

    async def _count(self, pattern: Pattern) -> None:
        """How many lines fit, in the part near the end."""
        text = self._store.text
        count = 0

        def found(item: Item) -> bool:
            nonlocal count
            count += item.line is not None
            return True

        def progress(_: int) -> None:
            self.matches = f"{count:,} match so far"

        try:
            near = max(text.start, text.end - COUNT_BYTES)
            low = await self._store.settle(partial(text.line_start, near))
            where = "" if low <= text.start else f" in the last {COUNT_BYTES >> 20} MiB"
            await self._store.scan(
                Query(pattern=pattern), low, back=False, on_item=found, on_progress=progress
            )
            self.matches = f"{count:,} line{' matches' if count == 1 else 's match'}{where}"
        except RoomError as error:
            self.matches = error.title

    # ---- jobs

    async def find(
        self, query: Query, offset: int, what: str, go: Callable[[int], None], *, back: bool = False
    ) -> None:
        """Go to the first line that a query wants, from a place on."""
        text = self._store.text
        begin, end = offset, text.start if back else text.end

        def progress(at: int) -> None:
            share = abs(at - begin) / max(1, abs(end - begin))
            self.note = f"looking for {what}: {share * 100:.0f} %, Esc ends it"

        def found(item: Item) -> bool:
            if item.line is None:
                return True
            go(item.offset)
            return False

        missed = await self._store.scan(
            query, offset, back=back, on_item=found, on_progress=progress
        )
        self.note = f"no {what} {'above' if back else 'below'}" if missed else ""

    async def find_phase(
        self, begins: Query, current: Item, show: Callable[[int, int | None], None]
    ) -> None:
        """Show from the line that began the phase of this one to the one that begins the next."""
        self.note = "looking for the phase"
        show(*await self._store.phase_around(begins, current.end))
        self.note = ""

    async def find_time(self, words: str, go: Callable[[int], None]) -> None:
        """Go to the first line at or after a moment."""
        self.note = f"looking for {words}"
        offset = await self._store.find_time(TimeSearch(self._store.text, words))
        if offset >= self._store.text.end:
            self.note = f"no line at or after {words}"
        else:
            self.note = ""
            go(offset)

    async def save(self, name: str, query: Query) -> None:
        """Write the lines that are wanted, from the first to the newest, to a new local file."""
        path = Path(os.path.expanduser(name))  # noqa: ASYNC240 - looks at the environment alone
        text, written, count = self._store.text, 0, 0
        try:
            file = await asyncio.to_thread(path.open, "x", encoding="utf-8")
        except OSError as error:
            raise UsageError("The file can't be written", f"{path}: {error.strerror}") from None
        with file:

            def take(item: Item) -> bool:
                nonlocal written, count
                words = item.line.text if item.line is not None else f"--- {item.mark.strip()}"
                written += file.write(words + "\n")
                count += 1
                return written < MAX_SAVE_BYTES

            def progress(at: int) -> None:
                share = at / max(1, text.end)
                self.note = f"saving to {path}: {share * 100:.0f} %, Esc ends it"

            await self._store.scan(
                query, text.start, back=False, on_item=take, on_progress=progress
            )
        self.note = f"saved {count:,} lines to {path}"
