"""A small area that only answers: how the wire itself is tested, on a real host too."""

from __future__ import annotations

import os
import time
from typing import Any, Dict

from .rpc import RpcError, Stream


def register(agent: Any) -> None:
    """Add the methods of this area."""
    ended = []

    def echo(params: Dict[str, Any]) -> Any:
        return params.get("value")

    def fail(params: Dict[str, Any]) -> None:
        raise RpcError(str(params.get("words", "it failed")), data=params.get("data"))

    def sleep(params: Dict[str, Any]) -> Dict[str, Any]:
        time.sleep(min(60.0, float(params["seconds"])))
        return {"slept": True}

    def count(params: Dict[str, Any], stream: Stream) -> None:
        size = int(params.get("size", 0))
        for number in range(int(params["to"])):
            stream.send({"n": number, "pad": "x" * size})
        if params.get("fail"):
            raise RpcError("the end was bad")

    def wait(params: Dict[str, Any], stream: Stream) -> None:
        stream.send({"pid": os.getpid()})
        while not stream.wait_closed(30.0):
            stream.send({"still": True})
        ended.append(stream.number)

    agent.methods.add("selftest.echo", echo)
    agent.methods.add("selftest.fail", fail)
    agent.methods.add("selftest.sleep", sleep, threaded=True)
    agent.methods.add("selftest.ended", lambda params: list(ended))
    agent.methods.add_stream("selftest.count", count)
    agent.methods.add_stream("selftest.wait", wait)
