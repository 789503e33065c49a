"""The workers as the coordinator sees them: processes, each behind a socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time

from .lag import MAX_STEP_IDLE_SHARE, max_rss_bytes, merge, percentile

TELL_S = 5.0
"""A worker that takes no command for so long is given up."""
READ_BYTES = 1 << 16
TOTALS = (
    "in_flight",
    "sent",
    "ended",
    "succeeded",
    "failed",
    "cancelled",
    "output_tokens",
    "input_tokens",
)
SAMPLES = 256
"""Most latencies that wait to be passed on."""


class Child:
    """A worker process.

    Attributes:
        ready: It is ready for the step.
        done: What it said of itself when the step was over.
        progress: Its newest totals.
        ttft_us: Latencies that have not been passed on yet, the newest of them; likewise `e2e_us`.
        alive: Its socket has not ended.
    """

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self.control = control
        self.buffer = b""
        self.ready = False
        self.done: dict[str, object] | None = None
        self.progress: dict[str, object] = {}
        self.ttft_us: list[int] = []
        self.e2e_us: list[int] = []
        self.alive = True

    def tell(self, command: dict[str, object]) -> None:
        """Send a command; a worker that is gone is noticed when its socket ends."""
        try:
            self.control.sendall(json.dumps(command).encode() + b"\n")
        except OSError:
            pass

    def forget(self) -> None:
        """A new step begins."""
        self.ready = False
        self.done = None
        self.progress = {}
        self.ttft_us = []
        self.e2e_us = []

    def lines(self) -> list[bytes]:
        """The lines that have come; none, and no longer `alive`, when it is gone."""
        try:
            data = self.control.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self.alive = False
            return []
        lines = (self.buffer + data).split(b"\n")
        self.buffer = lines.pop()
        return lines

    def hear(self, message: dict[str, object]) -> None:
        """Take a message that is no record of a request."""
        kind = message.pop("t")
        if kind == "ready":
            self.ready = True
        elif kind == "done":
            self.done = message
        else:
            for name, kept in (("ttft_us", self.ttft_us), ("e2e_us", self.e2e_us)):
                kept.extend(message.pop(name))  # type: ignore[arg-type]
                del kept[:-SAMPLES]
            self.progress = message


def fork(
    job: dict[str, object], count: int, place: tuple[int, tuple[object, ...]], private: list[int]
) -> list[Child]:
    """Start the workers. `private` are descriptors that none of them may keep open.

    Nothing of the coordinator's may stay open in a worker, or the coordinator's end would go
    unnoticed.
    """
    children: list[Child] = []
    for index in range(count):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                for child in children:
                    child.control.close()
                ours.close()
                for fd in private:
                    os.close(fd)
                from .worker import Worker  # Here alone: the coordinator stays small.

                Worker(job, theirs, index, count, place).run()
                status = 0
            except BaseException as error:
                sys.stderr.write("worker %d: %r\n" % (index, error))
                raise
            finally:
                os._exit(status)
        theirs.close()
        ours.settimeout(TELL_S)
        children.append(Child(pid, ours))
    return children


def finish(children: list[Child], grace_s: float) -> None:
    """Let the workers go, and kill those that stay."""
    for child in children:
        child.tell({"do": "stop"})
        child.control.close()
    deadline = time.monotonic() + grace_s
    for child in children:
        while True:
            try:
                pid, _ = os.waitpid(child.pid, os.WNOHANG)
            except ChildProcessError:
                break
            if pid:
                break
            if time.monotonic() > deadline:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                break
            time.sleep(0.01)


def total(children: list[Child], name: str) -> int:
    """What the workers have counted under a name, by their newest words."""
    return sum(int(child.progress.get(name) or 0) for child in children)  # type: ignore[call-overload]


def progress(children: list[Child]) -> dict[str, object]:
    """How far the workers are together; takes the latencies that wait to be passed on."""
    ttft = [us for child in children for us in child.ttft_us]
    e2e = [us for child in children for us in child.e2e_us]
    reasons: list[str] = []
    for child in children:
        child.ttft_us, child.e2e_us = [], []
        reasons.extend(child.progress.get("reasons", ()))  # type: ignore[arg-type]
    fields: dict[str, object] = {
        "ttft_s": _median_s(ttft),
        "e2e_s": _median_s(e2e),
        "limited": sorted(set(reasons)),
    }
    for name in TOTALS:
        fields[name] = total(children, name)
    return fields


def _median_s(values_us: list[int]) -> float | None:
    return sorted(values_us)[len(values_us) // 2] / 1e6 if values_us else None


def health(children: list[Child]) -> dict[str, object]:
    """What the workers say of themselves, merged."""
    lag, late = {}, {}  # type: dict[int, int], dict[int, int]
    names = ("events", "merged", "cpu_s", "idle_slot_s", "slot_s")
    sums = dict.fromkeys(names, 0.0)
    reasons: list[str] = []
    peak = limited = share = 0.0
    rss, wait = max_rss_bytes(), None  # type: int | None, float | None
    for child in children:
        done = child.done or {}
        merge(lag, {int(us): n for us, n in done.get("lag_us", {}).items()})  # type: ignore[attr-defined]
        merge(late, {int(us): n for us, n in done.get("late_us", {}).items()})  # type: ignore[attr-defined]
        for name in sums:
            sums[name] += float(done.get(name) or 0)  # type: ignore[arg-type]
        reasons.extend(r for r in done.get("reasons", ()) if r not in reasons)  # type: ignore[attr-defined]
        peak = max(peak, float(done.get("peak_cpu_share") or 0))  # type: ignore[arg-type]
        wall_s = float(done.get("wall_s") or 0)  # type: ignore[arg-type]
        if wall_s:
            share = max(share, float(done.get("cpu_s") or 0) / wall_s)  # type: ignore[arg-type]
        limited = max(limited, float(done.get("limited_s") or 0))  # type: ignore[arg-type]
        if done.get("max_rss_bytes") is not None:
            rss = (rss or 0) + int(done["max_rss_bytes"])  # type: ignore[call-overload]
        if done.get("run_queue_wait_s") is not None:
            wait = (wait or 0.0) + float(done["run_queue_wait_s"])  # type: ignore[arg-type]
    idle = sums["idle_slot_s"] / sums["slot_s"] if sums["slot_s"] else 0.0
    if idle > MAX_STEP_IDLE_SHARE:
        reasons.append("streams stood idle for %.1f %% of the step" % (idle * 100))
    return {
        "workers": len(children),
        "idle_share": round(idle, 5),
        "events": int(sums["events"]),
        "merged": int(sums["merged"]),
        "cpu_s": round(sums["cpu_s"], 4),
        "cpu_share": round(max(share, peak), 4),
        "run_queue_wait_s": wait,
        "max_rss_bytes": rss,
        "limited_s": limited,
        "reasons": reasons,
        "receive_lag_s": [percentile(lag, share) for share in (0.5, 0.99, 1.0)],
        "send_late_s": [percentile(late, share) for share in (0.5, 0.99, 1.0)],
    }
