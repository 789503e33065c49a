"""How long to wait before the next try."""

from __future__ import annotations

import random


class Backoff:
    """Exponential back-off with full jitter: each wait is drawn between the base and a bound.

    The bound doubles with each failure up to the cap. Jitter over the whole range spreads many
    clients best (Brooker, "Exponential Backoff and Jitter", 2015).
    """

    def __init__(
        self, base_s: float = 1.0, cap_s: float = 60.0, rng: random.Random | None = None
    ) -> None:
        self._base_s = base_s
        self._cap_s = cap_s
        self._rng = rng or random.Random()
        self.failures = 0

    def next_s(self) -> float:
        """Seconds to wait after one more failure."""
        self.failures += 1
        bound_s = min(self._cap_s, self._base_s * 2.0 ** min(self.failures, 32))
        return self._rng.uniform(min(self._base_s, bound_s), bound_s)

    def reset(self) -> None:
        """All is well: start from the base again."""
        self.failures = 0
