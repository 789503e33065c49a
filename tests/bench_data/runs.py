"""Result documents made up for tests: a simulated server, measured in blocks."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta

from backends.bench.results import (
    ClientPlace,
    Environment,
    PlanEcho,
    PromptSource,
    RunResult,
    RunStatus,
    StepResult,
    Summary,
    Target,
    Throughput,
    TimeBlock,
    TokenSource,
)

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def summary(mean: float, n: int = 100) -> Summary:
    return Summary(
        n=n, mean=mean, stdev=mean / 10, min=mean * 0.8, p50=mean, p90=mean * 1.1,
        p95=mean * 1.2, p99=mean * 1.3, max=mean * 1.5,
    )  # fmt: skip


def block(start_s: float, rate: float, ttft_s: float, tpot_s: float, requests: int) -> TimeBlock:
    return TimeBlock(
        start_s=start_s, end_s=start_s + 10, requests=requests, input_tokens=requests * 100,
        output_tokens=round(rate * 10), ttft_s=ttft_s, ttft_p99_s=ttft_s * 1.3, tpot_s=tpot_s,
        e2e_s=ttft_s + 99 * tpot_s,
    )  # fmt: skip


def step(
    generator: random.Random,
    *,
    index: int = 0,
    repetition: int = 0,
    streams: int = 64,
    speed: float = 1.0,
    blocks: int = 10,
    spread: float = 0.01,
    drift: float = 0.0,
    between: float = 0.0,
) -> StepResult:
    """One step of a server with a true speed.

    Args:
        generator: Source of chance.
        index: Position in the plan.
        repetition: Which repetition.
        streams: Load.
        speed: Factor on the server's true speed.
        blocks: Time blocks.
        spread: Coefficient of variation from block to block.
        drift: Correlation of neighbouring blocks (first-order autoregression).
        between: Coefficient of variation from repetition to repetition.
    """
    own = math.exp(generator.gauss(0, between))
    state = generator.gauss(0, 1)
    parts: list[TimeBlock] = []
    for place in range(blocks):
        state = drift * state + math.sqrt(1 - drift**2) * generator.gauss(0, 1)
        factor = speed * own * math.exp(spread * state)
        rate = 50.0 * streams * factor
        noise = math.exp(generator.gauss(0, spread))
        parts.append(block(place * 10.0, rate, 0.1 * noise / factor, 0.02 / factor, 5 * streams))
    rate = sum(part.output_tokens for part in parts) / (10 * blocks)
    ttft = sum(part.ttft_s or 0 for part in parts) / blocks
    tpot = sum(part.tpot_s or 0 for part in parts) / blocks
    window = Throughput(
        start_s=0, end_s=blocks * 10.0, requests=5 * streams * blocks,
        input_tokens=500 * streams * blocks, output_tokens=round(rate * blocks * 10),
        requests_per_s=rate / 100, output_tokens_per_s=rate, total_tokens_per_s=rate * 2,
    )  # fmt: skip
    sent = 5 * streams * blocks
    return StepResult(
        index=index, repetition=repetition, label=f"{streams} streams",
        load={"kind": "closed", "concurrency": streams}, concurrency=streams, start_s=0,
        end_s=blocks * 10.0, sent=sent, succeeded=sent, steady=window, whole=window,
        ttft_s=summary(ttft, sent), tpot_s=summary(tpot, sent), e2e_s=summary(ttft + 99 * tpot),
        gap_s=summary(tpot), output_length=summary(100.0), input_length=summary(100.0),
        token_source=TokenSource.USAGE, blocks=tuple(parts),
    )  # fmt: skip


def run(
    number: int = 0,
    *,
    seed: int | None = None,
    streams: tuple[int, ...] = (1, 64),
    repetitions: int = 1,
    speed: float = 1.0,
    blocks: int = 10,
    spread: float = 0.01,
    drift: float = 0.0,
    between: float = 0.0,
    profile: str | None = "glm5",
    plan: str = "sweep",
    environment: Environment | None = None,
) -> RunResult:
    """A whole run of a made-up server; equal seeds give equal runs."""
    generator = random.Random(number if seed is None else seed)
    steps = tuple(
        step(
            generator, index=index, repetition=repetition, streams=count, speed=speed,
            blocks=blocks, spread=spread, drift=drift, between=between,
        )
        for repetition in range(repetitions)
        for index, count in enumerate(streams)
    )  # fmt: skip
    started = START + timedelta(minutes=number)
    return RunResult(
        run_id=f"{started:%Y%m%dT%H%M%S}-{number:05d}",
        started_utc=started,
        ended_utc=started + timedelta(seconds=50),
        status=RunStatus.COMPLETE,
        plan=PlanEcho(
            name=plan, toml="name = 'sweep'", digest=f"digest-{plan}", seed=1,
            prompt_source=PromptSource.IDS, workload_digest="workload",
        ),
        target=Target(
            url="http://127.0.0.1:8000", engine="sglang", engine_version="0.5.23", model="GLM-5",
            route="/v1/completions", profile=profile,
        ),
        client=ClientPlace(where="host", hostname="gpu01"),
        environment=environment
        or Environment(
            host="gpu01", driver="595.45", gpus=({"name": "NVIDIA H200", "uuid": "GPU-1"},) * 8
        ),
        steps=steps,
    )  # fmt: skip
