"""What cumulative counters say about the last window: average power, share of time held back.

Counters start again when the driver is loaded again, and answer late while it is busy. So a step
back, or one that no clock allows, starts a new window instead of giving a number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from backends.model import EventReasons

WINDOW_S: Final = 60.0
"""Shares of time are of the last minute, or of as much of it as has been seen."""

MAX_POINTS: Final = 1024
"""Readings kept of one counter, whatever a host sends."""

MIN_ENERGY_WINDOW_S: Final = 1.0
"""Below a second the energy counter, which moves in steps of about 0.1 s, is noise."""

MAX_POWER_W: Final = 20_000.0
"""More than any module draws: a counter that says so has jumped."""

STILL_PCT: Final = 5.0
"""With this share of samples held, a counter that has not moved is one that does not count."""

HELD_COUNTERS: Final[Mapping[str, str]] = {
    "power_cap": "time_power_cap_us",
    "thermal": "time_thermal_us",
    "power_brake": "time_power_brake_us",
    "sync_boost": "time_sync_boost_us",
}
"""Name of what can hold the clocks -> the reading that counts for how long it did."""

HELD_BITS: Final[Mapping[str, EventReasons]] = {
    "power_cap": EventReasons.SW_POWER_CAP,
    "thermal": EventReasons.SW_THERMAL | EventReasons.HW_THERMAL,
    "power_brake": EventReasons.HW_POWER_BRAKE,
    "sync_boost": EventReasons.SYNC_BOOST,
}
"""The same names -> the event reasons that say so at this moment."""


def reason_names(bits: int) -> tuple[str, ...]:
    """Event reasons by name, in bit order; bits that nvml.h does not name as `bit_N`."""
    return tuple(
        EventReasons(1 << bit).name.lower()  # type: ignore[union-attr]
        if 1 << bit in EventReasons.__members__.values()
        else f"bit_{bit}"
        for bit in range(64)
        if bits >> bit & 1
    )


class EnergyMeter:
    """Average power from the energy counter, over the last minute and since the last reading."""

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=MAX_POINTS)

    def add(self, at_s: float, energy_j: float | None) -> None:
        """Take a reading of the counter; None, a step back or an impossible one starts anew."""
        points = self._points
        if energy_j is None:
            points.clear()
            return
        if points:
            last_s, last_j = points[-1]
            if at_s <= last_s:
                return
            power_w = (energy_j - last_j) / (at_s - last_s)
            if not 0.0 <= power_w <= MAX_POWER_W or at_s - last_s > WINDOW_S:
                points.clear()
        points.append((at_s, energy_j))
        while points[0][0] < at_s - WINDOW_S:
            points.popleft()

    def average_w(self, window_s: float = WINDOW_S) -> float | None:
        """Energy over time between the newest reading and the oldest within `window_s` of it.

        None where the readings span less than a second.
        """
        if len(self._points) < 2:
            return None
        end_s, end_j = self._points[-1]
        start_s, start_j = next(point for point in self._points if point[0] >= end_s - window_s)
        if end_s - start_s < MIN_ENERGY_WINDOW_S:
            return None
        return (end_j - start_j) / (end_s - start_s)


class _CounterShare:
    """The share of time that one cumulative counter of microseconds advanced."""

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque(maxlen=MAX_POINTS)

    def add(self, at_s: float, total_us: int | None) -> None:
        points = self._points
        if total_us is None:
            points.clear()
            return
        if points:
            last_s, last_us = points[-1]
            if at_s <= last_s:
                return
            step_us, step_s = total_us - last_us, at_s - last_s
            # The driver may credit a little late; half as much again as the time itself that
            # passed can only be a reset, or a counter in other units.
            if not 0 <= step_us <= (step_s * 1.5 + 1.0) * 1e6 or step_s > WINDOW_S:
                points.clear()
        points.append((at_s, total_us))
        while points[0][0] < at_s - WINDOW_S:
            points.popleft()

    def pct(self) -> float | None:
        if len(self._points) < 2:
            return None
        start_s, start_us = self._points[0]
        end_s, end_us = self._points[-1]
        return min(100.0, (end_us - start_us) / ((end_s - start_s) * 1e4))


class _SampledShare:
    """The share of time that a bit was set, each sample standing for the time before it."""

    __slots__ = ("_held_s", "_last_s", "_points", "_seen_s")

    def __init__(self) -> None:
        self._points: deque[tuple[float, float, int]] = deque()
        self._held_s = dict.fromkeys(HELD_BITS, 0.0)
        self._seen_s = 0.0
        self._last_s: float | None = None

    def add(self, at_s: float, bits: int | None) -> None:
        last_s, self._last_s = self._last_s, at_s if bits is not None else None
        if bits is None or last_s is None:
            return
        covers_s = at_s - last_s
        if 0.0 < covers_s <= WINDOW_S:
            self._points.append((at_s, covers_s, bits))
            self._count(covers_s, bits)
        points = self._points
        while points and (points[0][0] < at_s - WINDOW_S or len(points) > MAX_POINTS):
            _, covers_s, bits = points.popleft()
            self._count(-covers_s, bits)

    def _count(self, seconds: float, bits: int) -> None:
        self._seen_s += seconds
        for name, mask in HELD_BITS.items():
            if bits & mask:
                self._held_s[name] += seconds

    def pct(self, name: str) -> float | None:
        if not self._points:
            return None
        return min(100.0, max(0.0, 100.0 * self._held_s[name] / self._seen_s))


class HeldShares:
    """What held the clocks of a GPU back, as shares of the last minute.

    Exact from the cumulative counters where the GPU has them; else, or where a counter stands
    still while samples say otherwise, from the event reasons of the samples that were taken.
    """

    __slots__ = ("_counters", "_samples")

    def __init__(self) -> None:
        self._counters = {name: _CounterShare() for name in HELD_COUNTERS}
        self._samples = _SampledShare()

    def add_bits(self, at_s: float, event_reasons: int | None) -> None:
        """Take the event reasons of a sample."""
        self._samples.add(at_s, event_reasons)

    def add_counters(self, at_s: float, totals_us: Mapping[str, int | None]) -> None:
        """Take a reading of the counters, by the key of the reading."""
        for name, key in HELD_COUNTERS.items():
            self._counters[name].add(at_s, totals_us.get(key))

    def pct(self) -> dict[str, float]:
        """Name of what can hold the clocks -> percent of the last window; unknown ones missing."""
        shares = {}
        for name, counter in self._counters.items():
            share, sampled = counter.pct(), self._samples.pct(name)
            if share is None or (not share and sampled is not None and sampled >= STILL_PCT):
                share = sampled
            if share is not None:
                shares[name] = share
        return shares
