"""Our side: noise, garbage, answers, streams, and words for every way in which it goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.agent import loader
from backends.agent.client import AgentClient, PythonMissing, PythonTooOld
from backends.agent.wire import MAX_LINE, LineSplitter, MarkerFinder, parse
from backends.errors import AgentError, LinkError
from backends.link.local import LocalTransport
from tests.agent.conftest import DEADLINE_S, FAKE, Room, Told

Start = Callable[..., Any]
HELLO = {"jsonrpc": "2.0", "method": "hello", "params": {"methods": ["ping"], "columns": {}}}


class Script:
    """A channel that says what a test wrote down."""

    def __init__(self, chunks: list[bytes], *, status: int | None = 0, stderr: str = "") -> None:
        self.chunks = chunks
        self.status = status
        self.stderr = stderr
        self.written = b""
        self.hold = asyncio.Event()
        self.holding = False
        self.error: Exception | None = None

    async def read(self, size: int = 65536) -> bytes:
        await asyncio.sleep(0)
        if self.chunks:
            return self.chunks.pop(0)
        if self.error is not None:
            raise self.error
        if self.holding:
            await self.hold.wait()
        return b""

    async def write(self, data: bytes) -> None:
        self.written += data

    async def stderr_tail(self) -> str:
        return self.stderr

    async def wait(self, timeout_s: float) -> int | None:
        return self.status

    async def close(self) -> None:
        self.hold.set()


class ScriptTransport:
    kind = "local"

    def __init__(self, channel: Script) -> None:
        self.channel = channel

    async def connect(self) -> None: ...

    async def open(self, argv: Any) -> Script:
        return self.channel

    async def closed(self) -> str:
        return ""

    async def close(self) -> None: ...


def line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def begun(*lines: bytes) -> list[bytes]:
    return [b"\n" + loader.MARKER + b"\n" + line(HELLO), *lines]


async def started(channel: Script, told: Told | None = None) -> tuple[AgentClient, Told]:
    told = told or Told()
    client = AgentClient(ScriptTransport(channel), on_notification=told, pynvml_source="pass\n")
    await client.start(5.0)
    return client, told


async def refused(channel: Script) -> AgentError:
    with pytest.raises(AgentError) as caught:
        await started(channel)
    return caught.value


async def test_noise_before_the_marker_is_dropped() -> None:
    banner = b"Welcome to gpu01\r\n{not json}\n" + b"motd " * 10_000
    channel = Script([banner, b"half a line", *begun(line({"method": "note", "params": {}}))])
    channel.holding = True
    client, told = await started(channel)
    await told.until("note")
    assert client.garbage_lines == 0
    assert client.methods == {"ping"}
    await client.close()


async def test_ten_thousand_malformed_lines_do_no_harm() -> None:
    chance = random.Random(20261202)
    lines = []
    for number in range(10_000):
        kind = number % 10
        if kind == 0:
            lines.append(bytes(chance.randrange(256) for _ in range(chance.randrange(200))))
        elif kind == 1:
            lines.append(b'{"jsonrpc":"2.0","method":"fast","params":' + b"[" * 500)
        elif kind == 2:
            lines.append(b'{"id":%d,"result":{}}' % chance.randrange(1 << 40))
        elif kind == 3:
            lines.append(b'{"method":"fast","params":[1,2]}')
        elif kind == 4:
            lines.append(b'{"method":7}')
        elif kind == 5:
            lines.append(b'{"id":"x","error":7}')
        elif kind == 6:
            lines.append(b"\xff\xfe{}" + b"\x00" * 10)
        elif kind == 7:
            lines.append(b'{"method":"stream","params":{"id":[]}}')
        elif kind == 8:
            lines.append(b'{"method":"fast","params":{"t":1e999,"g":' + b"9" * 400 + b"}}")
        else:
            whole = line({"method": "fast", "params": {"t": number, "g": []}})[:-1]
            lines.append(whole[: chance.randrange(len(whole))])
    data = b"\n".join(part.replace(b"\n", b"") for part in lines) + b"\n"
    last = line({"method": "note", "params": {"text": "still here"}})
    channel = Script(begun(*[data[i : i + 70_001] for i in range(0, len(data), 70_001)], last))
    channel.holding = True
    client, told = await started(channel)
    assert await told.until("note") == {"text": "still here"}
    assert client.garbage_lines > 8_000
    await client.close()


async def test_a_line_without_an_end_is_bounded() -> None:
    endless = [b"x" * 400_000] * 20
    last = line({"method": "note", "params": {"text": "after"}})
    channel = Script(begun(*endless, b"\n", last))
    channel.holding = True
    client, told = await started(channel)
    await told.until("note")
    assert client.garbage_lines == 1
    await client.close()


async def test_a_handler_that_fails_ends_nothing() -> None:
    told = Told()

    def handler(method: str, params: Mapping[str, object]) -> None:
        told(method, params)
        if method == "fast":
            raise ZeroDivisionError

    channel = Script(
        begun(line({"method": "fast", "params": {}}), line({"method": "note", "params": {}}))
    )
    channel.holding = True
    client = AgentClient(ScriptTransport(channel), on_notification=handler, pynvml_source="pass\n")
    await client.start(5.0)
    await told.until("note")
    assert client.handler_errors == 1
    assert "ZeroDivisionError" in client.handler_error
    await client.close()


async def test_a_lost_link_is_told_in_its_words() -> None:
    channel = Script(begun())
    channel.error = LinkError("the link was lost", "no answer to keepalives")
    client, _ = await started(channel)
    assert await client.closed() == "the link was lost: no answer to keepalives"
    await client.close()


async def test_a_link_lost_at_the_start_stays_a_lost_link() -> None:
    channel = Script([b"motd\n"])
    channel.error = LinkError("the link was lost")
    with pytest.raises(LinkError, match="the link was lost"):
        await started(channel)


async def test_a_crash_is_told_by_its_last_words() -> None:
    channel = Script(begun(), status=1, stderr="Traceback ...\n  File x\nMemoryError: no\n")
    client, _ = await started(channel)
    assert await client.closed() == "the agent ended with status 1: MemoryError: no"
    await client.close()


@pytest.mark.parametrize(
    ("status", "stderr", "kind", "words"),
    [
        (127, "bash: line 1: exec: python3: not found", PythonMissing, "no python3"),
        (127, "fish: Unknown command: python3", PythonMissing, "no python3"),
        (1, "exec: python3: No such file or directory", PythonMissing, "no python3"),
        (126, "bash: /usr/bin/python3: Permission denied", AgentError, "may not be run"),
        (1, "AttributeError: 'file' object has no attribute 'buffer'", PythonTooOld, "too old"),
        (1, "This account is currently not available.", AgentError, "did not start"),
        (1, "mesg: not found\nsomething else", AgentError, "did not start"),
        (None, "", AgentError, "did not start"),
    ],
)
async def test_why_it_did_not_start(
    status: int | None, stderr: str, kind: type[AgentError], words: str
) -> None:
    error = await refused(Script([b"motd\n"], status=status, stderr=stderr))
    assert type(error) is kind
    assert words in error.title
    assert error.hint


async def test_a_marker_that_never_comes_shows_what_came() -> None:
    channel = Script([b"Please choose a menu entry:\n1) shell\n"])
    channel.holding = True
    client = AgentClient(ScriptTransport(channel), on_notification=Told(), pynvml_source="pass\n")
    with pytest.raises(AgentError, match="did not come up") as caught:
        await client.start(0.2)
    assert "1) shell" in caught.value.detail
    await client.close()


async def test_a_crash_after_the_marker_is_a_crash() -> None:
    error = await refused(
        Script([loader.MARKER + b"\n"], status=1, stderr="ImportError: no zlib\n")
    )
    assert "crashed" in error.title
    assert "ImportError: no zlib" in error.detail


async def test_a_program_that_is_not_there() -> None:
    client = AgentClient(
        LocalTransport(), python="/no/such/python3", on_notification=Told(), pynvml_source=FAKE
    )
    with pytest.raises(PythonMissing):
        await client.start(DEADLINE_S)
    await client.close()


async def test_an_old_python_says_so(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text(
        f"#!{sys.executable}\nimport sys\nsys.version_info = (3, 6, 15, 'final', 0)\n"
        "exec(sys.argv[-1])\n"
    )
    old.chmod(0o755)
    client = AgentClient(
        LocalTransport(), python=str(old), on_notification=Told(), pynvml_source=FAKE
    )
    with pytest.raises(PythonTooOld) as caught:
        await client.start(DEADLINE_S)
    assert caught.value.detail == "3.6.15"
    await client.close()


async def test_an_area_is_sent_when_first_asked(start: Start) -> None:
    room: Room = await start()
    assert "selftest.echo" not in room.client.methods
    answers = await asyncio.gather(
        *(room.client.request("selftest.echo", {"value": n}) for n in range(20))
    )
    assert answers == list(range(20))
    assert "selftest.echo" in room.client.methods
    with pytest.raises(AgentError) as caught:
        await room.client.request("selftest.fail", {"words": "no space left", "data": "/dev/sda"})
    assert (caught.value.title, caught.value.detail) == ("no space left", "/dev/sda")
    # A request that waits holds up no other.
    slow = asyncio.create_task(room.client.request("selftest.sleep", {"seconds": 1.0}, 20.0))
    assert await room.client.request("selftest.echo", {"value": "ü\n\x1b"}) == "ü\n\x1b"
    assert not slow.done()
    assert await slow == {"slept": True}


async def test_a_stream_comes_whole_and_in_order(start: Start) -> None:
    room: Room = await start()
    numbers = []
    async for piece in room.client.stream("selftest.count", {"to": 500, "size": 2000}):
        assert isinstance(piece, dict)
        numbers.append(piece["n"])
    assert numbers == list(range(500))
    with pytest.raises(AgentError, match="failed"):
        async for _ in room.client.stream("selftest.count", {"to": 1, "fail": True}):
            pass


async def test_a_slow_reader_slows_the_producer(start: Start) -> None:
    room: Room = await start()
    async with contextlib.aclosing(
        room.client.stream("selftest.count", {"to": 100_000, "size": 1000})
    ) as stream:
        await anext(stream)
        await asyncio.sleep(0.5)
        (queue,) = room.client._streams.values()
        assert queue.qsize() <= 20


async def test_leaving_a_stream_ends_it_there(start: Start) -> None:
    room: Room = await start()
    async with contextlib.aclosing(room.client.stream("selftest.wait")) as stream:
        await anext(stream)
    for _ in range(600):
        if await room.client.request("selftest.ended"):
            return
        await asyncio.sleep(0.05)
    pytest.fail("the producer did not hear of it")


async def test_the_end_of_the_agent_ends_requests_and_streams(start: Start) -> None:
    room: Room = await start()
    waiting = asyncio.create_task(room.client.request("selftest.sleep", {"seconds": 50}, 60.0))
    stream = room.client.stream("selftest.wait")
    await anext(stream)
    await room.client.close()
    with pytest.raises(AgentError, match="gone"):
        await waiting
    with pytest.raises(AgentError, match="gone"):
        await anext(stream)


async def test_cancelling_a_start_leaves_nothing(tmp_path: Path) -> None:
    transport = LocalTransport()
    script = tmp_path / "silent"
    script.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    script.chmod(0o755)
    client = AgentClient(transport, python=str(script), on_notification=Told(), pynvml_source=FAKE)
    task = asyncio.create_task(client.start(60.0))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await client.closed() == "closed here"
    assert all("agent" not in (t.get_name()) for t in asyncio.all_tasks())


@pytest.mark.real
@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish"])
async def test_the_stub_means_the_same_in_every_shell(shell: str) -> None:
    """What sshd does: the login shell gets one string."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    quoted = " ".join(f"'{word}'" for word in loader.agent_argv(sys.executable))
    process = await asyncio.create_subprocess_exec(
        shell, "-c", f"exec {quoted}",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(loader.build_payload(FAKE)), DEADLINE_S)
    assert process.returncode == 0
    assert b'"method":"hello"' in out


