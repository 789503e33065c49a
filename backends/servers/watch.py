"""Watches one run of a server: asks its witnesses, weighs them, and knows its state at any moment.

Owns four tasks (processes, HTTP, log, GPU activity) that end with it. A lost link ends nothing: the
state becomes lost, with what was known last, and the watch goes on when the host is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from backends.clock import SYSTEM_CLOCK, Clock
from backends.errors import LinkError, RoomError
from backends.model import LinkState
from backends.servers.catalogue import Catalogue
from backends.servers.configuration import EffectiveReader
from backends.servers.engines import Endpoint, Engine, Phase
from backends.servers.host import Host, HttpAnswer, PortFacts, ask_http
from backends.servers.judge import LogJudge
from backends.servers.launchers.base import Launcher, Run, RunLook
from backends.servers.lifecycle import (
    OVER,
    Assessment,
    Policy,
    State,
    assess,
    requirements,
)
from backends.servers.lines import LogLine, LogReader
from backends.servers.logfeed import LogData, LogEvent, LogFeed
from backends.servers.profiles import Readiness
from backends.servers.timing import History, StepClock
from backends.servers.verdict import Verdict, judge_run
from backends.servers.witnesses import (
    ActivitySeen,
    CompletionSeen,
    HttpSeen,
    LinkSeen,
    LogSeen,
    PortOwner,
    PortSeen,
    ProcessSeen,
    Witnesses,
)

ASKED_BY: Final = "watch"
STARTING_POLL_S: Final = 0.4
SETTLED_POLL_S: Final = 0.6
OVER_POLL_S: Final = 5.0
DEEP_EVERY: Final = 10
HTTP_TIMEOUT_S: Final = 5.0
JUDGE_EVERY_S: Final = 0.2
MOVED_CPU_S: Final = 0.05
MOVED_BYTES: Final = 1 << 20
FROM_START_S: Final = 10.0
JUDGED_BYTES: Final = 32 << 20
"""How much of the end of a log is judged: a start's log is smaller, a month's log is not read."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A run and what to hold it to."""

    run: Run
    engine: Engine
    ready: Readiness = field(default_factory=Readiness)
    model: str | None = None
    """Model name that must be served, where it is known; used by the completion."""


