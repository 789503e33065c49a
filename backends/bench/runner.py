"""A run from beginning to end: owns the generator, gathers its records, gives the result."""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from backends.bench import job as jobs
from backends.bench.document import document, new_run_id
from backends.bench.draft import write_draft
from backends.bench.endpoint import Fetch
from backends.bench.gpuwindow import GpuSampler
from backends.bench.messages import Rates, client_health, real, whole
from backends.bench.metrics import StepMetrics
from backends.bench.prepared import Prepared, prepare_run
from backends.bench.process import Generator
from backends.bench.request_record import RequestRecord
from backends.bench.results import (
    Environment,
    Finding,
    RunResult,
    RunStatus,
    Severity,
    StepResult,
)
from backends.bench.run_events import Event, Listener, Noticed, Progress, RequestEnded, StepEnded
from backends.bench.sink import Sink, record_file
from backends.bench.surroundings import Surroundings
from backends.errors import RoomError
from backends.text import clean

__all__ = [
    "Event",
    "Listener",
    "Noticed",
    "Prepared",
    "Progress",
    "RequestEnded",
    "Run",
    "StepEnded",
    "prepare_run",
    "record_file",
]

FOREIGN_SHARE: Final = 0.01
"""More of the server's tokens than this from elsewhere is said."""
SLICE: Final = 400
"""Records decoded before the event loop gets its turn: some 5 ms."""
_RECORD: Final = msgspec.json.Decoder(RequestRecord)
_MARK: Final = b'"t":"request"}'


