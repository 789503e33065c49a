"""The state of a server, weighed from its witnesses. Pure: the same witnesses, the same state.

No single witness makes a server ready. HTTP may be answered by another process on the same port,
the log may say ready while requests fail, a process may live while its workers are dead. So each
witness is heard, each answer has its time and grows stale, and where they disagree that is said.
"""

from __future__ import annotations

from typing import Final

from backends.servers.engines import PHASE_ORDER, Phase
from backends.servers.policy import Policy, Requirements, requirements
from backends.servers.state import ANSWERING, OVER, Assessment, Stall, State
from backends.servers.testimony import disagreements, testimonies
from backends.servers.timing import quiet_limit_s, time_left_s
from backends.servers.verdict import KILLED, Outcome
from backends.servers.witnesses import PortOwner, Witnesses

__all__ = [
    "ANSWERING",
    "OVER",
    "Assessment",
    "Policy",
    "Requirements",
    "Stall",
    "State",
    "assess",
    "requirements",
]

_WORKER_DIED: Final = "worker-died"
_HOST_OOM: Final = "host-oom-killed"
_GPU_LOST: Final = "gpu-lost"
_PORT_TAKEN: Final = "port-in-use"
_LOST_XIDS: Final = frozenset({79, 119, 120, 154})
"""The GPU fell off the bus, or its firmware gave up (NVIDIA's Xid catalogue)."""


def assess(
    seen: Witnesses, policy: Policy, now_s: float, previous: Assessment | None = None
) -> Assessment:
    """Weigh the witnesses of a run.

    Args:
        seen: What each witness said last.
        policy: What must agree, and how long to wait.
        now_s: The watcher's monotonic clock.
        previous: The assessment before this one; of another run it is ignored.
    """
    if previous is not None and previous.run_id != seen.run_id:
        previous = None
    return _Bench(seen, policy, now_s, previous).decide()


