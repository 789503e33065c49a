"""What an answer carries: tokens, counts, an end, an error; for each route that is known.

Read after the fact: the times come from the read that brought the bytes, never from here.
"""

from __future__ import annotations

import json

NO_TOKEN = 0
REASONING = 1
ANSWER = 2

# The scanner itself: `json.loads` would look for an encoding and for leading blanks each time.
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class Answer:
    """What one response has said so far.

    Attributes:
        arrivals: Times (ns) of the reads that carried at least one token event.
        counts: Token events in each arrival.
        totals: Tokens so far at each arrival, by the server's count; 0 where it gave none.
        events: Token events in all.
        total: Tokens so far by the server's running count, or by token ids.
        first_answer: Time (ns) of the first token that is no reasoning.
        reasoned: Whether any reasoning came.
        finish: The finish reason.
        error: The words of an error inside the stream.
        broken: What is wrong with the stream's form.
        ended: The stream said that it is complete (`[DONE]`, or the route's own last event).
        usage: The server reported its final count.
    """

    __slots__ = (
        "_read",
        "arrivals",
        "broken",
        "cached_tokens",
        "counts",
        "ended",
        "error",
        "events",
        "finish",
        "first_answer",
        "from_ids",
        "output_tokens",
        "prompt_tokens",
        "reasoned",
        "reasoning_tokens",
        "server_tpot_s",
        "server_ttft_s",
        "total",
        "totals",
    )

    def __init__(self, route: str) -> None:
        self._read = _READERS[route]
        self.arrivals: list[int] = []
        self.counts: list[int] = []
        self.totals: list[int] = []
        self.events = 0
        self.total = 0
        self.from_ids = False
        self.first_answer: int | None = None
        self.reasoned = False
        self.finish: str | None = None
        self.error: str | None = None
        self.broken: str | None = None
        self.ended = False
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self.server_ttft_s: float | None = None
        self.server_tpot_s: float | None = None

    def event(self, time_ns: int, payload: bytes) -> None:
        """Take the data of one event that arrived at `time_ns`."""
        if payload == b"[DONE]":
            self.ended = True
            return
        try:
            message, _ = _scan(payload.decode("utf-8", "replace").lstrip(), 0)
        except (ValueError, StopIteration, RecursionError):
            self.broken = "an event is no JSON: %r" % payload[:80]
            return
        if not isinstance(message, dict):
            self.broken = "an event is no JSON object: %r" % payload[:80]
            return
        if message.get("error"):
            self.error = words(message["error"])
            return
        try:
            kind = self._read(self, message)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            self.broken = "an event is not of this route's form: %r" % payload[:80]
            return
        if kind == NO_TOKEN:
            return
        self.events += 1
        if self.arrivals and self.arrivals[-1] == time_ns:
            self.counts[-1] += 1
            self.totals[-1] = self.total
        else:
            self.arrivals.append(time_ns)
            self.counts.append(1)
            self.totals.append(self.total)
        if kind == REASONING:
            self.reasoned = True
        elif self.first_answer is None:
            self.first_answer = time_ns

    def whole(self, time_ns: int, body: bytes) -> None:
        """Take a body that is one JSON object, as without streaming."""
        self.event(time_ns, body)
        self.ended = True

    def _usage(self, usage: dict[str, object]) -> None:
        count = _count(usage.get("completion_tokens"))
        if count is not None:
            self.total = count
            self.output_tokens = count
        prompt = _count(usage.get("prompt_tokens"))
        if prompt is not None:
            self.prompt_tokens = prompt
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            self.cached_tokens = _count(details.get("cached_tokens"))
        details = usage.get("completion_tokens_details")
        reasoning = usage.get("reasoning_tokens")
        if isinstance(details, dict):
            reasoning = details.get("reasoning_tokens", reasoning)
        reasoning = _count(reasoning)
        if reasoning is not None:
            self.reasoning_tokens = reasoning

    def _timings(self, timings: dict[str, object]) -> None:
        prompt_ms, token_ms = timings.get("prompt_ms"), timings.get("predicted_per_token_ms")
        if isinstance(prompt_ms, (int, float)):
            self.server_ttft_s = prompt_ms / 1000.0
        if isinstance(token_ms, (int, float)):
            self.server_tpot_s = token_ms / 1000.0
        cached = _count(timings.get("cache_n"))
        if cached is not None:
            self.cached_tokens = cached


