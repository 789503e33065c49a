"""A history of made-up runs: a server that saturates, one tuned, one slower, one with company."""

from __future__ import annotations

import msgspec

from backends.bench.efficiency import conditions_of, possible_of
from backends.bench.models import load_model
from backends.bench.results import (
    Finding,
    GpuWindow,
    RunResult,
    Severity,
    StepResult,
    Summary,
    TokenLedger,
)
from backends.storage.history import History
from tests.bench_data.runs import run

STREAMS = (1, 4, 16, 64, 256)


def _slower(summary: Summary | None, factor: float) -> Summary | None:
    if summary is None:
        return None
    names = ("mean", "p50", "p90", "p95", "p99", "min", "max")
    return msgspec.structs.replace(
        summary, **{name: getattr(summary, name) * factor for name in names}
    )


def _saturating(step: StepResult, foreign: bool) -> StepResult:
    """The more streams, the slower each."""
    factor = 1 + (step.concurrency or 1) / 80
    steady = step.steady
    assert steady is not None
    steady = msgspec.structs.replace(
        steady,
        output_tokens_per_s=steady.output_tokens_per_s / factor,
        total_tokens_per_s=steady.total_tokens_per_s / factor,
    )
    blocks = tuple(
        msgspec.structs.replace(
            block,
            output_tokens=round(block.output_tokens / factor),
            e2e_s=(block.e2e_s or 0) * factor,
            tpot_s=(block.tpot_s or 0) * factor,
        )
        for block in step.blocks
    )
    alien = foreign and (step.concurrency or 0) >= 256
    made = 39_000 if alien else 32_000
    return msgspec.structs.replace(
        step,
        steady=steady,
        whole=steady,
        blocks=blocks,
        tpot_s=_slower(step.tpot_s, factor),
        e2e_s=_slower(step.e2e_s, factor),
        ttft_s=_slower(step.ttft_s, factor),
        gpus=tuple(GpuWindow(uuid=f"GPU-{n}", power_mean_w=300.0 + n) for n in range(8)),
        joules_per_output_token=2428 / steady.output_tokens_per_s,
        bound="memory",
        bound_evidence="GPUs busy 98%, memory in use 71%, power 55% of the limit",
        ledger=TokenLedger(
            asked_input=32_000, asked_output=32_000, usage_input=32_000, usage_output=32_000,
            seen_output=32_000, server_input=32_000, server_output=made,
            foreign_output_share=1 - 32_000 / made,
        ),
    )  # fmt: skip


def saturating(number: int, *, speed: float = 1.0, foreign: bool = False) -> RunResult:
    """A run of 1 to 256 streams, twice, with what was possible."""
    measured = run(number, streams=STREAMS, repetitions=2, speed=speed)
    steps = tuple(_saturating(step, foreign) for step in measured.steps)
    findings = ()
    if foreign:
        text = "somebody else made 17.9 % of the server's output tokens"
        findings = (Finding(key="foreign_load", severity=Severity.ERROR, text=text),)
    measured = msgspec.structs.replace(measured, steps=steps, findings=findings)
    name, weights = load_model("GLM-5-NVFP4")
    possible = possible_of(measured, name, weights, conditions_of(measured))
    return msgspec.structs.replace(measured, possible=possible)


def fill() -> list[str]:
    """Four runs into the history, the first pinned; their ids, newest first."""
    runs = [
        saturating(1), saturating(2, speed=1.05), saturating(3, speed=0.9),
        saturating(4, foreign=True),
    ]  # fmt: skip
    with History.at_home() as history:
        for one in runs:
            history.save(one)
        history.pin(runs[0].run_id)
        history.tag(runs[1].run_id, ["tuned"])
        history.tag(runs[2].run_id, ["cold", "golden"])
        history.note(runs[2].run_id, "the governor was powersave")
    return [one.run_id for one in reversed(runs)]
