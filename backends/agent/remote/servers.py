"""Servers on this host: start, list, look at, stop. What is started here outlives the agent."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional

from . import (
    cgroups,
    holds,
    ladder,
    mask,
    members,
    nearby,
    ports,
    rpc,
    runs,
    stopnote,
    strangers,
    supervisor,
)

START_WAIT_S = 20.0
LEAVING_WAIT_S = 10.0
RECORDED_CHARS = 32768
"""Of an argument vector in the record of a run, and as many of its environment."""
STUB = "import sys;n=int(sys.argv[3]);exec(compile(sys.stdin.read(n),'gpuroom-supervisor','exec'))"

Params = Dict[str, Any]


def register(agent: Any) -> None:
    """Add the methods.

    A host may list its processes elsewhere than in /proc (setting `proc_root`): then whatever else
    runs on the machine below it is none of its servers.
    """
    proc_root = str(agent.settings.get("proc_root", "/proc"))
    agent.methods.add("servers.start", start, threaded=True)
    agent.methods.add(
        "servers.list", lambda params: runs.list_runs(params, proc_root), threaded=True
    )
    agent.methods.add("servers.look", look, threaded=True)
    agent.methods.add("servers.check", lambda params: check(params, proc_root), threaded=True)
    begun = ladder.Begun()
    agent.on_end(begun.hand_over)
    agent.methods.add_stream("servers.stop", lambda params, stream: stop(params, stream, begun))
    held = holds.Holds()
    agent.methods.add_stream("servers.hold", held.hold)
    agent.methods.add("servers.let_go", held.let_go, threaded=True)
    strangers.register(agent)


def start(params: Params) -> Dict[str, Any]:
    """Start a server under a supervisor of its own.

    Args:
        params: `profile`, `run_id`, `argv`, `env`, `cwd`, `log` (path or None), `by`, `origin`.

    Returns:
        One of `started` (the record), `busy` (who holds the profile, with processes that are
        `left` where its main one has ended) or `failed` (errno, text, path).
    """
    profile, run_id = runs.checked_name(params["profile"]), runs.checked_name(params["run_id"])
    argv = [str(word) for word in params["argv"]]
    if not argv or any("\x00" in word for word in argv):
        raise rpc.RpcError("the command is empty or holds a NUL", rpc.INVALID_PARAMS)
    env = {str(key): str(value) for key, value in (params.get("env") or {}).items()}
    env.update({members.MARKER: run_id, "SPT_NOENV": "1"})
    env.setdefault("PYTHONUNBUFFERED", "1")
    home = os.path.join(runs.root(), profile)
    place = os.path.join(home, run_id)
    cwd = os.path.expanduser(params["cwd"]) if params.get("cwd") else None
    log = params.get("log") or os.path.join(place, "server.log")
    spec = {
        "argv": argv,
        "env": env,
        "cwd": cwd,
        "dir": place,
        "log": os.path.expanduser(log),
        "lock": os.path.join(home, "lock"),
        "run_id": run_id,
        "cgroup_parents": cgroups.parents(),
        "holder": {"by": params.get("by"), "origin": params.get("origin"), "at": time.time(),
                   "run_id": run_id},
        "record": {
            "profile": profile,
            "boot_id": members.boot_id(),
            "argv": _bounded(mask.argv(argv)),
            "env": _bounded_values(mask.environment(env)),
            "cwd": cwd,
            "port": params.get("port"),
            "engine": params.get("engine"),
            "by": params.get("by"),
            "origin": params.get("origin"),
            "memory_before": params.get("memory_before"),
        },
    }  # fmt: skip
    os.makedirs(home, mode=0o755, exist_ok=True)
    runs.prune(home)
    deadline = time.monotonic() + LEAVING_WAIT_S
    while True:
        alone = _unsupervised(home)
        answer = {"busy": alone} if alone else _launch(place, spec)
        holder = answer.get("busy")
        if holder is None:
            return answer
        # Right after its end a run still holds the profile, until all of it is reaped.
        before = runs.state(os.path.join(home, str(holder.get("run_id") or "-")))
        if before is None or before["alive"]:
            return answer
        left = runs.left_over(before)
        if left or time.monotonic() >= deadline:
            holder["left"] = [members.describe(member) for member in left]
            return answer
        time.sleep(0.1)


def _bounded(words: List[str]) -> List[str]:
    """Words for a record, which must stay readable: no more than `RECORDED_CHARS` of them."""
    kept: List[str] = []
    room = RECORDED_CHARS
    for word in words:
        if len(word) > room:
            return [*kept, word[:room] + "..."]
        kept.append(word)
        room -= len(word)
    return kept


def _bounded_values(values: Dict[str, str]) -> Dict[str, str]:
    """Variables for a record, the short ones first: no more than `RECORDED_CHARS` of them."""
    kept: Dict[str, str] = {}
    room = RECORDED_CHARS
    for name, value in sorted(values.items(), key=lambda pair: len(pair[0]) + len(pair[1])):
        room -= len(name) + 1  # one more, so that empty ones end somewhere, too
        if room <= 0:
            break
        kept[name] = value if len(value) <= room else value[:room] + "..."
        room -= len(value)
    return kept


def _unsupervised(home: str) -> Optional[Dict[str, Any]]:
    """Who started a server that still lives and whose supervisor, with the lock, was killed."""
    for run in runs.folders(home):
        found = runs.state(os.path.join(home, run))
        if found is not None and found["alive"] and not found["supervised"]:
            record = found["record"]
            who = {key: record.get(key) for key in ("by", "origin", "run_id")}
            return dict(who, at=record.get("started_at"))
    return None


def _launch(place: str, spec: Dict[str, Any]) -> Dict[str, Any]:
    """Start a supervisor and give its first word."""
    source = supervisor.__loader__.get_source(supervisor.__name__)  # type: ignore[union-attr]
    child = subprocess.Popen(
        [sys.executable, "-c", STUB, runs.TITLE, place, str(len(source))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True, close_fds=True, cwd="/",
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(source.encode("utf-8") + json.dumps(spec).encode("utf-8"))
    child.stdin.close()
    line = _read_line(child.stdout, START_WAIT_S)
    child.stdout.close()
    child.wait(START_WAIT_S)  # the supervisor proper is its child, and by now nobody's but init's
    try:
        answer = json.loads(line)
    except ValueError:
        raise rpc.RpcError("the supervisor said nothing within %d s" % START_WAIT_S) from None
    return dict(answer)


def look(params: Params) -> Dict[str, Any]:
    """One run now: alive, its members, CPU and disk use so far, who has its port, how it ended."""
    state = runs.state(str(params["dir"]))
    if state is None:
        raise rpc.RpcError("there is no such run here")
    record = state["record"]
    key = (record["pid"], record["start_ticks"])
    found = nearby.scan(key, lambda: record, deep=bool(params.get("deep")))
    ticks = float(os.sysconf("SC_CLK_TCK"))
    state["members"] = [members.describe(member) for member in found]
    state["cpu_s"] = sum(member.cpu_ticks for member in found) / ticks
    state["read_bytes"] = members.io_bytes([member.pid for member in found])
    port = params.get("port") or record.get("port")
    if port:
        state["port"] = ports.owner(int(port), likely=[member.pid for member in found])
    with contextlib.suppress(OSError):
        info = os.stat(record["log"])
        state["log"] = {"device": info.st_dev, "inode": info.st_ino, "size": info.st_size}
    return state


def check(params: Params, proc_root: str = "/proc") -> Dict[str, Any]:
    """What could be in the way of a start, read and not judged.

    Args:
        params: `argv`, `cwd`, `port`, `paths` (model and log places), `profile`.
        proc_root: Where runs of other users are looked for.
    """
    # MAX_ARG_STRLEN of Linux: 32 pages, the zero at the end among them.
    answer: Dict[str, Any] = {"word_bytes": 32 * os.sysconf("SC_PAGE_SIZE") - 1}
    if params.get("port"):
        answer["port"] = ports.owner(int(params["port"]))
    argv = [str(word) for word in params.get("argv") or ()]
    if argv:
        cwd = os.path.expanduser(params.get("cwd") or os.getcwd())
        answer["executable"] = _find_executable(argv[0], cwd, params.get("path"))
    if params.get("cwd"):
        answer["cwd"] = os.path.isdir(os.path.expanduser(str(params["cwd"])))
    answer["paths"] = {str(path): _path_facts(str(path)) for path in params.get("paths") or ()}
    if params.get("profile"):
        home = os.path.join(runs.root(), runs.checked_name(params["profile"]))
        os.makedirs(home, mode=0o755, exist_ok=True)
        answer["log_room"] = _path_facts(home)
        known = runs.list_runs({}, proc_root)
        mine = [run for run in known if run["record"]["profile"] == params["profile"]]
        answer["earlier"] = [run for run in mine if run["alive"]]
        left = {member for run in mine for member in runs.left_over(run)}
        answer["left"] = [members.describe(member) for member in sorted(left)]
    return answer


def stop(params: Params, stream: rpc.Stream, begun: ladder.Begun) -> None:
    """Stop a run, wholly, and say each step (`ladder.descend`).

    Args:
        params: `dir`, `signal` (default TERM), `grace_s`, `by`, `origin`, `port`; `restart`: a
            start is to follow, and the caller holds the run for both (`holds`).
        stream: Gets `step` (words), `members` left, and last `done` with `left` and `port`.
        begun: Sees to it that it is carried to its end.
    """
    place = str(params["dir"])
    state = runs.state(place)
    if state is None:
        raise rpc.RpcError("there is no such run here")
    record = state["record"]

    def look(deep: bool) -> List[members.Member]:
        found = members.scan(record, deep=deep)
        # An orphan that moved away is seen by its marker alone: look for it before the end.
        found = found or (members.scan(record, deep=True) if not deep else [])
        return [member for member in found if _may_touch(member, state["owner"])]

    # That it has crashed is not forgotten when what it left behind is stopped.
    kept = bool(state["alive"] or state["stop"])
    note = stopnote.Note(os.path.join(place, "stop.json"), params, kept)
    with contextlib.nullcontext() if params.get("restart") else holds.alone_at(place, params):
        port = params.get("port") or record.get("port")

        def descend(stream: rpc.Stream) -> None:
            ladder.descend(look, record["pid"], record["start_ticks"], port, params, stream)

        begun.carry_out(descend, note, stream)


def _may_touch(member: members.Member, owner: int) -> bool:
    """A record speaks for its owner's processes alone: anybody may write one; we may be root."""
    try:
        return owner == 0 or os.stat("/proc/%d" % member.pid).st_uid == owner
    except OSError:
        return False


