"""Micro-measurements of a host that need no GPU: a program of its own, standard library alone.

How long a sleeping CPU takes to wake up, and how fast a file is read past the page cache. Prints
one JSON line a result, as `measure_cuda` does. It sets nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import time
from typing import Any, Dict, List

from . import measure_words

WAKE_UPS = 2000
REST_S = 0.002
"""Long enough to sink into a deep idle state before each wake-up."""
READ_BYTES = 4 << 30
READ_S = 4.0
PR_SET_TIMERSLACK = 29


def wake_ups(count: int) -> None:
    """From a word into a pipe to its reader on another CPU, which slept.

    The figure holds some microseconds of two system calls and of Python.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        measure_words.out(said="one CPU alone: nobody there to wake another")
        return
    reader, writer = os.pipe()
    back, answer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(writer)
            os.close(back)
            os.sched_setaffinity(0, {cpus[-1]})
            took: List[float] = []
            while True:
                sent = os.read(reader, 8)
                now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
                if len(sent) < 8:
                    break
                took.append((now - struct.unpack("<q", sent)[0]) / 1e3)
                os.write(answer, b".")
            for first in range(0, len(took), 100):
                os.write(answer, json.dumps(took[first : first + 100]).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(reader)
    os.close(answer)
    os.sched_setaffinity(0, {cpus[0]})
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    for _ in range(count):
        time.sleep(REST_S)
        os.write(writer, struct.pack("<q", time.clock_gettime_ns(time.CLOCK_MONOTONIC)))
        os.read(back, 1)
    os.close(writer)
    text = b""
    while True:
        data = os.read(back, 65536)
        if not data:
            break
        text += data
    os.close(back)
    os.waitpid(child, 0)
    times = sorted(one for line in text.splitlines() for one in json.loads(line.decode()))
    measure_words.fact("wakeup_p50_us", times[len(times) // 2])
    measure_words.fact("wakeup_p99_us", times[int(len(times) * 0.99)])
    measure_words.fact("wakeup_count", len(times))


def storage(path: str) -> None:
    """Sequential read of the largest file at a path, past the page cache as far as it goes."""
    files = [path]
    if os.path.isdir(path):
        files = [os.path.join(place, name) for place, _, names in os.walk(path) for name in names]
    files = [name for name in files if os.path.isfile(name)]
    if not files:
        measure_words.out(said="there is no file at " + path)
        return
    name = max(files, key=os.path.getsize)
    fd = os.open(name, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        began, done = time.perf_counter(), 0
        while done < READ_BYTES and time.perf_counter() - began < READ_S:
            data = os.read(fd, 8 << 20)
            if not data:
                break
            done += len(data)
        took = time.perf_counter() - began
    finally:
        os.close(fd)
    measure_words.fact("read/gb_s", done / took / 1e9)
    measure_words.fact("read/bytes", done)
    measure_words.fact("read/file", name)


def burn(seconds: float) -> None:
    """Work on every CPU that we may use, for so long; each process ends with us."""
    own = os.getpid()
    until = time.monotonic() + seconds
    children = []
    for cpu in sorted(os.sched_getaffinity(0)):
        child = os.fork()
        if child == 0:
            try:
                os.sched_setaffinity(0, {cpu})
                os.nice(10)
                while time.monotonic() < until and os.getppid() == own:
                    for _ in range(100_000):
                        pass
            finally:
                os._exit(0)
        children.append(child)
    measure_words.out(load="began")
    time.sleep(max(0.0, until - time.monotonic() - 0.3))
    measure_words.out(load="ends")
    for child in children:
        os.waitpid(child, 0)


def main(options: Dict[str, Any]) -> int:
    """Everything that was asked for."""
    measure_words.leave_with_stdin()
    parts = list(options.get("parts") or ())
    if options.get("burn_s"):
        burn(float(options["burn_s"]))
    if "wakeup" in parts:
        measure_words.out(said="wake-up latency of a CPU")
        wake_ups(int(options.get("wake_ups") or WAKE_UPS))
    if "read" in parts:
        path = str(options.get("path") or "")
        if not path:
            measure_words.out(said="no path was given to be read (--path)")
        else:
            measure_words.out(said="reading " + path)
            storage(path)
    return 0
