"""Who stops a server, and whether somebody still does: written where whoever looks can read it.

A stop outlives who asked for it (`ladder.Begun`), and holds no lock then. So the note names the
process that sees to it: as long as that very process lives, the server is being stopped.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Dict, Optional

from . import members, processes, rpc, supervisor

WORD_CHARS = 64
"""Of a name in a note, which must fit into the room that is reserved for it."""


class Note:
    """One stop, in a file.

    Args:
        path: The file.
        params: Of the stop: `by`, `origin`, and whether it is part of a `restart`.
        kept: Whether it stays when the stop is over.
    """

    def __init__(self, path: str, params: Dict[str, Any], kept: bool = True) -> None:
        self.path = path
        self._kept = kept
        self._asked: Dict[str, Any] = {
            key: str(params[key])[:WORD_CHARS] if params.get(key) is not None else None
            for key in ("by", "origin")
        }
        self._asked.update(restart=bool(params.get("restart")), at=time.time())

    def take(self) -> None:
        """This process sees to the stop from now on.

        Raises:
            OSError: It can't be written down.
        """
        supervisor.write_reserved(self.path, dict(self._asked, **this_process()))

    def release(self) -> None:
        """The stop is over; of what was started here it stays known that it was asked for."""
        if not self._is_mine():
            return
        if self._kept:
            with contextlib.suppress(OSError):
                supervisor.write_reserved(self.path, self._asked)
        else:
            supervisor.remove(self.path)

    def withdraw(self) -> None:
        """It was refused: nothing was stopped, and what ends later has another reason."""
        if self._is_mine():
            with contextlib.suppress(OSError):
                supervisor.reserve(self.path)

    def _is_mine(self) -> bool:
        return (supervisor.read_json(self.path) or {}).get("pid") == os.getpid()

    def say_if_lost(self, error: OSError, stream: rpc.Stream) -> None:
        """The stop goes on where it can't be written down, and says that nobody will know."""
        words = "who stops it can't be written down (%s: %s)" % (self.path, error.strerror)
        with contextlib.suppress(rpc.StreamClosed):
            stream.send({"step": words})


def this_process() -> Dict[str, Any]:
    """What tells this process from any other, of any boot."""
    stat = processes.read_stat("/proc", os.getpid())
    ticks = stat[0] if stat is not None else -1
    return {"pid": os.getpid(), "start_ticks": ticks, "boot_id": members.boot_id()}


def read(path: str) -> Optional[Dict[str, Any]]:
    """Who asked for the stop, how long ago (`age_s`), and whether it is `going` on.

    None where nobody asked for one.
    """
    asked = supervisor.read_json(path)
    if asked is None:
        return None
    pid, ticks = asked.get("pid"), asked.get("start_ticks")
    asked["going"] = (
        isinstance(pid, int)
        and isinstance(ticks, int)
        and asked.get("boot_id") == members.boot_id()
        and members.is_alive(pid, ticks)
    )
    at = asked.get("at")
    asked["age_s"] = max(0.0, time.time() - at) if isinstance(at, (int, float)) else None
    return asked
