"""Transient units of systemd, whose environment nobody else can read.

What is given with `--setenv` can be read by every user of the host, in the command line and in the
unit's properties. So the environment goes through a file in a folder of its own, which only this
user can open, and which is gone as soon as the server has been started.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from typing import Any, Dict, Iterator, List, Sequence

from . import rpc

FOLDER = "gpuroom-environment-"
STALE_S = 600.0
WAITS = ("--property=Type=exec",)
"""systemd-run returns when the program runs, or says why it can't be executed."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Params = Dict[str, Any]


def register(agent: Any) -> None:
    """Add the methods."""
    agent.methods.add("units.start", start, threaded=True)
    agent.methods.add("units.plan", plan)


def start(params: Params) -> Dict[str, Any]:
    """Run `systemd-run` for a server.

    Args:
        params: `options` (of systemd-run), `argv` of the server, `env`; `cwd` and `log`
            (paths, `~/` is this user's home), `timeout_s`.

    Returns:
        As for `commands.run`: `code`, `out`, `err`, or `missing`.
    """
    env = {str(name): str(value) for name, value in (params.get("env") or {}).items()}
    with environment_file(env) as path:
        answer = _run(vector(params, path), params)
        if re.search(r"(?i)service type|property type", answer.get("err", "")):  # before 240
            answer = _run(vector(params, path, waits=()), params)
        return answer


def plan(params: Params) -> List[str]:
    """The argument vector that `start` would run; its file is there only while that lasts."""
    return vector(params, os.path.join(runtime(), FOLDER + "...", "environment"))


def vector(params: Params, environment: str, waits: Sequence[str] = WAITS) -> List[str]:
    """The argument vector of systemd-run, with the file that holds the environment."""
    head = ["systemd-run", *(str(word) for word in params["options"])]
    head.append("--property=EnvironmentFile=%s" % environment)
    if params.get("cwd"):
        head.append("--working-directory=%s" % os.path.expanduser(str(params["cwd"])))
    if params.get("log"):
        log = os.path.expanduser(str(params["log"]))
        head += ["--property=Standard%s=append:%s" % (name, log) for name in ("Output", "Error")]
    # A service's command has its variables expanded; `$$` is a plain dollar sign.
    return [*head, *waits, "--", *(str(word).replace("$", "$$") for word in params["argv"])]


@contextlib.contextmanager
def environment_file(env: Dict[str, str]) -> Iterator[str]:
    """A file for `EnvironmentFile=`, which is gone afterwards."""
    place = runtime()
    _sweep(place)
    folder = tempfile.mkdtemp(prefix=FOLDER, dir=place)
    try:
        path = os.path.join(folder, "environment")
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(environment_text(env).encode("utf-8", "surrogateescape"))
        yield path
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment_text(env: Dict[str, str]) -> str:
    """An environment as systemd reads it (systemd.exec(5), EnvironmentFile=).

    Raises:
        RpcError: A name or a value that systemd would pass over.
    """
    lines = []
    for name, value in env.items():
        if not VARIABLE.fullmatch(name):
            raise rpc.RpcError("%r is no environment variable" % name, rpc.INVALID_PARAMS)
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", value):
            raise rpc.RpcError(
                "the value of %s holds control characters, which systemd refuses" % name,
                rpc.INVALID_PARAMS,
            )
        lines.append('%s="%s"\n' % (name, re.sub(r'(["\\`$])', r"\\\1", value)))
    return "".join(lines)


def runtime() -> str:
    """Where this user's short-lived files go: in memory, where there is such a place."""
    uid = os.getuid()
    known = "/run" if uid == 0 else os.environ.get("XDG_RUNTIME_DIR") or "/run/user/%d" % uid
    return known if os.access(known, os.W_OK) else tempfile.gettempdir()


def _sweep(place: str) -> None:
    """Take away what an agent left that was killed at it."""
    for entry in os.scandir(place):
        with contextlib.suppress(OSError):
            info = entry.stat(follow_symlinks=False)
            mine = entry.name.startswith(FOLDER) and info.st_uid == os.getuid()
            if mine and time.time() - info.st_mtime > STALE_S:
                shutil.rmtree(entry.path, ignore_errors=True)


def _run(argv: List[str], params: Params) -> Dict[str, Any]:
    timeout_s = min(600.0, float(params.get("timeout_s", 60.0)))
    env = dict(os.environ, LC_ALL="C.UTF-8")
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=timeout_s, env=env, check=False,
        )  # fmt: skip
    except OSError as error:
        return {"missing": "%s: %s" % (error.filename or argv[0], error.strerror)}
    except subprocess.TimeoutExpired:
        return {"code": None, "timed_out": True, "out": "", "err": "no answer in %d s" % timeout_s}
    return {
        "code": done.returncode,
        "out": done.stdout.decode("utf-8", "replace"),
        "err": done.stderr.decode("utf-8", "replace"),
        "timed_out": False,
    }
