"""What held a server back in a step, with what shows it. Pure: figures in, a word and words out.

In the order asked: the power cap that held the clocks; a KV cache that was full; requests that
waited for a slot; then, of a GPU that was busy all the time, its memory or its arithmetic. What
none of these shows has no word.

The GPU's `utilization.memory` is the share of time in which its memory was read or written, as the
driver samples it (NVML, `nvmlDeviceGetUtilizationRates`): it says that memory was in use, not how
close to its bandwidth. So "memory" by it alone needs a GPU that is busy and below its power limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from backends.bench.results import GpuWindow, ServerWindow

Word = Literal["compute", "memory", "queue", "cap"]

CAP_SHARE: Final = 0.2
"""The cap held the clocks for this part of the time or more."""
BUSY: Final = 0.9
MEMORY_BUSY: Final = 0.5
WORKING: Final = 0.7
"""Of the power limit: arithmetic at full tilt draws more than this."""
FULL_CACHE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Bound:
    """A word, or none, and what shows it.

    Attributes:
        word: What held the server back; None where nothing says.
        evidence: In one sentence, with its figures.
    """

    word: Word | None
    evidence: str


def what_bound(server: ServerWindow | None, gpus: Sequence[GpuWindow], seconds: float) -> Bound:
    """Weigh what the server's metrics and the GPUs showed through a window of `seconds`."""
    return (
        _cap(gpus, seconds)
        or _queue_or_cache(server)
        or _gpu(gpus)
        or Bound(None, _nothing(server, gpus))
    )


def _cap(gpus: Sequence[GpuWindow], seconds: float) -> Bound | None:
    held = [(gpu.throttle_s.get("sw_power_cap", 0.0), gpu) for gpu in gpus]
    longest, gpu = max(held, key=lambda pair: pair[0], default=(0.0, None))
    if gpu is None or seconds <= 0 or longest < CAP_SHARE * seconds:
        return None
    limit = f" of {gpu.power_limit_w:.0f} W" if gpu.power_limit_w is not None else ""
    return Bound("cap", f"the power cap{limit} held the clocks for {longest / seconds:.0%} of it")


def _queue_or_cache(server: ServerWindow | None) -> Bound | None:
    if server is None:
        return None
    waiting = server.waiting_mean or 0.0
    cache = server.kv_cache_used_max
    if server.preemptions:
        return Bound("memory", f"the KV cache was short: {server.preemptions} preemptions")
    if waiting >= 1 and cache is not None and cache >= FULL_CACHE:
        words = f"the KV cache was {cache:.0%} full while {waiting:.1f} requests waited"
        return Bound("memory", words)
    if waiting >= 1:
        running = "" if server.running_max is None else f", {server.running_max:.0f} ran at most"
        return Bound("queue", f"{waiting:.1f} requests waited in the mean{running}")
    return None


def _gpu(gpus: Sequence[GpuWindow]) -> Bound | None:
    busy = [gpu.utilization_mean for gpu in gpus if gpu.utilization_mean is not None]
    if not busy or len(busy) < len(gpus) or min(busy) < BUSY:
        return None
    memory = _mean([gpu.memory_utilization_mean for gpu in gpus])
    power = _mean(
        [
            gpu.power_mean_w / gpu.power_limit_w
            if gpu.power_mean_w is not None and gpu.power_limit_w
            else None
            for gpu in gpus
        ]
    )
    if memory is None or power is None:
        return None
    shown = f"GPUs busy {min(busy):.0%}, memory in use {memory:.0%}, power {power:.0%} of the limit"
    if memory >= MEMORY_BUSY:
        return Bound("memory", shown)
    if power >= WORKING:
        return Bound("compute", shown)
    return None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _nothing(server: ServerWindow | None, gpus: Sequence[GpuWindow]) -> str:
    if not gpus and server is None:
        return "neither the GPUs nor the server's metrics were in sight"
    busy = [gpu.utilization_mean for gpu in gpus if gpu.utilization_mean is not None]
    if busy and min(busy) < BUSY:
        return f"GPUs were busy {min(busy):.0%} of the time: they waited for the server or the load"
    return "no cap, no queue, and nothing that tells memory from arithmetic"
