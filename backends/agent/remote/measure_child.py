"""Children of the measuring area: each ends with its request, with its deadline, or with us.

A program of ours is sent over its standard input, which then stays open: its end is the program's
own signal to leave, should we be killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

STUB = (
    "import sys;r=sys.stdin.buffer;n=int(r.readline());SOURCE=r.read(n).decode('utf-8');"
    "exec(compile(SOURCE,'<gpuroom>/measure.py','exec',dont_inherit=True))"
)
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
    source: Optional[str] = None,
    env: Optional[Dict[str, str]] = None,
) -> Tuple[int, str]:
    """Run a child to its end, and hand over its lines.

    Args:
        argv: What to run.
        stream: Of the request: the child ends when nobody listens any more.
        until: Monotonic moment at which it is killed.
        on_line: Gets each line of its standard output.
        source: The program's text where `argv` ends in `-c STUB`.
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
        if source is not None:
            data = source.encode("utf-8")
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
