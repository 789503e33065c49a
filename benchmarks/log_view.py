"""What the log screen costs on a terminal: a large log on screen, and a fast one followed.

    python benchmarks/log_view.py [--gigabytes 5] [--seconds 10] [--rate 50000] [--size 120x40]

The room runs on a pty of its own, as an operator has it; a key counts from the moment it is written
there until the terminal has been sent what it changes: the badge of the status line. The files are
made in the folder for temporary files by a process of its own, and deleted afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil

from backends.config import Config, HostConfig
from backends.servers.logstore import LogStore
from benchmarks.room_paint import Terminal
from screens.log import LogScreen, host_of
from tui.app import RoomApp
from tui.hub_maker import HubFromConfig
from tui.shell import Shell
from tui.themes import make_look

STEP_S = 0.02


def line(number: int) -> bytes:
    stamp = f"2026-03-14 09:{number // 60 % 60:02d}:{number % 60:02d}"
    return b"[%s TP%d] Decode batch, running: %9d, token usage: 0.61, gen throughput: 812.44\n" % (
        stamp.encode(), number % 8, number,
    )  # fmt: skip


def write_large(path: Path, size: int) -> None:
    block = b"".join(line(n) for n in range(100_000))
    with path.open("wb", buffering=0) as file:
        while file.tell() < size:
            file.write(block)
        file.write(b"the last line\n")


def write_fast(path: Path, rate: int, seconds: float) -> None:
    """Write at a rate and a little more, and say how many lines a second it really was."""
    rate = round(rate * 1.01)
    count, total, began_s = 0, int(rate * seconds), time.perf_counter()
    with path.open("ab", buffering=0) as file:
        while count < total:
            # What is due by the end of this step: never behind the rate, at most a step before it.
            due = min(total, int((time.perf_counter() - began_s + STEP_S) * rate)) - count
            if due > 0:
                file.write(b"".join(line(count + n) for n in range(due)))
                count += due
            time.sleep(STEP_S)
    print(count, count / (time.perf_counter() - began_s))


@contextmanager
def writing(path: Path, rate: int, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """The same in a process of its own."""
    argv = ["--write", str(path), "--rate", str(rate), "--seconds", str(seconds)]
    with subprocess.Popen(
        [sys.executable, __file__, *argv], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class Room(RoomApp):
    """A room that opens a log as soon as its host is there, and tells what it took."""

    def __init__(self, path: Path, report: Path) -> None:
        host = HostConfig(name="local")
        super().__init__(
            Shell(make_look("dark", ascii_set=False), [host]), HubFromConfig(Config(), [host])
        )
        self._path = path
        self._report = report
        self._opening: asyncio.Task[None] | None = None

    def on_mount(self) -> None:
        """Wait for the host."""
        super().on_mount()
        self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        while self.shell.snapshot().link.state.value != "live":  # noqa: ASYNC110 - no callbacks
            await asyncio.sleep(0.02)
        await asyncio.sleep(1.0)
        base = psutil.Process().memory_info().rss
        store = LogStore(host_of(self.shell, "local"), str(self._path))
        screen = LogScreen(self.shell, store, "server.log")
        began_s = time.perf_counter()
        await self.push_screen(screen)
        opened_ms = None
        while True:
            if opened_ms is None and any(any(s.text.strip() for s in strip) for strip in
                                         screen.view._strips.values()):  # fmt: skip
                opened_ms = (time.perf_counter() - began_s) * 1000
            facts = {
                "opened_ms": opened_ms, "newlines": store.text.newlines,
                "grown_mib": (psutil.Process().memory_info().rss - base) / 2**20,
                "lag_bytes": self._path.stat().st_size - store.text.end,
            }  # fmt: skip
            self._report.write_text(json.dumps(facts))
            await asyncio.sleep(0.005 if opened_ms is None else 0.5)


@contextmanager
def room(path: Path, report: Path, size: tuple[int, int]) -> Iterator[Terminal]:
    """The room on a terminal."""
    argv = [sys.executable, __file__, "--screen", str(path), "--report", str(report)]
    terminal = Terminal(argv, *size)
    try:
        terminal.wait_for(b"FOLLOW")
        yield terminal
    finally:
        terminal.close()


def key_ms(terminal: Terminal, key: bytes, effect: re.Pattern[bytes]) -> float:
    """Milliseconds from a key to what it changes."""
    while terminal.read(0):
        pass
    began_s, seen = time.perf_counter(), b""
    os.write(terminal.fd, key)
    while effect.search(seen) is None:
        seen += terminal.read(5.0)
        if time.perf_counter() - began_s > 10:
            raise TimeoutError(f"{key!r} had no effect; last: {seen[-300:]!r}")
    return (time.perf_counter() - began_s) * 1000


def show_large(folder: Path, size_gb: float, size: tuple[int, int]) -> None:
    path, report = folder / "large.log", folder / "large.json"
    write_large(path, int(size_gb * 1e9))
    with room(path, report, size) as terminal:
        terminal.wait_for(b"the last line")
        for key in (b"g", b"\x1b[6~", b"\x1b[6~", b"G", b"k", b"\x1b[5~"):
            os.write(terminal.fd, key)
            terminal.drain(0.3)
        terminal.drain(1.0)
    facts = json.loads(report.read_text())
    path.unlink()
    print(f"{size_gb:.1f} GB on screen         {facts['opened_ms']:7.0f} ms   (300)")
    print(f"memory for it            {facts['grown_mib']:7.0f} MB   (100)")


def follow_fast(folder: Path, rate: int, seconds: float, size: tuple[int, int]) -> None:
    path, report = folder / "fast.log", folder / "fast.json"
    path.write_bytes(line(0))
    # Leaving the end repaints the badge at the beginning of the status line; F puts it back.
    left = re.compile(rb"\x1b\[%d;[1-3]H" % (size[1] - 1))
    took_ms: list[float] = []
    with room(path, report, size) as terminal:
        terminal.drain(2.0)
        with writing(path, rate, seconds) as writer:
            terminal.drain(0.5)
            while writer.poll() is None:
                for key, effect in ((b"k", left), (b"F", re.compile(rb"FOLLOW"))):
                    took_ms.append(key_ms(terminal, key, effect))
                    terminal.drain(0.03 + 0.05 * (len(took_ms) % 7))
            assert writer.stdout is not None
            written, per_s = writer.stdout.read().split()
        terminal.drain(3.0)
    facts = json.loads(report.read_text())
    took_ms.sort()
    p95 = took_ms[int(len(took_ms) * 0.95)]
    print(f"lines a second           {float(per_s):7.0f}      ({rate})")
    print(f"key to paint, p50        {statistics.median(took_ms):7.1f} ms")
    print(f"              p95        {p95:7.1f} ms   (50), of {len(took_ms)} keys")
    print(f"lines lost               {int(written) + 1 - facts['newlines']:7d}      (0)")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=5.0, help="0: only the fast one")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--size", default="120x40", help="of the terminal (default %(default)s)")
    for own in ("--write", "--screen", "--report"):
        parser.add_argument(own, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write is not None:
        write_fast(arguments.write, arguments.rate, arguments.seconds)
        return
    if arguments.screen is not None:
        Room(arguments.screen, arguments.report).run()
        return
    columns, rows = (int(part) for part in arguments.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        if arguments.gigabytes:
            show_large(Path(folder), arguments.gigabytes, (columns, rows))
        follow_fast(Path(folder), arguments.rate, arguments.seconds, (columns, rows))


if __name__ == "__main__":
    main()
