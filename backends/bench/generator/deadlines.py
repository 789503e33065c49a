"""When a request is given up."""

from __future__ import annotations

from .exchange import Exchange


class Deadlines:
    """How long connecting, silence and a whole request may last.

    `limits` has `connect_s`, `silence_s` and `request_s`.
    """

    def __init__(self, limits: dict[str, float]) -> None:
        self._connect_ns = int(limits["connect_s"] * 1e9)
        self._silence_ns = int(limits["silence_s"] * 1e9)
        self._request_ns = int(limits["request_s"] * 1e9)

    def passed(self, exchange: Exchange, now: int) -> tuple[str, str] | None:
        """The failure and its words, or None while there is time."""
        begun = exchange.sent or exchange.due
        if not exchange.sent and now - begun > self._connect_ns:
            return "connect", "not connected and sent within the deadline"
        if now - begun > self._request_ns:
            return "timeout", "not complete within the deadline"
        pending = exchange.pending
        latest = pending[-1][0] if pending else max(exchange.last, begun)
        if now - latest > self._silence_ns:
            return "silence", "no byte for %.1f s" % ((now - latest) / 1e9)
        return None
