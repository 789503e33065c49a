"""Requests out and answers in: what a worker does with its connections.

Bytes are kept as they came, with their times, and read when there is time (`spare_time`).
"""

from __future__ import annotations

import collections
import errno
import os

from .connection import HANDSHAKE, READY, Connection, now_ns
from .control import Control
from .deadlines import Deadlines
from .exchange import Exchange
from .lag import LagMeter
from .load import Load, Stream
from .poller import WRITABLE
from .sockets import DRAIN_NS, Sockets

MAX_PENDING_BYTES = 64 << 20
MAX_FINISHED = 2000
BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
OPENING_AT_ONCE = 128
WATCH_NS = 150_000_000
"""How long before its end a drained stream is read event by event again, or two tokens before."""
BATCH = 8
"""So much is left to pile up: work in a row finds its code and data in the processor's cache, where
the same work between two sleeps costs several times as much."""


class Traffic:
    """The connections and requests of a worker.

    Attributes:
        load: What is to be sent in this step.
        sockets: The connections.
        meter: Is told what came and went, and when.
        last_stamp: When the newest bytes of this round of the loop arrived; 0: none did.
    """

    def __init__(
        self,
        job: dict[str, object],
        control: Control,
        index: int,
        sockets: Sockets,
        load: Load,
    ) -> None:
        self.load = load
        self.sockets = sockets
        self.meter = LagMeter()
        self.last_stamp = 0
        self._control = control
        self._index = index
        self._streaming = bool(job["stream"])
        self._ignore_eos = bool(job["ignore_eos"])
        self._epoch = int(job["epoch_ns"])  # type: ignore[call-overload]
        limits = job["limits"]
        assert isinstance(limits, dict)
        self._deadlines = Deadlines(limits)
        self._backlog: collections.deque[Connection] = collections.deque()
        self._pending_bytes = 0
        self._finished: collections.deque[Exchange] = collections.deque()

    # --- receiving ------------------------------------------------------------------------

    def ready(self, connection: Connection, mask: int) -> None:
        """Something can be read from a connection, or written to it."""
        try:
            if connection.state != READY:
                if connection.advance():
                    self._opened(connection)
                else:
                    self.sockets.watch(connection)
                return
            if mask & WRITABLE and connection.waits_to_write:
                if connection.flush():
                    self._has_sent(connection)
                else:
                    self.sockets.watch(connection)
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
            self.last_stamp = time_ns
            exchange = connection.exchange
            if exchange is None:
                self.drop(connection)  # Closed while idle, or something nobody asked for.
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
        counters = self.load.counters
        counters.output_tokens += exchange.progressed()
        if answer.events != before and not exchange.drained:
            events = answer.events - before
            self.meter.arrived(events, events - (len(answer.arrivals) - before_reads))
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
                self.sockets.set_drained(connection, True)
        elif connection.drained:
            self._foresee(connection, exchange)

    def _foresee(self, connection: Connection, exchange: Exchange) -> None:
        """Have a drained stream read event by event again shortly before its end."""
        arrivals = exchange.answer.arrivals
        elapsed = arrivals[-1] - arrivals[0]
        if elapsed <= 0:
            return
        token_ns = elapsed // exchange.tokens
        left_ns = token_ns * (exchange.request.asked_output - exchange.tokens)
        margin_ns = max(WATCH_NS, 2 * token_ns)
        if left_ns < DRAIN_NS + margin_ns:
            self.sockets.watch_from(connection, arrivals[-1] + left_ns - margin_ns)

    def drain(self) -> None:
        """Read the drained connections whose turn has come."""
        for connection in self.sockets.to_drain(now_ns()):
            try:
                self._read(connection)
            except (OSError, ValueError) as error:
                self._lost(connection, error)
        self.last_stamp = 0  # These were read late on purpose.

    # --- what can wait --------------------------------------------------------------------

    @property
    def worth_it(self) -> bool:
        """Whether there is enough for `spare_time`; a tick takes what is left."""
        waiting = len(self._backlog) + len(self._finished)
        if waiting >= BATCH or self._pending_bytes > MAX_PENDING_BYTES:
            return True
        if waiting and self.sockets.any_drained:
            return True  # When a drained stream will end is seen in what came of it.
        return self.load.sending and self.load.supply.wants_more

    @property
    def too_much(self) -> bool:
        """Whether so much waits that `spare_time` must be taken, busy or not."""
        return self._pending_bytes > MAX_PENDING_BYTES or len(self._finished) > MAX_FINISHED

    def spare_time(self) -> None:
        """A little of what can wait: reading what arrived, writing records, making requests."""
        for _ in range(BATCH):
            if self._backlog:
                connection = self._backlog.popleft()
                self._digest(connection)
            elif self._finished:
                self._fold(self._finished.popleft())
            elif self.load.sending and self.load.supply.wants_more:
                self.load.supply.make()
                return
            else:
                return

    def fold_all(self) -> None:
        """Write the records of all requests that have ended."""
        while self._finished:
            self._fold(self._finished.popleft())

    def _fold(self, exchange: Exchange) -> None:
        exchange.digest()
        counters = self.load.counters
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
        record = exchange.record(self.load.number, self._index, self._epoch)
        self._control.say("request", record)

    # --- sending --------------------------------------------------------------------------

    def launch(self, stream: Stream, due: int) -> None:
        """The next request of a closed loop's slot."""
        exchange = self.load.new_exchange(due)
        if exchange is None:
            return
        exchange.slot = stream.number
        self.load.choose_reading(exchange)
        connection = stream.connection
        if connection is None:
            connection = self._open(exchange)
            stream.connection = connection
        if connection is not None:
            self._submit(connection, exchange)

    def launch_open(self, due: int) -> None:
        """A request of an open loop: on an idle connection, else on a new one."""
        exchange = self.load.new_exchange(due)
        if exchange is None:
            return
        self.load.choose_reading(exchange)
        idle = self.sockets.idle
        connection = idle.popitem()[1] if idle else self._open(exchange)
        if connection is not None:
            self._submit(connection, exchange)

    def _submit(self, connection: Connection, exchange: Exchange) -> None:
        connection.exchange = exchange
        connection.eager = True
        if connection.state != READY:
            self.meter.sent(now_ns() - exchange.due)
            return  # Goes out when the connection is open.
        try:
            self._send(connection, exchange)
        except (OSError, ValueError) as error:
            self._lost(connection, error)
            return
        if exchange.opened_ns is None:
            self.meter.sent(now_ns() - exchange.due)

    def _send(self, connection: Connection, exchange: Exchange) -> None:
        if connection.used == 0:
            exchange.opened_ns = connection.opened_ns
        connection.used += 1
        body = exchange.request.body
        if connection.send(self.sockets.head + b"%d\r\n\r\n" % len(body) + body):
            self._has_sent(connection)
        else:
            self.sockets.watch(connection)

    def _has_sent(self, connection: Connection) -> None:
        exchange = connection.exchange
        if exchange is not None and not exchange.sent:
            exchange.sent = connection.sent_ns
        self.sockets.watch(connection)

    # --- ends -----------------------------------------------------------------------------

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
            self.sockets.set_drained(connection, False)
        if not reusable:
            self.drop(connection)
        if exchange.slot is None:
            if reusable:
                self.sockets.idle[connection.fd] = connection
            return
        self._continue(self.load.streams[exchange.slot], exchange)

    def _continue(self, stream: Stream, exchange: Exchange) -> None:
        """What a slot does after an exchange: the next one, or a pause after a failure."""
        status = exchange.http.status
        if exchange.failure is None and 200 <= status < 300 and exchange.answer.error is None:
            stream.failures = 0
            self.launch(stream, exchange.end)
            return
        pause = BACKOFF_S[min(stream.failures, len(BACKOFF_S) - 1)]
        stream.failures += 1
        self.load.at(now_ns() + int(pause * 1e9), stream)

    def _close_exchange(self, exchange: Exchange) -> None:
        if self.load.close(exchange):
            self._finished.append(exchange)

    def check_deadlines(self, now: int) -> None:
        """End the requests whose deadline has passed."""
        for exchange in list(self.load.active):
            passed = self._deadlines.passed(exchange, now)
            if passed is not None:
                self._give_up(exchange, now, *passed)

    def _give_up(self, exchange: Exchange, now: int, failure: str, detail: str) -> None:
        self._pending_bytes -= exchange.pending_bytes()
        exchange.digest()
        exchange.fail(failure, detail)
        exchange.end = now
        for connection in self.sockets.all():
            if connection.exchange is exchange:
                self._end(connection, exchange)
                return
        self._close_exchange(exchange)

    def cancel(self) -> None:
        """End every request in flight at once."""
        now = now_ns()
        self.load.stop()
        by_exchange = {
            id(connection.exchange): connection
            for connection in self.sockets.all()
            if connection.exchange is not None
        }
        for exchange in list(self.load.active):
            exchange.digest()
            exchange.fail("cancelled", "")
            exchange.end = now
            self._close_exchange(exchange)
            connection = by_exchange.get(id(exchange))
            if connection is not None:
                self.drop(connection)
        self._backlog.clear()
        self._pending_bytes = 0

    # --- connections ----------------------------------------------------------------------

    def _open(self, exchange: Exchange) -> Connection | None:
        """A connection for an exchange; where none can be opened the exchange fails."""
        try:
            return self.sockets.open(exchange.slot)
        except OSError as error:
            self._fail_unsent(exchange, "connect", _words(error))
            return None

    def _fail_unsent(self, exchange: Exchange, failure: str, detail: str) -> None:
        exchange.fail(failure, detail)
        exchange.end = now_ns()
        self._close_exchange(exchange)
        if exchange.slot is not None:
            stream = self.load.streams[exchange.slot]
            stream.connection = None
            self._continue(stream, exchange)

    def _opened(self, connection: Connection) -> None:
        self.sockets.watch(connection)
        exchange = connection.exchange
        if exchange is not None:
            self._send(connection, exchange)
        else:
            self._opened_ahead()

    def _opened_ahead(self) -> None:
        """One of the connections that are opened before a step is open, or failed."""
        load = self.load
        if load.opening:
            load.opening -= 1
            self.open_ahead()

    def open_ahead(self) -> None:
        """Open the connections of a step, some at a time; says when all are."""
        load = self.load
        while load.to_open and load.opening < OPENING_AT_ONCE:
            stream = load.to_open.pop()
            try:
                stream.connection = self.sockets.open(stream.number)
            except OSError:
                continue  # Its first request tries again, and says why not.
            load.opening += 1
        if not load.to_open and not load.opening:
            self._control.say("ready", {})

    def _lost(self, connection: Connection, error: Exception) -> None:
        exchange = connection.exchange
        state = connection.state
        if exchange is None:
            self.drop(connection)
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
        self.drop(connection)
        fresh = self._open(exchange)
        if fresh is not None:
            if exchange.slot is not None:
                self.load.streams[exchange.slot].connection = fresh
            self._submit(fresh, exchange)
        return True

    def drop(self, connection: Connection) -> None:
        """Close a connection, if it still is open."""
        if not self.sockets.close(connection) or connection.slot is None:
            return
        stream = self.load.streams.get(connection.slot)
        if stream is not None and stream.connection is connection:
            stream.connection = None


def _words(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if type(error).__module__ != "ssl" and isinstance(number, int) and number in errno.errorcode:
        return os.strerror(number)
    return str(error)[:200]
