"""One step's load on one worker: what may be sent, when, and what is under way."""

from __future__ import annotations

import heapq

from .connection import Connection
from .counters import Counters
from .exchange import Exchange
from .supply import Supply
from .workload import Workload


class Stream:
    """One slot of a closed loop: it has at most one request in flight."""

    __slots__ = ("connection", "failures", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.connection: Connection | None = None
        self.failures = 0


class Load:
    """A worker's share of a step.

    Attributes:
        number: The step's position in the run.
        phase: `warmup`, `measure` or `cooldown`: of requests that are sent now.
        running: It has begun, and is not over.
        sending: Requests are still sent.
        streams: The slots of a closed loop, by number.
        supply: Requests made ahead, and due times of an open loop.
        counters: What has happened so far.
        active: Requests under way.
        to_open: Slots whose connection is still to be opened before the step begins.
        opening: Connections that are being opened.
    """

    def __init__(
        self,
        step: dict[str, object],
        workload: Workload,
        job: dict[str, object],
        worker: int,
        workers: int,
    ) -> None:
        self._route = str(job["route"])
        self._streaming = bool(job["stream"])
        self._shares = step.get("requests")
        self._worker = worker
        self._workers = workers
        self._hold = step.get("cool_down") == "hold"
        load = step["load"]
        shares = step["streams"]
        assert isinstance(load, dict)
        assert isinstance(shares, list)
        self._load = load
        self._left: int | None = None
        sample = step.get("sample")
        self._sample = max(1, sample // workers) if isinstance(sample, int) else None
        self._read_in_full = 0
        self._timers: list[tuple[int, int, Stream]] = []
        self._timer_number = 0
        self._measured = 0
        self.number = int(step["number"])  # type: ignore[call-overload]
        self.phase = "warmup"
        self.running = False
        self.sending = True
        self.streams = {number: Stream(number) for number in range(shares[worker])}
        self.to_open = list(self.streams.values())
        self.opening = 0
        self.active: set[Exchange] = set()
        self.counters = Counters()
        self.supply = Supply(workload, step, job["seed"], worker, workers, len(self.streams))

    def go(self, start_ns: int) -> None:
        """Begin: the slots are due one after the other in a ramp, else all at once."""
        self.running = True
        self.supply.start(start_ns)
        ramp_ns = int(float(self._load.get("ramp_s") or 0.0) * 1e9)
        for stream in self.streams.values():
            place = stream.number * self._workers + self._worker
            self.at(start_ns + ramp_ns * place // int(self._load["concurrency"]), stream)
        if self._load["kind"] == "closed" and not self.streams:
            self.sending = False  # Fewer streams than workers.

    def measure(self) -> None:
        """Requests that are sent from now on are measured."""
        self.phase = "measure"
        shares = self._shares
        self._left = shares[self._worker] if isinstance(shares, list) else None

    def drain(self) -> None:
        """Send no more that is measured; and nothing at all, unless the load is to be held."""
        if self._hold and self.phase == "measure":
            self.phase = "cooldown"
        else:
            self.sending = False

    def stop(self) -> None:
        """Send nothing more."""
        self.running = True
        self.sending = False
        self._hold = False
        self._timers = []

    def new_exchange(self, due_ns: int) -> Exchange | None:
        """The next request, if one may be sent."""
        taken = self.supply.take() if self._may_send() else None
        if taken is None:
            return None
        exchange = Exchange(taken[0], taken[1], self._route, self._streaming, due_ns, self.phase)
        self.active.add(exchange)
        self.counters.sent += 1
        if self.phase == "measure":
            self._measured += 1
        return exchange

    def _may_send(self) -> bool:
        if not self.sending:
            return False
        if self.phase == "measure" and self._left is not None:
            if self._left > 0:
                self._left -= 1
            elif self._hold:
                self.phase = "cooldown"
            else:
                self.sending = False
                return False
        return True

    def choose_reading(self, exchange: Exchange) -> None:
        """Settle whether the stream is read event by event or drained."""
        sample = self._sample
        if sample is None:
            return
        slot, slots = exchange.slot, len(self.streams)
        if slot is not None:
            exchange.drained = sample < slots and (
                slot * sample // slots == (slot + 1) * sample // slots
            )
        else:
            exchange.drained = self._read_in_full >= sample
            if not exchange.drained:
                self._read_in_full += 1

    def close(self, exchange: Exchange) -> bool:
        """The exchange is over; whether it was under way."""
        if exchange not in self.active:
            return False
        self.active.discard(exchange)
        self.counters.ended += 1
        if exchange.phase == "measure":
            self._measured -= 1
        if self._sample is not None and exchange.slot is None and not exchange.drained:
            self._read_in_full -= 1
        return True

    @property
    def held_long_enough(self) -> bool:
        """The load was kept up, and the last measured request has ended."""
        return self._hold and self.phase == "cooldown" and self._measured == 0

    @property
    def over(self) -> bool:
        """Nothing is under way, and nothing more will be sent."""
        return not self.active and (not self.sending or self.supply.over)

    # --- time -----------------------------------------------------------------------------

    def at(self, due_ns: int, stream: Stream) -> None:
        """The stream's next request is due then."""
        self._timer_number += 1
        heapq.heappush(self._timers, (due_ns, self._timer_number, stream))

    @property
    def timed(self) -> bool:
        """Whether a request waits for its time."""
        return bool(self._timers) or self.supply.due_ns is not None

    def next_due(self) -> int | None:
        """When the next request is due by the clock."""
        due = self._timers[0][0] if self._timers else None
        arrival = self.supply.due_ns if self.sending else None
        if arrival is not None:
            due = arrival if due is None else min(due, arrival)
        return due

    def pop_stream(self, now_ns: int) -> tuple[Stream, int] | None:
        """A stream whose request is due, with when it was."""
        if not self._timers or self._timers[0][0] > now_ns:
            return None
        due, _, stream = heapq.heappop(self._timers)
        return stream, due

    def pop_arrival(self, now_ns: int) -> int | None:
        """When a request of an open loop was due, if one is."""
        due = self.supply.due_ns
        if not self.sending or due is None or due > now_ns:
            return None
        self.supply.next_due()
        return due
