"""What a worker has to send in a step: requests made ahead, and when they are due."""

from __future__ import annotations

import collections

from .arrivals import schedule
from .workload import Request, Workload

MAX_BYTES = 32 << 20
LEAST = 64


class Supply:
    """One worker's share of a step's requests.

    Request bodies are made in spare time, so that sending one costs a system call. Request
    number and due time are those of the whole step: worker i of n takes every n-th.

    Attributes:
        due_ns: When the next request of an open loop is due; None in a closed loop and at the end.
        over: The schedule of an open loop has no more.
    """

    def __init__(
        self,
        workload: Workload,
        step: dict[str, object],
        seed: object,
        worker: int,
        workers: int,
        streams: int,
    ) -> None:
        self._workload = workload
        self._step = step
        self._worker = worker
        self._workers = workers
        load = step["load"]
        assert isinstance(load, dict)
        self._entries: list[list[object]] | None = load.get("entries")
        self._stock: collections.deque[tuple[int, Request]] = collections.deque()
        self._bytes = 0
        self._size = max(LEAST, streams + streams // 4)
        self._made = 0
        self._empty = False
        self._schedule = None
        if load["kind"] != "closed":
            self._schedule = schedule(load, "%s/%s" % (seed, step["index"]))
        self._drawn = 0
        self._start_ns = 0
        self.due_ns: int | None = None
        self.over = False

    @property
    def wants_more(self) -> bool:
        """Whether requests should be made ahead."""
        return len(self._stock) < self._size and self._bytes < MAX_BYTES and not self._empty

    def make(self) -> None:
        """Make one request ahead."""
        number = self._made * self._workers + self._worker
        entry = None
        if self._entries is not None:
            if number >= len(self._entries):
                self._empty = True
                return
            entry = self._entries[number]
        self._made += 1
        request = self._workload.request(self._step, number, entry)
        self._stock.append((number, request))
        self._bytes += len(request.body)

    def take(self) -> tuple[int, Request] | None:
        """The next request with its number; None when a trace has no more."""
        if not self._stock:
            self.make()
            if not self._stock:
                return None
        number, request = self._stock.popleft()
        self._bytes -= len(request.body)
        return number, request

    def start(self, start_ns: int) -> None:
        """Due times count from here."""
        self._start_ns = start_ns
        self.next_due()

    def next_due(self) -> None:
        """Move on to this worker's next due time."""
        self.due_ns = None
        if self._schedule is None:
            return
        for offset_s in self._schedule:
            number = self._drawn
            self._drawn += 1
            if number % self._workers == self._worker:
                self.due_ns = self._start_ns + int(offset_s * 1e9)
                return
        self.over = True
