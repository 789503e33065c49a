"""The loop: sends what is due, stamps what arrives, and reads it when there is time."""

from __future__ import annotations

import collections
import errno
import gc
import os
import socket
import time

from .connection import HANDSHAKE, READY, Connection, now_ns
from .control import Control
from .exchange import Exchange
from .lag import TICK_S, LagMeter
from .load import Load, Stream
from .poller import READABLE, WRITABLE, Poller
from .sockets import DRAIN_NS, Sockets
from .workload import Workload

MAX_PENDING_BYTES = 64 << 20
MAX_FINISHED = 2000
BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
OPENING_AT_ONCE = 128
QUIET_EVENTS = 2
"""So few at once leave time for what can wait."""
BATCH = 8
"""So much is left to pile up: work in a row finds its code and data in the processor's cache, where
the same work between two sleeps costs several times as much."""


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
        self._workload = Workload(job)
        self._poller = Poller()
        self._sockets = Sockets(target, str(job["route"]), place, self._poller)
        nothing = {"number": -1, "index": 0, "load": {"kind": "closed"}, "streams": [0] * workers}
        self._load = Load(nothing, self._workload, job, index, workers)
        self._load.sending = False
        self._backlog: collections.deque[Connection] = collections.deque()
        self._pending_bytes = 0
        self._finished: collections.deque[Exchange] = collections.deque()
        self._meter = LagMeter()
        self._last_stamp = 0
        self._alive = True

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
                connection = self._sockets.get(fd)
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
                (len(events) <= QUIET_EVENTS and self._worth_it())
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
        for connection in self._sockets.all():
            self._drop(connection)

    def _timeout(self, next_tick: float) -> float:
        """How long to wait; 0 while there is something to do, or when a request is due soon."""
        if self._worth_it():
            return 0.0
        load = self._load
        wait = next_tick - time.monotonic()
        due = load.next_due()
        if due is not None:
            # epoll waits whole milliseconds: the last one is waited out here.
            wait = min(wait, (due - now_ns()) / 1e9 - 0.001)
        if self._sockets.any_drained:
            wait = min(wait, (self._sockets.next_drain_ns - now_ns()) / 1e9)
        return max(0.0, wait)

    def _ready(self, connection: Connection, mask: int) -> None:
        try:
            if connection.state != READY:
                if connection.advance():
                    self._opened(connection)
                else:
                    self._sockets.watch(connection)
                return
            if mask & WRITABLE and connection.waits_to_write:
                if connection.flush():
                    self._has_sent(connection)
                else:
                    self._sockets.watch(connection)
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
        counters = self._load.counters
        counters.output_tokens += exchange.progressed()
        if answer.events != before and not exchange.drained:
            events = answer.events - before
            self._meter.arrived(events, events - (len(answer.arrivals) - before_reads))
        if not exchange.told and answer.arrivals and self._streaming:
            exchange.told = True
            counters.ttft(answer.arrivals[0] - exchange.sent)
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
                self._sockets.set_drained(connection, True)
        elif connection.drained:
            self._foresee(connection, exchange)

    def _foresee(self, connection: Connection, exchange: Exchange) -> None:
        """Read a drained stream event by event again shortly before its end."""
        arrivals = exchange.answer.arrivals
        elapsed = arrivals[-1] - arrivals[0]
        left = exchange.request.asked_output - exchange.tokens
        if elapsed > 0 and left * elapsed / exchange.tokens < DRAIN_NS * 1.5:
            self._sockets.set_drained(connection, False)

    def _drain(self) -> None:
        for connection in self._sockets.to_drain(now_ns()):
            try:
                self._read(connection)
            except (OSError, ValueError) as error:
                self._lost(connection, error)
        self._last_stamp = 0  # These were read late on purpose.

    def _worth_it(self) -> bool:
        """Whether there is enough for `_spare_time`; a tick takes what is left."""
        waiting = len(self._backlog) + len(self._finished)
        if waiting >= BATCH:
            return True
        if waiting and self._sockets.any_drained:
            return True  # When a drained stream will end is seen in what came of it.
        return self._load.sending and self._load.supply.wants_more

    def _spare_time(self) -> None:
        """A little of what can wait: reading what arrived, writing records, making requests."""
        for _ in range(BATCH):
            if self._backlog:
                connection = self._backlog.popleft()
                self._digest(connection)
            elif self._finished:
                self._fold(self._finished.popleft())
            elif self._load.sending and self._load.supply.wants_more:
                self._load.supply.make()
                return
            else:
                return

    # --- requests -------------------------------------------------------------------------

    def _launch(self, stream: Stream, due: int) -> None:
        """The next request of a closed loop's slot."""
        exchange = self._load.new_exchange(due)
        if exchange is None:
            return
        exchange.slot = stream.number
        self._load.choose_reading(exchange)
        connection = stream.connection
        if connection is None:
            connection = self._open(exchange)
            stream.connection = connection
        if connection is not None:
            self._submit(connection, exchange)

    def _launch_open(self, due: int) -> None:
        """A request of an open loop: on an idle connection, else on a new one."""
        exchange = self._load.new_exchange(due)
        if exchange is None:
            return
        self._load.choose_reading(exchange)
        idle = self._sockets.idle
        connection = idle.popitem()[1] if idle else self._open(exchange)
        if connection is not None:
            self._submit(connection, exchange)

    def _submit(self, connection: Connection, exchange: Exchange) -> None:
        connection.exchange = exchange
        connection.eager = True
        if connection.state != READY:
            self._meter.sent(now_ns() - exchange.due)
            return  # Goes out when the connection is open.
        try:
            self._send(connection, exchange)
        except (OSError, ValueError) as error:
            self._lost(connection, error)
            return
        if exchange.opened_ns is None:
            self._meter.sent(now_ns() - exchange.due)

    def _send(self, connection: Connection, exchange: Exchange) -> None:
        if connection.used == 0:
            exchange.opened_ns = connection.opened_ns
        connection.used += 1
        body = exchange.request.body
        if connection.send(self._sockets.head + b"%d\r\n\r\n" % len(body) + body):
            self._has_sent(connection)
        else:
            self._sockets.watch(connection)

    def _has_sent(self, connection: Connection) -> None:
        exchange = connection.exchange
        if exchange is not None and not exchange.sent:
            exchange.sent = connection.sent_ns
        self._sockets.watch(connection)

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
            self._sockets.set_drained(connection, False)
        if not reusable:
            self._drop(connection)
        if exchange.slot is None:
            if reusable:
                self._sockets.idle[connection.fd] = connection
            return
        self._continue(self._load.streams[exchange.slot], exchange)

    def _continue(self, stream: Stream, exchange: Exchange) -> None:
        """What a slot does after an exchange: the next one, or a pause after a failure."""
        status = exchange.http.status
        if exchange.failure is None and 200 <= status < 300 and exchange.answer.error is None:
            stream.failures = 0
            self._launch(stream, exchange.end)
            return
        pause = BACKOFF_S[min(stream.failures, len(BACKOFF_S) - 1)]
        stream.failures += 1
        self._load.at(now_ns() + int(pause * 1e9), stream)

    def _close_exchange(self, exchange: Exchange) -> None:
        if self._load.close(exchange):
            self._finished.append(exchange)

    def _fold(self, exchange: Exchange) -> None:
        exchange.digest()
        counters = self._load.counters
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
        record = exchange.record(self._load.number, self._index, self._epoch)
        self._control.say("request", record)

    # --- connections ----------------------------------------------------------------------

    def _open(self, exchange: Exchange) -> Connection | None:
        """A connection for an exchange; where none can be opened the exchange fails."""
        try:
            return self._sockets.open(exchange.slot)
        except OSError as error:
            self._fail_unsent(exchange, "connect", _words(error))
            return None

    def _fail_unsent(self, exchange: Exchange, failure: str, detail: str) -> None:
        exchange.fail(failure, detail)
        exchange.end = now_ns()
        self._close_exchange(exchange)
        if exchange.slot is not None:
            stream = self._load.streams[exchange.slot]
            stream.connection = None
            self._continue(stream, exchange)

    def _opened(self, connection: Connection) -> None:
        self._sockets.watch(connection)
        exchange = connection.exchange
        if exchange is not None:
            self._send(connection, exchange)
        else:
            self._opened_ahead()

    def _opened_ahead(self) -> None:
        """One of the connections that are opened before a step is open, or failed."""
        load = self._load
        if load.opening:
            load.opening -= 1
            self._open_ahead()

    def _lost(self, connection: Connection, error: Exception) -> None:
        exchange = connection.exchange
        state = connection.state
        if exchange is None:
            self._drop(connection)
            if state != READY:
                self._opened_ahead()
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
                self._load.streams[exchange.slot].connection = fresh
            self._submit(fresh, exchange)
        return True

    def _drop(self, connection: Connection) -> None:
        if not self._sockets.close(connection) or connection.slot is None:
            return
        stream = self._load.streams.get(connection.slot)
        if stream is not None and stream.connection is connection:
            stream.connection = None

    # --- time -----------------------------------------------------------------------------

    def _due(self) -> None:
        load = self._load
        while True:
            due = load.next_due()
            now = now_ns() if due is not None else 0
            if due is None or due > now:
                break
            slot = load.pop_stream(now)
            if slot is not None:
                self._launch(*slot)
            arrival = load.pop_arrival(now)
            if arrival is not None:
                self._launch_open(arrival)
        if self._sockets.any_drained:
            self._drain()

    def _tick(self) -> None:
        self._spare_time()
        load = self._load
        now = now_ns()
        for exchange in list(load.active):
            self._check_deadlines(exchange, now)
        if not load.running:
            return
        reasons = self._meter.tick(len(load.streams) or None)
        progress = load.counters.tell()
        progress["in_flight"] = len(load.active)
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
        for connection in self._sockets.all():
            if connection.exchange is exchange:
                self._end(connection, exchange)
                return
        self._close_exchange(exchange)

    def _check_done(self) -> None:
        load = self._load
        if not load.running or self._finished:
            return
        if load.held_long_enough:
            self._cancel()
        elif not load.over:
            return
        while self._finished:
            self._fold(self._finished.popleft())
        load.running = False
        load.sending = False
        self._control.say("done", self._meter.summary())

    def _cancel(self) -> None:
        """End every request in flight at once."""
        now = now_ns()
        self._load.stop()
        by_exchange = {
            id(connection.exchange): connection
            for connection in self._sockets.all()
            if connection.exchange is not None
        }
        for exchange in list(self._load.active):
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
        for connection in self._sockets.all():
            self._drop(connection)
        gc.collect()
        self._load = Load(step, self._workload, self._job, self._index, self._workers)
        while self._load.supply.wants_more:
            self._load.supply.make()
        self._open_ahead()

    def _open_ahead(self) -> None:
        load = self._load
        while load.to_open and load.opening < OPENING_AT_ONCE:
            stream = load.to_open.pop()
            try:
                stream.connection = self._sockets.open(stream.number)
            except OSError:
                continue  # Its first request tries again, and says why not.
            load.opening += 1
        if not load.to_open and not load.opening:
            self._control.say("ready", {})

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
            self._meter.reset()
            if command["measure"]:
                self._load.measure()
            self._load.go(int(command["start_ns"]))  # type: ignore[call-overload]
        elif name == "measure":
            self._load.measure()
        elif name == "drain":
            self._load.drain()
        elif name == "cancel":
            self._cancel()
            while self._finished:
                self._fold(self._finished.popleft())
            self._check_done()
        elif name == "stop":
            self._alive = False


def _words(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if type(error).__module__ != "ssl" and isinstance(number, int) and number in errno.errorcode:
        return os.strerror(number)
    return str(error)[:200]
