"""What the readings were: per GPU and for the host, over the last minute, ten minutes and hour.

The last minute is kept sample by sample, the longer windows as buckets of minimum, mean and
maximum. All of it lies in flat arrays, so that the histories of 32 hosts with 8 GPUs each take
some ten megabytes. A moment without a value stays one: it is NaN inside, None outside, never 0.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from math import floor, isnan, nan
from typing import Final, NamedTuple

GPU_KEYS: Final = (
    "power_w",
    "utilization_gpu_pct",
    "utilization_memory_pct",
    "memory_used_bytes",
    "temperature_gpu_c",
    "sm_clock_mhz",
    "memory_clock_mhz",
)
"""Readings of a GPU whose past is kept."""

HOST_KEYS: Final = (
    "power_w",
    "utilization_gpu_pct",
    "memory_used_bytes",
    "cpu_pct",
    "host_memory_used_bytes",
)
"""Of the host: power and GPU memory summed over its GPUs, their mean utilisation, then its own."""

TOTAL: Final = ""
"""Stands for the host itself where a uuid is asked for."""

RECENT_SAMPLES: Final = 600
"""A minute at 10 Hz, the fastest interval there is."""

MAX_SERIES: Final = 257
"""GPUs of one host whose past is kept, and the host."""

GAP_INTERVALS: Final = 2.5
"""Two samples further apart than this many intervals have a gap between them."""


class Window(Enum):
    """How far back to look: seconds, and the width of a bucket (0: single samples)."""

    MINUTE = (60.0, 0.0)
    TEN_MINUTES = (600.0, 5.0)
    HOUR = (3600.0, 15.0)

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.value[0]

    @property
    def bucket_s(self) -> float:
        """Width of its buckets; 0 where every sample is kept."""
        return self.value[1]


class Span(NamedTuple):
    """What a reading was during a stretch of time."""

    low: float
    mean: float
    high: float


class _Recent:
    """A ring of single samples: one array of times, one of values a key."""

    __slots__ = ("covers", "next", "times", "values")

    def __init__(self, keys: int) -> None:
        self.times = array("d", [nan]) * RECENT_SAMPLES
        self.covers = array("f", [0.0]) * RECENT_SAMPLES
        self.values = [array("f", [nan]) * RECENT_SAMPLES for _ in range(keys)]
        self.next = 0

    def add(self, at_s: float, covers_s: float, row: Sequence[float]) -> None:
        slot = self.next
        self.times[slot] = at_s
        self.covers[slot] = covers_s
        for values, value in zip(self.values, row, strict=True):
            values[slot] = value
        self.next = (slot + 1) % RECENT_SAMPLES

    def means(self, key: int, since_s: float) -> Iterator[tuple[float, float, float]]:
        """(from, to, value) of every sample that reaches past `since_s`, newest first."""
        times, covers, values = self.times, self.covers, self.values[key]
        slot = self.next
        for _ in range(RECENT_SAMPLES):
            slot = slot - 1 if slot else RECENT_SAMPLES - 1
            at_s = times[slot]
            if not at_s > since_s:  # NaN as well: never written
                return
            value = values[slot]
            if value == value:
                yield at_s - covers[slot], at_s, value

    def stretches(self, key: int, since_s: float) -> list[tuple[float, float, Span]]:
        """(from, to, span) of every sample that reaches past `since_s`, oldest first."""
        times, covers, values = self.times, self.covers, self.values[key]
        found = []
        for step in range(1, RECENT_SAMPLES + 1):
            slot = (self.next - step) % RECENT_SAMPLES
            at_s = times[slot]
            if not at_s > since_s:  # NaN as well: never written
                break
            value = values[slot]
            if not isnan(value):
                found.append((at_s - covers[slot], at_s, Span(value, value, value)))
        found.reverse()
        return found


class _Buckets:
    """A ring of buckets of equal width: minimum, mean, maximum and count a key."""

    __slots__ = ("counts", "highs", "lows", "means_of", "number", "size", "slot", "width_s")

    def __init__(self, keys: int, window: Window) -> None:
        self.width_s = window.bucket_s
        self.size = int(window.seconds / self.width_s) + 1
        self.number = array("q", [-1]) * self.size
        self.slot = -1
        self.lows = [array("f", [nan]) * self.size for _ in range(keys)]
        self.means_of = [array("f", [nan]) * self.size for _ in range(keys)]
        self.highs = [array("f", [nan]) * self.size for _ in range(keys)]
        self.counts = array("H", [0]) * keys

    def add(self, at_s: float, row: Sequence[float]) -> None:
        number = floor(at_s / self.width_s)
        slot = self.slot
        if slot < 0 or self.number[slot] != number:
            self.slot = slot = (slot + 1) % self.size
            self.number[slot] = number
            for key in range(len(row)):
                self.lows[key][slot] = self.means_of[key][slot] = self.highs[key][slot] = nan
                self.counts[key] = 0
        counts = self.counts
        for key, value in enumerate(row):
            if value != value:  # NaN: nothing was read
                continue
            count = counts[key]
            if not count:
                self.lows[key][slot] = self.means_of[key][slot] = self.highs[key][slot] = value
                counts[key] = 1
                continue
            if count < 0xFFFF:
                counts[key] = count = count + 1
            means = self.means_of[key]
            means[slot] += (value - means[slot]) / count
            if value < self.lows[key][slot]:
                self.lows[key][slot] = value
            elif value > self.highs[key][slot]:
                self.highs[key][slot] = value

    def means(self, key: int, since_s: float) -> Iterator[tuple[float, float, float]]:
        """(from, to, mean) of every bucket that reaches past `since_s`, newest first."""
        means, width_s = self.means_of[key], self.width_s
        for step in range(self.size):
            slot = (self.slot - step) % self.size
            number = self.number[slot]
            end_s = (number + 1) * width_s
            if number < 0 or end_s <= since_s:
                return
            mean = means[slot]
            if mean == mean:
                yield end_s - width_s, end_s, mean

    def stretches(self, key: int, since_s: float) -> list[tuple[float, float, Span]]:
        """(from, to, span) of every bucket that reaches past `since_s`, oldest first."""
        lows, means, highs = self.lows[key], self.means_of[key], self.highs[key]
        found = []
        for step in range(self.size):
            slot = (self.slot - step) % self.size
            number = self.number[slot]
            end_s = (number + 1) * self.width_s
            if number < 0 or end_s <= since_s:
                break
            if not isnan(means[slot]):
                span = Span(lows[slot], means[slot], highs[slot])
                found.append((end_s - self.width_s, end_s, span))
        found.reverse()
        return found


class _Series:
    """Everything kept of one GPU, or of the host."""

    __slots__ = ("keys", "last_s", "levels")

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self.last_s = nan
        self.levels: dict[Window, _Recent | _Buckets] = {
            Window.MINUTE: _Recent(len(keys)),
            Window.TEN_MINUTES: _Buckets(len(keys), Window.TEN_MINUTES),
            Window.HOUR: _Buckets(len(keys), Window.HOUR),
        }

    def add(self, at_s: float, interval_s: float, row: Sequence[float]) -> None:
        if at_s <= self.last_s:
            return  # a late or doubled sample: history never goes back
        since_last_s = at_s - self.last_s
        covers_s = since_last_s if since_last_s <= GAP_INTERVALS * interval_s else interval_s
        self.last_s = at_s
        for level in self.levels.values():
            if isinstance(level, _Recent):
                level.add(at_s, covers_s, row)
            else:
                level.add(at_s, row)


class History:
    """The past of one host and its GPUs.

    Times are monotonic seconds here. Samples of one series must come in order; older ones are
    dropped.
    """

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}

    def record(
        self,
        uuid: str,
        at_s: float,
        values: Mapping[str, float | int | str | None],
        interval_s: float = 1.0,
    ) -> None:
        """Keep one sample of a GPU, or of the host (`TOTAL`); what is missing or None is a gap."""
        series = self._series.get(uuid)
        if series is None:
            if len(self._series) >= MAX_SERIES:
                del self._series[min(self._series, key=lambda u: self._series[u].last_s)]
            series = self._series[uuid] = _Series(GPU_KEYS if uuid else HOST_KEYS)
        row = []
        for key in series.keys:
            value = values.get(key)
            row.append(float(value) if isinstance(value, float | int) else nan)
        series.add(at_s, interval_s, row)

    def series(
        self, uuid: str, key: str, window: Window, points: int, now_s: float
    ) -> list[float | None]:
        """The means of a reading in `points` equal steps that end at `now_s`, oldest first.

        Args:
            uuid: A GPU, or `TOTAL` for the host.
            key: One of `GPU_KEYS`, or of `HOST_KEYS` for the host.
            window: How far back.
            points: How many steps; what a chart has columns for.
            now_s: The right edge, monotonic seconds here.

        Returns:
            None for a step during which nothing was read.
        """
        series = self._series.get(uuid)
        if series is None or key not in series.keys or points < 1:
            return [None] * max(0, points)
        since_s = now_s - window.seconds
        step_s = window.seconds / points
        sums, weights = [0.0] * points, [0.0] * points
        for from_s, to_s, mean in series.levels[window].means(series.keys.index(key), since_s):
            # A stretch counts for every step that it overlaps, by the length of the overlap.
            left = (from_s - since_s) / step_s if from_s > since_s else 0.0
            right = ((to_s if to_s < now_s else now_s) - since_s) / step_s
            step = int(left)
            while left < right and step < points:
                edge = step + 1.0 if step + 1.0 < right else right
                if edge - left > 1e-9:
                    sums[step] += mean * (edge - left)
                    weights[step] += edge - left
                step += 1
                left = edge
        return [
            total / weight if weight else None for total, weight in zip(sums, weights, strict=True)
        ]

    def spans(
        self, uuid: str, key: str, window: Window, points: int, now_s: float
    ) -> list[Span | None]:
        """As `series`, with minimum and maximum of each step beside the mean."""
        steps: list[Span | None] = [None] * points
        series = self._series.get(uuid)
        if series is None or key not in series.keys or points < 1:
            return steps
        since_s = now_s - window.seconds
        stretches = series.levels[window].stretches(series.keys.index(key), since_s)
        step_s = window.seconds / points
        weights = [0.0] * points
        for from_s, to_s, span in stretches:
            # A stretch counts for every step that it overlaps, by the length of the overlap.
            left = (max(from_s, since_s) - since_s) / step_s
            right = (min(to_s, now_s) - since_s) / step_s
            if right <= left:
                continue
            for step in range(int(left), min(points, int(right) + 1)):
                weight = min(right, step + 1) - max(left, step)
                if weight <= 1e-9:
                    continue
                known = steps[step]
                if known is None:
                    steps[step], weights[step] = span, weight
                    continue
                total = weights[step] + weight
                steps[step] = Span(
                    min(known.low, span.low),
                    known.mean + (span.mean - known.mean) * weight / total,
                    max(known.high, span.high),
                )
                weights[step] = total
        return steps

    def uuids(self) -> tuple[str, ...]:
        """The GPUs of which something is kept."""
        return tuple(uuid for uuid in self._series if uuid)
