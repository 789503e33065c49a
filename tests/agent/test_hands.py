"""Threads of the agent: enough for whatever hangs, and none made anew where one is idle."""

from __future__ import annotations

import queue
import threading
import time

from backends.agent.remote.hands import Hands

DEADLINE_S = 30.0


def test_a_job_that_hangs_keeps_no_other_and_idle_threads_are_used_again() -> None:
    hands, done = Hands(), queue.SimpleQueue[int]()
    let_go = threading.Event()

    def note() -> None:
        done.put(threading.get_ident())

    def hang() -> None:
        note()
        let_go.wait(DEADLINE_S)

    hands.do(hang)
    hanging = done.get(timeout=DEADLINE_S)
    seen = set()
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        hands.do(note)
        who = done.get(timeout=DEADLINE_S)
        assert who != hanging
        if who in seen:
            break
        seen.add(who)
        time.sleep(0.01)  # it is idle a moment after its word
    assert who in seen
    for _ in range(20):
        hands.do(hang)
    assert len({done.get(timeout=DEADLINE_S) for _ in range(20)}) == 20, "all at once"
    let_go.set()
