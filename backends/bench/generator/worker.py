"""The loop: sends what is due, stamps what arrives, and leaves the rest to spare time."""

from __future__ import annotations

import gc
import socket
import time

from .connection import now_ns
from .control import Control
from .lag import AWAY_NS, TICK_S
from .load import Load
from .poller import READABLE, WRITABLE, Poller
from .sockets import Sockets
from .traffic import Traffic
from .workload import Workload

QUIET_EVENTS = 2
"""So few at once leave time for what can wait."""


class Worker:
    """Carries its share of every step. Talks to the coordinator by lines over `control`."""

    def __init__(
        self,
        job: dict[str, object],
        control: socket.socket,
        index: int,
        workers: int,
        place: tuple[int, tuple[object, ...]],
    ) -> None:
        self._job = job
        self._index = index
        self._workers = workers
        self._control = Control(control)
        target = job["target"]
        assert isinstance(target, dict)
        self._workload = Workload(job)
        self._poller = Poller()
        sockets = Sockets(target, str(job["route"]), place, self._poller)
        nothing = {"number": -1, "index": 0, "load": {"kind": "closed"}, "streams": [0] * workers}
        load = Load(nothing, self._workload, job, index, workers)
        load.sending = False
        self._traffic = Traffic(job, self._control, index, sockets, load)
        self._alive = True

    # --- the loop -------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until told to stop or until the coordinator is gone."""
        control = self._control
        traffic, sockets, meter = self._traffic, self._traffic.sockets, self._traffic.meter
        self._poller.register(control.fd, READABLE)
        gc.collect()
        gc.freeze()
        gc.disable()  # A collection in the run would be a stall; nothing here makes cycles.
        now = time.monotonic()
        next_tick = now + TICK_S
        blocked = waits = False
        while self._alive and not control.lost:
            timeout_s = 0.0 if waits else self._timeout(next_tick - now)
            slept = now_ns()
            events = self._poller.poll(timeout_s)
            woke = now_ns()
            for fd, mask in events:
                connection = sockets.get(fd)
                if connection is not None:
                    traffic.ready(connection, mask)
                elif fd == control.fd:
                    self._listen(mask)
            # Bytes that piled up share the last one's stamp, so how long the loop was away from
            # the sockets counts too: asleep for longer than asked, or busy.
            done = now_ns()
            away = max(woke - slept - int(timeout_s * 1e9), done - woke)
            if events:
                late = done - traffic.last_stamp if traffic.last_stamp else 0
                meter.received(max(late, away))
                traffic.last_stamp = 0
            if away > AWAY_NS:
                meter.away(away)
            if traffic.load.timed or sockets.any_drained:
                self._due()
            waits = traffic.worth_it
            if waits and (len(events) <= QUIET_EVENTS or traffic.too_much):
                traffic.spare_time()
                waits = traffic.worth_it
            if control.blocked != blocked:
                blocked = control.blocked
                self._poller.modify(control.fd, READABLE | WRITABLE if blocked else READABLE)
            now = time.monotonic()
            if now >= next_tick:
                next_tick = max(next_tick + TICK_S, now)
                self._tick()
        for connection in sockets.all():
            traffic.drop(connection)

    def _timeout(self, wait: float) -> float:
        """How long to sleep, at most `wait` seconds; 0 when a request is due soon."""
        load, sockets = self._traffic.load, self._traffic.sockets
        due = load.next_due() if load.timed else None
        if due is not None:
            # epoll waits whole milliseconds: the last one is waited out here.
            wait = min(wait, (due - now_ns()) / 1e9 - 0.001)
        if sockets.any_drained:
            wait = min(wait, (sockets.next_drain_ns - now_ns()) / 1e9)
        return max(0.0, wait)

    def _due(self) -> None:
        traffic, load = self._traffic, self._traffic.load
        while True:
            due = load.next_due()
            now = now_ns() if due is not None else 0
            if due is None or due > now:
                break
            slot = load.pop_stream(now)
            if slot is not None:
                traffic.launch(*slot)
            arrival = load.pop_arrival(now)
            if arrival is not None:
                traffic.launch_open(arrival)
        if traffic.sockets.any_drained:
            traffic.drain()

    def _tick(self) -> None:
        traffic, load = self._traffic, self._traffic.load
        traffic.spare_time()
        traffic.check_deadlines(now_ns())
        if not load.running:
            return
        if load.held_long_enough:
            traffic.cancel()
        if load.over:
            traffic.fold_all()
        reasons = traffic.meter.tick(len(load.streams) or None)
        progress = load.counters.tell()
        progress["in_flight"] = len(load.active)
        progress["reasons"] = reasons
        self._control.say("progress", progress)
        if load.over:
            self._say_done()

    def _say_done(self) -> None:
        traffic, load = self._traffic, self._traffic.load
        load.running = False
        load.sending = False
        self._control.say("done", traffic.meter.summary())

    # --- steps ----------------------------------------------------------------------------

    def _prepare(self, step: dict[str, object]) -> None:
        """Get ready for a step: connections open, first requests made."""
        traffic = self._traffic
        for connection in traffic.sockets.all():
            traffic.drop(connection)
        gc.collect()
        traffic.load = Load(step, self._workload, self._job, self._index, self._workers)
        while traffic.load.supply.wants_more:
            traffic.load.supply.make()
        traffic.open_ahead()

    def _listen(self, mask: int) -> None:
        control = self._control
        if mask & WRITABLE:
            control.flush()
        if mask & ~WRITABLE:
            for command in control.commands():
                self._command(command)

    def _command(self, command: dict[str, object]) -> None:
        traffic, name = self._traffic, command["do"]
        if name == "prepare":
            self._prepare(command["step"])  # type: ignore[arg-type]
        elif name == "go":
            traffic.meter.reset()
            if command["measure"]:
                traffic.load.measure()
            traffic.load.go(int(command["start_ns"]))  # type: ignore[call-overload]
        elif name == "measure":
            traffic.load.measure()
        elif name == "drain":
            traffic.load.drain()
        elif name == "cancel":
            traffic.cancel()
            traffic.fold_all()
            self._say_done()
        elif name == "stop":
            self._alive = False
