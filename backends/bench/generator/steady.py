"""Whether a warm-up has come to rest."""

from __future__ import annotations

PARTS = 3
TTFT_SPREAD = 0.15
TPOT_SPREAD = 0.05
TREND = 0.5
"""Of these, what a change in one direction may amount to."""


class SteadyCheck:
    """Looks at finished requests, in the order in which they ended.

    Steady means: the last half of them, in three parts, of which each is at least one batch (as
    many requests as run at once), has medians within 5 % (time per output token) and 15 % (time to
    first token, which queueing makes noisier) of each other, and does not go one way by more than
    half of that. What is looked at grows with the warm-up: a server that warms up slowly changes
    little from batch to batch, but much over half of the time that it has been at it.
    """

    def __init__(self, batch: int) -> None:
        self._batch = max(2, batch)
        self._requests: list[tuple[float, float]] = []
        self._next_look = PARTS * self._batch
        self.steady = False
        """Whether the last half agrees with itself, as of the last look at it."""

    def add(self, record: dict[str, object]) -> None:
        """Take a request's record."""
        first, last, sent = (record.get(k) for k in ("first_token_s", "last_token_s", "sent_s"))
        if not record.get("ok") or not isinstance(sent, float):
            return
        if not isinstance(last, float):
            return
        if not isinstance(first, float):
            first = last  # Not streamed: only the whole time is known.
        tokens = record.get("output_tokens")
        per_token_s = (last - first) / max(1, tokens if isinstance(tokens, int) else 1)
        self._requests.append((first - sent, per_token_s))
        count = len(self._requests)
        if count >= self._next_look:
            self.steady = self._agrees()
            # Each look sorts all that it looks at: the more there is, the rarer it is.
            self._next_look = count + max(self._batch, count // 16)

    def _agrees(self) -> bool:
        count = len(self._requests)
        part = max(self._batch, count // 2 // PARTS)
        last = [self._requests[count - (i + 1) * part : count - i * part] for i in range(PARTS)]
        return all(
            _rests([_median([request[which] for request in part]) for part in last], limit)
            for which, limit in ((0, TTFT_SPREAD), (1, TPOT_SPREAD))
        )


def _rests(values: list[float], limit: float) -> bool:
    """Whether values lie within a limit of each other, and show no trend."""
    one_way = values == sorted(values) or values == sorted(values, reverse=True)
    return _spread(values) <= (limit * TREND if one_way else limit)


def _spread(values: list[float]) -> float:
    """How far values lie apart, as a share of their median."""
    width = max(values) - min(values)
    if width < 1e-4:
        return 0.0  # Below a tenth of a millisecond the difference is the clock's.
    middle = _median(values)
    return width / middle if middle > 0 else float("inf")


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
