"""A streaming server with a known schedule, and every way to misbehave; a process of its own.

The first part of the path says how it behaves (`/plain/v1/chat/completions`, `/cut/...`). It
writes down when it sent each token, on the system clock, so that a client can be compared with
what really left; `GET /log` gives that and forgets it. Run as a program it prints its port.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

ENDLESS = 1 << 30
PAUSE_S = 10.3
"""How long `pause` says nothing in the middle of an answer."""


@dataclass
class Served:
    """What was sent for one request: times in ns of the system clock."""

    received_ns: int
    before_ns: list[int] = field(default_factory=list)
    after_ns: list[int] = field(default_factory=list)
    number: int = 0


@dataclass
class Request:
    """A parsed request."""

    path: str
    body: dict[str, object]
    close: bool
    key: str

    @property
    def tokens(self) -> int:
        value = self.body.get("max_tokens") or self.body.get("n_predict")
        parameters = self.body.get("sampling_params")
        if isinstance(parameters, dict):
            value = parameters.get("max_new_tokens")
        return int(value) if isinstance(value, int) else 16

    @property
    def prompt_tokens(self) -> int:
        prompt = self.body.get("prompt", self.body.get("input_ids"))
        if isinstance(prompt, list):
            return len(prompt)
        messages = self.body.get("messages")
        if isinstance(messages, list):
            return 7 + len(str(messages[0]["content"]).split())
        return len(str(prompt).split())


class Server:
    """The server's state and its behaviours."""

    def __init__(self, ttft_s: float, gap_s: float) -> None:
        self.ttft_s = ttft_s
        self.gap_s = gap_s
        self.log: list[Served] = []
        self.in_flight: Counter[str] = Counter()
        self.aborted = 0
        self.requests = 0
        self.tokens_in = 0
        self.tokens_out = 0
        self.extra_tokens = 0

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until it closes."""
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while (request := await _read(reader)) is not None:
                keep = await self._answer(request, writer)
                if not keep or request.close:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        mode, _, path = request.path.lstrip("/").partition("/")
        if mode in ("v1", "log", "aborted", "open", "metrics", "tokenize", "health"):
            mode, path = "plain", request.path.lstrip("/")
        if path == "log":
            _json(writer, 200, [vars(served) for served in self.log])
            self.log = []
            return True
        if path == "aborted":
            _json(writer, 200, self.aborted)
            return True
        if path == "open":
            _json(writer, 200, self.in_flight[mode])
            return True
        if mode == "keyed" and request.key != "Bearer sesame-1234":
            _json(writer, 401, {"error": "a key, please"})
            return True
        if path == "v1/models":
            owner = mode if mode in ("vllm", "sglang", "llamacpp") else "tests"
            _json(writer, 200, {"data": [{"id": "scheduled", "owned_by": owner}]})
            return True
        if path == "metrics" and mode in ("vllm", "foreign", "busy"):
            self.extra_tokens += 50 if mode in ("foreign", "busy") else 0
            running = self.in_flight[mode] + (3 if mode == "busy" else 0)
            text = (
                "# TYPE vllm:num_requests_running gauge\n"
                f'vllm:num_requests_running{{model_name="scheduled"}} {running}\n'
                f'vllm:num_requests_waiting{{model_name="scheduled"}} 0\n'
                f'vllm:generation_tokens_total{{model_name="scheduled"}} '
                f"{self.tokens_out + self.extra_tokens}\n"
                f'vllm:prompt_tokens_total{{model_name="scheduled"}} {self.tokens_in}\n'
            )
            _reply(writer, 200, "text/plain", text.encode())
            return True
        if path == "tokenize" and mode == "vllm":
            count = len(str(request.body["prompt"]).split()) + 1
            _json(writer, 200, {"count": count, "tokens": list(range(count))})
            return True
        if path == "health" and mode in ("vllm", "sglang", "llamacpp", "starting"):
            _json(writer, 503 if mode == "starting" else 200, {})
            return True
        if not path.startswith(("v1/", "generate", "completion")):
            _json(writer, 404, {"error": "no such route"})
            return True
        self.requests += 1
        if request.body.get("stream") is not True:
            return await self._whole(request, path, writer)
        behaviour: Behaviour = _BEHAVIOURS.get(mode, plain)
        served = Served(time.time_ns(), number=self.requests)
        self.log.append(served)
        self.in_flight[mode] += 1
        self.tokens_in += request.prompt_tokens
        try:
            return await behaviour(Stream(self, request, path, writer, served))
        except (ConnectionError, asyncio.CancelledError):
            self.aborted += 1
            raise
        finally:
            self.in_flight[mode] -= 1

    async def _whole(self, request: Request, path: str, writer: asyncio.StreamWriter) -> bool:
        if request.tokens > 1:
            await asyncio.sleep(self.ttft_s + self.gap_s * (request.tokens - 1))
        usage = {
            "prompt_tokens": request.prompt_tokens,
            "completion_tokens": request.tokens,
            "total_tokens": request.prompt_tokens + request.tokens,
        }
        self.tokens_in += request.prompt_tokens
        self.tokens_out += request.tokens
        text = "t " * request.tokens
        choice: dict[str, object] = {"index": 0, "finish_reason": "length", "text": text}
        if "chat" in path:
            choice = {
                "index": 0,
                "finish_reason": "length",
                "message": {"role": "assistant", "content": text},
            }
        _json(writer, 200, {"choices": [choice], "usage": usage})
        return True


class Stream:
    """One streamed answer, sent piece by piece."""

    def __init__(
        self,
        server: Server,
        request: Request,
        path: str,
        writer: asyncio.StreamWriter,
        served: Served,
    ) -> None:
        self.server = server
        self.request = request
        self.chat = "chat" in path
        self.writer = writer
        self.served = served
        self.n = request.tokens
        self.start = time.monotonic() - (time.time_ns() - served.received_ns) / 1e9
        self.sent = 0
        self.tagged = False
        options = request.body.get("stream_options")
        self.usage = isinstance(options, dict) and bool(options.get("include_usage"))
        self.each = isinstance(options, dict) and bool(options.get("continuous_usage_stats"))

    def head(
        self, status: int = 200, kind: str = "text/event-stream", chunked: bool = True
    ) -> None:
        framing = "transfer-encoding: chunked" if chunked else "connection: close"
        self.writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{framing}\r\n\r\n".encode()
        )

    def event(
        self,
        text: str | None,
        finish: str | None = None,
        *,
        tokens: int = 1,
        reasoning: bool = False,
        role: bool = False,
    ) -> bytes:
        """An event that carries text, and counts its tokens."""
        self.sent += tokens
        if self.chat:
            delta: dict[str, object] = {}
            if role:
                delta["role"] = "assistant"
            if text is not None:
                delta["reasoning_content" if reasoning else "content"] = text
            choice: dict[str, object] = {"index": 0, "delta": delta, "finish_reason": finish}
        else:
            choice = {"index": 0, "text": text or "", "finish_reason": finish}
        fields: dict[str, object] = {"id": "x" * 40, "object": "chunk", "choices": [choice]}
        if self.each:
            fields["usage"] = self.counts()
        return b"data: " + json.dumps(fields, ensure_ascii=False).encode() + b"\n\n"

    def counts(self) -> dict[str, int]:
        asked = self.request.prompt_tokens
        if self.tagged:
            asked = self.served.number  # So that a record can be found in the log.
        return {
            "prompt_tokens": asked,
            "completion_tokens": self.sent,
            "total_tokens": asked + self.sent,
        }

    def end(self) -> bytes:
        """What follows the last token."""
        data = b""
        if self.usage:
            data = (
                b"data: " + json.dumps({"choices": [], "usage": self.counts()}).encode() + b"\n\n"
            )
        return data + b"data: [DONE]\n\n"

    async def due(self, number: int) -> None:
        """Wait until token `number` is due."""
        when = self.start + self.server.ttft_s + number * self.server.gap_s
        await asyncio.sleep(max(0.0, when - time.monotonic()))

    async def token(self, data: bytes, tokens: int = 1, last: bytes = b"") -> None:
        """Send a token event as a chunk, with what follows in the same write, and note when."""
        data = chunk(data) + last
        self.served.before_ns.append(time.time_ns())
        self.writer.write(data)
        self.served.after_ns.append(time.time_ns())
        self.server.tokens_out += tokens
        await self.writer.drain()


Behaviour = Callable[[Stream], Awaitable[bool]]
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def plain(stream: Stream) -> bool:
    stream.head()
    for i in range(stream.n):
        await stream.due(i)
        last = i == stream.n - 1
        data = stream.event(f" t{i}", "length" if last else None)
        await stream.token(data, last=chunk(stream.end()) + LAST_CHUNK if last else b"")
    return True


async def tagged(stream: Stream) -> bool:
    """Its number in the log stands in for the prompt's tokens."""
    stream.tagged = True
    return await plain(stream)


