"""The load generator: a program of the standard library alone, away from any screen.

It reads a job (JSON, one line) from standard input, sends the load, and writes what happened as
JSON lines to standard output. End of standard input stops it, so it never outlives its owner.
Python 3.8 syntax: the same program is sent to a host and run by whatever `python3` is there.

The order of modules, lowest first: `http1` and `sse` split bytes, `answers` reads events,
`workload` makes requests, `arrivals` says when, `exchange` is one request, `connection` one
socket, `lag` judges the client itself, `traffic` is requests out and answers in, `worker` the
loop round it, `coordinator` owns the workers.
"""

from __future__ import annotations

VERSION = "1"