class Run:
    """One run. `execute` carries it out; `stop` ends it early, keeping what was measured.

    With a `folder`, every request's record is appended to `RUN_ID.jsonl` in it as it comes.
    """

    def __init__(
        self,
        prepared: Prepared,
        generator: Generator,
        fetch: Fetch,
        *,
        listener: Listener = lambda event: None,
        folder: Path | None = None,
        environment: Environment | None = None,
        profile: str | None = None,
        nonce: str | None = None,
        gpus: GpuSampler | None = None,
    ) -> None:
        self._prepared = prepared
        self._generator = generator
        self._listener = listener
        self._environment = environment or Environment()
        self._profile = profile
        self._nonce = nonce
        self.run_id = new_run_id()
        self._sink = Sink(record_file(folder, self.run_id)) if folder is not None else None
        self._sink_told = False
        self._findings = list(prepared.findings)
        self._results: list[StepResult] = []
        self._metrics: dict[int, StepMetrics] = {}
        self._states: dict[int, dict[str, float]] = {}
        self._rates = Rates()
        self._around = Surroundings(fetch, gpus)
        self._begin: dict[str, object] = {}
        self._end: dict[str, object] | None = None
        self._stopping = asyncio.Event()
        self._cache_told = False
        self._started = datetime.now(UTC)

    def stop(self) -> None:
        """Stop sending and end all requests at once; `execute` then gives what there is."""
        self._stopping.set()

    async def execute(self) -> RunResult:
        """Carry the run out. Raises GeneratorFailed only if it cannot even be started.

        When cancelled, everything is ended before the cancellation goes on.
        """
        prepared = self._prepared
        job = jobs.build(
            prepared.plan,
            prepared.steps,
            prepared.endpoint,
            prepared.server,
            prepared.requests,
            nonce=self._nonce,
        )
        error: str | None = None
        words = ""
        try:
            await self._generator.start(jobs.encode(job))
            self._around.start()
            watch = asyncio.create_task(self._watch_stop(), name="bench stop")
            try:
                async for batch in self._generator.lines():
                    await self._take(batch)
                    self._report_sink()
            except RoomError as failure:
                error = str(failure)
            finally:
                watch.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watch
        finally:
            await self._around.stop()
            words = await self._generator.end()
            if self._sink is not None:
                self._sink.close()
        self._report_sink()
        return self._result(error, words)

    async def _watch_stop(self) -> None:
        await self._stopping.wait()
        await self._generator.command(b'{"do":"stop"}\n')

    # --- what the generator says ----------------------------------------------------------

    async def _take(self, batch: bytes) -> None:
        lines = batch.split(b"\n")
        records = []
        for count, line in enumerate(lines, 1):
            if line.endswith(_MARK):
                records.append(line)
                self._record(line)
            elif line:
                message = json.loads(line)
                if isinstance(message, dict):
                    await self._message(message)
            if count % SLICE == 0:
                await asyncio.sleep(0)
        if self._sink is not None and records:
            self._sink.write(b"\n".join(records) + b"\n")
            await self._sink.sync()

    def _record(self, line: bytes) -> None:
        record = _RECORD.decode(line)
        metrics = self._metrics.get(record.step)
        if metrics is None:
            step = self._prepared.steps[record.step]
            goodput = self._prepared.plan.goodput
            metrics = StepMetrics(
                closed=step.concurrency is not None,
                goodput_limits_s=goodput.limits() if goodput is not None else None,
            )
            self._metrics[record.step] = metrics
        metrics.add(record)
        if record.ok and record.phase == "measure":
            self._listener(_latencies(record))

    async def _message(self, message: dict[str, object]) -> None:
        kind = message.get("t")
        if kind == "begin":
            self._begin = message
            self._around.begin()
            await self._write_draft()
        elif kind == "state":
            number = whole(message.get("step"))
            state = str(message.get("state"))
            self._states.setdefault(number, {})[state] = real(message.get("at_s"))
            if state == "waiting":
                await self._between_steps(number)
            else:
                await self._around.edge()
        elif kind == "progress":
            step = self._prepared.steps[whole(message.get("step"))]
            of = len(self._prepared.steps)
            self._listener(self._rates.progress(message, of, step.label))
        elif kind == "step_end":
            await self._step_end(message)
        elif kind == "end":
            self._end = message

    async def _between_steps(self, number: int) -> None:
        """Nothing is in flight: the time to empty caches and to read counters."""
        self._rates.reset()
        await self._flush_cache()
        if number:
            await asyncio.sleep(self._prepared.plan.pause_s)
        await self._around.before_step()
        await self._generator.command(b'{"do":"next"}\n')

    async def _step_end(self, message: dict[str, object]) -> None:
        await self._around.after_step()
        number = whole(message.get("number"))
        result = self._step_result(number, message)
        self._results.append(result)
        await self._write_draft()
        self._listener(StepEnded(result))

    async def _write_draft(self) -> None:
        """The document so far, beside the records: whatever ends this program, the run is there."""
        if self._sink is not None:
            await asyncio.to_thread(write_draft, self._sink.path, self.so_far())

    def _step_result(self, number: int, message: dict[str, object]) -> StepResult:
        step = self._prepared.steps[number]
        start_s = real(message.get("start_s"))
        measure_s = real(message.get("measure_s"))
        end_s = real(message.get("end_s"))
        steady = message.get("steady")
        load: dict[str, str | int | float | bool | None] = {
            k: v for k, v in step.load.items() if isinstance(v, str | int | float)
        }
        metrics = self._metrics.pop(number, None)
        result = StepResult(
            index=step.index,
            repetition=step.repetition,
            label=step.label,
            load=load,
            concurrency=step.concurrency,
            rate_per_s=step.rate_per_s,
            start_s=start_s,
            end_s=end_s,
            warm_up_s=max(0.0, measure_s - start_s),
            warm_up_steady=steady if isinstance(steady, bool) else None,
            max_in_flight=whole(message.get("max_in_flight")),
            sampled_streams=self._prepared.plan.sample,
            client=client_health(message, metrics, end_s - start_s),
        )
        warmed = self._prepared.plan.warm_up is not None
        if metrics is not None:
            result = metrics.result(result, measure_s, warmed)
        ours = metrics.all_output_tokens if metrics is not None else 0.0
        result = self._around.with_gpus(self._around.with_server(result, start_s, end_s, ours))
        self._judge(result, message, metrics is not None and not metrics.cut_short)
        return result

    def _judge(self, result: StepResult, message: dict[str, object], all_received: bool) -> None:
        position = len(self._results)
        for reason in result.client.reasons if not result.client.valid else ():
            self._notice("client_limited", Severity.ERROR, reason, position)
        aborted = message.get("aborted")
        if aborted and aborted not in ("skipped", "stopped"):
            self._notice("aborted", Severity.ERROR, clean(str(aborted)), position)
        if result.warm_up_steady is False:
            self._notice(
                "not_steady",
                Severity.WARNING,
                f"the warm-up of {result.label} ended after {result.warm_up_s:.0f} s without the "
                "figures coming to rest",
                position,
            )
        share = result.ledger.foreign_output_share
        if share is not None and share > FOREIGN_SHARE and all_received:
            self._notice(
                "foreign_load",
                Severity.ERROR,
                f"{share:.1%} of the server's output tokens during {result.label} were not ours",
                position,
            )
        for remark in result.ledger.remarks:
            self._notice("ledger", Severity.WARNING, remark, position)

    def _notice(self, key: str, severity: Severity, text: str, step: int | None = None) -> None:
        finding = Finding(key=key, severity=severity, text=text, step=step)
        self._findings.append(finding)
        self._listener(Noticed(finding))

    def _report_sink(self) -> None:
        sink = self._sink
        if sink is not None and sink.error is not None and not self._sink_told:
            self._sink_told = True
            self._notice(
                "samples_lost",
                Severity.ERROR,
                f"the samples cannot be written, the run goes on without them: {sink.error}",
            )

    # --- before and after -----------------------------------------------------------------

    async def _flush_cache(self) -> None:
        if not self._prepared.plan.flush_cache:
            return
        words = await self._around.flush(self._prepared.server.engine)
        if words and not self._cache_told:
            self._cache_told = True
            self._notice(
                "cache_not_flushed",
                Severity.INFO,
                f"the prefix cache was not emptied ({words}); prompts are new in every step "
                "all the same",
            )

    def _result(self, error: str | None, words: str) -> RunResult:
        end = self._end
        if end is None:
            status = RunStatus.STOPPED if self._stopping.is_set() else RunStatus.BROKEN
            if status is RunStatus.BROKEN:
                error = error or "the load generator died"
                error += f": {words}" if words else ""
        else:
            status = RunStatus(str(end.get("status")))
            if status is RunStatus.BROKEN:
                error = clean(str(end.get("error"))) + (f": {words}" if words else "")
        # What a step had gathered when the run was ended is kept, without a verdict.
        for number in sorted(self._metrics):
            states = self._states.get(number, {})
            start_s = states.get("warmup", states.get("measure", 0.0))
            message: dict[str, object] = {
                "start_s": start_s,
                "measure_s": states.get("measure", start_s),
                "end_s": max(states.values(), default=start_s),
                "aborted": "skipped",
                "partial": True,
            }
            if "measure" in states:
                self._results.append(self._step_result(number, message))
        return self._document(status, error)

    def so_far(self) -> RunResult:
        """The steps that have ended, as a run that was stopped there."""
        return self._document(RunStatus.STOPPED, None)

    def _document(self, status: RunStatus, error: str | None) -> RunResult:
        return document(
            self._prepared,
            run_id=self.run_id,
            started=self._started,
            status=status,
            error=error,
            where=self._generator.where,
            begin=self._begin,
            environment=self._environment,
            profile=self._profile,
            findings=self._findings,
            steps=self._results,
        )


def _latencies(record: RequestRecord) -> RequestEnded:
    """The latencies of one request, as docs/bench.md defines them."""
    sent, first, last = record.sent_s, record.first_token_s, record.last_token_s
    rest = (record.output_tokens or 0) - (record.first_tokens or 1)
    return RequestEnded(
        record.step,
        first - sent if sent is not None and first is not None else None,
        (last - first) / rest if first is not None and last is not None and rest > 0 else None,
        last - sent if sent is not None and last is not None else None,
    )
