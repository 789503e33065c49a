"""Threads for what may wait: one is started only where none is idle, and one that hangs is left."""

from __future__ import annotations

import queue
import threading
from typing import Callable

Job = Callable[[], None]

MOST_IDLE = 4
"""So many threads wait for the next job; others end with theirs."""


class Hands:
    """Carries out jobs side by side, at once; a job must not raise."""

    def __init__(self) -> None:
        self._jobs: "queue.SimpleQueue[Job]" = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()

    def do(self, job: Job) -> None:
        """Carry it out on a thread that has nothing to do, else on a new one."""
        with self._lock:
            if self._idle:
                self._idle -= 1  # one of those that wait is ours by this
                self._jobs.put(job)
                return
        threading.Thread(target=self._work, args=(job,), daemon=True).start()

    def _work(self, job: Job) -> None:
        while True:
            job()
            with self._lock:
                if self._idle >= MOST_IDLE:
                    return
                self._idle += 1
            job = self._jobs.get()
