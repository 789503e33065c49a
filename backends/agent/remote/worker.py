"""A thread that does one thing after another and can be given up on.

A call into a hung driver never comes back and can't be interrupted. It then hangs its worker
alone: whoever waits has a deadline, and nothing new is handed to a worker that is still at it.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Callable, Optional


class Ticket:
    """A job that was handed over, and what came of it."""

    __slots__ = ("_done", "error", "result")

    def __init__(self) -> None:
        self._done = threading.Event()
        self.result: Any = None
        self.error: Optional[BaseException] = None

    def wait(self, until: float) -> bool:
        """Wait for the end of the job, at most until that monotonic moment."""
        return self._done.is_set() or self._done.wait(max(0.0, until - time.monotonic()))

    def finish(self, result: Any, error: Optional[BaseException]) -> None:
        """Say what came of it."""
        self.result = result
        self.error = error
        self._done.set()

    @property
    def done(self) -> bool:
        """Whether the job has ended."""
        return self._done.is_set()


class Worker:
    """One daemon thread and its jobs.

    Attributes:
        doing: What it is at, in words; jobs keep it up to date (the call into the driver).
    """

    def __init__(self, name: str) -> None:
        self.doing = ""
        self._jobs: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._pending = 0
        self._since = 0.0
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, job: Callable[[], Any]) -> Ticket:
        """Hand over a job; it starts when those before it have ended."""
        ticket = Ticket()
        with self._lock:
            self._pending += 1
            if self._pending == 1:
                self._since = time.monotonic()
        self._jobs.put((job, ticket))
        return ticket

    def stop(self) -> None:
        """End the thread when it is free again."""
        self._jobs.put(None)

    @property
    def idle(self) -> bool:
        """Whether it has nothing to do."""
        return self._pending == 0

    def busy_s(self) -> float:
        """For how long the job it is at has been running; 0 when idle."""
        with self._lock:
            return time.monotonic() - self._since if self._pending else 0.0

    def _run(self) -> None:
        while True:
            item = self._jobs.get()
            if item is None:
                return
            job, ticket = item
            result: Any = None
            error: Optional[BaseException] = None
            try:
                result = job()
            except BaseException as problem:
                error = problem
            self.doing = ""
            with self._lock:
                self._pending -= 1
                self._since = time.monotonic()
            ticket.finish(result, error)
