"""The campaign's own sequence: a cold and a warm server, a baseline, a change of 2 % or of none."""

from __future__ import annotations

import asyncio

import pytest

from backends.bench.compare import compare
from backends.bench.generator import steady
from backends.bench.results import RunResult
from tests.bench_data.campaign import COLD_S, TOKEN_S, PlayedServer, measured, plan_of
from tests.bench_data.counts import ALARMS, PAIRS, Power, count, wolf

Runs = list[RunResult]

pytestmark = pytest.mark.usefixtures("words_only")


def all_measured(servers: list[PlayedServer], warm_up: bool = True) -> Runs:
    async def each() -> Runs:
        return [await measured(server, plan_of(warm_up=warm_up)) for server in servers]

    return asyncio.run(each())


def cold_or_warm(pairs: int) -> list[PlayedServer]:
    """Every other one has just been started."""
    return [PlayedServer(cold=i % 2 == 0, seed=2 * i) for i in range(pairs)]


@pytest.fixture(scope="module")
def baselines() -> Runs:
    """Measured once: nobody changes them."""
    return all_measured(cold_or_warm(PAIRS))


def slower(pairs: int) -> Runs:
    return all_measured([PlayedServer(speed=0.98, seed=2 * i + 1) for i in range(pairs)])


def said(baselines: Runs, runs: Runs) -> Power:
    counts = Power()
    for a, b in zip(baselines, runs, strict=True):
        count(counts, compare(a, b))
    return counts


def test_a_change_of_0_percent_is_not_found(baselines: Runs) -> None:
    again = all_measured([PlayedServer(seed=2 * i + 1) for i in range(PAIRS)])
    comparisons = [compare(a, b) for a, b in zip(baselines, again, strict=True)]
    assert sum(map(wolf, comparisons)) <= ALARMS


def test_a_change_of_2_percent_is_found_or_it_says_how_many_more_it_takes(baselines: Runs) -> None:
    """Within ten blocks."""
    assert {len(step.blocks) for run in baselines for step in run.steps} <= {8, 9, 10}
    counts = said(baselines, slower(PAIRS))
    assert (counts.found + counts.told, counts.wrong) == (PAIRS, 0)
    assert counts.found >= 80


def test_a_cold_baseline_is_one_when_it_is_warm(baselines: Runs) -> None:
    for cold, run in enumerate(baselines[:10]):
        (step,) = run.steps
        assert step.warm_up_steady
        assert (step.warm_up_s > 4 * COLD_S) == (cold % 2 == 0)
        assert step.tpot_s is not None
        assert step.tpot_s.mean == pytest.approx(TOKEN_S, rel=0.02)


def test_a_warm_up_that_ends_too_soon_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sequence, when three batches are always enough, or no warm-up is made at all."""
    changed = slower(20)
    whole = all_measured(cold_or_warm(20), warm_up=False)
    monkeypatch.setattr(steady.SteadyCheck, "_agrees", lambda _: True)
    short = all_measured(cold_or_warm(20))
    for baselines in (whole, short):
        from_cold = said(baselines[::2], changed[::2])
        assert (from_cold.found, from_cold.told) == (0, 10)
    assert said(short[1::2], changed[1::2]).found >= 8
