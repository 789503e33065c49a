"""A run load by load: the repetitions of a step as one line of figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from backends.bench.results import RunResult, StepResult, Summary, TokenLedger


@dataclass(frozen=True, slots=True)
class Load:
    """One load of a run; figures are means over its repetitions, None where none has one.

    Attributes:
        label: The load in words.
        concurrency: Streams at once, of a closed loop.
        rate_per_s: Requests due a second, of an open loop.
        repetitions: How many are in the figures.
        output_tokens_per_s: Of the steady window, else of the whole step; likewise total and
            requests. Output and total always go together.
        whole_output_tokens_per_s: First send to last byte: what other tools print.
        ttft_s: Mean of the repetitions' medians; likewise the other latencies without `p99`.
        power_w: Mean power of all GPUs together; None unless each of them told it.
        failures: Kind to number.
        valid: Whether the client kept up in every repetition.
        foreign_share: Largest share of the server's output that was somebody else's.
        bound: What held the server back, where all repetitions agree on it.
        steps: What it was made from.
    """

    label: str
    concurrency: int | None
    rate_per_s: float | None
    repetitions: int
    output_tokens_per_s: float | None
    total_tokens_per_s: float | None
    requests_per_s: float | None
    whole_output_tokens_per_s: float | None
    ttft_s: float | None
    ttft_p99_s: float | None
    tpot_s: float | None
    gap_p99_s: float | None
    e2e_s: float | None
    e2e_p99_s: float | None
    joules_per_output_token: float | None
    power_w: float | None
    sent: int
    succeeded: int
    failed: int
    failures: dict[str, int]
    valid: bool
    foreign_share: float | None
    bound: str | None
    steps: tuple[StepResult, ...]

    @property
    def ledgers(self) -> tuple[TokenLedger, ...]:
        """The ledger of each repetition."""
        return tuple(step.ledger for step in self.steps)


def loads(steps: Iterable[StepResult]) -> tuple[Load, ...]:
    """Steps by load, in the order in which each first ran."""
    found: dict[str, list[StepResult]] = {}
    for step in steps:
        found.setdefault(step.label, []).append(step)
    return tuple(_load(label, same) for label, same in found.items())


def loads_of(run: RunResult) -> tuple[Load, ...]:
    """The loads of a run, by concurrency or rate where they have one."""
    found = loads(sorted(run.steps, key=lambda step: (step.repetition, step.index)))
    return tuple(sorted(found, key=lambda load: load.steps[0].index))


def _load(label: str, steps: list[StepResult]) -> Load:
    rates = [step.steady or step.whole for step in steps]
    known = [rate for rate in rates if rate is not None]
    failures: dict[str, int] = {}
    for step in steps:
        for kind, count in step.failures.items():
            failures[kind] = failures.get(kind, 0) + count
    bounds = {step.bound for step in steps}
    foreign = [share for step in steps if (share := step.ledger.foreign_output_share) is not None]
    return Load(
        label=label,
        concurrency=steps[0].concurrency,
        rate_per_s=steps[0].rate_per_s,
        repetitions=len(steps),
        output_tokens_per_s=_mean([rate.output_tokens_per_s for rate in known]),
        total_tokens_per_s=_mean([rate.total_tokens_per_s for rate in known]),
        requests_per_s=_mean([rate.requests_per_s for rate in known]),
        whole_output_tokens_per_s=_mean(
            [step.whole.output_tokens_per_s for step in steps if step.whole]
        ),
        ttft_s=_of(steps, lambda step: step.ttft_s, _p50),
        ttft_p99_s=_of(steps, lambda step: step.ttft_s, _p99),
        tpot_s=_of(steps, lambda step: step.tpot_s, _p50),
        gap_p99_s=_of(steps, lambda step: step.gap_s, _p99),
        e2e_s=_of(steps, lambda step: step.e2e_s, _p50),
        e2e_p99_s=_of(steps, lambda step: step.e2e_s, _p99),
        joules_per_output_token=_mean(
            [joules for step in steps if (joules := step.joules_per_output_token) is not None]
        ),
        power_w=_mean([power for step in steps if (power := power_of(step)) is not None]),
        sent=sum(step.sent for step in steps),
        succeeded=sum(step.succeeded for step in steps),
        failed=sum(step.failed for step in steps),
        failures=failures,
        valid=all(step.client.valid for step in steps),
        foreign_share=max(foreign, default=None),
        bound=bounds.pop() if len(bounds) == 1 else None,
        steps=tuple(steps),
    )


def power_of(step: StepResult) -> float | None:
    """Mean power of all GPUs through a step; None unless each of them told it."""
    powers = [gpu.power_mean_w for gpu in step.gpus]
    known = [power for power in powers if power is not None]
    return sum(known) if known and len(known) == len(powers) else None


def _p50(summary: Summary) -> float | None:
    return summary.p50


def _p99(summary: Summary) -> float | None:
    return summary.p99


def _of(
    steps: Sequence[StepResult],
    which: Callable[[StepResult], Summary | None],
    figure: Callable[[Summary], float | None],
) -> float | None:
    found = (figure(summary) for step in steps if (summary := which(step)) is not None)
    return _mean([value for value in found if value is not None])


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