def _read_line(pipe: Any, wait_s: float) -> str:
    """One line from a pipe, or what came until the deadline."""
    import select

    deadline, data = time.monotonic() + wait_s, b""
    while b"\n" not in data:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        piece = os.read(pipe.fileno(), 65536)
        if not piece:
            break
        data += piece
    return data.decode("utf-8", "replace")


def _find_executable(name: str, cwd: str, path: Optional[str]) -> Dict[str, Any]:
    found = name if "/" in name else shutil.which(name, path=path)
    if found and not os.path.isabs(found):
        found = os.path.join(cwd, found)
    exists = bool(found) and os.path.exists(found or "")
    return {"path": found, "exists": exists, "runs": exists and os.access(found or "", os.X_OK)}


def _path_facts(path: str) -> Dict[str, Any]:
    path = os.path.expanduser(path)
    facts: Dict[str, Any] = {"exists": os.path.exists(path), "readable": os.access(path, os.R_OK)}
    place = path
    while place and not os.path.exists(place) and place != "/":
        place = os.path.dirname(place) or "/"
    try:
        room = os.statvfs(place or "/")
        facts["free_bytes"] = room.f_bavail * room.f_frsize
        facts["free_inodes"] = room.f_favail
    except OSError as error:
        facts["error"] = error.strerror
    return facts