class _Bench:
    """One weighing."""

    def __init__(
        self, seen: Witnesses, policy: Policy, now_s: float, previous: Assessment | None
    ) -> None:
        self.seen = seen
        self.policy = policy
        self.now = now_s
        self.before = previous
        self.http_good = seen.http is not None and seen.http.good and self.fresh(seen.http.at_s)
        self.log_ready = seen.log is not None and seen.log.phase is Phase.READY
        self.failing = seen.log is not None and seen.log.verdict.outcome in (
            Outcome.CRASH,
            Outcome.STALLED,
        )
        self.stranger = (
            seen.port is not None
            and seen.port.owner is PortOwner.STRANGER
            and self.fresh(seen.port.at_s)
        )
        self.ready_now = self._all_agree()
        self.was_ready = self.ready_now or (previous is not None and previous.was_ready)
        self.good_at: float | None = previous.good_at_s if previous is not None else None
        if self.ready_now:
            self.good_at = seen.http.at_s if seen.http is not None else now_s

    def fresh(self, at_s: float) -> bool:
        """Whether an answer is of this run, and new enough to count."""
        started = self.seen.started_at_s
        return self.now - at_s <= self.policy.fresh_s and (started is None or at_s >= started)

    def _all_agree(self) -> bool:
        """Readiness: every witness that is required says so, and freshly."""
        seen, needs = self.seen, self.policy.requirements
        process, http, port, completion = seen.process, seen.http, seen.port, seen.completion
        if seen.started_at_s is None or seen.stop_asked_at_s is not None:
            return False
        if process is None or not process.alive or not self.fresh(process.at_s):
            return False
        if process.dead_workers or self.failing or self.stranger:
            return False
        if needs.http and not self.http_good:
            return False
        if needs.pattern and seen.log is not None and seen.log.pattern_seen is False:
            return False
        if needs.pattern and seen.log is None:
            return False
        if needs.port_owner and (
            port is None or port.owner is not PortOwner.OURS or not self.fresh(port.at_s)
        ):
            return False
        completed = (
            completion is not None and completion.ok and completion.at_s >= seen.started_at_s
        )
        if completion is not None and not completion.ok and self.fresh(completion.at_s):
            return False
        if needs.completion and not completed:
            return False
        proved = not needs.http or (http is not None and http.proves_ready)
        if not proved and not completed and not self.log_ready:
            return False
        return not (needs.log and not self.log_ready and not completed)

    def decide(self) -> Assessment:
        """The first rule that applies gives the state."""
        for rule in (self._lost, self._ended, self._stopping, self._broken, self._answering):
            found = rule()
            if found is not None:
                return found
        return self._faltering() if self.was_ready else self._starting()

    # --- rules ---------------------------------------------------------------------------------

    def _lost(self) -> Assessment | None:
        link = self.seen.link
        if link is None:
            return None
        silent_s = self.now - link.at_s
        if link.up and silent_s <= self.policy.lost_s:
            return None
        last = self.before.last_known or self.before.state if self.before is not None else None
        if last is State.LOST:
            last = None
        why = "the host is out of reach" if not link.up else f"no word for {silent_s:.0f} s"
        return self._give(State.LOST, why, last_known=last)

    def _ended(self) -> Assessment | None:
        seen = self.seen
        process = seen.process
        if seen.started_at_s is None and (process is None or not process.alive):
            return self._give(State.STOPPED, "not started")
        if process is None or process.alive:
            return None
        code = process.exit_code
        if seen.stop_asked_at_s is not None:
            if process.members > 0:
                left = f"{process.members} processes of it are left"
                return self._give(State.STOPPING, left, exit_code=code)
            why = "stopped as asked"
            if seen.restart_by:  # another run would be looked at instead of this one
                why = f"stopped for a restart by {seen.restart_by}; not started again so far"
            return self._give(State.STOPPED, why, exit_code=code)
        verdict = seen.log.verdict if seen.log is not None else None
        kernel = seen.kernel
        if process.oom_killed or (kernel is not None and kernel.oom):
            return self._crashed("the kernel killed it for want of memory", _HOST_OOM, code)
        if verdict is not None and self.failing and verdict.cause is not None:
            why = verdict.title
            if verdict.cause == _PORT_TAKEN and self.stranger and seen.port is not None:
                why = f"{why}: {seen.port.port} by {seen.port.holder}"
            return self._crashed(why, verdict.cause, code)
        if kernel is not None and code != 0:
            cause = _GPU_LOST if kernel.xid in _LOST_XIDS else None
            return self._crashed(f"the kernel log says: {kernel.text[:200]}", cause, code)
        if verdict is not None and self.failing:
            return self._crashed(verdict.title, verdict.cause, code)
        if verdict is not None and verdict.outcome is Outcome.STOPPED:
            return self._give(State.EXITED, "stopped from outside", exit_code=code)
        if code == 0 and process.members:
            number = "1 process" if process.members == 1 else f"{process.members} processes"
            why = f"its main process ended, {number} of it went on in the background"
            return self._give(State.EXITED, why, exit_code=code)
        if code == 0:
            return self._give(State.EXITED, "ended by itself", exit_code=code)
        if code is None:
            return self._crashed("ended; how is not known", None, code)
        if code in (-9, 137):
            return self._crashed("killed without a word", KILLED, code)
        what = f"ended by signal {-code}" if code < 0 else f"ended with exit status {code}"
        return self._crashed(what, None, code)

    def _stopping(self) -> Assessment | None:
        process = self.seen.process
        if self.seen.stop_asked_at_s is None:
            return None
        if process is not None and process.unkillable:
            stuck = ", ".join(process.unkillable)
            return self._give(State.STOPPING, f"cannot be killed, a reboot is needed: {stuck}")
        waited = self.now - self.seen.stop_asked_at_s
        who = f" by {self.seen.stop_asked_by}" if self.seen.stop_asked_by else ""
        return self._give(State.STOPPING, f"asked to stop{who} {waited:.0f} s ago")

    def _broken(self) -> Assessment | None:
        """Dead within, although the main process lives."""
        process, log = self.seen.process, self.seen.log
        if process is not None and process.dead_workers:
            names = ", ".join(process.dead_workers[:4])
            verdict = log.verdict if log is not None and self.failing else None
            if verdict is not None:
                return self._crashed(f"{verdict.title} (dead: {names})", verdict.cause, None)
            return self._crashed(
                f"a worker has died and nobody noticed: {names}", _WORKER_DIED, None
            )
        if log is None or not self.failing:
            return None
        since = self._failing_since()
        if self.now - since < self.policy.dying_s and not self.was_ready:
            return None
        if self.http_good and self.was_ready:
            return self._give(
                State.DEGRADED,
                f"the log shows a failure: {log.verdict.title}",
                cause=log.verdict.cause,
            )
        return self._crashed(log.verdict.title, log.verdict.cause, None)

    def _answering(self) -> Assessment | None:
        if not self.ready_now:
            return None
        http, log = self.seen.http, self.seen.log
        running = http.running if http is not None else None
        recent = (
            log is not None
            and log.served_at_s is not None
            and self.now - log.served_at_s <= self.policy.serving_s
        )
        if running or (running is None and recent):
            busy = f"{running} requests in work" if running else "requests are carried out"
            return self._give(State.SERVING, busy)
        return self._give(State.READY, "all witnesses agree")

    def _faltering(self) -> Assessment:
        """It was ready; now something required is missing."""
        http, completion = self.seen.http, self.seen.completion
        since_good = self.now - self.good_at if self.good_at is not None else 0.0
        if self.stranger and self.seen.port is not None:
            return self._give(
                State.DEGRADED, f"another process listens on its port: {self.seen.port.holder}"
            )
        if completion is not None and not completion.ok and self.fresh(completion.at_s):
            return self._give(State.DEGRADED, f"a completion failed: {completion.detail}")
        if http is not None and self.fresh(http.at_s) and http.code is not None and not http.good:
            return self._give(State.DEGRADED, f"{http.path} answers {http.code}")
        if since_good >= self.policy.unresponsive_s:
            return self._give(State.UNRESPONSIVE, f"no good answer for {since_good:.0f} s")
        return self._give(State.DEGRADED, self._missing())

    def _starting(self) -> Assessment:
        log, http = self.seen.log, self.seen.http
        phase = log.phase if log is not None else Phase.LAUNCHING
        if self.failing and log is not None:
            return self._give(
                State.LOADING, f"the log shows a failure: {log.verdict.title}", phase=phase
            )
        late = PHASE_ORDER[phase] >= PHASE_ORDER[Phase.HTTP]
        answers = http is not None and http.code is not None and self.fresh(http.at_s)
        if self.stranger:
            answers = False
        if late or (answers and http is not None and http.good):
            return self._give(State.WARMING, self._missing(), phase=phase)
        if phase is not Phase.LAUNCHING:
            return self._give(State.LOADING, phase.words, phase=phase)
        if answers:  # all that is known is what it answers
            return self._give(State.LOADING, self._missing(), phase=phase)
        asked = self.seen.completion is not None
        why = self._missing() if asked else "started; nothing is loaded yet"
        return self._give(State.LAUNCHING, why, phase=phase)

    # --- parts ---------------------------------------------------------------------------------

    def _failing_since(self) -> float:
        if self.before is not None and self.before.failing_since_s is not None:
            return self.before.failing_since_s
        return self.now

    def _missing(self) -> str:
        """Which required witness has not said ready."""
        seen, needs = self.seen, self.policy.requirements
        missing: list[str] = []
        if needs.http and not self.http_good:
            said = "no answer"
            if seen.http is not None:
                said = str(seen.http.code) if seen.http.code is not None else seen.http.reason
            missing.append(f"HTTP ({said})")
        if needs.port_owner and (seen.port is None or seen.port.owner is not PortOwner.OURS):
            missing.append("the port's owner")
        if needs.log and not self.log_ready:
            missing.append("the log's readiness line")
        if needs.pattern and (seen.log is None or seen.log.pattern_seen is False):
            missing.append("the line that its profile names")
        if needs.completion and (seen.completion is None or not seen.completion.ok):
            missing.append("a completion")
        if seen.process is None or not self.fresh(seen.process.at_s):
            missing.append("the process")
        return "waiting for " + ", ".join(missing) if missing else "waiting"

    def _crashed(self, why: str, cause: str | None, exit_code: int | None) -> Assessment:
        return self._give(State.CRASHED, why, cause=cause, exit_code=exit_code)

    def _give(
        self,
        state: State,
        why: str,
        *,
        phase: Phase | None = None,
        cause: str | None = None,
        exit_code: int | None = None,
        last_known: State | None = None,
    ) -> Assessment:
        before = self.before
        same = before is not None and before.state is state
        starting = state in (State.LAUNCHING, State.LOADING, State.WARMING)
        log = self.seen.log
        if phase is None and log is not None:
            phase = log.phase
        failing_since = self._failing_since() if self.failing else None
        return Assessment(
            run_id=self.seen.run_id,
            state=state,
            why=why,
            since_s=before.since_s if same and before is not None else self.now,
            testimonies=testimonies(self.seen, self.fresh),
            disagreements=disagreements(self.seen, self.fresh),
            phase=phase,
            progress=log.progress if starting and log is not None else None,
            left_s=self._left(phase) if starting and phase is not None else None,
            stall=self._stall(phase) if starting and phase is not None else None,
            cause=cause,
            exit_code=exit_code,
            was_ready=self.was_ready,
            good_at_s=self.good_at,
            failing_since_s=failing_since,
            last_known=last_known,
        )

    def _left(self, phase: Phase) -> float | None:
        log = self.seen.log
        since = log.phase_since_s if log is not None else self.seen.started_at_s
        elapsed = self.now - since if since is not None else 0.0
        return time_left_s(
            self.policy.history,
            phase,
            elapsed,
            progress=log.progress if log is not None else None,
            step_s=log.step_s if log is not None else None,
        )

    def _stall(self, phase: Phase) -> Stall | None:
        """Silence counts only where every sign of life that is measured is silent."""
        moved: list[tuple[float, str]] = []
        if self.seen.started_at_s is not None:
            moved.append((self.seen.started_at_s, "the start"))
        if self.seen.log is not None and self.seen.log.grew_at_s is not None:
            moved.append((self.seen.log.grew_at_s, "the log"))
        activity = self.seen.activity
        if activity is None or not self.fresh(activity.at_s):
            return None  # a quiet log alone is no stall
        last = activity.last()
        if last is not None:
            moved.append(last)
        if not moved:
            return None
        when, what = max(moved)
        quiet = self.now - when
        limit = quiet_limit_s(
            self.policy.history,
            phase,
            least_s=self.policy.least_quiet_s,
            unknown_s=self.policy.unknown_quiet_s,
        )
        return Stall(quiet, limit, what) if quiet > limit else None
