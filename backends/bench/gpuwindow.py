"""What the host's GPUs did through a step: power, energy, clocks, what held them back.

Energy is read from the driver's counter (NVML, `nvmlDeviceGetTotalEnergyConsumption`, in mJ since
the driver was loaded), between the first and the last reading of it inside the window; what lies
before and after them, and everything where the counter is absent or was read too seldom, is power
by time. Which of the two carries a figure is said.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from backends.bench.results import EnergySource, GpuWindow
from backends.errors import RoomError
from backends.model import EventReasons, HostSnapshot

SAMPLE_S: Final = 0.25
COUNTED_SHARE: Final = 0.5
"""The counter carries a figure when its readings span this part of the window or more."""


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    power_w: float | None
    limit_w: float | None
    clock_mhz: int | None
    utilization: float | None
    memory_bytes: int | None
    temperature_c: float | None
    reasons: int | None
    memory_share: float | None
    memory_clock_mhz: int | None
    counter_j: float | None = None
    """Of the energy counter, where it was read anew."""


class GpuSampler:
    """Keeps what the host's GPUs do through a run, from the readings that come anyway.

    Args:
        snapshot: The newest readings.
        clock: Of the run.
        refresh: Has the counters read now; None where that cannot be asked for.
    """

    def __init__(
        self,
        snapshot: Callable[[], HostSnapshot],
        clock: Callable[[], float],
        refresh: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._clock = clock
        self._refresh = refresh
        self._counters: dict[str, float] = {}
        self._names: dict[str, str] = {}
        self._samples: dict[str, list[_Sample]] = {}
        self._task: asyncio.Task[None] | None = None
        self._seen_s: float | None = None

    def start(self) -> None:
        """Begin to look, in a task that `stop` ends."""
        self._task = asyncio.create_task(self._run(), name="bench gpus")

    async def stop(self) -> None:
        """End the task."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def edge(self) -> None:
        """A window begins or ends: have the energy counters read. A host that cannot goes on."""
        if self._refresh is not None:
            with contextlib.suppress(RoomError):
                await self._refresh()

    async def _run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(SAMPLE_S)

    def look(self) -> None:
        """Take the newest readings, if they are newer than the last."""
        snapshot = self._snapshot()
        at_s = snapshot.sampled_s
        if at_s is None or at_s == self._seen_s:
            return
        self._seen_s = at_s
        for gpu in snapshot.gpus:
            got = gpu.readings
            self._names[gpu.uuid] = gpu.name
            counter_j = got.energy_j
            if counter_j == self._counters.get(gpu.uuid):
                counter_j = None
            elif counter_j is not None:
                self._counters[gpu.uuid] = counter_j
            self._samples.setdefault(gpu.uuid, []).append(
                _Sample(
                    at_s,
                    got.power_w,
                    got.power_limit_enforced_w,
                    got.sm_clock_mhz,
                    None if got.utilization_gpu_pct is None else got.utilization_gpu_pct / 100,
                    got.memory_used_bytes,
                    got.temperature_gpu_c,
                    got.event_reasons,
                    None
                    if got.utilization_memory_pct is None
                    else got.utilization_memory_pct / 100,
                    got.memory_clock_mhz,
                    counter_j,
                )
            )

    def between(self, start_s: float, end_s: float) -> tuple[GpuWindow, ...]:
        """What each GPU did in a span of time of the clock; empty without a sample in it."""
        windows = []
        for uuid, samples in self._samples.items():
            inside = [sample for sample in samples if start_s <= sample.at_s <= end_s]
            if inside:
                windows.append(_window(uuid, self._names[uuid], inside, start_s, end_s))
        return tuple(windows)


def joules_per_token(gpus: Sequence[GpuWindow], tokens: int) -> float | None:
    """Energy of all GPUs by so many tokens; None where a GPU's energy is not known."""
    if not gpus or not tokens or any(gpu.energy_j is None for gpu in gpus):
        return None
    return sum(gpu.energy_j or 0.0 for gpu in gpus) / tokens


def energy_source(gpus: Sequence[GpuWindow]) -> EnergySource | None:
    """What carries the energy of all GPUs: the counter only where it does so of each."""
    sources = {gpu.energy_source for gpu in gpus}
    if not sources or None in sources:
        return None
    return EnergySource.COUNTER if sources == {EnergySource.COUNTER} else EnergySource.POWER


def _energy(
    samples: Sequence[_Sample], mean_w: float | None, start_s: float, end_s: float
) -> tuple[float | None, EnergySource | None]:
    marks = [(s.at_s, s.counter_j) for s in samples if s.counter_j is not None]
    if len(marks) >= 2:
        (first_s, first_j), (last_s, last_j) = marks[0], marks[-1]
        spanned = last_s - first_s
        rising = all(later[1] >= earlier[1] for earlier, later in pairwise(marks))
        if rising and spanned >= COUNTED_SHARE * (end_s - start_s):
            counted = last_j - first_j
            outside = end_s - start_s - spanned
            rate_w = mean_w if mean_w is not None else counted / spanned
            return counted + rate_w * outside, EnergySource.COUNTER
    if mean_w is None:
        return None, None
    return mean_w * (end_s - start_s), EnergySource.POWER


def _window(
    uuid: str, name: str, samples: Sequence[_Sample], start_s: float, end_s: float
) -> GpuWindow:
    # Each sample stands for the time half way to its neighbours, to the window's edges.
    edges = [start_s]
    edges += [(a.at_s + b.at_s) / 2 for a, b in pairwise(samples)]
    edges.append(end_s)
    spans = [later - earlier for earlier, later in pairwise(edges)]
    powers = [(s.power_w, span) for s, span in zip(samples, spans, strict=True)]
    known = [(power, span) for power, span in powers if power is not None]
    covered = sum(span for _, span in known)
    mean_w = sum(power * span for power, span in known) / covered if covered else None
    throttle: dict[str, float] = {}
    for sample, span in zip(samples, spans, strict=True):
        for reason in EventReasons(sample.reasons or 0):
            if reason is not EventReasons.IDLE and reason.name:
                key = reason.name.lower()
                throttle[key] = round(throttle.get(key, 0.0) + span, 3)
    clocks = [s.clock_mhz for s in samples if s.clock_mhz is not None]
    shares = [s.utilization for s in samples if s.utilization is not None]
    limits = [s.limit_w for s in samples if s.limit_w is not None]
    energy_j, source = _energy(samples, mean_w, start_s, end_s)
    return GpuWindow(
        uuid=uuid,
        name=name,
        power_mean_w=mean_w,
        power_max_w=max((power for power, _ in known), default=None),
        power_limit_w=min(limits, default=None),
        energy_j=energy_j,
        energy_source=source,
        sm_clock_mean_mhz=sum(clocks) / len(clocks) if clocks else None,
        sm_clock_max_mhz=max(clocks, default=None),
        utilization_mean=sum(shares) / len(shares) if shares else None,
        memory_used_max_bytes=max(
            (s.memory_bytes for s in samples if s.memory_bytes is not None), default=None
        ),
        temperature_max_c=max(
            (s.temperature_c for s in samples if s.temperature_c is not None), default=None
        ),
        throttle_s=throttle,
        memory_utilization_mean=_mean([s.memory_share for s in samples]),
        memory_clock_mean_mhz=_mean([s.memory_clock_mhz for s in samples]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
