"""Benchmark runs of a room: at most one a host, alive whoever looks, ended with the room.

Whoever shows them compares `version` and takes `live(host)`; nobody is called back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from backends import paths
from backends.bench.against import Reference, against_baseline, reference_for
from backends.bench.compare import Comparison
from backends.bench.compare_steps import StepWord, step_words
from backends.bench.endpoint import Endpoint
from backends.bench.host_look import look_at_host, still_served
from backends.bench.live_words import LiveWords
from backends.bench.place import HostSession, beside
from backends.bench.plan import Plan
from backends.bench.possible import Possible
from backends.bench.preflight import refuses
from backends.bench.results import Finding, RunResult, StepResult
from backends.bench.run_events import Event, Noticed, Progress, RequestEnded, StepEnded
from backends.bench.runner import Run, prepare_run, record_file
from backends.bench.weigh_run import weighed
from backends.clock import SYSTEM_CLOCK, Clock
from backends.errors import RoomError, UsageError
from backends.storage.history import History
from backends.storage.keep import keep_run

STOP_S: Final = 6.0
SAMPLES: Final = 2 * 3600
"""Progress is told twice a second; the curves keep an hour."""
REQUESTS: Final = 4000


class Point(NamedTuple):
    """What a run was doing at a moment (monotonic s); rates of the last second."""

    at_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    ttft_s: float | None
    in_flight: int


@dataclass(slots=True)
class Live:
    """A run as it is seen while it goes on, and after. Changed by its desk alone.

    Attributes:
        host: Where it runs.
        url: The server, as seen from there.
        plan: What is offered.
        state: In a word: `preparing`, `running`, `stopping`, `over`, `refused`, `failed`.
        error: Why it came to nothing.
        run_id: Of the result, once there is one.
        progress: The newest.
        step: The one that `ttft_s` and its like are of.
        curve: What the run was doing, twice a second.
        ttft_s: Of the running step's successful requests, newest last; likewise below.
        steps: Finished.
        findings: All so far.
        possible: The theoretical maximum of each load, once the model was weighed.
        possible_absent: Why that is not known.
        compared: How it compares with its baseline, in words; empty where there is none.
        words: By load, what a comparison with the baseline says; they come as steps end.
    """

    host: str
    url: str
    plan: Plan
    state: str = "preparing"
    error: str = ""
    run_id: str = ""
    progress: Progress | None = None
    step: int | None = None
    curve: deque[Point] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    ttft_s: deque[float] = field(default_factory=lambda: deque(maxlen=REQUESTS))
    tpot_s: deque[float] = field(default_factory=lambda: deque(maxlen=REQUESTS))
    e2e_s: deque[float] = field(default_factory=lambda: deque(maxlen=REQUESTS))
    steps: list[StepResult] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    possible: Possible | None = None
    possible_absent: str = ""
    compared: str = ""
    words: dict[str, StepWord] = field(default_factory=dict)

    @property
    def going(self) -> bool:
        """Whether it has not come to its end."""
        return self.state in ("preparing", "running", "stopping")


class BenchDesk:
    """See the module.

    Args:
        version: Of gpuroom, for the results.
        history: Opens the history; called in a thread.
        clock: For the curves.
    """

    def __init__(
        self,
        version: str,
        history: Callable[[], History] = History.at_home,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.version = 0
        self._gpuroom = version
        self._history = history
        self._clock = clock
        self._lives: dict[str, Live] = {}
        self._runs: dict[str, Run] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def live(self, host: str) -> Live | None:
        """The run of a host, or its last one."""
        return self._lives.get(host)

    def start(
        self, session: HostSession, python: str, endpoint: Endpoint, plan: Plan,
        *, model: str | None = None, profile: str | None = None,
    ) -> Live:  # fmt: skip
        """Begin a run on a host; returns at once.

        Raises:
            UsageError: One is going on there.
        """
        before = self._lives.get(session.name)
        if before is not None and before.going:
            raise UsageError(f"{session.name} is being measured already", hint="x stops that run")
        live = Live(session.name, endpoint.url, plan)
        self._lives[session.name] = live
        self._tasks[session.name] = asyncio.create_task(
            self._carry_out(live, session, python, endpoint, model, profile),
            name=f"bench {session.name}",
        )
        self.version += 1
        return live

    def stop(self, host: str) -> None:
        """End a run at once, requests and all; what was measured is kept."""
        live, run = self._lives.get(host), self._runs.get(host)
        if live is None or not live.going:
            return
        if run is not None:
            live.state = "stopping"
            run.stop()
        elif (task := self._tasks.get(host)) is not None:
            task.cancel()
        self.version += 1

    async def close(self) -> None:
        """End all runs, with what they measured, within some seconds."""
        for host in self._lives:
            self.stop(host)
        tasks = [task for task in self._tasks.values() if not task.done()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=STOP_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(
        self, live: Live, session: HostSession, python: str, endpoint: Endpoint,
        model: str | None, profile: str | None,
    ) -> None:  # fmt: skip
        try:
            await self._measure(live, session, python, endpoint, model, profile)
        except RoomError as error:
            live.state = "failed"
            live.error = ": ".join(part for part in (str(error), error.hint) if part)
        except OSError as error:
            live.state, live.error = "failed", str(error)
        finally:
            if live.going:  # cancelled
                live.state, live.error = "failed", live.error or "stopped before it began"
            self._runs.pop(live.host, None)
            self.version += 1

    async def _measure(
        self, live: Live, session: HostSession, python: str, endpoint: Endpoint,
        model: str | None, profile: str | None,
    ) -> None:  # fmt: skip
        there = beside(session, endpoint, self._gpuroom, python)
        prepared = await prepare_run(live.plan, endpoint, there.fetch, model=model, room=there.room)
        live.findings.extend(prepared.findings)
        against = refuses(prepared.findings)
        if against:
            live.state, live.error = "refused", "; ".join(finding.text for finding in against)
            return
        serves = await look_at_host(session, endpoint.port, prepared.server, there.environment)
        prepared.findings.extend(serves.findings)
        live.findings.extend(serves.findings)
        folder = paths.data_dir() / "runs"
        words = LiveWords(self._reference, lambda _, found: self._words(live, found))

        def heard(event: Event) -> None:
            self._take(live, event)
            if isinstance(event, StepEnded):
                words.step_ended()

        run = Run(
            prepared, there.generator, there.fetch,
            listener=heard, folder=folder,
            environment=serves.environment, profile=profile, gpus=there.gpus,
        )  # fmt: skip
        self._runs[live.host] = run
        live.state = "running"
        live.run_id = run.run_id
        self.version += 1
        async with words.following(run):
            result = await run.execute()
        result = await still_served(session, endpoint.port, result)
        live.error = result.error or ""
        compared = await asyncio.to_thread(self._keep, result)
        if compared is not None:
            live.compared, live.words = in_words(compared), step_words(compared)
        live.state = "over"
        self.version += 1
        await self._weigh(live, session, result, serves.model)

    def _words(self, live: Live, words: Mapping[str, StepWord]) -> None:
        """A word a step as it ends, where a baseline is pinned."""
        live.words = dict(words)
        self.version += 1

    def _reference(self, run: RunResult) -> Reference | None:
        with self._history() as history:
            return reference_for(history, run)

    def _take(self, live: Live, event: Event) -> None:
        if isinstance(event, Progress | RequestEnded) and live.step != event.step:
            live.step = event.step
            for values in (live.ttft_s, live.tpot_s, live.e2e_s):
                values.clear()
        if isinstance(event, Progress):
            live.progress = event
            live.curve.append(
                Point(
                    self._clock.monotonic_s(), event.output_tokens_per_s,
                    event.total_tokens_per_s, event.ttft_s, event.in_flight,
                )
            )  # fmt: skip
            self.version += 1
        elif isinstance(event, RequestEnded):
            for values, value in (
                (live.ttft_s, event.ttft_s), (live.tpot_s, event.tpot_s), (live.e2e_s, event.e2e_s),
            ):  # fmt: skip
                if value is not None:
                    values.append(value)
        elif isinstance(event, StepEnded):
            live.steps.append(event.result)
            self.version += 1
        elif isinstance(event, Noticed):
            live.findings.append(event.finding)
            self.version += 1

    def _keep(self, result: RunResult) -> Comparison | None:
        """Into the history; the comparison with the pinned baseline, where there is one."""
        with self._history() as history:
            keep_run(history, result, record_file(paths.data_dir() / "runs", result.run_id))
            return against_baseline(history, result)

    async def _weigh(
        self, live: Live, session: HostSession, result: RunResult, model: str | None
    ) -> None:
        """What was possible, into the document too."""
        found = await weighed(session, result, model)
        live.possible, live.possible_absent = found.possible, found.possible_absent or ""
        await asyncio.to_thread(self._save, found)
        self.version += 1

    def _save(self, result: RunResult) -> None:
        with self._history() as history:
            history.save(result)


def in_words(comparison: Comparison) -> str:
    """A comparison with a baseline in a sentence."""
    row = comparison.overall
    change = f" ({row.estimate.ratio - 1:+.1%} {row.metric.value})" if row.estimate else ""
    why = f": {comparison.obstacles[0]}" if comparison.obstacles else ""
    return f"{comparison.word.value}{change}{why}, against {comparison.a.run_id}"
