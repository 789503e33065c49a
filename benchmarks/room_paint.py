"""What the room costs on a terminal: start, keys, bytes, CPU. A real pty, 24-bit colour.

    python benchmarks/room_paint.py [--rounds 5] [--seconds 20]

- first painted frame of `gpuroom demo`, and how much of it is imports
- key to paint with 64 GPUs at 1 Hz
- bytes a second to the terminal for 8 and 64 GPUs at 1 Hz, and when nothing changes
- CPU per 8-GPU sample: decoding, history, snapshot with verdicts and drawing
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHILD = str(ROOT / "benchmarks" / "synthetic_room.py")
RATE_HZ = 2.0
"""Samples a second while CPU is measured: each is drawn, as at 1 Hz, in half the time."""


class Terminal:
    """A program on a pty."""

    def __init__(self, argv: list[str], columns: int, rows: int) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environment.pop("NO_COLOR", None)
        self.started_s = time.perf_counter()
        self.process = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.fd = master
        self.total_bytes = 0

    def read(self, timeout_s: float) -> bytes:
        """What comes within a time; empty when nothing does."""
        if not select.select([self.fd], [], [], timeout_s)[0]:
            return b""
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            return b""
        self.total_bytes += len(data)
        return data

    def wait_for(self, text: bytes, timeout_s: float = 20.0) -> float:
        """Seconds since the start until a text was printed."""
        seen, until_s = b"", time.perf_counter() + timeout_s
        while time.perf_counter() < until_s:
            seen += self.read(0.2)
            if text in seen:
                return time.perf_counter() - self.started_s
        raise TimeoutError(f"{text!r} was not printed; last: {seen[-300:]!r}")

    def drain(self, seconds: float) -> int:
        """Bytes printed within a time."""
        before, until_s = self.total_bytes, time.perf_counter() + seconds
        while (left_s := until_s - time.perf_counter()) > 0:
            self.read(left_s)
        return self.total_bytes - before

    def key(self, key: bytes) -> float:
        """Seconds from a key to the first byte painted for it."""
        while self.read(0.02):
            pass
        start_s = time.perf_counter()
        os.write(self.fd, key)
        self.read(5.0)
        return time.perf_counter() - start_s

    def close(self) -> None:
        """End it."""
        if self.process.poll() is None:
            os.write(self.fd, b"q")
            until_s = time.perf_counter() + 3
            while self.process.poll() is None and time.perf_counter() < until_s:
                self.read(0.1)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.fd)


@contextmanager
def room(gpus: int, rate_hz: float, seconds: float, size: tuple[int, int]) -> Iterator[Terminal]:
    """A room on synthetic hosts; `terminal.report` has its own figures after it ended."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        argv = [sys.executable, CHILD, str(gpus), str(rate_hz), str(seconds), file.name]
        terminal = Terminal(argv, *size)
        try:
            terminal.wait_for(b"GPUs")
            terminal.drain(1.0)
            yield terminal
        finally:
            terminal.close()


def first_frame(rounds: int) -> None:
    demo = [sys.executable, str(ROOT / "gpuroom.py"), "demo"]
    imports = [sys.executable, "-c", "import tui.cli.room, tui.app, tui.hub_maker, tui.keymap"]
    frame_s, import_s, bare_s = [], [], []
    for _ in range(rounds):
        for argv, into in ((imports, import_s), ([sys.executable, "-c", "pass"], bare_s)):
            start_s = time.perf_counter()
            subprocess.run(argv, cwd=ROOT, check=True)
            into.append(time.perf_counter() - start_s)
        terminal = Terminal(demo, 120, 40)
        try:
            frame_s.append(terminal.wait_for(b"GPUs"))
        finally:
            terminal.close()
    base_s = statistics.median(bare_s)
    say("first painted frame of `gpuroom demo`", statistics.median(frame_s), "s", "1.2", 2)
    say("  of it imports", statistics.median(import_s) - base_s, "s", "0.6", 2)


def keys(count: int) -> None:
    with room(64, 1.0, 600, (120, 50)) as terminal:
        took_ms = []
        for number in range(count):
            took_ms.append(terminal.key(b"k" if number % 40 >= 20 else b"j") * 1000)
            time.sleep(0.03 + 0.05 * (number % 7))
    took_ms.sort()
    say("key to paint, 64 GPUs at 1 Hz, p50", statistics.median(took_ms), "ms", "", 1)
    say("                               p95", took_ms[int(len(took_ms) * 0.95)], "ms", "50", 1)


def terminal_bytes(seconds: float) -> None:
    for gpus, size, goal in ((8, (80, 24), "4"), (8, (120, 40), "4"), (64, (120, 50), "12")):
        with room(gpus, 1.0, 600, size) as terminal:
            rate = terminal.drain(seconds) / seconds / 1000
        say(f"to the terminal, {gpus} GPUs at 1 Hz, {size[0]}x{size[1]}", rate, "kB/s", goal, 2)
    with room(8, 0.0, 600, (120, 40)) as terminal:
        terminal.drain(4.0)  # the one sample grows old: its age appears once
        count = terminal.drain(seconds)
    say("to the terminal while nothing comes (an age counts up)", count / seconds, "B/s", "", 1)


def cpu(seconds: float) -> None:
    reports = {}
    for rate_hz in (RATE_HZ, 0.0):
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            argv = [sys.executable, CHILD, "8", str(rate_hz), str(seconds), str(report)]
            terminal = Terminal(argv, 120, 40)
            try:
                terminal.wait_for(b"GPUs")
                until_s = time.perf_counter() + seconds + 10
                while not report.exists() and time.perf_counter() < until_s:
                    terminal.read(0.2)
            finally:
                terminal.close()
            reports[rate_hz] = json.loads(report.read_text())
    busy, idle = reports[RATE_HZ], reports[0.0]
    drawn = busy["frames"] / busy["samples"]
    cost_ms = (busy["cpu_s"] - idle["cpu_s"]) / busy["samples"] * 1000
    say("CPU per 8-GPU sample: decode, store, draw, 120x40", cost_ms, "ms", "5", 2)
    say("  frames drawn per sample", drawn, "", "", 2)
    say("CPU of a room at rest", idle["cpu_s"] / seconds * 100, "%", "", 2)


def say(what: str, value: float, unit: str, goal: str, digits: int) -> None:
    """One line of the table."""
    wanted = f"(goal: at most {goal} {unit})" if goal else ""
    print(f"{what:<58}{value:>9.{digits}f} {unit:<5}{wanted}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", choices=("start", "keys", "bytes", "cpu"))
    arguments = parser.parse_args()
    parts = {
        "start": lambda: first_frame(arguments.rounds),
        "keys": lambda: keys(arguments.rounds * 40),
        "bytes": lambda: terminal_bytes(arguments.seconds),
        "cpu": lambda: cpu(arguments.seconds),
    }
    for name, part in parts.items():
        if arguments.only in (None, name):
            part()
    return 0


if __name__ == "__main__":
    sys.exit(main())
