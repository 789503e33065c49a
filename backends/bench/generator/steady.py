"""Whether a warm-up has come to rest."""

from __future__ import annotations

BLOCKS = 3
TTFT_SPREAD = 0.15
TPOT_SPREAD = 0.05


class SteadyCheck:
    """Looks at blocks of finished requests, in the order in which they ended.

    Steady means: the medians of the last three blocks lie within 5 % (time per output token) and
    15 % (time to first token, which queueing makes noisier) of each other. A block is at least
    one batch: as many requests as run at once.
    """

    def __init__(self, block: int) -> None:
        self._size = max(2, block)
        self._ttft: list[float] = []
        self._tpot: list[float] = []
        self._medians: list[tuple[float, float]] = []

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
        self._ttft.append(first - sent)
        self._tpot.append((last - first) / max(1, tokens if isinstance(tokens, int) else 1))
        if len(self._ttft) >= self._size:
            self._medians.append((_median(self._ttft), _median(self._tpot)))
            self._ttft, self._tpot = [], []

    @property
    def blocks(self) -> int:
        """Complete blocks so far."""
        return len(self._medians)

    @property
    def steady(self) -> bool:
        """Whether the last blocks agree."""
        last = self._medians[-BLOCKS:]
        if len(last) < BLOCKS:
            return False
        return all(
            _spread([block[which] for block in last]) <= limit
            for which, limit in ((0, TTFT_SPREAD), (1, TPOT_SPREAD))
        )


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
