"""Run as a program: a job on standard input, what happens on standard output."""

from __future__ import annotations

import json
import os
import signal
import sys

from .coordinator import Coordinator

MAX_JOB_BYTES = 1 << 30


def main() -> int:
    """Carry out the job; the exit status is 0, 1 (broken), 2 (no job) or 3 (stopped)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The owner decides, by closing standard input.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    parts: list[bytes] = []
    size = 0
    while not parts or b"\n" not in parts[-1]:
        data = os.read(0, 1 << 20)
        if not data or size > MAX_JOB_BYTES:
            return 2
        parts.append(data)
        size += len(data)
    line, _, rest = b"".join(parts).partition(b"\n")
    try:
        job = json.loads(line)
    except ValueError as error:
        sys.stderr.write("generator: the job is no JSON: %s\n" % error)
        return 2
    return Coordinator(job, 0, rest, 1).run()


if __name__ == "__main__":
    sys.exit(main())
