"""Commands of this host, from argument vectors: run one, follow what one prints, or talk to one.

Every child has a process group of its own, which ends with the request, with its deadline, and
with the agent. Nothing passes through a shell.
"""

from __future__ import annotations

import base64
import os
import select
import signal
import subprocess
import threading
import time
import zlib
from typing import Any, Dict, List, Optional, Set

from . import files, rpc

MAX_OUTPUT = 4 * 1024 * 1024

MAX_TAIL = 8192

Params = Dict[str, Any]
Talks = Dict[str, "subprocess.Popen[bytes]"]
"""Commands that are talked to, by the name that whoever talks has given."""


class Children:
    """The process groups that must not outlive the agent."""

    def __init__(self) -> None:
        self._groups: Set[int] = set()
        self._lock = threading.Lock()

    def start(
        self, argv: List[str], params: Params, stdin: int, stderr: int = subprocess.PIPE
    ) -> "subprocess.Popen[bytes]":
        """Start a child in a group of its own.

        Raises:
            OSError: It can't be executed.
        """
        env = dict(os.environ)
        env.update({str(k): str(v) for k, v in (params.get("env") or {}).items()})
        env.setdefault("LC_ALL", "C.UTF-8")
        child = subprocess.Popen(
            argv, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr,
            cwd=params.get("cwd"), env=env, start_new_session=True, close_fds=True,
        )  # fmt: skip
        with self._lock:
            self._groups.add(child.pid)
        return child

    def end(self, child: "subprocess.Popen[bytes]") -> int:
        """End a child's whole group, and reap it."""
        _kill_group(child.pid)
        with self._lock:
            self._groups.discard(child.pid)
        return child.wait()

    def finish(self, child: "subprocess.Popen[bytes]") -> int:
        """A child that ended by itself: reap it, leave what it started alone."""
        with self._lock:
            self._groups.discard(child.pid)
        return child.wait()

    def end_all(self) -> None:
        """The agent leaves."""
        with self._lock:
            groups = list(self._groups)
        for group in groups:
            _kill_group(group)


def register(agent: Any) -> None:
    """Add the methods."""
    children = Children()
    agent.on_end(children.end_all)
    agent.methods.add("commands.run", lambda params: run(params, children), threaded=True)
    agent.methods.add_stream(
        "commands.follow", lambda params, stream: follow(params, stream, children)
    )
    talks = {}  # type: Talks
    agent.methods.add_stream(
        "commands.talk", lambda params, stream: talk(params, stream, children, talks)
    )
    agent.methods.add("commands.say", lambda params: say(params, talks), threaded=True)


def run(params: Params, children: Children) -> Dict[str, Any]:
    """Run a command to its end.

    Args:
        params: `argv`, and at will `timeout_s` (60), `input` (text), `env`, `cwd`, `max_bytes`.
        children: Who ends it when the agent leaves.

    Returns:
        `code` (negative: a signal), `out`, `err` (text, cut in front when too long), `took_s`,
        `timed_out`; or `missing` (the kernel's words) where it could not be executed.
    """
    argv = _argv(params)
    limit = min(MAX_OUTPUT, int(params.get("max_bytes", 1024 * 1024)))
    timeout_s = min(3600.0, max(0.1, float(params.get("timeout_s", 60.0))))
    began = time.monotonic()
    try:
        child = children.start(argv, params, subprocess.PIPE)
    except OSError as error:
        return {"missing": "%s: %s" % (error.filename or argv[0], error.strerror)}
    given = str(params.get("input") or "").encode("utf-8")
    timed_out = False
    try:
        out, err = child.communicate(given, timeout_s)
        code = children.finish(child)
    except subprocess.TimeoutExpired:
        timed_out = True
        code = children.end(child)
        out, err = child.communicate()
    return {
        "code": code,
        "out": out[-limit:].decode("utf-8", "replace"),
        "err": err[-limit:].decode("utf-8", "replace"),
        "took_s": round(time.monotonic() - began, 3),
        "timed_out": timed_out,
    }


def follow(params: Params, stream: rpc.Stream, children: Children) -> None:
    """Send what a command prints until it ends or nobody listens.

    Both of its streams are one pipe, so that its bytes have one order, the same every time.

    Args:
        params: As for `run`.
        stream: Gets `{"z": packed bytes}` and, at the end, `{"code": ...}`.
        children: Who ends it when the agent leaves.
    """
    argv = _argv(params)
    try:
        child = children.start(argv, params, subprocess.DEVNULL, subprocess.STDOUT)
    except OSError as error:
        raise rpc.RpcError("%s: %s" % (error.filename or argv[0], error.strerror)) from None
    assert child.stdout is not None
    code: Optional[int] = None
    try:
        while not stream.closed:
            if not select.select([child.stdout], [], [], 0.2)[0]:
                continue
            data = os.read(child.stdout.fileno(), files.PIECE)
            if not data:
                code = children.finish(child)
                stream.send({"code": code})
                break
            stream.send({"z": files.pack(data)})
    finally:
        if code is None:
            children.end(child)
        child.stdout.close()


def talk(params: Params, stream: rpc.Stream, children: Children, talks: Talks) -> None:
    """Start a command that is spoken to with `say`, and send what it answers until it ends.

    For a host whose sshd allows no session beside this agent's.

    Args:
        params: As for `run`, and `name`: what `say` calls it.
        stream: Gets `{"pid": ...}`, then `{"z": packed bytes}` of its standard output and, at
            the end, `{"code": ..., "err": the last of its standard error}`.
        children: Who ends it when the agent leaves.
        talks: Where it is found by its name.
    """
    argv, name = _argv(params), str(params["name"])
    try:
        child = children.start(argv, params, subprocess.PIPE)
    except OSError as error:
        raise rpc.RpcError("%s: %s" % (error.filename or argv[0], error.strerror)) from None
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    words = [b""]
    listener = threading.Thread(target=_tail, args=(child.stderr, words), daemon=True)
    listener.start()
    talks[name] = child
    code: Optional[int] = None
    try:
        stream.send({"pid": child.pid})
        while not stream.closed:
            if not select.select([child.stdout], [], [], 0.2)[0]:
                continue
            data = os.read(child.stdout.fileno(), files.PIECE)
            if not data:
                code = children.finish(child)
                listener.join(1.0)
                stream.send({"code": code, "err": words[0].decode("utf-8", "replace")})
                break
            stream.send({"z": files.pack(data)})
    finally:
        talks.pop(name, None)
        if code is None:
            children.end(child)
        listener.join(1.0)
        for pipe in (child.stdin, child.stdout, child.stderr):
            try:
                pipe.close()
            except OSError:
                pass  # What nobody has read of its input.


def say(params: Params, talks: Talks) -> bool:
    """Write to the standard input of a command that `talk` has started.

    Args:
        params: `name`, and at will `z` (packed bytes) and `end` (whether that was all).
        talks: Where it is found.

    Returns:
        Whether it was there to take it.
    """
    child = talks.get(str(params["name"]))
    if child is None or child.stdin is None:
        return False
    try:
        if params.get("z"):
            child.stdin.write(zlib.decompress(base64.b64decode(params["z"])))
            child.stdin.flush()
        if params.get("end"):
            child.stdin.close()
    except (OSError, ValueError):
        return False
    return True


def _tail(pipe: Any, words: List[bytes]) -> None:
    """Keep the end of what comes; a full pipe would stop the command."""
    try:
        for data in iter(lambda: os.read(pipe.fileno(), 4096), b""):
            words[0] = (words[0] + data)[-MAX_TAIL:]
    except (OSError, ValueError):
        pass


def _argv(params: Params) -> List[str]:
    argv = params["argv"]
    if not isinstance(argv, list) or not argv or any("\x00" in str(word) for word in argv):
        raise rpc.RpcError("the command must be a list of words", rpc.INVALID_PARAMS)
    return [str(word) for word in argv]


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
