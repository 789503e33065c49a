"""The figures of one request, from its record. Definitions are those of `docs/bench.md`."""

from __future__ import annotations

from backends.bench.request_record import RequestRecord


def arrival_tokens(record: RequestRecord) -> list[float]:
    """Tokens of each arrival; shared out by events where they are not known."""
    arrivals = len(record.gaps_us) + 1
    counts = list(record.arrival_tokens or (1,) * arrivals)
    tokens = record.output_tokens or 0
    counted = sum(counts)
    if record.tokens_known or counted in (0, tokens):
        # At most one is missing: the end of the sequence, which has no event of its own.
        shares: list[float] = list(counts)
        shares[-1] += tokens - counted if record.tokens_known else 0
        return shares
    return [count * tokens / counted for count in counts]


def tpot(record: RequestRecord) -> float | None:
    """Time per output token, without those of the first event; None of fewer than two events.

    (last - first token event) / (n - tokens of the first event). Where the tokens of an event
    are not known, those of the first are taken to be its share.
    """
    first, last = record.first_token_s, record.last_token_s
    if not record.ok or not record.gaps_us or first is None or last is None:
        return None
    shares = arrival_tokens(record)
    rest = (record.output_tokens or 0) - shares[0]
    if rest <= 0:
        return None
    return (last - first) / rest


def ttft(record: RequestRecord) -> float | None:
    """Time to first token (s); None without a token or a send."""
    if record.first_token_s is None or record.sent_s is None:
        return None
    return record.first_token_s - record.sent_s


def e2e(record: RequestRecord) -> float:
    """From sent, or due where nothing was sent, to the last token or the end (s)."""
    begun = record.sent_s if record.sent_s is not None else record.due_s
    return (record.last_token_s or record.end_s) - begun