class ServerWatch:
    """One run, watched.

    Attributes:
        version: Grows whenever the assessment may have changed.
        phases: Seconds that each phase took so far, as the log showed them.
        effective: What the log says the server runs with.
    """

    def __init__(
        self,
        host: Host,
        launcher: Launcher,
        watched: Watched,
        catalogue: Catalogue,
        *,
        history: History | None = None,
        clock: Clock = SYSTEM_CLOCK,
        log_sink: Callable[[LogData | LogEvent], None] | None = None,
    ) -> None:
        self._host = host
        self._launcher = launcher
        self.watched = watched
        self._clock = clock
        self._began_s = clock.monotonic_s()
        age_s = clock.utc().timestamp() - (watched.run.started_at or 0.0)
        self.from_start = not watched.run.adopted and abs(age_s) < FROM_START_S
        """Whether the watch began with the run: only then are durations of phases known."""
        self._log_sink = log_sink
        needs = requirements(
            watched.engine,
            completion=watched.ready.prompt is not None,
            log=watched.ready.log is not None,
        )
        if watched.run.port is None or not watched.run.port_visible:
            needs = replace(needs, port_owner=False)
        self._policy = Policy(requirements=needs, history=history or {})
        self._catalogue = catalogue
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._seen = Witnesses(run_id=watched.run.run_id, started_at_s=clock.monotonic_s())
        self._reset_log()
        self._cpu_s: float | None = None
        self._read_bytes: int | None = None
        self._gpu_memory: Mapping[str, int] = {}
        self._looks = 0
        self._workers: dict[int, str] = {}
        self.last_look: RunLook | None = None
        self.version = 0
        self.errors: dict[str, str] = {}
        """Part of the watch -> why it learns nothing right now."""
        self._assessment = assess(self._seen, self._policy, clock.monotonic_s())

    def _reset_log(self) -> None:
        self._reader = LogReader()
        self._judge = LogJudge(self._catalogue, self.watched.engine.id)
        self._steps = StepClock()
        self.effective = EffectiveReader(self.watched.engine.id)
        self._phase: Phase | None = None
        self._phase_since_s: float | None = None
        self.phases: dict[Phase, float] = {}
        self._served = 0
        self._ready_line_seen = False
        self._judged_s = -1e9
        self._judging: asyncio.TimerHandle | None = None

    # --- life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> ServerWatch:
        """Begin."""
        parts: list[tuple[str, Coroutine[object, object, None]]] = [
            ("processes", self._watch_processes()),
            ("http", self._watch_http()),
            ("activity", self._watch_gpus()),
        ]
        if self.watched.run.log is not None:
            feed = LogFeed(
                self._host, self.watched.run.log, self._take_log, from_end_bytes=JUDGED_BYTES
            )
            parts.append(("log", feed.run()))
        self._tasks = [asyncio.create_task(work, name=f"watch-{name}") for name, work in parts]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let go; nothing on the host ends."""
        tasks, self._tasks = self._tasks, []
        if self._judging is not None:
            self._judging.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def assessment(self) -> Assessment:
        """The state now; time passes in it, so it is weighed anew."""
        self._weigh()
        return self._assessment

    @property
    def watched_s(self) -> float:
        """For how long it has been watched."""
        return self._clock.monotonic_s() - self._began_s

    @property
    def verdict(self) -> Verdict:
        """What the log shows, and how the process ended taken into account."""
        return judge_run(self._judge, self._assessment.exit_code)

    @property
    def witnesses(self) -> Witnesses:
        """What each witness said last."""
        return self._seen

    def stop_asked(self) -> None:
        """An operator has asked for a stop: its end is no crash."""
        self._note(stop_asked_at_s=self._clock.monotonic_s())

    async def until(
        self, test: Callable[[Assessment], bool], timeout_s: float | None = None
    ) -> Assessment:
        """Wait until the assessment passes `test`.

        Raises:
            TimeoutError: It did not within `timeout_s`.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                found = self.assessment
                if test(found):
                    return found
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):  # staleness and stalls come by themselves
                        await self._changed.wait()

    async def hear(self, timeout_s: float) -> None:
        """Wait until every witness that there is has been heard once, or the time is over."""
        run = self.watched.run

        def heard(found: Assessment) -> bool:
            seen = self._seen
            if seen.process is None:
                return False
            http = seen.http is not None or run.port is None or found.state in OVER
            log = seen.log is not None or run.log is None or "log" in self.errors
            return http and log

        with contextlib.suppress(TimeoutError):
            await self.until(heard, timeout_s)

    def _note(self, **changes: object) -> None:
        self._seen = replace(self._seen, **changes)  # type: ignore[arg-type]
        self._weigh()
        self.version += 1
        self._changed.set()

    def _weigh(self) -> None:
        self._assessment = assess(
            self._seen, self._policy, self._clock.monotonic_s(), self._assessment
        )

    def _pause_s(self) -> float:
        state = self._assessment.state
        if state in OVER:
            return OVER_POLL_S
        return SETTLED_POLL_S if self._assessment.was_ready else STARTING_POLL_S

    # --- processes, port -------------------------------------------------------------------------

    async def _watch_processes(self) -> None:
        while True:
            try:
                deep = self._looks % DEEP_EVERY == 0
                self._take_look(await self._launcher.look(self.watched.run, deep=deep))
                self._looks += 1
                self.errors.pop("processes", None)
            except LinkError as error:
                self.errors["processes"] = str(error)
                self._note(link=LinkSeen(self._clock.monotonic_s(), up=False))
            except RoomError as error:
                self.errors["processes"] = str(error)
                self._note_link()
            await asyncio.sleep(self._pause_s())

    def _note_link(self) -> None:
        up = self._host.snapshot.link.state in (LinkState.LIVE, LinkState.STALE)
        self._note(link=LinkSeen(self._clock.monotonic_s(), up=up))

    def _take_look(self, look: RunLook) -> None:
        now_s = self._clock.monotonic_s()
        self.last_look = look
        dead = self._dead_workers(look)
        changes: dict[str, object] = {
            "link": LinkSeen(now_s, up=True),
            "process": ProcessSeen(
                now_s,
                alive=look.alive,
                pid=look.pid,
                members=sum(member.state not in ("Z", "X") for member in look.members),
                dead_workers=dead if look.alive else (),
                exit_code=look.exit_code,
                oom_killed=look.oom_killed,
            ),
        }
        if look.port is not None and self.watched.run.port_visible:
            changes["port"] = _port_seen(look.port, look, now_s)
        changes["activity"] = self._activity(look, now_s)
        self._note(**changes)

    def _dead_workers(self, look: RunLook) -> tuple[str, ...]:
        """Workers that are zombies, or were seen before and are gone, by the engine's titles."""
        alive = {m.pid: m.command for m in look.members if m.state not in ("Z", "X")}
        zombies = [m.command[:60] for m in look.members if m.state in ("Z", "X") and m.parent]
        titles = self.watched.engine.processes
        gone = [
            f"{command[:60]} (pid {pid})"
            for pid, command in self._workers.items()
            if pid not in alive and command not in alive.values()
        ]
        self._workers |= {
            pid: command
            for pid, command in alive.items()
            if any(title.search(command) for title in titles)
        }
        named = [z for z in zombies if any(title.search(z.strip("[]")) for title in titles)]
        return (*named, *gone)

    def _activity(self, look: RunLook, now_s: float) -> ActivitySeen:
        before = self._seen.activity or ActivitySeen(now_s)
        cpu_at, disk_at = before.cpu_at_s, before.disk_at_s
        if look.cpu_s is not None:
            if self._cpu_s is not None and look.cpu_s - self._cpu_s >= MOVED_CPU_S:
                cpu_at = now_s
            self._cpu_s = look.cpu_s
        if look.read_bytes is not None:
            if self._read_bytes is not None and look.read_bytes - self._read_bytes >= MOVED_BYTES:
                disk_at = now_s
            self._read_bytes = look.read_bytes
        return replace(before, at_s=now_s, cpu_at_s=cpu_at, disk_at_s=disk_at)

    # --- GPUs ------------------------------------------------------------------------------------

    async def _watch_gpus(self) -> None:
        """Memory and work of the GPUs that the server's processes hold, from the telemetry."""
        while True:
            self._take_gpus()
            await asyncio.sleep(SETTLED_POLL_S)

    def _take_gpus(self) -> None:
        snapshot = self._host.snapshot
        if self.last_look is None or snapshot.sampled_s is None:
            return
        pids = {member.pid for member in self.last_look.members}
        held: dict[str, int] = {}
        for process in snapshot.processes:
            if process.pid in pids:
                for uuid, used in process.memory_bytes.items():
                    held[uuid] = held.get(uuid, 0) + (used or 0)
        now_s = self._clock.monotonic_s()
        before = self._seen.activity or ActivitySeen(now_s)
        memory_at, busy_at = before.gpu_memory_at_s, before.gpu_busy_at_s
        if any(abs(held.get(u, 0) - self._gpu_memory.get(u, 0)) >= MOVED_BYTES
               for u in held.keys() | self._gpu_memory.keys()):  # fmt: skip
            memory_at = now_s
        self._gpu_memory = held
        if any((gpu.readings.utilization_gpu_pct or 0) >= 1 for gpu in snapshot.gpus
               if gpu.uuid in held):  # fmt: skip
            busy_at = now_s
        if (memory_at, busy_at) != (before.gpu_memory_at_s, before.gpu_busy_at_s):
            self._note(activity=replace(before, gpu_memory_at_s=memory_at, gpu_busy_at_s=busy_at))

    # --- HTTP ------------------------------------------------------------------------------------

    async def _watch_http(self) -> None:
        port = self.watched.run.port
        endpoints = self._endpoints()
        if port is None or not endpoints:
            return
        while True:
            if self._assessment.state not in OVER:
                for endpoint in endpoints:
                    with contextlib.suppress(RoomError):
                        seen = await self._ask(port, endpoint)
                        self._note(http=seen)
                        if not seen.good or not seen.proves_ready:
                            break
                if self.watched.ready.prompt is not None:
                    await self._complete(port)
            await asyncio.sleep(self._pause_s())

    def _endpoints(self) -> tuple[Endpoint, ...]:
        """The profile's own path, else the first that the engine proves its readiness with."""
        ready = self.watched.ready
        if ready.path is not None:
            return (Endpoint(ready.path, loading=(None,), ready=(ready.code,)),)
        proving = [e for e in self.watched.engine.endpoints if e.proves_ready]
        return tuple(proving[:1] or self.watched.engine.endpoints[:1])

    async def _ask(self, port: int, endpoint: Endpoint) -> HttpSeen:
        answer = await ask_http(
            self._host, port, endpoint.path, asked_by=ASKED_BY,
            timeout_s=HTTP_TIMEOUT_S,
        )  # fmt: skip
        return HttpSeen(
            self._clock.monotonic_s(),
            endpoint.path,
            answer.status,
            reason=answer.error,
            proves_ready=endpoint.proves_ready,
            ready_codes=endpoint.ready,
            latency_s=answer.took_s,
        )

    async def _complete(self, port: int) -> None:
        """One real completion, once HTTP is good; again only after a failure."""
        http, done = self._seen.http, self._seen.completion
        if http is None or not http.good or (done is not None and done.ok):
            return
        body = {
            "model": self.watched.model or "default",
            "prompt": self.watched.ready.prompt,
            "max_tokens": 1,
        }
        try:
            answer = await ask_http(
                self._host, port, "/v1/completions", asked_by=ASKED_BY, body=body, timeout_s=120.0
            )
        except RoomError as error:
            answer = HttpAnswer(error=str(error))
        self._note(completion=_completion(answer, self._clock.monotonic_s()))

    # --- the log ---------------------------------------------------------------------------------

    def _take_log(self, piece: LogData | LogEvent) -> None:
        if self._log_sink is not None:
            self._log_sink(piece)
        now_s = self._clock.monotonic_s()
        if isinstance(piece, LogEvent):
            return
        pattern = self.watched.ready.log
        for event in self._reader.feed(piece.data, self._judge.skim):
            self._judge.take_all((event,))
            if isinstance(event, LogLine):
                if self._judge.run.ready is None:
                    self.effective.take(event)
                if pattern is not None and pattern.search(event.text):
                    self._ready_line_seen = True
        progress = self._judge.run.progress
        if progress is not None:
            self._steps.note(progress, now_s)
        # Judging costs more than reading: a fast log is judged a few times a second.
        if now_s - self._judged_s >= JUDGE_EVERY_S:
            self._judge_log()
        elif self._judging is None:
            loop = asyncio.get_running_loop()
            self._judging = loop.call_later(JUDGE_EVERY_S, self._judge_log)

    def _judge_log(self) -> None:
        if self._judging is not None:
            self._judging.cancel()
            self._judging = None
        now_s = self._clock.monotonic_s()
        self._judged_s = now_s
        verdict = judge_run(self._judge)
        if verdict.phase is not self._phase:
            if self._phase is not None and self._phase_since_s is not None:
                took = self.phases.get(self._phase, 0.0) + now_s - self._phase_since_s
                self.phases[self._phase] = took
            self._phase, self._phase_since_s = verdict.phase, now_s
        if verdict.phase is Phase.READY and self.watched.ready.log and not self._ready_line_seen:
            verdict = replace(verdict, phase=Phase.WARMING)
        served = self._judge.run.served
        before = self._seen.log
        served_at = before.served_at_s if before is not None else None
        if served > self._served:
            served_at = now_s
        self._served = served
        self._note(
            log=LogSeen(
                now_s,
                verdict,
                phase_since_s=self._phase_since_s,
                grew_at_s=now_s,
                progress=self._judge.run.progress,
                step_s=self._steps.step_s,
                served_at_s=served_at,
            )
        )