def words(error: object) -> str:
    """The message in an error object of whatever form, bounded."""
    if isinstance(error, dict):
        for key in ("message", "detail", "error", "type"):
            if error.get(key):
                return words(error[key])
    return str(error)[:300]


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _openai(answer: Answer, message: dict[str, object]) -> int:
    usage = message.get("usage")
    if usage:
        answer._usage(usage)  # type: ignore[arg-type]
    timings = message.get("timings")
    if timings:
        answer._timings(timings)  # type: ignore[arg-type]
    kind = NO_TOKEN
    for choice in message.get("choices") or ():  # type: ignore[attr-defined]
        finish = choice.get("finish_reason")
        if finish is not None:
            answer.finish = str(finish)
        ids = choice.get("token_ids")
        if ids and not usage:
            answer.total += len(ids)
            answer.from_ids = True
        part = choice.get("delta")
        if part is None:
            part = choice.get("message")
        if part is None:
            text = choice.get("text")
            if text or ids or (text is not None and finish is None):
                kind = ANSWER
            continue
        if part.get("content") or part.get("tool_calls"):
            kind = ANSWER
        elif part.get("reasoning_content") or part.get("reasoning"):
            kind = kind or REASONING
        elif ids:
            kind = kind or ANSWER
        elif part.get("content") is not None and finish is None and "role" not in part:
            # A token whose text is still incomplete; the role chunk carries none.
            kind = kind or ANSWER
    return kind


def _sglang(answer: Answer, message: dict[str, object]) -> int:
    meta = message["meta_info"]
    before = answer.total
    answer._usage(meta)  # type: ignore[arg-type]
    cached = _count(meta.get("cached_tokens"))  # type: ignore[attr-defined]
    if cached is not None:
        answer.cached_tokens = cached
    finish = meta.get("finish_reason")  # type: ignore[attr-defined]
    if finish is not None:
        answer.finish = str(finish.get("type")) if isinstance(finish, dict) else str(finish)
        answer.ended = True
        if answer.finish == "abort":
            answer.error = words(finish)
    return ANSWER if answer.total > before else NO_TOKEN


def _llamacpp(answer: Answer, message: dict[str, object]) -> int:
    timings = message.get("timings")
    if timings:
        answer._timings(timings)  # type: ignore[arg-type]
    tokens = message.get("tokens")
    if message.get("stop"):
        answer.ended = True
        kind = str(message.get("stop_type") or "stop")
        answer.finish = {"limit": "length", "eos": "stop", "word": "stop"}.get(kind, kind)
        answer.output_tokens = _count(message.get("tokens_predicted"))
        answer.prompt_tokens = _count(message.get("tokens_evaluated"))
        if answer.events:
            return NO_TOKEN
        return ANSWER if message.get("content") else NO_TOKEN
    predicted = _count(message.get("tokens_predicted"))
    if predicted:
        # Tokens whose text was no whole character yet have no event of their own, and text that
        # was held back may come behind its token.
        new = predicted > answer.total
        answer.total = predicted
        return ANSWER if new else NO_TOKEN
    if isinstance(tokens, list) and tokens:
        answer.total += len(tokens)
        answer.from_ids = True
    return ANSWER


def _tgi(answer: Answer, message: dict[str, object]) -> int:
    details = message.get("details")
    if details:
        answer.finish = str(details["finish_reason"])  # type: ignore[index]
        answer.output_tokens = _count(details.get("generated_tokens"))  # type: ignore[attr-defined]
        answer.ended = True
    if message.get("token"):
        answer.total += 1
        answer.from_ids = True
        return ANSWER
    return ANSWER if message.get("generated_text") and not answer.events else NO_TOKEN


_READERS = {
    "chat": _openai,
    "completions": _openai,
    "sglang": _sglang,
    "llamacpp": _llamacpp,
    "tgi": _tgi,
}
ROUTES = tuple(_READERS)
"""Routes that can be read; each has its request in `workload`."""