async def no_usage(stream: Stream) -> bool:
    stream.usage = stream.each = False
    return await plain(stream)


async def role_first(stream: Stream) -> bool:
    stream.head()
    stream.writer.write(chunk(stream.event("", role=True, tokens=0)))
    for i in range(stream.n):
        await stream.due(i)
        await stream.token(stream.event(f" t{i}"))
    stream.writer.write(chunk(stream.event(None, "length", tokens=0)) + chunk(stream.end()))
    stream.writer.write(LAST_CHUNK)
    return True


async def bundled(stream: Stream) -> bool:
    """Four tokens an event."""
    stream.head()
    for number, i in enumerate(range(0, stream.n, 4)):
        await stream.due(number)
        count = min(4, stream.n - i)
        last = i + count >= stream.n
        data = stream.event(" a b c d", "length" if last else None, tokens=count)
        end = chunk(stream.end()) + LAST_CHUNK if last else b""
        await stream.token(data, count, end)
    return True


async def reasoning(stream: Stream) -> bool:
    """The first half is reasoning."""
    stream.head()
    for i in range(stream.n):
        await stream.due(i)
        thinks = i < stream.n // 2
        await stream.token(stream.event(f" t{i}", reasoning=thinks))
    stream.writer.write(chunk(stream.event(None, "length", tokens=0)) + chunk(stream.end()))
    stream.writer.write(LAST_CHUNK)
    return True