def _port_seen(facts: PortFacts, look: RunLook, now_s: float) -> PortSeen:
    ours = {member.pid for member in look.members}
    if facts.free or (facts.bound and not facts.owners):
        return PortSeen(now_s, facts.port, PortOwner.NOBODY)
    for owner in facts.owners:
        if owner.pid in ours:
            return PortSeen(now_s, facts.port, PortOwner.OURS, f"pid {owner.pid}")
    if facts.owners:
        first = facts.owners[0]
        holder = f"pid {first.pid} {first.command[:80]}"
        return PortSeen(now_s, facts.port, PortOwner.STRANGER, holder)
    return PortSeen(now_s, facts.port, PortOwner.STRANGER, "a process that is not visible here")


def _completion(answer: HttpAnswer, now_s: float) -> CompletionSeen:
    if answer.status is None:
        return CompletionSeen(now_s, ok=False, detail=answer.error)
    if not 200 <= answer.status < 300:
        return CompletionSeen(now_s, ok=False, detail=f"{answer.status} {answer.body[:200]}")
    try:
        body = json.loads(answer.body)
        complete = bool(body["choices"])
    except (ValueError, KeyError, TypeError):
        return CompletionSeen(now_s, ok=False, detail="the answer is no completion")
    return CompletionSeen(now_s, ok=complete, detail="" if complete else "no choice in it")


__all__ = ["ServerWatch", "State", "Watched"]
