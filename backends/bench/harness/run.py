"""A run by another tool: started, watched, ended, its output read into our result."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import json
import zlib
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec

from backends.bench.document import document, new_run_id
from backends.bench.draft import write_draft
from backends.bench.endpoint import Endpoint, Fetch
from backends.bench.gpuwindow import GpuSampler
from backends.bench.harness.commands import Harness, Wanted, command, wanted
from backends.bench.harness.judge import (
    Beside,
    beside,
    final_word,
    input_miscounted,
    output_miscounted,
    too_fast,
    why_failed,
)
from backends.bench.importers import MAX_FILE_BYTES, ImportFailed, read_result
from backends.bench.messages import maybe, real, whole
from backends.bench.plan import Plan
from backends.bench.preflight import Room
from backends.bench.prepared import Prepared, look
from backends.bench.process import Generator
from backends.bench.prompts import Requests
from backends.bench.results import (
    Environment,
    Finding,
    PromptSource,
    RunResult,
    RunStatus,
    Severity,
    StepResult,
    TokenLedger,
)
from backends.bench.run_events import Listener, Noticed, StepEnded, ToolSaid
from backends.bench.sink import Sink, record_file
from backends.bench.surroundings import Surroundings
from backends.errors import RoomError
from backends.text import clean

LAST_LINES: Final = 12


@functools.cache
def program() -> bytes:
    """What runs on the host, compressed: started as the generator is."""
    source = resources.files("backends.bench.harness").joinpath("remote.py")
    return zlib.compress(source.read_text("utf-8").encode(), 9)


async def prepare_harness(
    tool: Harness,
    plan: Plan,
    endpoint: Endpoint,
    fetch: Fetch,
    *,
    model: str | None = None,
    room: Room | None = None,
) -> Prepared:
    """As `prepare_run`, without prompts: the tool makes its own. Raises RoomError."""
    server, steps, findings = await look(plan, fetch, model=model, room=room)
    wants = [wanted(tool, plan, step, endpoint, server, None) for step in steps]
    route = "native" if wants[0].native else "chat" if wants[0].chat else "completions"
    lengths = (tool.name, wants[0].input_tokens, wants[0].output_tokens, plan.seed, route)
    requests = Requests(
        route=route,
        prompt={},
        source=PromptSource.IDS if wants[0].native else PromptSource.LOCAL_TOKENIZER,
        ignore_eos=plan.ignore_eos,
        continuous_usage=False,
        digest=hashlib.sha256(repr(lengths).encode()).hexdigest(),
    )
    return Prepared(plan, endpoint, server, requests, steps, findings)


class HarnessRun:
    """One run by another tool; used as `backends.bench.runner.Run` is.

    Args:
        tool: Which one.
        prepared: By `prepare_harness`.
        generator: Runs `program()` where the tool is to run.
        fetch: Asks the server.
        python: The tool's Python there.
        pid: The server's process there, whose environment the tool gets; None for none.
        tokenizer: Of the model: a folder there, or a name; None takes the model's name.
        more: Further arguments, as they are.
        environment: What is known of the server's host.
        folder: Where the document lies as far as it is while the run goes on.
    """

    def __init__(
        self,
        tool: Harness,
        prepared: Prepared,
        generator: Generator,
        fetch: Fetch,
        *,
        python: str,
        pid: int | None = None,
        tokenizer: str | None = None,
        more: Sequence[str] = (),
        listener: Listener = lambda event: None,
        environment: Environment | None = None,
        profile: str | None = None,
        gpus: GpuSampler | None = None,
        folder: Path | None = None,
    ) -> None:
        self._tool = tool
        self._prepared = prepared
        self._generator = generator
        self._python = python
        self._pid = pid
        self._tokenizer = tokenizer
        self._more = tuple(more)
        self._listener = listener
        self._environment = environment or Environment()
        self._profile = profile
        self.run_id = new_run_id()
        self._around = Surroundings(fetch, gpus)
        self._sink = Sink(record_file(folder, self.run_id)) if folder is not None else None
        self._findings = list(prepared.findings)
        self._results: list[StepResult] = []
        self._begin: dict[str, object] = {}
        self._end: str | None = None
        self._error: str | None = None
        self._version = ""
        self._tool_name = tool.name
        self._pieces = bytearray()
        self._unpacker = zlib.decompressobj()
        self._said: deque[str] = deque(maxlen=LAST_LINES)
        self._final: str | None = None
        self._wants: list[Wanted] = []
        self._started: dict[int, float] = {}
        self._stopping = asyncio.Event()
        self._started_utc = datetime.now(UTC)

    def stop(self) -> None:
        """End the tool and all its requests; `execute` then gives what there is."""
        self._stopping.set()

    async def execute(self) -> RunResult:
        """Carry the run out. Raises RoomError only if it cannot even be started.

        When cancelled, everything is ended before the cancellation goes on.
        """
        job = self._job()
        words = ""
        try:
            await self._generator.start(json.dumps(job).encode() + b"\n")
            self._around.start()
            watch = asyncio.create_task(self._watch_stop(), name="bench stop")
            try:
                async for batch in self._generator.lines():
                    for line in batch.splitlines():
                        await self._take(line)
            except RoomError as failure:
                self._error = self._error or str(failure)
            finally:
                watch.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watch
        finally:
            await self._around.stop()
            words = await self._generator.end()
            if self._sink is not None:
                self._sink.close()
        return self._result(words)

    def _job(self) -> dict[str, object]:
        prepared = self._prepared
        env = {"TOKENIZERS_PARALLELISM": "false"}
        key = prepared.endpoint.headers.get("authorization", "").removeprefix("Bearer ")
        if key and self._tool.key_env:
            env[self._tool.key_env] = key
        elif key:
            self._notice(
                "key_not_given",
                Severity.WARNING,
                f"{self._tool.name} takes a key only where every user of the host could read it: "
                "it was not given",
            )
        commands = []
        for step in prepared.steps:
            want = wanted(
                self._tool, prepared.plan, step, prepared.endpoint, prepared.server, self._tokenizer
            )
            self._wants.append(want)
            argv = command(self._tool, self._python, want, self._more)
            commands.append(
                {"argv": argv, "result": self._tool.result, "env": self._tool.env(want)}
            )
        return {
            "python": self._python,
            "distribution": self._tool.distribution,
            "modules": list(self._tool.modules),
            "env_of": self._pid,
            "env": env,
            "commands": commands,
        }

    async def _watch_stop(self) -> None:
        await self._stopping.wait()
        await self._generator.command(b'{"do":"stop"}\n')

    async def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        kind = message.get("t")
        number = whole(message.get("step"))
        if kind == "begin":
            await self._take_begin(message)
        elif kind == "waiting":
            await self._between(number)
        elif kind == "started":
            self._started[number] = real(message.get("at_s"))
        elif kind == "line":
            text = clean(str(message.get("text")), 400)
            self._said.append(text)
            self._final = final_word(text) or self._final
            self._listener(ToolSaid(number, text))
        elif kind == "file":
            self._take_piece(message)
        elif kind == "step_end":
            await self._step_end(number, message)
        elif kind == "end":
            self._end = str(message.get("status"))

    async def _take_begin(self, message: dict[str, object]) -> None:
        self._begin = message
        self._around.begin()
        version = message.get("version")
        if version is not None:
            self._version = clean(str(version), 60)
            if message.get("module") is not None:
                await self._write_draft()
                return
            self._error = (
                f"{self._tool.distribution} {self._version} has no module "
                f"{' or '.join(self._tool.modules)}: another version is needed"
            )
        else:
            self._error = (
                f"{self._tool.distribution} is not installed in {self._python}, or there is no "
                "such Python: give the Python that has it (--python)"
            )
        await self._generator.command(b'{"do":"stop"}\n')

    async def _between(self, number: int) -> None:
        self._pieces.clear()
        self._unpacker = zlib.decompressobj()
        self._said.clear()
        self._final = None
        if self._prepared.plan.flush_cache:
            await self._around.flush(self._prepared.server.engine)
        if number:
            await asyncio.sleep(self._prepared.plan.pause_s)
        await self._around.before_step()
        await self._around.edge()
        await self._generator.command(b'{"do":"next"}\n')

    def _take_piece(self, message: dict[str, object]) -> None:
        room = MAX_FILE_BYTES - len(self._pieces)
        with contextlib.suppress(ValueError, zlib.error):
            data = base64.b64decode(str(message.get("data")), validate=True)
            self._pieces += self._unpacker.decompress(data, max(1, room))

    async def _step_end(self, number: int, message: dict[str, object]) -> None:
        await self._around.edge()
        await self._around.after_step()
        status = message.get("status")
        if self._stopping.is_set():
            return
        if status != 0 or not self._pieces:
            await self._failed(number, message)
            return
        try:
            found = await asyncio.to_thread(read_result, bytes(self._pieces), self._tool.name)
        except ImportFailed as error:
            self._said.append(str(error))
            await self._failed(number, message)
            return
        self._tool_name = found.harness
        result = self._placed(number, found.steps[0], message)
        self._judge(result, self._wants[number])
        self._results.append(result)
        await self._write_draft()
        self._listener(StepEnded(result))

    async def _write_draft(self) -> None:
        if self._sink is not None:
            await asyncio.to_thread(write_draft, self._sink.path, self.so_far())

    def _judge(self, result: StepResult, want: Wanted) -> None:
        each = Beside(want.input_tokens, want.output_tokens)
        more = beside(result, self._tool.warm_up(want), each, want.requests is None)
        for key, severity, wrong in (
            ("rate_not_kept", Severity.ERROR, too_fast(result)),
            ("token_count", Severity.ERROR, output_miscounted(result, more)),
            ("input_count", Severity.WARNING, input_miscounted(result, more)),
        ):
            if wrong is not None:
                self._notice(key, severity, f"{self._tool.name} {wrong}", len(self._results))

    async def _failed(self, number: int, message: dict[str, object]) -> None:
        label = self._prepared.steps[number].label
        error = clean(str(message.get("error") or ""), 300)
        said = why_failed(self._final, self._said, error)
        status = message.get("status")
        how = f"ended with status {status}" if status else "wrote no result that can be read"
        self._error = f"{self._tool.name} {how} at {label}: {said}"
        await self._generator.command(b'{"do":"stop"}\n')

    def _placed(self, number: int, step: StepResult, message: dict[str, object]) -> StepResult:
        """The tool's figures in our place of the plan and on our clock.

        Tools load for long before they send, and write their result when they have measured: so
        the window ends when the file was written.
        """
        spec = self._prepared.steps[number]
        seconds = step.end_s - step.start_s
        end_s = maybe(message.get("written_s")) or real(message.get("at_s"))
        start_s = max(self._started.get(number, 0.0), end_s - seconds)
        whole_run = step.whole
        if whole_run is not None:
            whole_run = msgspec.structs.replace(whole_run, start_s=start_s, end_s=end_s)
        load = {k: v for k, v in spec.load.items() if isinstance(v, str | int | float)}
        want = self._wants[number]
        ledger = TokenLedger(
            asked_input=step.succeeded * want.input_tokens,
            asked_output=step.succeeded * want.output_tokens,
            seen_output=whole_run.output_tokens if whole_run is not None else None,
        )
        step = msgspec.structs.replace(
            step,
            ledger=ledger,
            index=spec.index,
            repetition=spec.repetition,
            label=spec.label,
            load={**load, "tool": self._tool_name},
            concurrency=spec.concurrency,
            rate_per_s=spec.rate_per_s,
            start_s=start_s,
            end_s=end_s,
            whole=whole_run,
        )
        return self._around.with_gpus(self._around.with_server(step, start_s, end_s, None))

    def _notice(self, key: str, severity: Severity, text: str, step: int | None = None) -> None:
        finding = Finding(key=key, severity=severity, text=text, step=step)
        self._findings.append(finding)
        self._listener(Noticed(finding))

    def _result(self, words: str) -> RunResult:
        if self._stopping.is_set():
            status = RunStatus.STOPPED
        elif self._error is not None or self._end != "complete":
            status = RunStatus.BROKEN
            self._error = self._error or "the tool's runner died" + (f": {words}" if words else "")
        else:
            status = RunStatus.COMPLETE
            text = (
                f"measured by {self._tool_name} {self._version}, whose words differ from ours "
                "(docs/results.md); the server's and the GPUs' figures are those of the time "
                "before it wrote its result"
            )
            self._notice("harness", Severity.INFO, text)
        return self._document(status)

    def so_far(self) -> RunResult:
        """The steps that have ended, as a run that was stopped there."""
        return self._document(RunStatus.STOPPED)

    def _document(self, status: RunStatus) -> RunResult:
        environment = self._environment
        if self._version:
            versions = {**environment.versions, self._tool.distribution: self._version}
            environment = msgspec.structs.replace(environment, versions=versions)
        result = document(
            self._prepared,
            run_id=self.run_id,
            started=self._started_utc,
            status=status,
            error=self._error,
            where=self._generator.where,
            begin=self._begin,
            environment=environment,
            profile=self._profile,
            findings=self._findings,
            steps=self._results,
        )
        client = msgspec.structs.replace(
            result.client, generator=f"{self._tool_name} {self._version}".strip()
        )
        return msgspec.structs.replace(result, harness=self._tool_name, client=client)
