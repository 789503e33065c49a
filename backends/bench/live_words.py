"""One word a step against a baseline, as the step ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Protocol

from backends.bench.against import Reference
from backends.bench.compare_steps import StepWord, step_words
from backends.bench.results import RunResult, StepResult
from backends.errors import RoomError

LAST_S: Final = 2.0
"""What the last step's comparison gets when the run is over."""

Find = Callable[[RunResult], Reference | None]
Told = Callable[[StepResult, Mapping[str, StepWord]], None]


class Measuring(Protocol):
    """A run that goes on."""

    def so_far(self) -> RunResult:
        """The steps that have ended."""
        ...


class LiveWords:
    """Compares a run with its baseline whenever one of its steps ends.

    Args:
        find: The baseline for a run, None without one; called in a thread. A history that cannot
            be read gives no words: the end of the run tells of it.
        told: Gets each step that ended, and the words of all loads so far.
    """

    def __init__(self, find: Find, told: Told) -> None:
        self._find = find
        self._told = told
        self._ended = asyncio.Event()
        self._over = False

    def step_ended(self) -> None:
        """A step of the run that is followed has ended."""
        self._ended.set()

    @contextlib.asynccontextmanager
    async def following(self, run: Measuring) -> AsyncIterator[None]:
        """Compare while the block lasts; at its end the last step still gets its word."""
        task = asyncio.create_task(self._follow(run), name="words of steps")
        try:
            yield
            self._over = True
            self._ended.set()
            await asyncio.wait({task}, timeout=LAST_S)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, run: Measuring) -> None:
        try:
            reference = await asyncio.to_thread(self._find, run.so_far())
        except (RoomError, OSError):
            return
        said = 0
        while reference is not None:
            await self._ended.wait()
            self._ended.clear()
            over, now = self._over, run.so_far()
            if len(now.steps) > said:
                words = step_words(await asyncio.to_thread(reference.compare, now))
                for step in now.steps[said:]:
                    self._told(step, words)
                said = len(now.steps)
            if over:
                return
