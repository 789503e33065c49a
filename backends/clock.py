"""Time, in one place, so that tests can hold it still.

Durations come from the monotonic clock, records carry UTC, screens show local time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the rest asks for the time."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def utc(self) -> datetime:
        """The time now, aware, in UTC."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def utc(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)


class ManualClock:
    """A clock that moves only when told to; for tests and replays."""

    def __init__(self, start: datetime, monotonic_s: float = 0.0) -> None:
        self._utc = start
        self._monotonic_s = monotonic_s

    def advance(self, seconds: float) -> None:
        """Move both clocks on by `seconds`."""
        self._monotonic_s += seconds
        self._utc = datetime.fromtimestamp(self._utc.timestamp() + seconds, UTC)

    def monotonic_s(self) -> float:
        """Seconds of the monotonic clock."""
        return self._monotonic_s

    def utc(self) -> datetime:
        """Now, in UTC."""
        return self._utc


SYSTEM_CLOCK = SystemClock()
