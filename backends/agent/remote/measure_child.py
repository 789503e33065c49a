"""Children of the measuring area: each ends with its request, with its deadline, or with us.

A program of ours is sent over its standard input, which then stays open: its end is the program's
own signal to leave, should we be killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

PACKAGE = "gpuroom_measure"
STUB = """
import sys, json, types
r = sys.stdin.buffer
n = int(r.readline())
t = r.read(n).decode("utf-8")
p = types.ModuleType("gpuroom_measure")
p.__path__ = []
p.TASK = t
sys.modules[p.__name__] = p
for n, s in json.loads(t):
    m = types.ModuleType("gpuroom_measure." + n)
    m.__package__ = p.__name__
    sys.modules[m.__name__] = m
    setattr(p, n, m)
    exec(compile(s, "<gpuroom>/%s.py" % n, "exec", dont_inherit=True), m.__dict__)
sys.exit(m.main(json.loads(sys.argv[1])))
"""
"""Runs `main` of the last of the modules that come as JSON, with the options of its argument."""
MAX_LINES = 20_000
MAX_LINE_BYTES = 64 * 1024
MAX_WORDS = 16 * 1024
POLL_S = 0.1

_live: Dict[int, Any] = {}
_lock = threading.Lock()


def end_all() -> None:
    """Kill every child that is still there: standard input has ended."""
    with _lock:
        children = list(_live.values())
    for child in children:
        kill(child)


def kill(child: Any) -> None:
    """End a child and what it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass


def run(
    argv: List[str],
    stream: Any,
    until: float,
    on_line: Callable[[bytes], None],
    task: Optional[str] = None,
    env: Optional[Dict[str, str]] = None,
) -> Tuple[int, str]:
    """Run a child to its end, and hand over its lines.

    Args:
        argv: What to run.
        stream: Of the request: the child ends when nobody listens any more.
        until: Monotonic moment at which it is killed.
        on_line: Gets each line of its standard output.
        task: Of `task_of`, where `argv` begins with a python and `-c STUB`.
        env: Set besides the environment.

    Returns:
        Its status (124: it took too long) and the last line of what it complained of.
    """
    try:
        child: Any = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=dict(os.environ, **(env or {})),
        )
    except OSError as error:
        return 127, "%s: %s" % (argv[0], error.strerror)
    with _lock:
        _live[child.pid] = child
    late = threading.Event()
    done = threading.Event()
    minder = threading.Thread(target=_mind, args=(child, stream, until, late, done), daemon=True)
    minder.start()
    words: List[bytes] = []
    reader = threading.Thread(target=_drain, args=(child.stderr, words), daemon=True)
    reader.start()
    try:
        if task is not None:
            data = task.encode("utf-8")
            try:
                child.stdin.write(b"%d\n" % len(data) + data)
                child.stdin.flush()
            except OSError:
                pass  # it has ended; its status says so
        for _ in range(MAX_LINES):
            line = child.stdout.readline(MAX_LINE_BYTES)
            if not line:
                break
            on_line(line)
        else:
            kill(child)
        status = child.wait()
        reader.join(2.0)
    finally:
        done.set()
        kill(child)
        child.wait()
        with _lock:
            _live.pop(child.pid, None)
        for pipe in (child.stdin, child.stdout):
            try:
                pipe.close()
            except OSError:
                pass
    if late.is_set():
        return 124, "it was not done in time"
    said = b"".join(words).decode("utf-8", "replace").strip().split("\n")[-1]
    return status, said[:300]


def _mind(child: Any, stream: Any, until: float, late: Any, done: Any) -> None:
    while not done.is_set():
        if time.monotonic() >= until:
            late.set()
            break
        if stream.wait_closed(POLL_S):
            break
    else:
        return
    kill(child)


def _drain(pipe: Any, words: List[bytes]) -> None:
    """Everything to its end, of which the last is kept."""
    while True:
        data = pipe.read1(MAX_WORDS)
        if not data:
            return
        words.append(data)
        del words[:-4]


def task_of(*modules: Any) -> str:
    """The text of a program of ours: its modules, those that others import first."""
    return json.dumps(
        [[one.__name__.rpartition(".")[2], one.__spec__.loader.get_source(one.__name__)]
         for one in modules]
    )  # fmt: skip
