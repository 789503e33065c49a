"""What the generator's messages say, decoded: numbers, rates, its own health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backends.bench.generator.lag import MAX_STEP_IDLE_SHARE
from backends.bench.metrics import StepMetrics
from backends.bench.results import ClientHealth, ReceiveClock
from backends.bench.run_events import Progress

LIMITED_SHARE: Final = 0.05
"""A step is invalid when the client held it back for longer than this part of it."""
RATE_S: Final = 1.05
"""Rates are those of the last second, told four times in it."""


class Rates:
    """Turns totals that are told now and then into rates of the last second."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, int, int, int]] = []

    def reset(self) -> None:
        """A step begins: totals start from 0."""
        self._rows = []

    def progress(self, message: Mapping[str, object], of: int, label: str) -> Progress:
        """A message of progress; `of` and `label` are the number of steps and this one's words."""
        at_s = real(message.get("at_s"))
        output, inputs = whole(message.get("output_tokens")), whole(message.get("input_tokens"))
        done = whole(message.get("succeeded"))
        self._rows = [row for row in self._rows if row[0] > at_s - RATE_S][-8:]
        self._rows.append((at_s, output, inputs, done))
        first = self._rows[0]
        seconds = at_s - first[0]
        limited = message.get("limited")

        def rate(count: int) -> float:
            return count / seconds if seconds > 0 else 0.0

        return Progress(
            step=whole(message.get("step")),
            of=of,
            label=label,
            phase=str(message.get("phase")),
            at_s=at_s,
            in_flight=whole(message.get("in_flight")),
            sent=whole(message.get("sent")),
            succeeded=done,
            failed=whole(message.get("failed")),
            output_tokens=output,
            input_tokens=inputs,
            output_tokens_per_s=rate(output - first[1]),
            total_tokens_per_s=rate(output + inputs - first[1] - first[2]),
            requests_per_s=rate(done - first[3]),
            ttft_s=maybe(message.get("ttft_s")),
            e2e_s=maybe(message.get("e2e_s")),
            limited=tuple(map(str, limited)) if isinstance(limited, list) else (),
        )


def client_health(
    message: dict[str, object], metrics: StepMetrics | None, seconds: float
) -> ClientHealth:
    """What the generator says of itself at the end of a step of so many seconds."""
    reasons = message.get("reasons")
    limited_s = real(message.get("limited_s"))
    lag, late = message.get("receive_lag_s"), message.get("send_late_s")
    lag = lag if isinstance(lag, list) and len(lag) == 3 else [None] * 3
    late = late if isinstance(late, list) and len(late) == 3 else [None] * 3
    clocks = metrics.clocks if metrics is not None else frozenset()
    wait = message.get("run_queue_wait_s")
    rss = message.get("max_rss_bytes")
    return ClientHealth(
        valid=limited_s <= LIMITED_SHARE * max(seconds, 1e-9)
        and real(message.get("idle_share")) <= MAX_STEP_IDLE_SHARE
        and not message.get("partial"),
        reasons=tuple(map(str, reasons)) if isinstance(reasons, list) else (),
        workers=whole(message.get("workers")) or 1,
        cpu_s=real(message.get("cpu_s")),
        cpu_share=real(message.get("cpu_share")),
        run_queue_wait_s=maybe(wait),
        max_rss_bytes=whole(rss) if rss is not None else None,
        receive_lag_p50_s=maybe(lag[0]),
        receive_lag_p99_s=maybe(lag[1]),
        receive_lag_max_s=maybe(lag[2]),
        send_late_p50_s=maybe(late[0]),
        send_late_p99_s=maybe(late[1]),
        send_late_max_s=maybe(late[2]),
        limited_s=limited_s,
        merged_share=metrics.merged_share if metrics is not None else None,
        clock=ReceiveClock(next(iter(clocks))) if len(clocks) == 1 else ReceiveClock.MIXED,
    )


def whole(value: object) -> int:
    """A whole number; 0 for anything else."""
    return int(value) if isinstance(value, int | float) else 0


def real(value: object) -> float:
    """A number; 0 for anything else."""
    return float(value) if isinstance(value, int | float) else 0.0


def maybe(value: object) -> float | None:
    """A number, or None."""
    return float(value) if isinstance(value, int | float) else None
