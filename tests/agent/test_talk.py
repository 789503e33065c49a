"""Commands that are talked to: input, output, both ends, and what stays of them."""

from __future__ import annotations

import base64
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any, cast

import pytest

from backends.agent.remote import commands, rpc


class Kept:
    """Takes what a stream is sent, as the far side would."""

    def __init__(self) -> None:
        self.pieces: list[dict[str, Any]] = []
        self.closed = False

    def send(self, data: dict[str, Any]) -> None:
        if self.closed:
            raise rpc.StreamClosed
        self.pieces.append(data)

    @property
    def output(self) -> bytes:
        return b"".join(
            zlib.decompress(base64.b64decode(piece["z"])) for piece in self.pieces if "z" in piece
        )


def until(test: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 30
    while not test():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Talk:
    """One command under way."""

    def __init__(self, program: str) -> None:
        self.stream, self.talks = Kept(), cast(commands.Talks, {})
        params = {"argv": [sys.executable, "-c", program], "name": "x"}
        self.thread = threading.Thread(
            target=commands.talk,
            args=(params, self.stream, commands.Children(), self.talks),
            daemon=True,
        )
        self.thread.start()
        until(lambda: self.stream.pieces)
        self.pid = self.stream.pieces[0]["pid"]

    def say(self, data: bytes = b"", *, end: bool = False) -> bool:
        packed = base64.b64encode(zlib.compress(data)).decode() if data else ""
        return commands.say({"name": "x", "z": packed, "end": end}, self.talks)

    def over(self) -> dict[str, Any]:
        self.thread.join(30)
        assert not self.thread.is_alive()
        assert self.talks == {}
        return self.stream.pieces[-1]


def test_what_is_said_arrives_and_its_answer_comes_back() -> None:
    talk = Talk("import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)")
    assert talk.say(b"one\n")
    until(lambda: talk.stream.output == b"ONE\n")
    assert talk.say(b"two\n", end=True)
    assert talk.over() == {"code": 0, "err": ""}
    assert talk.stream.output == b"ONE\nTWO\n"
    assert not talk.say(b"three\n")


def test_its_end_has_its_code_and_its_last_words() -> None:
    talk = Talk("import sys\nsys.stderr.write('x' * 100000 + 'why'); sys.exit(3)")
    last = talk.over()
    assert last["code"] == 3
    assert last["err"].endswith("xwhy")
    assert len(last["err"]) == commands.MAX_TAIL


def test_when_nobody_listens_it_is_killed() -> None:
    talk = Talk("import time\ntime.sleep(600)")
    assert alive(talk.pid)
    talk.stream.closed = True
    talk.over()
    assert not alive(talk.pid)


def test_one_that_cannot_be_executed_is_an_error() -> None:
    params = {"argv": ["/nowhere/python3"], "name": "x"}
    with pytest.raises(rpc.RpcError, match="/nowhere/python3"):
        commands.talk(params, cast(rpc.Stream, Kept()), commands.Children(), {})
