"""Stops processes, wholly, and says each step: the one ladder for whatever started them.

The main process gets the signal (engines drain then), after the grace all that are left get
SIGTERM, then SIGKILL, until a fresh look finds none. Strangers are never touched.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Callable, Dict, List, Optional

from . import members, ports, processes, rpc, stopnote

TERM_WAIT_S = 3.0
KILL_WAIT_S = 60.0

Params = Dict[str, Any]
Look = Callable[[bool], List[members.Member]]
"""Who is left; True: look as thoroughly as can be."""


def descend(
    look: Look, pid: int, start_ticks: int, port: Any, params: Params, stream: rpc.Stream
) -> None:
    """Go down the ladder.

    Args:
        look: Finds the processes that are left and may be touched.
        pid: The main process.
        start_ticks: When it began: what has its pid later is somebody else.
        port: What must be free in the end; None where there is none.
        params: `signal` (default TERM) and `grace_s`; how far it is gets noted there, so that
            another call can go on with it.
        stream: Gets `step` (words), `members` left, and last `done` with `left` and `port`.
    """
    grace_s = min(3600.0, max(0.0, float(params.get("grace_s", 30.0))))
    number = int(getattr(signal, "SIG" + str(params.get("signal", "TERM")).upper()))
    deadline = params.setdefault("until", time.monotonic() + grace_s)

    def is_main(member: members.Member) -> bool:
        return member.pid == pid and member.start_ticks == start_ticks

    def say(text: str, found: List[members.Member]) -> None:
        described = [members.describe(member) for member in found[:200]]
        # The stop goes on without its audience: half a stop helps nobody.
        with contextlib.suppress(rpc.StreamClosed):
            stream.send({"step": text, "members": described})

    found = look(True)
    main = [member for member in found if is_main(member)]
    if main:
        say("SIG%s to the main process" % signal.Signals(number).name[3:], found)
        if not params.get("asked"):  # engines take a second signal for impatience
            _signal_all(main, number)
        params["asked"] = True
        found = _wait(look, deadline, lambda now: not any(map(is_main, now)), stream)
    if found:
        say("SIGTERM to all that are left", found)
        _signal_all(found, signal.SIGTERM)
        until = max(deadline, time.monotonic() + TERM_WAIT_S)
        found = _wait(look, until, lambda now: not now, stream)
    kill_deadline = time.monotonic() + KILL_WAIT_S
    while found and time.monotonic() < kill_deadline:
        say("SIGKILL to all that are left", found)
        _signal_all(found, signal.SIGKILL)
        found = _wait(look, time.monotonic() + 5.0, lambda now: not now, stream)
    facts = _wait_port(int(port)) if port else None
    stuck = [
        dict(members.describe(member), kernel_stack=_kernel_stack(member.pid)) for member in found
    ]
    stream.send({"done": True, "left": stuck, "port": facts})


class Begun:
    """The stops that are on their way here. An agent that leaves has them carried to their end.

    Half a stop helps nobody: a server that has its SIGTERM and is deaf to it would keep its GPUs.
    """

    def __init__(self) -> None:
        self._rests: List[Callable[[rpc.Stream], None]] = []

    def carry_out(
        self, descend: Callable[[rpc.Stream], None], note: stopnote.Note, stream: rpc.Stream
    ) -> None:
        """Stop something by `descend(stream)`, and have the note say who is at it."""

        def rest(stream: rpc.Stream) -> None:
            with contextlib.suppress(OSError):
                note.take()
            descend(stream)
            note.release()

        try:
            note.take()
        except OSError as error:  # another user's run, or a full disk
            note.say_if_lost(error, stream)
        self._rests.append(rest)
        try:
            descend(stream)
        except rpc.RpcError:
            note.withdraw()
            raise
        finally:
            self._rests.remove(rest)
            note.release()

    def hand_over(self) -> None:
        """Leave each to a process of its own, which holds no lock and talks to nobody."""
        for rest in list(self._rests):
            if os.fork() == 0:
                try:
                    os.setsid()
                    os.closerange(0, 4096)
                    for _ in range(3):
                        os.open(os.devnull, os.O_RDWR)
                    gone = rpc.Stream(0, None)  # type: ignore[arg-type]
                    gone.close()
                    rest(gone)
                finally:
                    os._exit(0)


def _wait(
    look: Look, deadline: float, done: Callable[[List[members.Member]], bool], stream: rpc.Stream
) -> List[members.Member]:
    """Look again until `done(members)` or the deadline; whoever asked may have gone meanwhile."""
    while True:
        found = look(False)
        if done(found) or time.monotonic() >= deadline:
            return found
        if stream.wait_closed(0.1):
            time.sleep(0.1)


def _wait_port(port: int) -> Dict[str, Any]:
    deadline = time.monotonic() + 35.0  # a server that held GPUs may keep its port for 30 s
    while True:
        facts = ports.owner(port)
        if facts["free"] or facts["owners"] or time.monotonic() >= deadline:
            return facts
        time.sleep(0.2)


def _signal_all(found: List[members.Member], number: int) -> None:
    for member in found:
        try:
            members.send_signal(member.pid, member.start_ticks, number)
        except PermissionError:
            raise rpc.RpcError(
                "pid %d belongs to %s: only they and root may stop it"
                % (member.pid, processes.user_of("/proc", member.pid))
            ) from None


def _kernel_stack(pid: int) -> Optional[str]:
    """Where in the kernel an unkillable process sits; needs root."""
    try:
        with open("/proc/%d/stack" % pid) as file:
            return file.read(2000)
    except OSError:
        return None
