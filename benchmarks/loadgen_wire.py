"""The reference server on its core, and what it says it sent: what clients are compared with."""

from __future__ import annotations

import contextlib
import http.client
import os
import statistics
import subprocess
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from backends.bench.summaries import percentile

TTFT_S, GAP_S, TOKENS = 0.1, 0.02, 100
REQUESTS_PER_STREAM = {1: 4, 64: 3, 256: 3, 1024: 2}
SOURCE = Path(__file__).with_name("reference_server.c")
SERVER_CORE, CLIENT_CORE = 0, 1


@dataclass(frozen=True)
class Sent:
    """What the server wrote down of one request, in ns of the system clock."""

    read_ns: int
    tokens_ns: tuple[int, ...]


@dataclass(frozen=True)
class Measured:
    """One run of one client, in ms unless the name says otherwise; None: it doesn't say."""

    ttft_mean: float
    ttft_true: float
    gap_p50: float | None
    gap_p99: float | None
    true_p50: float
    true_p99: float
    schedule_share: float
    cpu_s_per_1000: float
    rss_mb: float
    error_p50: float | None = None
    error_p99: float | None = None
    merged: float | None = None
    valid: bool = True


def prefer(pid: int, nice: int) -> None:
    """Give a process, and where the kernel groups by session its whole session, a priority."""
    os.setpriority(os.PRIO_PROCESS, pid, nice)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


@contextlib.contextmanager
def reference(binary: Path, nice: int) -> Iterator[int]:
    """The server on its core; gives its port."""
    process = subprocess.Popen(
        [str(binary), str(TTFT_S * 1e3), str(GAP_S * 1e3)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    os.sched_setaffinity(process.pid, {SERVER_CORE})
    if nice:
        # A server that other work displaces keeps no schedule.
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(process.pid, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(timeout=10)
        process.stdout.close()


def get(port: int, path: str) -> str:
    """Ask the server for what it wrote down."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().read().decode()


def sent(port: int) -> dict[int, Sent]:
    """What it sent, by the request's number."""
    found = {}
    for line in get(port, "/sent").splitlines():
        number, read_ns, *tokens = map(int, line.split())
        found[number] = Sent(read_ns, tuple(tokens))
    return found


def wire(
    truth: dict[int, Sent], streams: int, read: Container[int] | None = None
) -> dict[str, float]:
    """The true distributions, in ms, and the share of the rate that the schedule permits.

    `read` has the requests that were read event by event; None: all.
    """
    requests = [was for was in truth.values() if len(was.tokens_ns) == TOKENS]
    gaps = sorted(
        (later - earlier) / 1e6
        for number, was in truth.items()
        if len(was.tokens_ns) == TOKENS and (read is None or number in read)
        for earlier, later in zip(was.tokens_ns, was.tokens_ns[1:], strict=False)
    )
    first = min(was.read_ns for was in requests)
    last = max(was.tokens_ns[-1] for was in requests)
    permitted = streams * TOKENS / (TTFT_S + (TOKENS - 1) * GAP_S)
    return {
        "ttft_true": statistics.fmean((was.tokens_ns[0] - was.read_ns) / 1e6 for was in requests),
        "true_p50": percentile(gaps, 0.5),
        "true_p99": percentile(gaps, 0.99),
        "schedule_share": len(requests) * TOKENS / ((last - first) / 1e9) / permitted,
    }
