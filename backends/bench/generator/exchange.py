"""One request and its answer: what came when, and what it amounts to."""

from __future__ import annotations

from .answers import Answer
from .http1 import ProtocolError, ResponseReader
from .sse import EventReader
from .workload import Request

MAX_ERROR_BYTES = 2000
MAX_BODY_BYTES = 64 << 20


class Exchange:
    """State of one request. Times are ns of the system clock, as the kernel stamps packets.

    Bytes are kept as they came (`pending`) and read by `digest` when there is time.
    """

    __slots__ = (
        "answer",
        "body",
        "clock",
        "detail",
        "drained",
        "due",
        "end",
        "error",
        "events",
        "failure",
        "first_byte",
        "http",
        "last",
        "number",
        "opened_ns",
        "pending",
        "phase",
        "queued",
        "request",
        "retried",
        "sent",
        "slot",
        "streaming",
        "tokens",
        "told",
    )

    def __init__(
        self, number: int, request: Request, route: str, streaming: bool, due: int, phase: str
    ) -> None:
        self.number = number
        self.request = request
        self.phase = phase
        self.slot: int | None = None
        self.streaming = streaming
        self.due = due
        self.opened_ns: int | None = None
        self.sent = 0
        self.first_byte = 0
        self.last = 0
        self.end = 0
        self.clock = "kernel"
        self.retried = False
        self.drained = False
        self.queued = False
        self.told = False
        self.tokens = 0
        self.pending: list[tuple[int, bytes]] = []
        self.http = ResponseReader()
        self.events = EventReader()
        self.answer = Answer(route)
        self.body: list[bytes] = []
        self.error = b""
        self.failure: str | None = None
        self.detail = ""

    def restart(self) -> None:
        """Forget the connection it was sent on; nothing had been answered there."""
        self.retried = True
        self.sent = 0
        self.pending = []
        self.http = ResponseReader()

    def fail(self, failure: str, detail: str) -> None:
        """Name the first thing that went wrong."""
        if self.failure is None:
            self.failure = failure
            self.detail = detail

    @property
    def complete(self) -> bool:
        """Nothing more is to come."""
        return self.http.done or self.failure is not None

    def pending_bytes(self) -> int:
        """How much has not been read yet."""
        return sum(len(data) for _, data in self.pending)

    def digest(self) -> None:
        """Read what is pending."""
        pending = self.pending
        if not pending:
            return
        self.pending = []
        http = self.http
        for time_ns, data in pending:
            self.last = time_ns
            if not self.first_byte:
                self.first_byte = time_ns
            try:
                pieces = http.feed(data)
            except ProtocolError as error:
                self.fail("protocol", str(error))
                return
            for piece in pieces:
                self._take(time_ns, piece)
            if self.failure is not None:
                return
        if http.done:
            if http.surplus:
                http.reusable = False
            if not self.streaming and 200 <= http.status < 300:
                self.answer.whole(self.last, b"".join(self.body))
                self.body = []

    def closed(self) -> None:
        """The server closed the connection."""
        self.digest()
        try:
            self.http.close()
        except ProtocolError as error:
            if self.http.status == 0 and not self.first_byte:
                self.fail("cut", "the connection closed before any answer")
            else:
                self.fail("cut", str(error))

    def _take(self, time_ns: int, piece: bytes) -> None:
        if not 200 <= self.http.status < 300:
            if len(self.error) < MAX_ERROR_BYTES:
                self.error += piece[:MAX_ERROR_BYTES]
            return
        if not self.streaming:
            self.body.append(piece)
            if len(self.body) > 1000:
                self.body = [b"".join(self.body)]
            if len(self.body[0]) > MAX_BODY_BYTES:
                self.fail("protocol", "the body is longer than 64 MB")
            return
        answer = self.answer
        try:
            events = self.events.feed(piece)
        except ValueError as error:
            self.fail("protocol", str(error))
            return
        for payload in events:
            answer.event(time_ns, payload)
        if answer.broken is None and not self.events.fields and len(piece) > MAX_ERROR_BYTES:
            self.fail("protocol", "the answer is no event stream")

    def progressed(self) -> int:
        """Tokens that came since the last call, as far as known."""
        now = max(self.answer.total, self.answer.events)
        new = now - self.tokens
        self.tokens = now
        return new

    def judge(self, ignore_eos: bool) -> None:
        """Decide whether a complete exchange is a success; else name its failure."""
        status = self.http.status
        answer = self.answer
        if self.failure is not None:
            return
        if not 200 <= status < 300:
            kind = {429: "rate_limited", 503: "overloaded"}.get(status, "http")
            text = self.error.decode("utf-8", "replace")
            self.fail(kind, "HTTP %d: %s" % (status, text[:300]))
        elif answer.error is not None:
            self.fail("error_event", answer.error)
        elif answer.broken is not None:
            self.fail("protocol", answer.broken)
        elif self.streaming and not self.events.fields:
            kind = self.http.headers.get("content-type", "no content type")
            self.fail("protocol", "the answer is no event stream (%s)" % kind)
        elif answer.finish is None:
            self.fail("no_finish", "the stream ended without a finish reason")
        elif ignore_eos:
            tokens, _ = self.count()
            asked = self.request.asked_output
            if abs(tokens - asked) > 1:
                self.fail("wrong_length", "%d tokens of %d asked for" % (tokens, asked))

    def count(self) -> tuple[int, str]:
        """Output tokens and where the count comes from."""
        answer = self.answer
        if answer.output_tokens is not None:
            return answer.output_tokens, "usage"
        if answer.total:
            return answer.total, "ids" if answer.from_ids else "usage"
        return answer.events, "events"

    def record(self, step: int, worker: int, epoch: int) -> dict[str, object]:
        """The exchange as a line of the sample file; see `backends.bench.results`.

        `epoch` is the run's beginning in ns; what is None or empty is left out.
        """
        answer = self.answer
        tokens, source = self.count()
        arrivals = answer.arrivals if self.streaming else []
        counts, known = self._arrival_tokens(tokens) if arrivals else ([], False)

        def at(ns: int | None) -> float | None:
            return round((ns - epoch) / 1e9, 6) if ns else None

        fields = {
            "step": step,
            "id": self.number,
            "phase": self.phase,
            "worker": worker,
            "slot": self.slot,
            "kind": self.request.kind,
            "due_s": at(self.due),
            "connect_s": None if self.opened_ns is None else round(self.opened_ns / 1e9, 6),
            "sent_s": at(self.sent),
            "first_byte_s": at(self.first_byte),
            "first_token_s": at(arrivals[0]) if arrivals else None,
            "first_answer_s": at(answer.first_answer) if arrivals and answer.reasoned else None,
            "last_token_s": at(arrivals[-1] if arrivals else self.last if tokens else 0),
            "end_s": at(self.end),
            "status": self.http.status or None,
            "failure": None if self.failure == "cancelled" else self.failure,
            "detail": self.detail,
            "finish": answer.finish,
            "asked_input": self.request.asked_input,
            "asked_output": self.request.asked_output,
            "input_tokens": answer.prompt_tokens,
            "output_tokens": tokens if tokens or self.failure is None else None,
            "cached_tokens": answer.cached_tokens,
            "reasoning_tokens": answer.reasoning_tokens,
            "source": source if tokens else None,
            "events": answer.events,
            "merged": answer.events - len(answer.arrivals),
            "first_tokens": counts[0] if counts else None,
            "gaps_us": [
                (later - earlier + 500) // 1000 for earlier, later in zip(arrivals, arrivals[1:])
            ],
            "arrival_tokens": counts if counts and counts.count(1) != len(counts) else None,
            "server_ttft_s": answer.server_ttft_s,
            "server_tpot_s": answer.server_tpot_s,
        }  # type: dict[str, object]
        if self.clock != "kernel":
            fields["clock"] = self.clock
        for name, value in (
            ("ok", self.failure is None),
            ("cancelled", self.failure == "cancelled"),
            ("tokens_known", known),
            ("drained", self.drained),
            ("retried", self.retried),
        ):
            if value:
                fields[name] = True
        return {name: value for name, value in fields.items() if value not in (None, "", [])}

    def _arrival_tokens(self, tokens: int) -> tuple[list[int], bool]:
        """Tokens of each arrival, and whether they are known rather than one an event."""
        answer = self.answer
        totals = answer.totals
        if totals[0] > 0 and all(later >= earlier for earlier, later in zip(totals, totals[1:])):
            steps = [totals[0]]
            steps.extend(later - earlier for earlier, later in zip(totals, totals[1:]))
            # An event without a token of its own has the text that an earlier one kept back. What
            # the count is short of at the end came without an event.
            return steps, tokens >= totals[-1]
        return answer.counts, tokens - answer.events in (0, 1)
