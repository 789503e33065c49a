"""The loop: sends what is due, stamps what arrives, and reads it when there is time."""

from __future__ import annotations

import collections
import errno
import functools
import gc
import heapq
import os
import socket
import time
from typing import Callable

from .connection import HANDSHAKE, READY, Connection, now_ns
from .control import Control
from .counters import Counters
from .exchange import Exchange
from .lag import TICK_S, LagMeter
from .poller import READABLE, WRITABLE, Poller
from .supply import Supply
from .workload import PATHS, Workload

DRAIN_S = 0.25
DRAIN_GROUPS = 10
MAX_PENDING_BYTES = 64 << 20
MAX_FINISHED = 2000
BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
OPENING_AT_ONCE = 128
QUIET_EVENTS = 2
"""So few at once leave time to read at once what they brought."""


class Stream:
    """One slot of a closed loop: it has at most one request in flight."""

    __slots__ = ("connection", "failures", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.connection: Connection | None = None
        self.failures = 0


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
        self._route = str(job["route"])
        self._streaming = bool(job["stream"])
        self._ignore_eos = bool(job["ignore_eos"])
        self._epoch = int(job["epoch_ns"])  # type: ignore[call-overload]
        limits = job["limits"]
        assert isinstance(limits, dict)
        self._connect_ns = int(limits["connect_s"] * 1e9)
        self._silence_ns = int(limits["silence_s"] * 1e9)
        self._request_ns = int(limits["request_s"] * 1e9)
        target = job["target"]
        assert isinstance(target, dict)
        self._connect = _connector(target, place)
        self._head = _head(target, self._route)
        self._workload = Workload(job)
        self._poller = Poller()
        self._connections: dict[int, Connection] = {}
        self._backlog: collections.deque[Connection] = collections.deque()
        self._pending_bytes = 0
        self._finished: collections.deque[Exchange] = collections.deque()
        self._timer_number = 0
        self._idle: dict[int, Connection] = {}
        self._drained: list[set[Connection]] = [set() for _ in range(DRAIN_GROUPS)]
        self._drains = False
        self._drain_group = 0
        self._next_drain = 0
        self._meter = LagMeter()
        self._alive = True
        self._begin({"streams": [0] * workers, "load": {"kind": "closed"}, "index": 0}, False)

    def _begin(self, step: dict[str, object], sending: bool = True) -> None:
        """Forget the step before. Not `sending`: there is none yet to make requests for."""
        self._step = step
        self._phase: str = "warmup"
        self._running: bool = False
        self._sending = sending
        self._hold: bool = step.get("cool_down") == "hold"
        self._left: int | None = None
        sample = step.get("sample")
        self._sample = max(1, sample // self._workers) if isinstance(sample, int) else None
        self._read_in_full = 0
        streams = step["streams"]
        assert isinstance(streams, list)
        self._streams = {number: Stream(number) for number in range(streams[self._index])}
        self._to_open = list(self._streams.values())
        self._opening = 0
        self._active: set[Exchange] = set()
        self._measured_active: int = 0
        self._counters = Counters()
        self._timers: list[tuple[int, int, Stream]] = []
        self._last_stamp: int = 0
        self._supply: Supply = Supply(
            self._workload, step, self._job["seed"], self._index, self._workers, len(self._streams)
        )

    # --- the loop -------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until told to stop or until the coordinator is gone."""
        control = self._control
        self._poller.register(control.fd, READABLE)
        gc.collect()
        gc.freeze()
        gc.disable()  # A collection in the run would be a stall; nothing here makes cycles.
        next_tick = time.monotonic() + TICK_S
        blocked = False
        while self._alive and not control.lost:
            timeout_s = self._timeout(next_tick)
            slept = now_ns()
            events = self._poller.poll(timeout_s)
            woke = now_ns()
            for fd, mask in events:
                connection = self._connections.get(fd)
                if connection is not None:
                    self._ready(connection, mask)
                elif fd == control.fd:
                    self._listen(mask)
            # Bytes that piled up share the last one's stamp, so how long the loop was away from
            # the sockets counts too: asleep for longer than asked, or busy.
            done = now_ns()
            away = max(woke - slept - int(timeout_s * 1e9), done - woke)
            if events:
                late = done - self._last_stamp if self._last_stamp else 0
                self._meter.received(max(late, away))
                self._last_stamp = 0
            self._meter.away(away)
            self._due()
            if (
                len(events) <= QUIET_EVENTS
                or self._pending_bytes > MAX_PENDING_BYTES
                or len(self._finished) > MAX_FINISHED
            ):
                self._spare_time()
            if control.blocked != blocked:
                blocked = control.blocked
                self._poller.modify(control.fd, READABLE | WRITABLE if blocked else READABLE)
            if time.monotonic() >= next_tick:
                next_tick = max(next_tick + TICK_S, time.monotonic())
                self._tick()
        for connection in list(self._connections.values()):
            self._drop(connection)

    def _timeout(self, next_tick: float) -> float:
        """How long to wait; 0 while there is something to do, or when a request is due soon."""
        if self._backlog or self._finished or (self._sending and self._supply.wants_more):
            return 0.0
        wait = next_tick - time.monotonic()
        due = self._next_due()
        if due is not None:
            # epoll waits whole milliseconds: the last one is waited out here.
            wait = min(wait, (due - now_ns()) / 1e9 - 0.001)
        if self._drains:
            wait = min(wait, (self._next_drain - now_ns()) / 1e9)
        return max(0.0, wait)

    def _ready(self, connection: Connection, mask: int) -> None:
        try:
            if connection.state != READY:
                if connection.advance():
                    self._opened(connection)
                else:
                    self._watch(connection)
                return
            if mask & WRITABLE and connection.waits_to_write:
                if connection.flush():
                    self._has_sent(connection)
                else:
                    self._watch(connection)
            if mask & ~WRITABLE:
                self._read(connection)
        except (OSError, ValueError) as error:
            self._lost(connection, error)

    def _read(self, connection: Connection) -> None:
        while True:
            got = connection.read()
            if got is None:
                return
            time_ns, data, stamped = got
            self._last_stamp = time_ns
            exchange = connection.exchange
            if exchange is None:
                self._drop(connection)  # Closed while idle, or something nobody asked for.
                return
            if not stamped:
                exchange.clock = "loop"
            if not data:
                exchange.end = time_ns
                self._pending_bytes -= exchange.pending_bytes()
                exchange.closed()
                if exchange.failure == "cut" and self._again(connection, exchange):
                    return
                self._end(connection, exchange)
                return
            exchange.pending.append((time_ns, data))
            self._pending_bytes += len(data)
            if connection.eager or data.endswith(b"\r\n\r\n") or len(data) < 8:
                # Possibly the end of the answer: it is read now, so the next request can go out.
                self._digest(connection)
                if connection.exchange is not exchange:
                    return
            elif not exchange.queued:
                exchange.queued = True
                self._backlog.append(connection)
            if not connection.buffers and not connection.drained:
                return

    def _digest(self, connection: Connection) -> None:
        exchange = connection.exchange
        if exchange is None:
            return
        exchange.queued = False
        self._pending_bytes -= exchange.pending_bytes()
        answer = exchange.answer
        before, before_reads = answer.events, len(answer.arrivals)
        exchange.digest()
        new = exchange.progressed()
        self._counters.output_tokens += new
        if answer.events != before and not exchange.drained:
            events = answer.events - before
            self._meter.arrived(events, events - (len(answer.arrivals) - before_reads))
        if not exchange.told and answer.arrivals and self._streaming:
            exchange.told = True
            self._counters.ttft(answer.arrivals[0] - exchange.sent)
        asked = exchange.request.asked_output
        if exchange.tokens > 2 * asked + 64:
            exchange.fail("overrun", "%d tokens of %d asked for" % (exchange.tokens, asked))
        if exchange.complete:
            exchange.end = exchange.last or now_ns()
            self._end(connection, exchange)
        elif connection.eager and exchange.http.chunked and 200 <= exchange.http.status < 300:
            if not exchange.drained:
                connection.eager = False
            elif answer.arrivals:
                connection.eager = False
                self._set_drained(connection, True)
        elif connection.drained:
            self._foresee(connection, exchange)

    def _foresee(self, connection: Connection, exchange: Exchange) -> None:
        """Read a drained stream event by event again shortly before its end."""
        arrivals = exchange.answer.arrivals
        elapsed = arrivals[-1] - arrivals[0]
        left = exchange.request.asked_output - exchange.tokens
        if elapsed > 0 and left * elapsed / exchange.tokens < DRAIN_S * 1.5e9:
            self._set_drained(connection, False)

    def _set_drained(self, connection: Connection, drained: bool) -> None:
        group = self._drained[connection.fd % DRAIN_GROUPS]
        connection.drained = drained
        if drained:
            group.add(connection)
        else:
            group.discard(connection)
        self._drains = any(self._drained)
        self._watch(connection)

    def _drain(self) -> None:
        now = now_ns()
        if now < self._next_drain:
            return
        self._next_drain = now + int(DRAIN_S / DRAIN_GROUPS * 1e9)
        self._drain_group = (self._drain_group + 1) % DRAIN_GROUPS
        for connection in list(self._drained[self._drain_group]):
            try:
                self._read(connection)
            except (OSError, ValueError) as error:
                self._lost(connection, error)
        self._last_stamp = 0  # These were read late on purpose.

    def _spare_time(self) -> None:
        """A little of what can wait: reading what arrived, writing records, making requests."""
        for _ in range(8):
            if self._backlog:
                connection = self._backlog.popleft()
                self._digest(connection)
            elif self._finished:
                self._fold(self._finished.popleft())
            elif self._sending and self._supply.wants_more:
                self._supply.make()
                return
            else:
                return

    # --- requests -------------------------------------------------------------------------

    def _may_send(self) -> bool:
        """Whether another request may be sent; counts it if it is to be measured."""
        if not self._sending:
            return False
        if self._phase == "measure" and self._left is not None:
            if self._left <= 0:
                if not self._hold:
                    self._sending = False
                    return False
                self._phase = "cooldown"
            else:
                self._left -= 1
        return True

    def _new_exchange(self, due: int) -> Exchange | None:
        taken = self._supply.take() if self._may_send() else None
        if taken is None:
            return None
        exchange = Exchange(taken[0], taken[1], self._route, self._streaming, due, self._phase)
        self._active.add(exchange)
        self._counters.sent += 1
        if self._phase == "measure":
            self._measured_active += 1
        return exchange

    def _launch(self, stream: Stream, due: int) -> None:
        """The next request of a closed loop's slot."""
        exchange = self._new_exchange(due)
        if exchange is None:
            return
        exchange.slot = stream.number
        exchange.drained = self._is_drained(stream.number)
        connection = stream.connection
        if connection is None:
            connection = self._open(exchange)
            stream.connection = connection
            if connection is None:
                return
        self._submit(connection, exchange)

    def _is_drained(self, number: int) -> bool:
        sample = self._sample
        if sample is None or sample >= len(self._streams):
            return False
        return number * sample // len(self._streams) == (number + 1) * sample // len(self._streams)

    def _launch_open(self, due: int) -> None:
        """A request of an open loop: on an idle connection, else on a new one."""
        exchange = self._new_exchange(due)
        if exchange is None:
            return
        if self._sample is not None:
            exchange.drained = self._read_in_full >= self._sample
            if not exchange.drained:
                self._read_in_full += 1
        connection = self._idle.popitem()[1] if self._idle else self._open(exchange)
        if connection is not None:
            self._submit(connection, exchange)

    def _submit(self, connection: Connection, exchange: Exchange) -> None:
        connection.exchange = exchange
        connection.eager = True
        if connection.state != READY:
            self._meter.sent(now_ns() - exchange.due)
            return  # Goes out when the connection is open.
        if connection.used == 0:
            exchange.opened_ns = connection.opened_ns
        connection.used += 1
        body = exchange.request.body
        try:
            done = connection.send(self._head + b"%d\r\n\r\n" % len(body) + body)
        except (OSError, ValueError) as error:
            self._lost(connection, error)
            return
        if exchange.opened_ns is None:
            self._meter.sent(now_ns() - exchange.due)
        if done:
            self._has_sent(connection)
        else:
            self._watch(connection)

    def _has_sent(self, connection: Connection) -> None:
        exchange = connection.exchange
        if exchange is not None and not exchange.sent:
            exchange.sent = connection.sent_ns
        self._watch(connection)

    def _end(self, connection: Connection, exchange: Exchange) -> None:
        """The exchange is over; its slot goes on at once, its record is written later."""
        self._close_exchange(exchange)
        connection.exchange = None
        reusable = (
            exchange.failure is None
            and exchange.http.done
            and exchange.http.reusable
            and exchange.sent > 0
            and not connection.waits_to_write
        )
        if connection.drained:
            self._set_drained(connection, False)
        if not reusable:
            self._drop(connection)
        if exchange.slot is None:
            if reusable:
                self._idle[connection.fd] = connection
            return
        self._continue(self._streams[exchange.slot], exchange)

    def _continue(self, stream: Stream, exchange: Exchange) -> None:
        """What a slot does after an exchange: the next one, or a pause after a failure."""
        status = exchange.http.status
        if exchange.failure is None and 200 <= status < 300 and exchange.answer.error is None:
            stream.failures = 0
            self._launch(stream, exchange.end)
            return
        pause = BACKOFF_S[min(stream.failures, len(BACKOFF_S) - 1)]
        stream.failures += 1
        self._at(now_ns() + int(pause * 1e9), stream)

    def _close_exchange(self, exchange: Exchange) -> None:
        if exchange in self._active:
            self._active.discard(exchange)
            self._counters.ended += 1
            if exchange.phase == "measure":
                self._measured_active -= 1
            if self._sample is not None and exchange.slot is None and not exchange.drained:
                self._read_in_full -= 1
            self._finished.append(exchange)

    def _fold(self, exchange: Exchange) -> None:
        exchange.digest()
        counters = self._counters
        counters.output_tokens += exchange.progressed()
        if exchange.failure != "cancelled":
            exchange.judge(self._ignore_eos)
        answer = exchange.answer
        if exchange.failure is None:
            counters.success(
                answer.prompt_tokens or exchange.request.asked_input or 0,
                answer.arrivals[-1] - exchange.sent if answer.arrivals else None,
            )
        elif exchange.failure == "cancelled":
            counters.cancelled += 1
        else:
            counters.failed += 1
        number = self._step["number"]
        assert isinstance(number, int)
        record = exchange.record(number, self._index, self._epoch)
        self._control.say("request", record)

    # --- connections ----------------------------------------------------------------------

    def _open(self, exchange: Exchange | None, slot: int | None = None) -> Connection | None:
        if exchange is not None:
            slot = exchange.slot
        try:
            connection = self._connect()
        except OSError as error:
            if exchange is not None:
                self._fail_unsent(exchange, "connect", _words(error))
            return None
        self._connections[connection.fd] = connection
        connection.slot = slot
        connection.mask = READABLE | WRITABLE
        self._poller.register(connection.fd, connection.mask)
        return connection

    def _fail_unsent(self, exchange: Exchange, failure: str, detail: str) -> None:
        exchange.fail(failure, detail)
        exchange.end = now_ns()
        self._close_exchange(exchange)
        if exchange.slot is not None:
            stream = self._streams[exchange.slot]
            stream.connection = None
            self._continue(stream, exchange)

    def _opened(self, connection: Connection) -> None:
        self._watch(connection)
        exchange = connection.exchange
        if exchange is not None:
            body = exchange.request.body
            exchange.opened_ns = connection.opened_ns
            connection.used += 1
            if connection.send(self._head + b"%d\r\n\r\n" % len(body) + body):
                self._has_sent(connection)
            else:
                self._watch(connection)
        elif self._opening:
            self._opening -= 1
            self._open_ahead()

    def _watch(self, connection: Connection) -> None:
        mask = 0 if connection.drained else READABLE
        if connection.waits_to_write:
            mask |= WRITABLE
        if mask != connection.mask:
            connection.mask = mask
            self._poller.modify(connection.fd, mask)

    def _lost(self, connection: Connection, error: Exception) -> None:
        exchange = connection.exchange
        state = connection.state
        if exchange is None:
            self._drop(connection)
            if state != READY and self._opening:
                self._opening -= 1
                self._open_ahead()
            return
        if self._again(connection, exchange):
            return
        self._pending_bytes -= exchange.pending_bytes()
        exchange.digest()
        if state != READY:
            exchange.fail("tls" if state == HANDSHAKE else "connect", _words(error))
        else:
            exchange.fail("cut", _words(error))
        exchange.end = now_ns()
        self._end(connection, exchange)

    def _again(self, connection: Connection, exchange: Exchange) -> bool:
        """Send once more on a new connection if the server had closed the idle one."""
        if connection.used < 2 or exchange.first_byte or exchange.retried:
            return False
        exchange.failure = None
        exchange.restart()
        connection.exchange = None
        self._drop(connection)
        fresh = self._open(exchange)
        if fresh is not None:
            if exchange.slot is not None:
                self._streams[exchange.slot].connection = fresh
            self._submit(fresh, exchange)
        return True

    def _drop(self, connection: Connection) -> None:
        if self._connections.pop(connection.fd, None) is None:
            return
        self._poller.unregister(connection.fd)
        if connection.drained:
            self._drained[connection.fd % DRAIN_GROUPS].discard(connection)
            self._drains = any(self._drained)
            connection.drained = False
        connection.close()
        self._idle.pop(connection.fd, None)
        stream = self._streams.get(connection.slot) if connection.slot is not None else None
        if stream is not None and stream.connection is connection:
            stream.connection = None

    # --- time -----------------------------------------------------------------------------

    def _at(self, due: int, stream: Stream) -> None:
        self._timer_number += 1
        heapq.heappush(self._timers, (due, self._timer_number, stream))

    def _next_due(self) -> int | None:
        due = self._timers[0][0] if self._timers else None
        arrival = self._supply.due_ns
        if arrival is not None and self._sending:
            due = arrival if due is None else min(due, arrival)
        return due

    def _due(self) -> None:
        if self._timers:
            now = now_ns()
            while self._timers and self._timers[0][0] <= now:
                due, _, stream = heapq.heappop(self._timers)
                self._launch(stream, due)
        supply = self._supply
        while self._sending:
            arrival = supply.due_ns
            if arrival is None or arrival > now_ns():
                break
            supply.next_due()
            self._launch_open(arrival)
        if self._drains:
            self._drain()

    def _tick(self) -> None:
        now = now_ns()
        for exchange in list(self._active):
            self._check_deadlines(exchange, now)
        if not self._running:
            return
        reasons = self._meter.tick(len(self._streams) or None)
        progress = self._counters.tell()
        progress["in_flight"] = len(self._active)
        progress["reasons"] = reasons
        self._control.say("progress", progress)
        self._check_done()

    def _check_deadlines(self, exchange: Exchange, now: int) -> None:
        begun = exchange.sent or exchange.due
        pending = exchange.pending
        latest = pending[-1][0] if pending else max(exchange.last, begun)
        if not exchange.sent and now - begun > self._connect_ns:
            failure, detail = "connect", "not connected and sent within the deadline"
        elif now - begun > self._request_ns:
            failure, detail = "timeout", "not complete within the deadline"
        elif now - latest > self._silence_ns:
            failure, detail = "silence", "no byte for %.1f s" % ((now - latest) / 1e9)
        else:
            return
        self._pending_bytes -= exchange.pending_bytes()
        exchange.digest()
        exchange.fail(failure, detail)
        exchange.end = now
        for connection in list(self._connections.values()):
            if connection.exchange is exchange:
                self._end(connection, exchange)
                return
        self._close_exchange(exchange)

    def _check_done(self) -> None:
        if not self._running or self._finished:
            return
        if self._hold and self._phase == "cooldown" and self._measured_active == 0:
            self._sending = False
            self._cancel()
        elif self._active or (self._sending and not self._supply.over):
            return
        while self._finished:
            self._fold(self._finished.popleft())
        self._running = False
        self._sending = False
        self._control.say("done", self._meter.summary())

    def _cancel(self) -> None:
        """End every request in flight at once."""
        now = now_ns()
        self._timers = []
        by_exchange = {
            id(connection.exchange): connection
            for connection in self._connections.values()
            if connection.exchange is not None
        }
        for exchange in list(self._active):
            exchange.digest()
            exchange.fail("cancelled", "")
            exchange.end = now
            self._close_exchange(exchange)
            connection = by_exchange.get(id(exchange))
            if connection is not None:
                self._drop(connection)
        self._backlog.clear()
        self._pending_bytes = 0

    # --- steps ----------------------------------------------------------------------------

    def _prepare(self, step: dict[str, object]) -> None:
        """Get ready for a step: connections open, first requests made."""
        for connection in list(self._connections.values()):
            self._drop(connection)
        gc.collect()
        self._begin(step)
        while self._supply.wants_more:
            self._supply.make()
        self._open_ahead()

    def _open_ahead(self) -> None:
        while self._to_open and self._opening < OPENING_AT_ONCE:
            stream = self._to_open.pop()
            stream.connection = self._open(None, stream.number)
            if stream.connection is not None:
                self._opening += 1
        if not self._to_open and not self._opening:
            self._control.say("ready", {})

    def _go(self, start_ns: int, measure: bool) -> None:
        self._running = True
        self._meter.reset()
        if measure:
            self._measure()
        load = self._step["load"]
        assert isinstance(load, dict)
        self._supply.start(start_ns)
        ramp_ns = int(float(load.get("ramp_s") or 0.0) * 1e9)
        for stream in self._streams.values():
            place = stream.number * self._workers + self._index
            self._at(start_ns + ramp_ns * place // int(load["concurrency"]), stream)
        if load["kind"] == "closed" and not self._streams:
            self._sending = False  # Fewer streams than workers.

    def _measure(self) -> None:
        self._phase = "measure"
        shares = self._step.get("requests")
        self._left = None if shares is None else shares[self._index]  # type: ignore[index]

    # --- the coordinator ------------------------------------------------------------------

    def _listen(self, mask: int) -> None:
        control = self._control
        if mask & WRITABLE:
            control.flush()
        if mask & ~WRITABLE:
            for command in control.commands():
                self._command(command)

    def _command(self, command: dict[str, object]) -> None:
        name = command["do"]
        if name == "prepare":
            self._prepare(command["step"])  # type: ignore[arg-type]
        elif name == "go":
            self._go(int(command["start_ns"]), bool(command["measure"]))  # type: ignore[call-overload]
        elif name == "measure":
            self._measure()
        elif name == "drain":
            if self._hold and self._phase == "measure":
                self._phase = "cooldown"
            else:
                self._sending = False
        elif name == "cancel":
            self._hold = False
            self._sending = False
            self._running = True
            self._cancel()
            while self._finished:
                self._fold(self._finished.popleft())
            self._check_done()
        elif name == "stop":
            self._alive = False


def _connector(
    target: dict[str, object], place: tuple[int, tuple[object, ...]]
) -> Callable[[], Connection]:
    """What opens a connection to the server."""
    if not target.get("tls"):
        return functools.partial(Connection, *place)
    from . import tls

    context = tls.context(bool(target.get("verify", True)))
    return functools.partial(tls.TlsConnection, *place, context, str(target["host"]))


def _head(target: dict[str, object], route: str) -> bytes:
    """The request's head up to the value of its content-length."""
    base = str(target.get("base_path") or "").rstrip("/")
    path = PATHS[route]
    if base.endswith("/v1") and path.startswith("/v1"):
        path = path[3:]
    lines = [
        "POST %s%s HTTP/1.1" % (base, path),
        "host: %s" % target["authority"],
        "content-type: application/json",
        "accept: text/event-stream, application/json",
        "accept-encoding: identity",
        "user-agent: gpuroom",
    ]
    headers = target.get("headers") or {}
    assert isinstance(headers, dict)
    lines.extend("%s: %s" % item for item in headers.items())
    lines.append("content-length: ")
    return "\r\n".join(lines).encode()


def _words(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if type(error).__module__ != "ssl" and isinstance(number, int) and number in errno.errorcode:
        return os.strerror(number)
    return str(error)[:200]