@given(st.lists(st.binary(max_size=50), max_size=30))
def test_the_splitter_gives_every_line_whatever_the_chunks(chunks: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [piece for chunk in chunks for piece in splitter.feed(chunk)]
    assert lines == b"".join(chunks).split(b"\n")[:-1]
    assert splitter.dropped == 0


def test_the_splitter_drops_a_long_line_and_goes_on() -> None:
    splitter = LineSplitter()
    got = list(splitter.feed(b"a\n" + b"x" * (MAX_LINE + 1)))
    got += list(splitter.feed(b"yyy\nb\n"))
    assert got == [b"a", b"b"]
    assert splitter.dropped == 1


@given(st.binary(max_size=200), st.integers(min_value=1, max_value=40))
def test_the_marker_is_found_across_chunks(noise: bytes, size: int) -> None:
    marker = b"@@mark@@"
    data = noise.replace(b"@@mark@@", b"") + b"\n" + marker + b"\nrest"
    finder = MarkerFinder(marker)
    rest = b"".join(finder.feed(data[i : i + size]) for i in range(0, len(data), size))
    assert rest == b"rest"


@given(st.binary(max_size=300))
def test_parse_never_raises(data: bytes) -> None:
    result = parse(data)
    assert result is None or isinstance(result, dict)
