"""Keeps others from starting or stopping a server over several requests of one operator."""

from __future__ import annotations

import os
import threading
from typing import Any, ContextManager, Dict, NamedTuple, Optional

from . import rpc, runs, stopnote

LET_GO_WAIT_S = 5.0

Params = Dict[str, Any]


class _Held(NamedTuple):
    stream: rpc.Stream
    over: threading.Event


class Holds:
    """What is held by way of this agent; all of it is let go with the link."""

    def __init__(self) -> None:
        self._held: Dict[str, _Held] = {}

    def hold(self, params: Params, stream: rpc.Stream) -> None:
        """Keep others from starting or stopping a server until the stream is closed.

        For launchers whose own programs (systemctl, docker) let two operators do the same at once,
        and for a restart as a whole.

        Args:
            params: `name` (of the profile), `doing` (`starting`, `stopping`, `restarting`), `by`,
                `origin`; `dir` of the run, where it was started here.
            stream: Gets `{"held": true}`.
        """
        name = runs.checked_name(params["name"])
        held = _Held(stream, threading.Event())
        try:
            place = params.get("dir")
            with alone_at(str(place), params) if place else _alone(name, params):
                self._held[name] = held
                stream.send({"held": True})
                while not stream.wait_closed(1.0):
                    pass
        finally:
            if self._held.get(name) is held:
                del self._held[name]
            held.over.set()

    def let_go(self, params: Params) -> bool:
        """Let go of the server `name`; when this answers, whoever comes next may hold it."""
        held = self._held.get(runs.checked_name(params["name"]))
        if held is None:
            return False
        held.stream.close()
        return held.over.wait(LET_GO_WAIT_S)


def alone_at(place: str, params: Params) -> ContextManager[None]:
    """One operator at a time at the runs of a profile, of which this is one."""
    return runs.operation(os.path.dirname(place), "stop.lock", params)


def _alone(name: str, params: Params) -> ContextManager[None]:
    home = _home()
    os.makedirs(home, mode=0o755, exist_ok=True)
    return runs.operation(home, name, params)


def stop_of(name: Any) -> Optional[Dict[str, Any]]:
    """Who stops the server `name` just now, by a program that tells nobody (docker)."""
    if not isinstance(name, str) or not runs.NAME.fullmatch(name):
        return None  # nobody can hold it by that
    held = stopnote.read(os.path.join(_home(), name))
    return held if held is not None and held["going"] and held.get("doing") == "stopping" else None


def _home() -> str:
    return os.path.join(runs.root(), ".held")
