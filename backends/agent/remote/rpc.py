"""Requests in, answers out: the method table, and replies that come as a stream.

A method is a function of its params. Quick ones run at once on the thread that reads standard
input; whatever may wait is added with `threaded=True` and gets a thread to itself, which can be
abandoned. A streaming method also gets a `Stream`, whose `send` waits while the far side has not
acknowledged enough: a slow reader slows the producer, and nothing piles up in between.
"""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from .hands import Hands
from .outbox import INTERNAL_ERROR, Outbox

INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
FAILED = -32000
BUSY = -32001

MAX_LINE = 8 * 1024 * 1024
MAX_THREADS = 32
STREAM_WINDOW = 16

Params = Dict[str, Any]


class RpcError(Exception):
    """What a method raises to answer with an error in words of its own."""

    def __init__(self, message: str, code: int = FAILED, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class StreamClosed(Exception):
    """The far side wants no more of this stream."""


class Stream:
    """A reply in pieces, at most `STREAM_WINDOW` of them unacknowledged."""

    def __init__(self, number: int, outbox: Outbox) -> None:
        self.number = number
        self._outbox = outbox
        self._sent = 0
        self._acked = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def closed(self) -> bool:
        """Whether the far side wants no more."""
        return self._closed

    def send(self, data: Any) -> None:
        """Send the next piece; waits for acknowledgements.

        Raises:
            StreamClosed: The far side cancelled.
        """
        with self._changed:
            while self._sent - self._acked >= STREAM_WINDOW and not self._closed:
                self._changed.wait()
            if self._closed:
                raise StreamClosed()
            self._sent += 1
            self._outbox.notify("stream", {"id": self.number, "seq": self._sent, "data": data})

    def wait_closed(self, timeout_s: float) -> bool:
        """Wait for the far side to cancel: the sleep of a producer that follows something."""
        with self._changed:
            return self._closed or self._changed.wait_for(lambda: self._closed, timeout_s)

    def ack(self, seq: int) -> None:
        """The far side has taken everything up to `seq`."""
        with self._changed:
            self._acked = max(self._acked, min(seq, self._sent))
            self._changed.notify_all()

    def close(self) -> None:
        """The far side cancelled."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class _Method(NamedTuple):
    function: Callable[..., Any]
    threaded: bool
    streaming: bool


class Dispatcher:
    """The method table of the agent."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._methods: Dict[str, _Method] = {}
        self._streams: Dict[int, Stream] = {}
        self._stream_count = 0
        self._running = 0
        self._hands = Hands()
        self._lock = threading.Lock()
        self.add("stream_ack", self._stream_ack)
        self.add("stream_cancel", self._stream_cancel)

    def add(self, name: str, function: Callable[[Params], Any], threaded: bool = False) -> None:
        """Answer `name` with what `function(params)` gives."""
        self._methods[name] = _Method(function, threaded, False)

    def add_stream(self, name: str, function: Callable[[Params, Stream], None]) -> None:
        """Answer `name` with a stream that `function(params, stream)` feeds; its return ends it."""
        self._methods[name] = _Method(function, True, True)

    def names(self) -> List[str]:
        """What can be asked."""
        return sorted(self._methods)

    def handle(self, line: bytes) -> None:
        """Carry out one line; whatever is wrong with it is answered, never raised."""
        try:
            message = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        identity = message.get("id")
        name = message.get("method")
        params = message.get("params")
        if params is None:
            params = {}
        if not isinstance(name, str) or not isinstance(params, dict):
            self._answer_error(identity, RpcError("not a request", INVALID_REQUEST))
            return
        method = self._methods.get(name)
        if method is None:
            self._answer_error(identity, RpcError("no method " + name[:80], METHOD_NOT_FOUND))
        elif not method.threaded:
            self._call(method.function, (params,), identity)
        else:
            self._start(method, params, identity)

    def close_streams(self) -> None:
        """End every stream: its producer gets `StreamClosed`."""
        with self._lock:
            streams = list(self._streams.values())
        for stream in streams:
            stream.close()

    def _start(self, method: _Method, params: Params, identity: Any) -> None:
        with self._lock:
            busy = self._running >= MAX_THREADS
            if not busy:
                self._running += 1
        if busy:
            text = "%d requests are already running here" % MAX_THREADS
            self._answer_error(identity, RpcError(text, BUSY))
            return
        target = self._run_stream if method.streaming else self._run_call
        self._hands.do(lambda: target(method, params, identity))

    def _run_call(self, method: _Method, params: Params, identity: Any) -> None:
        try:
            self._call(method.function, (params,), identity)
        finally:
            with self._lock:
                self._running -= 1

    def _run_stream(self, method: _Method, params: Params, identity: Any) -> None:
        with self._lock:
            self._stream_count += 1
            stream = Stream(self._stream_count, self._outbox)
            self._streams[stream.number] = stream
        error: Optional[str] = None
        try:
            self._answer(identity, {"stream": stream.number})
            method.function(params, stream)
        except StreamClosed:
            pass
        except RpcError as problem:
            error = problem.message
        except Exception as problem:
            error = describe(problem)
        finally:
            with self._lock:
                self._running -= 1
                self._streams.pop(stream.number, None)
            self._outbox.notify("stream_end", {"id": stream.number, "error": error})

    def _call(self, function: Callable[..., Any], arguments: Any, identity: Any) -> None:
        try:
            result = function(*arguments)
            if identity is not None:
                self._answer(identity, result)
        except RpcError as error:
            self._answer_error(identity, error)
        except (KeyError, TypeError, ValueError) as error:
            self._answer_error(identity, RpcError(describe(error), INVALID_PARAMS))
        except Exception as error:
            self._answer_error(identity, RpcError(describe(error), INTERNAL_ERROR))

    def _answer(self, identity: Any, result: Any) -> None:
        self._outbox.send({"jsonrpc": "2.0", "id": identity, "result": result})

    def _answer_error(self, identity: Any, error: RpcError) -> None:
        if identity is None:
            return
        body: Dict[str, Any] = {"code": error.code, "message": error.message}
        if error.data is not None:
            body["data"] = error.data
        self._outbox.send({"jsonrpc": "2.0", "id": identity, "error": body})

    def _stream_ack(self, params: Params) -> bool:
        stream = self._streams.get(params.get("id", 0))
        if stream is not None:
            stream.ack(int(params.get("seq", 0)))
        return stream is not None

    def _stream_cancel(self, params: Params) -> bool:
        stream = self._streams.get(params.get("id", 0))
        if stream is not None:
            stream.close()
        return stream is not None


def describe(error: BaseException) -> str:
    """An exception in one line of words."""
    text = str(error) or error.__class__.__name__
    if isinstance(error, KeyError):
        text = "missing %s" % text
    return "%s: %s" % (error.__class__.__name__, text)