async def split(stream: Stream) -> bool:
    """Every byte sequence torn apart, inside characters and inside framing."""
    stream.head()
    for i in range(stream.n):
        await stream.due(i)
        last = i == stream.n - 1
        data = chunk(stream.event("žluť \U0001f40e 日本", "length" if last else None))
        if last:
            data += chunk(stream.end()) + LAST_CHUNK
        stream.served.before_ns.append(time.time_ns())
        for at in range(0, len(data), 7):
            stream.writer.write(data[at : at + 7])
            await asyncio.sleep(0)
        stream.served.after_ns.append(time.time_ns())
    return True


async def crlf(stream: Stream) -> bool:
    """CRLF line ends, and comments to keep the connection alive."""
    stream.head()
    stream.writer.write(chunk(b": hello\r\n\r\n"))
    for i in range(stream.n):
        await stream.due(i)
        last = i == stream.n - 1
        data = stream.event(f" t{i}", "length" if last else None)
        await stream.token(b": ping\r\n\r\n" + data.replace(b"\n", b"\r\n"))
    stream.writer.write(chunk(stream.end().replace(b"\n", b"\r\n")) + LAST_CHUNK)
    return True


async def until_close(stream: Stream) -> bool:
    """No chunks, no length: the body ends with the connection."""
    stream.head(chunked=False)
    for i in range(stream.n):
        await stream.due(i)
        data = stream.event(f" t{i}", "length" if i == stream.n - 1 else None)
        stream.served.before_ns.append(time.time_ns())
        stream.writer.write(data)
        stream.served.after_ns.append(time.time_ns())
    stream.writer.write(stream.end())
    return False


def status(code: int) -> Behaviour:
    async def answer(stream: Stream) -> bool:
        _json(stream.writer, code, {"error": {"message": f"status {code}"}})
        return True

    return answer


async def sometimes_busy(stream: Stream) -> bool:
    if stream.server.requests % 3 == 0:
        return await status(429)(stream)
    return await plain(stream)


