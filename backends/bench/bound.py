"""What held a server back in a step, with what shows it. Pure: figures in, a word and words out.

In the order asked: a cap that held the clocks (power, heat, the board's brake); a KV cache that was
full; requests that waited for a slot; then of the GPUs: at the power limit, memory in use, or
arithmetic. GPUs that worked at none of these waited: the step was bound by the host or by latency,
launches and hops one after the other. What nothing shows has no word, and a
reason.

A GPU's `utilization.gpu` is the share of time in which any kernel ran, `utilization.memory` that in
which its memory was read or written (NVML, `nvmlDeviceGetUtilizationRates`). The first is near 1 on
a GPU that decodes one stream with small kernels, so it does not tell work from waiting; the second
says that memory was in use, not how close to its bandwidth. Power by its limit tells work.
A queue shows in the engine's own metrics alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from backends.bench.results import GpuWindow, ServerWindow

Word = Literal["compute", "memory", "queue", "cap", "latency"]

CAP_SHARE: Final = 0.2
"""The cap held the clocks for this part of the time or more."""
CAP_REASONS: Final = {
    "sw_power_cap": "the power cap",
    "hw_power_brake": "the board's power brake",
    "sw_thermal": "heat (the driver's limit)",
    "hw_thermal": "heat (the hardware's limit)",
    "hw_slowdown": "the hardware's slowdown",
}
"""Clock event reasons that are a cap (NVML, `nvmlClocksEventReasons`), and their words."""
AT_LIMIT: Final = 0.97
"""Of the power limit, in the mean: the cap is what holds it, reasons told or not."""
BUSY: Final = 0.9
MEMORY_BUSY: Final = 0.5
WORKING: Final = 0.7
"""Of the power limit: arithmetic at full tilt draws more than this."""
SLACK: Final = 0.5
"""Of the power limit: a GPU below it, with its memory mostly unused, waits for its next kernel."""
MEMORY_SLACK: Final = 0.3
BANDWIDTH_SHARE: Final = 0.6
"""Of the theoretical maximum by memory bandwidth: a step that reaches it was bound by it."""
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


def what_bound(
    server: ServerWindow | None,
    gpus: Sequence[GpuWindow],
    seconds: float,
    *,
    open_loop: bool = False,
    has_metrics: bool = False,
) -> Bound:
    """Weigh what the server's metrics and the GPUs showed through a window.

    Args:
        server: By the engine's own metrics; None where it has none.
        gpus: All of the host.
        seconds: Length of the window.
        open_loop: Requests came at a rate, so GPUs with room may have waited for the load alone.
        has_metrics: The server has metrics, though the window may hold no reading of them.
    """
    return (
        _cap(gpus, seconds)
        or _queue_or_cache(server)
        or _gpu(server, gpus, open_loop)
        or Bound(None, _nothing(server, gpus, has_metrics))
    )


def by_bandwidth(found: Bound, share: float | None) -> Bound:
    """`found`, or "memory" where a step reached much of what the cards' memory allows.

    Args:
        found: By the readings.
        share: Of the theoretical maximum of a load that memory bandwidth bounds; None where that
            is not known or something else bounds it.
    """
    if share is None or share < BANDWIDTH_SHARE or found.word in ("cap", "queue", "memory"):
        return found
    return Bound("memory", f"{share:.0%} of what the memory's bandwidth allows was reached")


def _cap(gpus: Sequence[GpuWindow], seconds: float) -> Bound | None:
    held = [
        (gpu.throttle_s.get(reason, 0.0), reason, gpu) for gpu in gpus for reason in CAP_REASONS
    ]
    longest, reason, gpu = max(held, key=lambda found: found[0], default=(0.0, "", None))
    if gpu is not None and seconds > 0 and longest >= CAP_SHARE * seconds:
        told = reason == "sw_power_cap" and gpu.power_limit_w is not None
        limit = f" of {gpu.power_limit_w:.0f} W" if told else ""
        words = f"{CAP_REASONS[reason]}{limit} held the clocks for {longest / seconds:.0%} of it"
        return Bound("cap", words)
    for gpu in gpus:
        if gpu.power_mean_w is not None and gpu.power_limit_w:
            share = gpu.power_mean_w / gpu.power_limit_w
            if share >= AT_LIMIT:
                words = f"a GPU drew {gpu.power_mean_w:.0f} W, {share:.0%} of its power limit"
                return Bound("cap", words)
    return None


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


def _gpu(server: ServerWindow | None, gpus: Sequence[GpuWindow], open_loop: bool) -> Bound | None:
    busy = [gpu.utilization_mean for gpu in gpus if gpu.utilization_mean is not None]
    memory = _mean([gpu.memory_utilization_mean for gpu in gpus])
    power = _power(gpus)
    if len(busy) < len(gpus) or memory is None or power is None:
        return None
    shown = _shown(gpus)
    if min(busy) >= BUSY and memory >= MEMORY_BUSY:
        return Bound("memory", shown)
    if min(busy) >= BUSY and power >= WORKING:
        return Bound("compute", shown)
    if all(_has_slack(gpu) for gpu in gpus):
        if open_loop:
            return Bound(None, f"the GPUs had room at the rate that was offered: {shown}")
        return Bound("latency", f"neither arithmetic nor memory: {shown}: {_waits(server)}")
    return None


def _has_slack(gpu: GpuWindow) -> bool:
    """Of each GPU alone: idle ones beside those that serve must not hide that these work."""
    power, limit, memory = gpu.power_mean_w, gpu.power_limit_w, gpu.memory_utilization_mean
    return (
        power is not None
        and bool(limit)
        and memory is not None
        and power < SLACK * (limit or 0.0)
        and memory < MEMORY_SLACK
    )


def _waits(server: ServerWindow | None) -> str:
    if server is not None and server.running_mean is not None:
        return f"host- or latency-bound, with {server.running_mean:.1f} requests running"
    return "host- or latency-bound"


def _shown(gpus: Sequence[GpuWindow]) -> str:
    """What the GPUs read, as far as they told it."""
    words = []
    busy = [gpu.utilization_mean for gpu in gpus if gpu.utilization_mean is not None]
    if busy:
        words.append(f"GPUs busy {min(busy):.0%}")
    memory = _mean([gpu.memory_utilization_mean for gpu in gpus])
    if memory is not None:
        words.append(f"memory in use {memory:.0%}")
    power = _power(gpus)
    if power is not None:
        words.append(f"power {power:.0%} of the limit")
    return ", ".join(words)


def _power(gpus: Sequence[GpuWindow]) -> float | None:
    """Power by its limit, the mean of all GPUs; None unless each tells both."""
    return _mean(
        [
            gpu.power_mean_w / gpu.power_limit_w
            if gpu.power_mean_w is not None and gpu.power_limit_w
            else None
            for gpu in gpus
        ]
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _nothing(server: ServerWindow | None, gpus: Sequence[GpuWindow], has_metrics: bool) -> str:
    engine = "no engine metrics" if server is None else "no queue by the engine's metrics"
    if server is None and has_metrics:
        engine = "over before the engine's metrics were read"
    if not gpus:
        if server is None and not has_metrics:
            return "neither the GPUs nor the server's metrics were in sight"
        return f"{engine}; the GPUs were not in sight"
    shown = _shown(gpus)
    if not shown:
        return f"{engine}; the GPUs told no use, no memory and no power with its limit"
    busy = [gpu.utilization_mean for gpu in gpus if gpu.utilization_mean is not None]
    waited = ": some GPU waited for the server or the load" if busy and min(busy) < BUSY else ""
    return f"{engine}; the GPU readings do not tell: {shown}{waited}"
