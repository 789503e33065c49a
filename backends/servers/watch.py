"""Watches one run of a server: asks its witnesses, weighs them, and knows its state at any moment.

Owns four tasks (processes, HTTP, log, GPU activity) that end with it. A lost link ends nothing: the
state becomes lost, with what was known last, and the watch goes on when the host is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from backends.clock import SYSTEM_CLOCK, Clock
from backends.errors import LinkError, RoomError
from backends.model import LinkState
from backends.servers.activity import DEAD, Movement, Workers, port_seen
from backends.servers.asking import COMPLETION_AGAIN_S, Asker
from backends.servers.catalogue import Catalogue
from backends.servers.configuration import EffectiveReader
from backends.servers.engines import Phase
from backends.servers.host import Host
from backends.servers.kernelwords import kernel_seen
from backends.servers.launchers.base import Launcher, RunLook
from backends.servers.lifecycle import (
    OVER,
    Assessment,
    Policy,
    assess,
)
from backends.servers.logfeed import LogData, LogEvent, LogFeed
from backends.servers.run import Place
from backends.servers.timing import History
from backends.servers.verdict import Verdict, judge_run
from backends.servers.watched import FROM_START_S, Watched, age_of, needs_of
from backends.servers.watchlog import LogTask, LogWitness
from backends.servers.witnesses import KernelSeen, LinkSeen, LogSeen, ProcessSeen, Witnesses

ASKED_BY: Final = "watch"
STARTING_POLL_S: Final = 0.4
SETTLED_POLL_S: Final = 0.6
SETTLED_HTTP_S: Final = 1.0
"""Between two questions once it has been ready: many go unanswered before that says anything."""
OVER_POLL_S: Final = 5.0
EMPTY_LOG_S: Final = 2.0
DEEP_EVERY: Final = 10
JUDGED_BYTES: Final = 32 << 20
"""How much of the end of a log is judged: a start's log is smaller, a month's log is not read."""


class ServerWatch:
    """One run, watched.

    Args:
        host: Where it runs.
        launcher: Who can look at it.
        watched: The run, and what to hold it to.
        catalogue: Known failures.
        history: How long phases took in earlier starts.
        policy: Limits of patience; what is required comes from `watched`.
        log_sink: Gets the log's bytes, too.

    Attributes:
        version: Grows whenever the assessment may have changed.
    """

    def __init__(
        self,
        host: Host,
        launcher: Launcher,
        watched: Watched,
        catalogue: Catalogue,
        *,
        history: History | None = None,
        policy: Policy | None = None,
        clock: Clock = SYSTEM_CLOCK,
        log_sink: Callable[[LogData | LogEvent], None] | None = None,
    ) -> None:
        self._host = host
        self._launcher = launcher
        self.watched = watched
        self._clock = clock
        age_s = age_of(watched.run, clock)
        self._began_s = clock.monotonic_s() - age_s
        self.from_start = not watched.run.adopted and age_s < FROM_START_S
        """Whether the watch began with the run: only then are durations of phases known."""
        self._log_sink = log_sink
        self._policy = replace(
            policy or Policy(), requirements=needs_of(watched), history=history or {}
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._seen = Witnesses(run_id=watched.run.run_id, started_at_s=self._began_s)
        task = LogTask(
            watched.engine.id,
            catalogue,
            watched.ready.log,
            self._began_s,
            self.from_start,
            watched.run.log.begins_at if watched.run.log is not None else 0,
            self._policy.history,
        )
        self._log = LogWitness(task, clock, self._take_log_seen)
        self._asker: Asker | None = None
        if watched.run.port is not None:
            self._asker = Asker(
                host, watched.run.port, watched.engine, watched.ready, watched.model, clock,
                watched.key,
            )  # fmt: skip
        self._movement = Movement()
        self._workers = Workers(watched.engine)
        self._stops = False
        """Whether who watches has asked for a stop."""
        self._looks = 0
        self._pids: set[int] = set()
        self._ended: datetime | None = None
        self.last_look: RunLook | None = None
        self.version = 0
        self.errors: dict[str, str] = {}
        """Part of the watch -> why it learns nothing right now."""
        self._assessment = assess(self._seen, self._policy, clock.monotonic_s())

    @property
    def effective(self) -> EffectiveReader:
        """What the log says the server runs with."""
        return self._log.effective

    @property
    def phases(self) -> Mapping[Phase, float]:
        """Seconds that each phase took so far, as the log showed them."""
        return self._log.phases

    @property
    def age_s(self) -> float:
        """For how long the run has been there, by the host's own clock."""
        return self._clock.monotonic_s() - self._began_s

    def durations(self) -> dict[Phase, float]:
        """Seconds that each phase took until now; of a silent log, that it was launched."""
        return self._log.durations() or {Phase.LAUNCHING: self.age_s}

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
        self._log.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def assessment(self) -> Assessment:
        """The state now; time passes in it, so it is weighed anew."""
        self._weigh()
        return self._assessment

    @property
    def verdict(self) -> Verdict:
        """What the log shows, and how the process ended taken into account."""
        return judge_run(self._log.judge, self._assessment.exit_code)

    @property
    def witnesses(self) -> Witnesses:
        """What each witness said last."""
        return self._seen

    def stop_asked(self) -> None:
        """An operator has asked for a stop: its end is no crash."""
        self._stops = True
        self._note(stop_asked_at_s=self._clock.monotonic_s(), stop_asked_by="")

    def stop_given_up(self) -> None:
        """The stop was refused or broke off: nobody here waits for an end any more."""
        self._stops = False
        self._note(stop_asked_at_s=None)

    @property
    def phase_since_s(self) -> float | None:
        """Since when the start is in its phase; None before the log has told one."""
        return self._log.phase_since_s

    @property
    def complaints(self) -> tuple[Place, ...]:
        """Lines of the log that show something wrong, though it may be no failure of the server."""
        run = self._log.judge.run
        places = [evidence.best[0] for evidence in run.causes.values()]
        places += [Place(e.line, f"{e.type}: {e.words}") for e in run.exceptions[-4:]]
        return tuple({place.line: place for place in places}.values())

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The newest lines of the log that say something."""
        return tuple(place.text for place in self._log.judge.run.last)

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
        """Wait until every witness that there is has been heard once, or the time is over.

        A log that says nothing for a while after all others have spoken may be empty, and is waited
        for no longer.
        """
        run = self.watched.run

        def log(found: Assessment) -> bool:
            return self._seen.log is not None or run.log is None or "log" in self.errors

        def others(found: Assessment) -> bool:
            seen = self._seen
            if seen.process is None:
                return False
            asked = self._asker is not None and bool(self._asker.endpoints)
            http = seen.http is not None or not asked or found.state in OVER
            # A completion is only asked for once everything else is good.
            due = self.watched.ready.prompt is not None and seen.completion is None
            waits = due and found.state not in OVER and seen.http is not None and seen.http.good
            return http and not waits

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.until(others)
                await self.until(log, EMPTY_LOG_S)

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
        dead = self._workers.dead(look.members)
        changes: dict[str, object] = {
            "link": LinkSeen(now_s, up=True),
            "process": ProcessSeen(
                now_s,
                alive=look.alive,
                pid=look.pid,
                members=sum(member.state not in DEAD for member in look.members),
                dead_workers=dead if look.alive else (),
                exit_code=look.exit_code,
                oom_killed=look.oom_killed,
            ),
        }
        if look.port is not None and self.watched.run.port_visible:
            changes["port"] = port_seen(look.port, look.members, now_s)
        changes |= self._stop_of_others(look, now_s)
        self._pids |= {member.pid for member in look.members}
        if not look.alive or dead:
            changes["kernel"] = self._ask_kernel(now_s)
        changes["activity"] = self._movement.note(look, self._seen.activity, now_s)
        self._note(**changes)

    def _stop_of_others(self, look: RunLook, now_s: float) -> Mapping[str, object]:
        """That somebody else stops it, or has, or that their stop ended without it."""
        asked = look.stop
        restart = {"restart_by": asked.who if asked is not None and asked.restart else ""}
        if self._stops:
            return restart if asked is not None else {}
        if asked is None or (look.alive and not asked.going):
            return {"stop_asked_at_s": None} if look.alive else {}
        if self._seen.stop_asked_at_s is not None:
            return restart
        return restart | {
            "stop_asked_at_s": now_s - (asked.age_s or 0.0), "stop_asked_by": asked.who,
        }  # fmt: skip

    def _ask_kernel(self, now_s: float) -> KernelSeen | None:
        """Whether the kernel log knows why it ended; it may be a moment late."""
        if self._ended is None:
            self._ended = self._clock.utc()
        snapshot = self._host.snapshot
        held = {gpu.bus_id for gpu in snapshot.gpus if gpu.uuid in self._movement.gpus}
        events = snapshot.kernel_events
        return kernel_seen(events, self._pids, held, self._ended, now_s) or self._seen.kernel

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
        seen = self._movement.note_gpus(
            snapshot, self.last_look.members, self._seen.activity, self._clock.monotonic_s()
        )
        if seen is not None:
            self._note(activity=seen)

    # --- HTTP ------------------------------------------------------------------------------------

    async def _watch_http(self) -> None:
        if self._asker is None:
            return
        asks_prompt = self.watched.ready.prompt is not None
        if not self._asker.endpoints and not asks_prompt:
            return
        while True:
            if self._assessment.state not in OVER:
                with contextlib.suppress(RoomError):
                    seen = await self._asker.health()
                    if seen is not None:
                        self._note(http=seen)
                if asks_prompt and self._completion_is_due():
                    self._note(completion=await self._asker.completion())
            await asyncio.sleep(max(self._pause_s(), SETTLED_HTTP_S * self._assessment.was_ready))

    def _completion_is_due(self) -> bool:
        """Once everything else is good; again only after a failure, and not at once."""
        http, done = self._seen.http, self._seen.completion
        if done is not None and done.ok:
            return False
        if done is not None and self._clock.monotonic_s() - done.at_s < COMPLETION_AGAIN_S:
            return False
        if http is not None:
            return http.good
        process = self._seen.process
        return process is not None and process.alive

    # --- the log ---------------------------------------------------------------------------------

    def _take_log(self, piece: LogData | LogEvent) -> None:
        if self._log_sink is not None:
            self._log_sink(piece)
        if isinstance(piece, LogData):
            self._log.take(piece)

    def _take_log_seen(self, seen: LogSeen) -> None:
        self._note(log=seen)
