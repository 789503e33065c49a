"""What a worker counts through a step, and tells twice a second."""

from __future__ import annotations

SAMPLES = 64
"""Most latencies told in one tick; they are for the eye, the records have all."""


class Counters:
    """Totals since the step began, and the latest latencies."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended = 0
        self.succeeded = 0
        self.failed = 0
        self.cancelled = 0
        self.output_tokens = 0
        self.input_tokens = 0
        self._ttft_us: list[int] = []
        self._e2e_us: list[int] = []

    def ttft(self, ns: int) -> None:
        """A first token came `ns` after its request was sent."""
        if len(self._ttft_us) < SAMPLES:
            self._ttft_us.append(ns // 1000)

    def success(self, input_tokens: int, e2e_ns: int | None) -> None:
        """A request succeeded."""
        self.succeeded += 1
        self.input_tokens += input_tokens
        if e2e_ns is not None and len(self._e2e_us) < SAMPLES:
            self._e2e_us.append(e2e_ns // 1000)

    def tell(self) -> dict[str, object]:
        """The totals, and the latencies since the last call."""
        told: dict[str, object] = {
            "sent": self.sent,
            "ended": self.ended,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "output_tokens": self.output_tokens,
            "input_tokens": self.input_tokens,
            "ttft_us": self._ttft_us,
            "e2e_us": self._e2e_us,
        }
        self._ttft_us, self._e2e_us = [], []
        return told
