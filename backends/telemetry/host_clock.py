"""When a host took a sample, in our time.

A host stamps samples with its own monotonic clock. What arrives is late by the way there, which is
never less than its minimum: so the smallest difference between arrival and stamp over a while is
the offset of the clocks plus the shortest way, and the shortest way is half the shortest round
trip.
"""

from __future__ import annotations

from math import inf
from typing import Final

WINDOW_S: Final = 120.0
"""How long an observation counts; clocks drift by some 50 parts in a million."""

STEP_BACK_S: Final = 1.0
"""A stamp this much older than the newest one is of another clock: the host was booted."""


class _Minimum:
    """The smallest value of the last one to two half windows."""

    __slots__ = ("_before", "_now", "_turned_s")

    def __init__(self) -> None:
        self._before = self._now = inf
        self._turned_s = -inf

    def add(self, at_s: float, value: float) -> None:
        if at_s - self._turned_s > WINDOW_S / 2:
            self._before, self._now = self._now, inf
            self._turned_s = at_s
        self._now = min(self._now, value)

    def value(self) -> float:
        return min(self._before, self._now)


class HostClock:
    """Maps a host's monotonic nanoseconds to monotonic seconds here."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: another boot, another clock."""
        self._offset_s = _Minimum()
        self._round_trip_s = _Minimum()
        self._newest_ns = 0

    def observe(self, host_ns: int, received_s: float) -> None:
        """Take the stamp of a message, and when it arrived."""
        if host_ns < self._newest_ns - STEP_BACK_S * 1e9:
            self.reset()
        self._newest_ns = max(self._newest_ns, host_ns)
        self._offset_s.add(received_s, received_s - host_ns / 1e9)

    def observe_round_trip(self, round_trip_s: float, at_s: float) -> None:
        """Take the time that a question and its answer took together."""
        if 0.0 <= round_trip_s < 60.0:
            self._round_trip_s.add(at_s, round_trip_s)

    def here_s(self, host_ns: int) -> float | None:
        """The moment of a stamp in our monotonic seconds; None before the first `observe`."""
        offset_s = self._offset_s.value()
        if offset_s == inf:
            return None
        round_trip_s = self._round_trip_s.value()
        way_s = round_trip_s / 2 if round_trip_s != inf else 0.0
        return host_ns / 1e9 + offset_s - way_s
