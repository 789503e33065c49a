"""Our side of the agent: starts it through a transport, asks it, and hands on what it says.

Nothing that a host sends can break it: lines are bounded, garbage is counted and skipped, and an
agent that dies or never comes says why in words.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final, Protocol

import msgspec

from backends.agent import failures, loader
from backends.agent.failures import PythonMissing, PythonTooOld
from backends.agent.wire import LineSplitter, MarkerFinder, Message, parse
from backends.clock import SYSTEM_CLOCK, Clock
from backends.errors import AgentError, AgentGone, LinkError, RequestTimeout
from backends.link.base import Channel, Transport
from backends.text import clean

__all__ = ["AgentClient", "NotificationHandler", "PythonMissing", "PythonTooOld", "Source"]

NotificationHandler = Callable[[str, Mapping[str, object]], None]
READ_SIZE: Final = 256 * 1024
CLOSE_S: Final = 3.0
STREAM_QUEUE: Final = 64
MAX_STREAMS: Final = 64


class Source(Protocol):
    """Where a host's telemetry comes from: the agent, a streamed `nvidia-smi`, or neither.

    Attributes:
        via: `agent`, `nvidia-smi` or `tools`.
    """

    via: str

    async def start(self, timeout_s: float) -> None:
        """Get it going; returns when `hello` has been handed on.

        Raises:
            AgentError: It can't be started, and why.
            LinkError: The host can't be reached.
        """
        ...

    async def request(
        self, method: str, params: Mapping[str, object] | None = None, timeout_s: float = 10.0
    ) -> object:
        """Ask, and wait for the answer.

        Raises:
            AgentError: It answered with an error, or is gone.
            RequestTimeout: No answer within `timeout_s`.
        """
        ...

    async def closed(self) -> str:
        """Wait until it has ended and say why, in words."""
        ...

    async def close(self) -> None:
        """End it. Never raises."""
        ...


class AgentClient:
    """The agent on one host.

    Attributes:
        garbage_lines: Lines since the start that were no message.
        handler_errors: Notifications whose handler failed; the last failure is `handler_error`.
        methods: What can be asked, as the agent said.
    """

    via = "agent"

    def __init__(
        self,
        transport: Transport,
        *,
        python: str = "python3",
        on_notification: NotificationHandler,
        clock: Clock = SYSTEM_CLOCK,
        settings: Mapping[str, object] | None = None,
        pynvml_source: str | None = None,
    ) -> None:
        self._transport = transport
        self._python = python
        self._on_notification = on_notification
        self._clock = clock
        self._settings = dict(settings or {})
        self._pynvml_source = pynvml_source
        self._channel: Channel | None = None
        self._reader: asyncio.Task[None] | None = None
        self._write_lock = asyncio.Lock()
        self._finder = MarkerFinder(loader.MARKER)
        self._splitter = LineSplitter()
        self._pending: dict[int, asyncio.Future[object]] = {}
        self._streams: dict[int, asyncio.Queue[Message]] = {}
        self._left_streams: set[int] = set()
        self._loaded: dict[str, asyncio.Future[None]] = {}
        self._next_id = 0
        self._hello = asyncio.Event()
        self._refused: Mapping[str, object] | None = None
        self._ended = asyncio.Event()
        self._end_reason = ""
        self._link_error: LinkError | None = None
        self._closing = False
        self._garbage = 0
        self.handler_errors = 0
        self.handler_error = ""
        self.methods: frozenset[str] = frozenset()

    @property
    def garbage_lines(self) -> int:
        """Lines since the start that were no message, overlong ones included."""
        return self._garbage + self._splitter.dropped

    async def start(self, timeout_s: float) -> None:
        """Send the agent to the host and wait for its hello.

        Raises:
            PythonMissing: There is no such python on the host.
            PythonTooOld: It is older than 3.8.
            AgentError: It could not be started for another reason.
            LinkError: The host can't be reached.
        """
        payload = await asyncio.to_thread(loader.build_payload, self._pynvml_source, self._settings)
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    self._channel = await self._transport.open(loader.agent_argv(self._python))
                except FileNotFoundError as error:
                    raise failures.python_missing(self._python, str(error)) from error
                self._reader = asyncio.create_task(self._read(), name="agent-reader")
                # A program that ends at once (no python) breaks the pipe; its words come later.
                with contextlib.suppress(LinkError, OSError):
                    await self._channel.write(payload)
                await self._wait_for_hello()
        except TimeoutError:
            late = failures.never_came(await self._said(timeout_s=0.0), timeout_s)
            await self.close()
            raise late from None
        except BaseException:
            await self.close()
            raise

    async def request(
        self, method: str, params: Mapping[str, object] | None = None, timeout_s: float = 10.0
    ) -> object:
        """Ask the agent. A method `area.verb` sends its module first where it is not there yet.

        Raises:
            AgentError: It answered with an error, or is gone.
            RequestTimeout: No answer within `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._ensure(method)
                return await self._ask(method, params)
        except TimeoutError:
            raise RequestTimeout(
                f"no answer to {method} within {timeout_s:g} s",
                hint="the host is busy, or the call hangs there",
            ) from None

    async def stream(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        timeout_s: float = 10.0,
    ) -> AsyncGenerator[object]:
        """The pieces of a streaming method, each acknowledged once it was taken.

        The deadline is for its beginning. Leaving the iteration early cancels it on the host
        (use `contextlib.aclosing`).

        Raises:
            AgentError: It ended with an error, or the agent is gone.
            RequestTimeout: It did not begin within `timeout_s`.
        """
        answer = await self.request(method, params, timeout_s)
        number = answer.get("stream") if isinstance(answer, dict) else None
        if not isinstance(number, int):
            raise AgentError(f"{method} is no stream")
        queue = self._streams.setdefault(number, asyncio.Queue())
        ended = asyncio.create_task(self._ended.wait())
        finished = False
        taken: asyncio.Task[Message] | None = None
        try:
            while True:
                taken = asyncio.create_task(queue.get())
                await asyncio.wait({taken, ended}, return_when=asyncio.FIRST_COMPLETED)
                if not taken.done():
                    taken.cancel()
                    raise self._gone()
                message = taken.result()
                if "data" not in message:
                    finished = True
                    if message.get("error"):
                        raise AgentError(f"{method} failed", clean(str(message["error"])))
                    return
                yield message["data"]
                await self._tell("stream_ack", {"id": number, "seq": message.get("seq", 0)})
        finally:
            ended.cancel()
            if taken is not None:
                taken.cancel()
            self._streams.pop(number, None)
            if not finished and not self._ended.is_set():
                self._left_streams.add(number)
                with contextlib.suppress(AgentError, LinkError, OSError):
                    await self._tell("stream_cancel", {"id": number})

    async def closed(self) -> str:
        """Wait until the agent has ended and say why, in words."""
        await self._ended.wait()
        return self._end_reason

    async def close(self) -> None:
        """Give the agent the end of its input, and let go of the channel. Never raises."""
        self._closing = True
        channel, reader = self._channel, self._reader
        self._channel = self._reader = None
        if channel is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_S):
                    await channel.close()
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        self._end("closed here")

    async def _read(self) -> None:
        """Take what comes until it ends; the owner is this client."""
        channel = self._channel
        assert channel is not None
        reason = ""
        try:
            while data := await channel.read(READ_SIZE):
                for line in self._splitter.feed(self._finder.feed(data)):
                    self._take(line)
        except LinkError as error:
            self._link_error = error
            reason = str(error)
        except asyncio.CancelledError:
            self._end("closed here")
            raise
        except Exception as error:
            reason = f"reading failed: {type(error).__name__}: {error}"
        if not reason:
            said = await self._said(timeout_s=1.0)
            reason = failures.why_it_ended(said.status, said.stderr)
        self._end(reason)

    def _take(self, line: bytes) -> None:
        if not line:
            return
        message = parse(line)
        if message is None:
            self._garbage += 1
            return
        method = message.get("method")
        if isinstance(method, str):
            params = message.get("params")
            if isinstance(params, dict):
                self._take_notification(method, params)
            else:
                self._garbage += 1
        elif not self._take_answer(message):
            self._garbage += 1

    def _take_notification(self, method: str, params: Message) -> None:
        if method in ("stream", "stream_end"):
            number = params.get("id")
            if isinstance(number, int):
                self._take_piece(number, params)
            return
        if method == "refused":
            self._refused = params
            self._hello.set()
            return
        if method == "hello":
            methods = params.get("methods")
            if isinstance(methods, list):
                self.methods = frozenset(name for name in methods if isinstance(name, str))
        try:
            self._on_notification(method, params)
        except Exception as error:
            # One bad message, or a bug in its handler, must not end the telemetry of a host.
            self.handler_errors += 1
            self.handler_error = f"{method}: {type(error).__name__}: {error}"
        if method == "hello":
            self._hello.set()

    def _take_piece(self, number: int, params: Message) -> None:
        if number in self._left_streams:
            if "data" not in params:
                self._left_streams.discard(number)  # its producer has heard of it
            return
        queue = self._streams.get(number)
        if queue is None:
            # A piece may come before whoever asked for it has had its turn.
            if len(self._streams) >= MAX_STREAMS:
                return
            queue = self._streams[number] = asyncio.Queue()
        if queue.qsize() <= STREAM_QUEUE:
            queue.put_nowait(params)

    def _take_answer(self, message: Message) -> bool:
        identity = message.get("id")
        if not isinstance(identity, int):
            return False
        future = self._pending.pop(identity, None)
        if future is None or future.done():
            return future is not None or 0 < identity <= self._next_id  # it came too late
        error = message.get("error")
        if isinstance(error, dict):
            detail = error.get("data")
            future.set_exception(
                AgentError(
                    clean(str(error.get("message", "the agent answered with an error"))),
                    "" if detail is None else clean(str(detail)),
                )
            )
        else:
            future.set_result(message.get("result"))
        return True

    async def _ask(self, method: str, params: Mapping[str, object] | None) -> object:
        self._next_id += 1
        identity = self._next_id
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._pending[identity] = future
        try:
            await self._send(
                {"jsonrpc": "2.0", "id": identity, "method": method, "params": params or {}}
            )
            return await future
        finally:
            self._pending.pop(identity, None)

    async def _tell(self, method: str, params: Mapping[str, object]) -> None:
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def _send(self, message: Mapping[str, object]) -> None:
        channel = self._channel
        if channel is None or self._ended.is_set():
            raise self._gone()
        data = msgspec.json.encode(message) + b"\n"
        async with self._write_lock:
            try:
                await channel.write(data)
            except (LinkError, OSError) as error:
                raise AgentGone("the agent is gone", str(error)) from error

    async def _ensure(self, method: str) -> None:
        """Send the module of an `area.verb` method, once."""
        area, dot, _ = method.partition(".")
        if not dot or method in self.methods:
            return
        loading = self._loaded.get(area)
        if loading is not None:
            await asyncio.shield(loading)
            return
        loading = asyncio.get_running_loop().create_future()
        self._loaded[area] = loading
        try:
            answer: object = None
            for name, source in await asyncio.to_thread(loader.pack_area, area):
                answer = await self._ask("load", {"name": name, "source": source})
            methods = answer.get("methods") if isinstance(answer, dict) else None
            if isinstance(methods, list):
                self.methods = frozenset(name for name in methods if isinstance(name, str))
            loading.set_result(None)
        except BaseException as error:
            self._loaded.pop(area, None)
            failure = error if isinstance(error, AgentError) else self._gone()
            loading.set_exception(failure)
            loading.exception()  # it is read here in case nobody else waits
            raise

    async def _wait_for_hello(self) -> None:
        ended = asyncio.create_task(self._ended.wait())
        hello = asyncio.create_task(self._hello.wait())
        try:
            await asyncio.wait({ended, hello}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (ended, hello):
                task.cancel()
        if self._refused is not None:
            raise failures.too_old(self._python, clean(str(self._refused.get("python", "?"))))
        if not self._hello.is_set():
            if self._link_error is not None:
                raise self._link_error
            raise failures.never_started(await self._said(timeout_s=1.0), self._end_reason)

    async def _said(self, timeout_s: float) -> failures.Said:
        """What is known of a start that failed."""
        channel = self._channel
        status: int | None = None
        stderr = ""
        if channel is not None:
            with contextlib.suppress(Exception):
                status = await channel.wait(timeout_s) if timeout_s else None
            with contextlib.suppress(Exception):
                stderr = await channel.stderr_tail()
        return failures.Said(
            self._python, status, stderr, self._finder.noise, marker=self._finder.found
        )

    def _gone(self) -> AgentError:
        return AgentGone("the agent is gone", self._end_reason)

    def _end(self, reason: str) -> None:
        if self._ended.is_set():
            return
        self._end_reason = "closed here" if self._closing else clean(reason)
        self._ended.set()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(self._gone())
                future.exception()  # whoever waits gets it; whoever left need not hear of it
        self._pending.clear()
