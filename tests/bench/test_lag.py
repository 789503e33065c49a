"""The client's judgement of itself, and of a warm-up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from backends.bench.generator import lag
from backends.bench.generator.lag import LagMeter, bucket_us, percentile

MS = 1_000_000


class Clock:
    """Time and CPU that move when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.cpu = 0.0
        self.wall_offset = 0.0
        monkeypatch.setattr(lag.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(lag.time, "time", lambda: self.now + 1e9 + self.wall_offset)
        monkeypatch.setattr(lag.time, "process_time", lambda: self.cpu)

    def tick(self, meter: LagMeter, slots: int | None, cpu_share: float = 0.1) -> list[str]:
        self.now += lag.TICK_S
        self.cpu += cpu_share * lag.TICK_S
        return meter.tick(slots)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def within_2_s(clock: Clock, meter: LagMeter, slots: int | None, act: Any, **more: Any) -> str:
    """The reason given within 2 s of something going on; empty if none."""
    for _ in range(8):
        act()
        reasons = clock.tick(meter, slots, **more)
        if reasons:
            return reasons[0]
    return ""


def test_a_client_that_keeps_up_is_not_blamed(clock: Clock) -> None:
    meter = LagMeter()

    def fine() -> None:
        for _ in range(100):
            meter.received(50_000)
            meter.sent(200_000)
        meter.arrived(1000, 0)

    assert within_2_s(clock, meter, 64, fine) == ""
    assert within_2_s(clock, meter, None, fine) == ""
    assert meter.limited_s == 0


@pytest.mark.parametrize(
    ("slots", "act", "words"),
    [
        (8, lambda meter: [meter.received(20 * MS) for _ in range(50)], "read late"),
        (8, lambda meter: meter.received(300 * MS), "read late"),
        (8, lambda meter: [meter.sent(80 * MS) for _ in range(8)], "stood idle"),
        (8, lambda meter: meter.away(250 * MS), "held up"),
        (None, lambda meter: [meter.sent(30 * MS) for _ in range(8)], "sent late"),
    ],
)
def test_a_client_that_limits_is_told_within_2_s(
    clock: Clock, slots: int | None, act: Any, words: str
) -> None:
    meter = LagMeter()
    assert words in within_2_s(clock, meter, slots, lambda: act(meter))
    assert meter.limited_s > 0
    assert words in meter.reasons[0]


def test_a_full_core_is_said(clock: Clock) -> None:
    assert "core was full" in within_2_s(clock, LagMeter(), 8, lambda: None, cpu_share=0.99)


def test_merging_is_the_clients_fault_only_when_it_reads_late(clock: Clock) -> None:
    meter = LagMeter()

    def bundled() -> None:
        meter.received(50_000)
        meter.arrived(100, 50)

    assert within_2_s(clock, meter, 8, bundled) == ""

    def late() -> None:
        for _ in range(98):
            meter.received(50_000)
        meter.received(30 * MS)
        meter.received(30 * MS)
        meter.arrived(100, 50)

    assert "merged" in within_2_s(clock, meter, 8, late)


def test_a_clock_that_is_set_is_noticed(clock: Clock) -> None:
    meter = LagMeter()
    assert clock.tick(meter, 8) == []
    clock.wall_offset += 0.05
    assert "system clock was set by 50 ms" in clock.tick(meter, 8)[0]
    assert clock.tick(meter, 8) == []


def test_one_bad_moment_passes(clock: Clock) -> None:
    meter = LagMeter()
    meter.received(300 * MS)
    assert clock.tick(meter, 8)
    for _ in range(3):
        clock.tick(meter, 8)
    assert clock.tick(meter, 8) == []


@pytest.mark.parametrize("ns", [0, 999, 31_000, 1_234_567, 987_654_321, 10**11])
def test_buckets_are_exact_to_six_percent(ns: int) -> None:
    us = ns // 1000
    assert bucket_us(ns) <= us
    assert us - bucket_us(ns) <= us * 0.0625


def test_percentiles_of_counts() -> None:
    assert percentile({}, 0.5) is None
    assert percentile({1000: 99, 50_000: 1}, 0.5) == 0.001
    assert percentile({1000: 99, 50_000: 1}, 1.0) == 0.05


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads /proc")
def test_a_stopped_worker_is_flagged(clock: Clock) -> None:
    """What a stop does to a real process: it reads late what came meanwhile."""
    program = (
        "import socket,time\n"
        "from backends.bench.generator.connection import Connection, now_ns\n"
        "listener = socket.create_server(('127.0.0.1', 0))\n"
        "connection = Connection(socket.AF_INET, listener.getsockname())\n"
        "peer, _ = listener.accept()\n"
        "while not connection.advance(): pass\n"
        "deadline = now_ns() + 10 * 10**9\n"  # the kernel begins to stamp a while after it is asked
        "stamped = False\n"
        "while not stamped and now_ns() < deadline:\n"
        "    peer.sendall(b'x')\n"
        "    time.sleep(0.01)\n"
        "    stamped = connection.read()[2]\n"
        "print('ready', flush=True)\n"
        "peer.sendall(b'x')\n"
        "time.sleep(0.6)\n"
        "stamp, data, stamped = connection.read()\n"
        "print(int(stamped), now_ns() - stamp, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGCONT)
    stamped, late_ns = map(int, process.stdout.readline().split())
    process.wait()
    process.stdout.close()
    if not stamped:
        pytest.skip("this kernel does not stamp")
    assert late_ns > 500 * MS
    meter = LagMeter()
    meter.received(late_ns)
    assert "read late" in clock.tick(meter, 8)[0]
