"""Owns the workers: takes them through the steps, and stops everything when told to."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable

from . import VERSION
from .children import Child, finish, fork, health, progress, total
from .connection import resolve, switch_stamps_on
from .lag import TICK_S, room
from .output import Output
from .steady import SteadyCheck

STREAMS_PER_WORKER = 512
SPARE_DESCRIPTORS = 32
LEAD_S = 0.02
"""Between the word to start and the start, so that all workers start together."""
GRACE_S = 2.0
"""What the workers get to end themselves."""
GIVE_UP_FAILURES = 20


class Stopped(Exception):
    """Standard input ended, or said stop."""


class Broken(Exception):
    """The run cannot go on."""


class Coordinator:
    """Carries out a job.

    Commands, one JSON object a line: `{"do": "stop"}` ends the run, `"skip"` the step, and
    `"next"` begins a step when the job has `gate` set, so that the owner can do what it wants to
    between steps, with no request in flight.
    """

    def __init__(self, job: dict[str, object], commands: int, first: bytes, output: int) -> None:
        self._job = job
        self._commands = commands
        self._unread = first
        self._children: list[Child] = []
        self._output_fd = output
        self._steady: SteadyCheck | None = None
        self._step_number = 0
        self._phase = ""
        self._next_progress = 0.0
        self._max_in_flight = 0
        self._skip = False
        self._next = False
        self._times: dict[str, float] = {}
        self._warmed: bool | None = None
        self._cpu_s = 0.0
        self._epoch = 0
        self._keeper: socket.socket | None = None

    def run(self) -> int:
        """The exit status: 0 complete, 3 stopped, 1 broken."""
        status, error, code = "complete", None, 0
        self._keeper = switch_stamps_on()
        try:
            place = self._resolve()
            self._fork(place)
        except Broken as broken:
            self._out = Output(self._output_fd)
            self._emit("end", {"status": "broken", "error": str(broken)})
            self._out.close(GRACE_S)
            return 1
        self._out = Output(self._output_fd)
        self._emit(
            "begin",
            {
                "version": VERSION,
                "epoch_unix_s": self._epoch / 1e9,
                "workers": len(self._children),
                "pid": os.getpid(),
                "python": "%d.%d.%d" % sys.version_info[:3],
                "hostname": socket.gethostname(),
                "room": room(),
            },
        )
        try:
            steps = self._job["steps"]
            assert isinstance(steps, list)
            for number, step in enumerate(steps):
                self._step(number, step)
        except Stopped:
            status, code = "stopped", 3
        except Broken as broken:
            status, error, code = "broken", str(broken), 1
        except Exception as mistake:
            # A mistake of ours: what was measured is told all the same.
            status, error, code = "broken", "the generator failed: %r" % mistake, 1
        self._end_children()
        if self._times:
            self._end_step("stopped", partial=True)
        if self._keeper is not None:
            self._keeper.close()
        self._emit("end", {"status": status, "error": error})
        self._out.close(GRACE_S)
        return code if self._out.error is None else 1

    # --- workers --------------------------------------------------------------------------

    def _resolve(self) -> tuple[int, tuple[object, ...]]:
        target = self._job["target"]
        limits = self._job["limits"]
        assert isinstance(target, dict)
        assert isinstance(limits, dict)
        try:
            return resolve(str(target["host"]), int(target["port"]), float(limits["connect_s"]))
        except OSError as error:
            raise Broken(
                "no connection to %s: %s" % (target["authority"], error.strerror or error)
            ) from error

    def _fork(self, place: tuple[int, tuple[object, ...]]) -> None:
        _raise_descriptor_limit()
        steps = self._job["steps"]
        assert isinstance(steps, list)
        streams = max([int(step["load"].get("concurrency") or 1) for step in steps] or [1])
        here = room()
        asked = int(self._job.get("workers") or 0)  # type: ignore[call-overload]
        count = asked or workers_for(streams, int(here["cpus"]))  # type: ignore[call-overload]
        allowed = int(here["descriptors"])  # type: ignore[call-overload]
        if streams // count + SPARE_DESCRIPTORS > allowed:
            raise Broken(
                "%d streams need as many descriptors, and %d are allowed" % (streams, allowed)
            )
        self._epoch = time.time_ns()
        self._job["epoch_ns"] = self._epoch
        private = [self._commands, self._output_fd]
        if self._keeper is not None:
            private.append(self._keeper.fileno())
        self._children = fork(self._job, count, place, private)

    def _end_children(self) -> None:
        for child in self._children:
            child.done = None
            child.tell({"do": "cancel"})
        try:
            self._pump(
                lambda: all(child.done or not child.alive for child in self._children),
                time.monotonic() + GRACE_S,
                listen=False,
            )
        except Broken:
            pass
        finish(self._children, GRACE_S)

    # --- steps ----------------------------------------------------------------------------

    def _step(self, number: int, step: dict[str, object]) -> None:
        step["number"] = self._step_number = number
        self._max_in_flight = 0
        self._skip = False
        load = step["load"]
        warm = step.get("warm_up") or {}
        limits = self._job["limits"]
        assert isinstance(load, dict)
        assert isinstance(warm, dict)
        assert isinstance(limits, dict)
        if self._job.get("gate"):
            self._next = False
            self._state("waiting")
            self._pump(lambda: self._next, None)
        count = len(self._children)
        step["streams"] = _shares(int(load.get("concurrency") or 0), count)
        requests = step.pop("total_requests", None)
        step["requests"] = None if requests is None else _shares(int(requests), count)  # type: ignore[call-overload]
        for child in self._children:
            child.forget()
            child.tell({"do": "prepare", "step": step})
        self._cpu_s = time.process_time()
        self._warmed = None
        self._phase = "prepare"
        self._state("prepare")
        deadline = time.monotonic() + float(limits["connect_s"]) + 30.0
        self._pump(lambda: all(child.ready for child in self._children), deadline)

        warms = bool(warm)
        concurrency = int(load.get("concurrency") or 0)
        self._steady = SteadyCheck(concurrency or 16) if warm.get("steady") else None
        start_ns = time.time_ns() + int(LEAD_S * 1e9)
        began = time.monotonic() + LEAD_S
        for child in self._children:
            child.tell({"do": "go", "start_ns": start_ns, "measure": not warms})
        times = self._times
        times["start_s"] = times["measure_s"] = round((start_ns - self._epoch) / 1e9, 6)
        self._phase = "warmup" if warms else "measure"
        self._state(self._phase)
        if warms:
            self._warmed = self._warm_up(warm, began)
            for child in self._children:
                child.tell({"do": "measure"})
            self._phase = "measure"
            times["measure_s"] = self._state("measure")
        self._steady = None
        self._end_step(self._measure(step))

    def _end_step(self, aborted: str | None, partial: bool = False) -> None:
        """Say what came of the step. `partial`: it was stopped, or the run broke."""
        fields = health(self._children)
        own_s = time.process_time() - self._cpu_s
        fields["cpu_s"] = round(fields["cpu_s"] + own_s, 4)  # type: ignore[operator]
        fields.update(self._times)
        fields.update(
            {
                "number": self._step_number,
                "end_s": self._state("end"),
                "steady": self._warmed,
                "aborted": aborted,
                "partial": partial,
                "max_in_flight": self._max_in_flight,
            }
        )
        self._times = {}
        self._emit("step_end", fields)

    def _warm_up(self, warm: dict[str, object], began: float) -> bool | None:
        least_s = float(warm.get("duration_s") or 0.0)  # type: ignore[arg-type]
        least = int(warm.get("requests") or 0)  # type: ignore[call-overload]
        most_s = float(warm.get("max_s") or 120.0)  # type: ignore[arg-type]
        steady = self._steady

        def warm_enough() -> bool:
            if self._skip or self._all_done() or self._hopeless():
                return True
            if time.monotonic() - began < least_s or self._sum("ended") < least:
                return False
            return steady is None or steady.steady

        self._pump(warm_enough, began + max(most_s, least_s))
        return None if steady is None else steady.steady

    def _measure(self, step: dict[str, object]) -> str | None:
        """Until the load is over; the reason why it was broken off, if it was."""
        duration_s = step.get("duration_s")
        begun = time.monotonic()
        over = lambda: self._skip or self._all_done() or self._hopeless()  # noqa: E731
        self._pump(over, None if duration_s is None else begun + float(duration_s))  # type: ignore[arg-type]
        if self._all_done():
            return None
        aborted = None
        if self._hopeless():
            aborted = "every request failed"
        elif self._skip:
            aborted = "skipped"
        self._phase = "cooldown"
        self._state("cooldown")
        for child in self._children:
            child.tell({"do": "cancel" if aborted else "drain"})
        drain_s = float(step.get("drain_s") or 60.0)  # type: ignore[arg-type]
        self._pump(lambda: self._skip or self._all_done(), time.monotonic() + drain_s)
        if not self._all_done():
            for child in self._children:
                child.tell({"do": "cancel"})
            self._pump(self._all_done, time.monotonic() + GRACE_S)
        return aborted

    def _all_done(self) -> bool:
        return all(child.done is not None for child in self._children)

    def _hopeless(self) -> bool:
        return self._sum("failed") >= GIVE_UP_FAILURES and self._sum("succeeded") == 0

    def _sum(self, name: str) -> int:
        return total(self._children, name)

    # --- talking --------------------------------------------------------------------------

    def _pump(self, until: Callable[[], bool], deadline: float | None, listen: bool = True) -> None:
        """Serve workers and commands until `until` holds or the deadline has passed."""
        out = self._out
        poll = select.poll()
        by_fd = {child.control.fileno(): child for child in self._children if child.alive}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        if listen:
            poll.register(self._commands, select.POLLIN)
            self._obey(b"")
        while not until():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return
            wait = TICK_S if deadline is None else min(TICK_S, deadline - now)
            out.flush()
            if out.waiting:
                poll.register(out.fd, select.POLLOUT)
            ready = poll.poll(max(1.0, wait * 1000))
            if out.waiting:
                poll.unregister(out.fd)
            for fd, _ in ready:
                if fd == out.fd:
                    continue
                if fd == self._commands:
                    data = os.read(fd, 65536)
                    if not data:
                        raise Stopped()
                    self._obey(data)
                    continue
                child = by_fd[fd]
                lines = child.lines()
                if not child.alive:
                    poll.unregister(fd)
                    raise Broken("a worker of the generator died")
                self._hear(child, lines)
            if out.error is not None:
                raise Broken("the results cannot be written: %s" % out.error.strerror)
            self._progress()

    def _obey(self, data: bytes) -> None:
        self._unread += data
        while b"\n" in self._unread:
            line, _, self._unread = self._unread.partition(b"\n")
            try:
                command = json.loads(line)["do"]
            except (ValueError, KeyError, TypeError):
                continue
            if command == "stop":
                raise Stopped()
            if command == "skip":
                self._skip = True
            if command == "next":
                self._next = True

    def _hear(self, child: Child, lines: list[bytes]) -> None:
        for line in lines:
            if line.endswith(b'"t":"request"}'):
                self._out.line(line + b"\n")
                if self._steady is not None:
                    self._steady.add(json.loads(line))
            else:
                child.hear(json.loads(line))

    def _progress(self) -> None:
        now = time.monotonic()
        # Half a tick early is on time: the workers tell at their own pace.
        if now < self._next_progress - TICK_S / 2 or not any(
            child.progress for child in self._children
        ):
            return
        self._next_progress = now + TICK_S
        fields = progress(self._children)
        self._max_in_flight = max(self._max_in_flight, fields["in_flight"])  # type: ignore[call-overload]
        fields.update({"step": self._step_number, "phase": self._phase, "at_s": self._at()})
        self._emit("progress", fields)

    def _state(self, state: str) -> float:
        at_s = self._at()
        self._emit("state", {"step": self._step_number, "state": state, "at_s": at_s})
        return at_s

    def _at(self) -> float:
        return round((time.time_ns() - self._epoch) / 1e9, 6)

    def _emit(self, kind: str, fields: dict[str, object]) -> None:
        fields["t"] = kind
        self._out.line(json.dumps(fields, separators=(",", ":")).encode() + b"\n")


def workers_for(streams: int, cpus: int) -> int:
    """How many processes so many streams take: one core serves 512 of them."""
    return max(1, min(cpus, -(-streams // STREAMS_PER_WORKER)))


def _shares(total: int, count: int) -> list[int]:
    return [total // count + (1 if index < total % count else 0) for index in range(count)]


def _raise_descriptor_limit() -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass
