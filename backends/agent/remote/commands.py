"""Commands of this host, from argument vectors: run one, or follow what one prints.

Every child has a process group of its own, which ends with the request, with its deadline, and
with the agent. Nothing passes through a shell.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from typing import Any, Dict, List, Optional, Set

from . import files, rpc

MAX_OUTPUT = 4 * 1024 * 1024

Params = Dict[str, Any]


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