async def cut(stream: Stream) -> bool:
    stream.head()
    for i in range(stream.n // 2):
        await stream.due(i)
        await stream.token(stream.event(f" t{i}"))
    stream.writer.transport.abort()
    return False


async def endless(stream: Stream) -> bool:
    stream.head()
    for i in range(ENDLESS):
        await asyncio.sleep(0.001)
        await stream.token(stream.event(f" t{i}"))
    return False


async def not_sse(stream: Stream) -> bool:
    _reply(stream.writer, 200, "text/html", b"<html>It works!</html>")
    return True


async def not_json(stream: Stream) -> bool:
    stream.head()
    stream.writer.write(chunk(b"data: <oops>\n\n") + LAST_CHUNK)
    return True


async def bad_chunk(stream: Stream) -> bool:
    stream.head()
    await stream.token(stream.event(" t"))
    stream.writer.write(b"zz\r\nwhat\r\n")
    await asyncio.sleep(1.0)
    return False


async def silent(stream: Stream) -> bool:
    stream.head()
    await stream.due(0)
    await stream.token(stream.event(" t"))
    await asyncio.sleep(60.0)
    return False


async def pause(stream: Stream) -> bool:
    """Silence in the middle of the answer; then it goes on where it was."""
    stream.head()
    for i in range(stream.n):
        if i == stream.n // 2:
            await asyncio.sleep(PAUSE_S)
        await stream.due(i)
        last = i == stream.n - 1
        data = stream.event(f" t{i}", "length" if last else None)
        await stream.token(data, last=chunk(stream.end()) + LAST_CHUNK if last else b"")
    return True


async def mute(stream: Stream) -> bool:
    await asyncio.sleep(60.0)
    return False


async def error_event(stream: Stream) -> bool:
    stream.head()
    for i in range(stream.n // 2):
        await stream.due(i)
        await stream.token(stream.event(f" t{i}"))
    error = {"error": {"message": "the engine is dead", "code": 500}}
    stream.writer.write(chunk(b"data: " + json.dumps(error).encode() + b"\n\n"))
    stream.writer.write(chunk(b"data: [DONE]\n\n") + LAST_CHUNK)
    return True


async def early_stop(stream: Stream) -> bool:
    """EOS after 40 % of what was asked for."""
    stream.n = max(1, stream.n * 2 // 5)
    return await plain(stream)


async def no_finish(stream: Stream) -> bool:
    stream.head()
    for i in range(stream.n):
        await stream.due(i)
        await stream.token(stream.event(f" t{i}"))
    stream.writer.write(chunk(stream.end()) + LAST_CHUNK)
    return True


async def idle_close(stream: Stream) -> bool:
    """Closes the connection behind each answer without a word."""
    await plain(stream)
    return False


_BEHAVIOURS: dict[str, Behaviour] = {
    "tagged": tagged,
    "no-usage": no_usage,
    "role": role_first,
    "bundled": bundled,
    "reasoning": reasoning,
    "split": split,
    "crlf": crlf,
    "until-close": until_close,
    "429": status(429),
    "503": status(503),
    "500": status(500),
    "sometimes-429": sometimes_busy,
    "cut": cut,
    "endless": endless,
    "not-sse": not_sse,
    "not-json": not_json,
    "bad-chunk": bad_chunk,
    "silent": silent,
    "mute": mute,
    "pause": pause,
    "error-event": error_event,
    "early-stop": early_stop,
    "no-finish": no_finish,
    "idle-close": idle_close,
}


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(
        path=lines[0].split(" ")[1],
        body=json.loads(body) if body else {},
        close="close" in headers.get("connection", ""),
        key=headers.get("authorization", ""),
    )


def _json(writer: asyncio.StreamWriter, code: int, value: object) -> None:
    _reply(writer, code, "application/json", json.dumps(value).encode())


def _reply(writer: asyncio.StreamWriter, code: int, kind: str, body: bytes) -> None:
    writer.write(
        f"HTTP/1.1 {code} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    )


async def main(ttft_s: float, gap_s: float, certificate: str | None = None) -> None:
    server = Server(ttft_s, gap_s)
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
    listener = await asyncio.start_server(
        server.connection, "127.0.0.1", 0, backlog=4096, limit=1 << 24, ssl=context
    )
    print(listener.sockets[0].getsockname()[1], flush=True)
    # The test's end of standard input closing is the end.
    await asyncio.to_thread(sys.stdin.buffer.read)
    os._exit(0)  # Streams that are still being served end here.


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]))
