"""The client's judgement of itself: did it read and send in time, or did it hold the load back?"""

from __future__ import annotations

import os
import time

TICK_S = 0.5
WINDOW_TICKS = 2
"""The last second is judged, twice a second: a client that limits is told within 2 s."""

MAX_LAG_P50_S = 0.010
MAX_LAG_P99_S = 0.100
MAX_AWAY_SHARE = 0.2
AWAY_NS = 20_000_000
"""Shorter absences are the loop's ordinary work."""
MAX_IDLE_SHARE = 0.05
"""Of the last second: when all streams end at once, the next requests go out one by one."""
MAX_STEP_IDLE_SHARE = 0.02
"""Of a whole step."""
MAX_LATE_P50_S = 0.010
MAX_LATE_P99_S = 0.100
MAX_MERGED_SHARE = 0.05
MAX_CPU_SHARE = 0.95
MAX_CLOCK_STEP_S = 0.005


def bucket_us(ns: int) -> int:
    """A time in us, rounded down to five significant bits: at most 6 % too small."""
    us = max(0, ns // 1000)
    shift = us.bit_length() - 5
    return us if shift <= 0 else us >> shift << shift


def percentile(counts: dict[int, int], share: float) -> float | None:
    """A percentile in seconds from counted microseconds, or None without any."""
    total = sum(counts.values())
    if not total:
        return None
    rank = share * (total - 1)
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen > rank:
            return value / 1e6
    return max(counts) / 1e6


def merge(into: dict[int, int], more: dict[int, int]) -> None:
    """Add the counts of `more` to `into`."""
    for value, count in more.items():
        into[value] = into.get(value, 0) + count


def run_queue_wait_s() -> float | None:
    """Time this process was ready and did not run, or None where the kernel doesn't say."""
    try:
        with open("/proc/self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


class Tick:
    """What happened between two ticks."""

    __slots__ = (
        "away_ns", "cpu_s", "events", "lag", "late", "late_ns", "merged", "read_late_ns", "wall_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.read_late_ns: list[int] = []
        self.lag: dict[int, int] = {}
        self.late: dict[int, int] = {}
        self.late_ns = 0
        self.away_ns = 0
        self.events = 0
        self.merged = 0
        self.cpu_s = 0.0
        self.wall_s = 0.0


class LagMeter:
    """Counts lag and lateness of one worker and gives a verdict on the last second.

    Attributes:
        lag: Receive lag of the step, us to its number.
        late: Send lateness of the step, likewise.
        limited_s: Time during which a verdict said that the client held the load back.
        reasons: Every reason given during the step, each once.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin a step."""
        self.lag: dict[int, int] = {}
        self.late: dict[int, int] = {}
        self.limited_s = 0.0
        self.reasons: list[str] = []
        self.events = 0
        self.merged = 0
        self.peak_cpu_share = 0.0
        self._late_ns = 0
        self._slots = 0
        self._ticks: list[Tick] = []
        self._now = Tick()
        self._wall = self._begin = time.monotonic()
        self._cpu = self._begin_cpu = time.process_time()
        self._wait = run_queue_wait_s()
        self._offset = _clock_offset_s()

    def received(self, lag_ns: int) -> None:
        """A batch of reads is done; the last of them came in `lag_ns` ago.

        It is counted when the tick closes: this is called between two sleeps.
        """
        self._now.read_late_ns.append(lag_ns)

    def away(self, away_ns: int) -> None:
        """The loop was away from the sockets for so long."""
        if away_ns > AWAY_NS:
            self._now.away_ns += away_ns

    def sent(self, late_ns: int) -> None:
        """A request went out `late_ns` after it was due."""
        us = bucket_us(late_ns)
        late = self._now.late
        late[us] = late.get(us, 0) + 1
        self._now.late_ns += max(0, late_ns)

    def arrived(self, events: int, merged: int) -> None:
        """Token events of a stream read event by event; `merged` of them shared a read."""
        self._now.events += events
        self._now.merged += merged

    def tick(self, slots: int | None) -> list[str]:
        """Close the tick; the reasons why the last second was limited by the client.

        `slots` is the number of streams of a closed loop, None in an open loop.
        """
        tick = self._now
        self._now = Tick()
        wall, cpu = time.monotonic(), time.process_time()
        tick.wall_s, tick.cpu_s = wall - self._wall, cpu - self._cpu
        self._wall, self._cpu = wall, cpu
        for lag_ns in tick.read_late_ns:
            us = bucket_us(lag_ns)
            tick.lag[us] = tick.lag.get(us, 0) + 1
        tick.read_late_ns = []
        merge(self.lag, tick.lag)
        merge(self.late, tick.late)
        self.events += tick.events
        self.merged += tick.merged
        self._late_ns += tick.late_ns
        self._slots = slots or 0
        self._ticks.append(tick)
        del self._ticks[:-WINDOW_TICKS]
        reasons = self._judge(slots)
        offset = _clock_offset_s()
        if abs(offset - self._offset) > MAX_CLOCK_STEP_S:
            reasons.append("the system clock was set by %.0f ms" % ((offset - self._offset) * 1e3))
        self._offset = offset
        if reasons:
            self.limited_s += tick.wall_s
        for reason in reasons:
            # One of a kind is kept: the words up to the first figure say which.
            kind = reason.split(":")[0]
            if not any(known.startswith(kind) for known in self.reasons):
                self.reasons.append(reason)
        return reasons

    def _judge(self, slots: int | None) -> list[str]:
        lag, late = {}, {}  # type: dict[int, int], dict[int, int]
        late_ns = away_ns = events = merged = 0
        wall_s = cpu_s = 0.0
        for tick in self._ticks:
            merge(lag, tick.lag)
            merge(late, tick.late)
            late_ns += tick.late_ns
            away_ns += tick.away_ns
            events += tick.events
            merged += tick.merged
            wall_s += tick.wall_s
            cpu_s += tick.cpu_s
        reasons = []
        lag_p50, lag_p99 = percentile(lag, 0.5) or 0.0, percentile(lag, 0.99) or 0.0
        if lag_p50 > MAX_LAG_P50_S or lag_p99 > MAX_LAG_P99_S:
            reasons.append(
                "arrivals were read late: by %.0f ms (p50), %.0f ms (p99)"
                % (lag_p50 * 1e3, lag_p99 * 1e3)
            )
        if wall_s and away_ns / 1e9 / wall_s > MAX_AWAY_SHARE:
            reasons.append("the client was held up: for %.0f ms of a second" % (away_ns / 1e6))
        if slots:
            idle = late_ns / 1e9 / (slots * wall_s) if wall_s else 0.0
            if idle > MAX_IDLE_SHARE:
                reasons.append("streams stood idle: %.1f %% of the time" % (idle * 100))
        else:
            late_p50, late_p99 = percentile(late, 0.5) or 0.0, percentile(late, 0.99) or 0.0
            if late_p50 > MAX_LATE_P50_S or late_p99 > MAX_LATE_P99_S:
                reasons.append(
                    "requests were sent late: by %.0f ms (p50), %.0f ms (p99)"
                    % (late_p50 * 1e3, late_p99 * 1e3)
                )
        # Events that a server sends together merge as well; only a late reader is to blame.
        if events >= 100 and merged / events > MAX_MERGED_SHARE and lag_p99 > MAX_LAG_P50_S:
            reasons.append(
                "events merged before they were read: %.1f %%" % (100.0 * merged / events)
            )
        if wall_s >= 0.9 * TICK_S * WINDOW_TICKS:
            share = cpu_s / wall_s
            self.peak_cpu_share = max(self.peak_cpu_share, share)
            if share > MAX_CPU_SHARE:
                reasons.append("a core was full: the generator used %.0f %% of it" % (share * 100))
        return reasons

    def summary(self) -> dict[str, object]:
        """The step so far, for the coordinator to merge."""
        wait = run_queue_wait_s()
        return {
            "lag_us": {str(us): count for us, count in self.lag.items()},
            "late_us": {str(us): count for us, count in self.late.items()},
            "limited_s": round(self.limited_s, 3),
            "reasons": self.reasons,
            "idle_slot_s": round(self._late_ns / 1e9, 6) if self._slots else 0.0,
            "slot_s": round(self._slots * (self._wall - self._begin), 6),
            "events": self.events,
            "merged": self.merged,
            "wall_s": round(self._wall - self._begin, 6),
            "cpu_s": round(time.process_time() - self._begin_cpu, 6),
            "peak_cpu_share": round(self.peak_cpu_share, 4),
            "run_queue_wait_s": (
                None if wait is None or self._wait is None else round(wait - self._wait, 6)
            ),
            "max_rss_bytes": max_rss_bytes(),
        }


def max_rss_bytes() -> int | None:
    """Most memory this process ever held, or None where the system doesn't say."""
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _clock_offset_s() -> float:
    return time.time() - time.monotonic()


def room() -> dict[str, object]:
    """What this machine gives the generator: descriptors and processors."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"descriptors": soft, "descriptors_hard": hard, "cpus": cpus or 1}
