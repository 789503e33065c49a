"""Servers on this host: start, list, look at, stop. What is started here outlives the agent.

Each run has a folder `ROOT/PROFILE/RUN` with `id.json` (what identifies it), `exit.json` (how it
ended) and its log. ROOT is the user's own state folder; runs of other users are found through
their supervisors, which name their folder in their command line.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import ladder, mask, members, ports, processes, rpc, supervisor

TITLE = "gpuroom-supervisor"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:-]{0,63}")
IDENTITY = ("pid", "start_ticks", "session", "supervisor_pid", "supervisor_ticks")
START_WAIT_S = 20.0
KEPT_RUNS = 20
STUB = "import sys;n=int(sys.argv[3]);exec(compile(sys.stdin.read(n),'gpuroom-supervisor','exec'))"

Params = Dict[str, Any]


def root() -> str:
    """Where this user's runs are kept."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "gpuroom", "servers")


def register(agent: Any) -> None:
    """Add the methods."""
    agent.methods.add("servers.start", start, threaded=True)
    agent.methods.add("servers.list", list_runs, threaded=True)
    agent.methods.add("servers.look", look, threaded=True)
    agent.methods.add("servers.inspect", inspect, threaded=True)
    agent.methods.add("servers.check", check, threaded=True)
    agent.methods.add("servers.describe", describe, threaded=True)
    agent.methods.add("servers.candidates", candidates, threaded=True)
    agent.methods.add_stream("servers.stop", stop)
    agent.methods.add_stream("servers.stop_found", stop_found)


def start(params: Params) -> Dict[str, Any]:
    """Start a server under a supervisor of its own.

    Args:
        params: `profile`, `run_id`, `argv`, `env`, `cwd`, `log` (path or None), `by`, `origin`.

    Returns:
        One of `started` (the record), `busy` (who holds the profile) or `failed` (errno, text,
        path).
    """
    profile, run_id = _name(params["profile"]), _name(params["run_id"])
    argv = [str(word) for word in params["argv"]]
    if not argv or any("\x00" in word for word in argv):
        raise rpc.RpcError("the command is empty or holds a NUL", rpc.INVALID_PARAMS)
    env = {str(key): str(value) for key, value in (params.get("env") or {}).items()}
    env.update({members.MARKER: run_id, "SPT_NOENV": "1"})
    env.setdefault("PYTHONUNBUFFERED", "1")
    home = os.path.join(root(), profile)
    place = os.path.join(home, run_id)
    log = params.get("log") or os.path.join(place, "server.log")
    spec = {
        "argv": argv,
        "env": env,
        "cwd": params.get("cwd"),
        "dir": place,
        "log": os.path.expanduser(log),
        "lock": os.path.join(home, "lock"),
        "run_id": run_id,
        "holder": {"by": params.get("by"), "origin": params.get("origin"), "at": time.time(),
                   "run_id": run_id},
        "record": {
            "profile": profile,
            "boot_id": members.boot_id(),
            "argv": mask.argv(argv),
            "env": mask.environment(env),
            "cwd": params.get("cwd"),
            "port": params.get("port"),
            "engine": params.get("engine"),
            "by": params.get("by"),
            "origin": params.get("origin"),
            "memory_before": params.get("memory_before"),
        },
    }  # fmt: skip
    os.makedirs(home, mode=0o755, exist_ok=True)
    _prune(home)
    source = supervisor.__loader__.get_source(supervisor.__name__)  # type: ignore[union-attr]
    child = subprocess.Popen(
        [sys.executable, "-c", STUB, TITLE, place, str(len(source))],
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


def list_runs(params: Params) -> List[Dict[str, Any]]:
    """Every run that is known here, newest first, with whether it lives and how it ended."""
    places = {}
    for profile in _folders(root()):
        for run in _folders(os.path.join(root(), profile)):
            places[os.path.join(root(), profile, run)] = True
    for place in _foreign_places():
        places[place] = True
    found = [state for state in (_state(place) for place in places) if state is not None]
    found.sort(key=lambda state: -float(state["record"].get("started_at") or 0))
    return found[: int(params.get("limit", 200))]


def look(params: Params) -> Dict[str, Any]:
    """One run now: alive, its members, CPU and disk use so far, who has its port, how it ended."""
    state = _state(str(params["dir"]))
    if state is None:
        raise rpc.RpcError("there is no such run here")
    record = state["record"]
    found = members.scan(record, deep=bool(params.get("deep")), zombies=True)
    ticks = float(os.sysconf("SC_CLK_TCK"))
    state["members"] = [members.describe(member) for member in found]
    state["cpu_s"] = sum(member.cpu_ticks for member in found) / ticks
    state["read_bytes"] = members.io_bytes([member.pid for member in found])
    port = params.get("port") or record.get("port")
    if port:
        state["port"] = ports.owner(int(port))
    with contextlib.suppress(OSError):
        info = os.stat(record["log"])
        state["log"] = {"device": info.st_dev, "inode": info.st_ino, "size": info.st_size}
    return state


def inspect(params: Params) -> Dict[str, Any]:
    """A process that nobody here started, with its descendants and its cgroup: as `look` does.

    Args:
        params: `pid` and `start_ticks`, and at will `cgroup` (a path below /sys/fs/cgroup) and
            `port`.
    """
    pid, ticks = int(params["pid"]), params.get("start_ticks")
    stat = processes.read_stat("/proc", pid)
    begun = stat[0] if stat is not None else 0
    alive = stat is not None and ticks in (None, begun)
    found = []
    if alive:
        record = _found_record(pid, begun, params.get("cgroup"))
        found = members.scan(record, deep=False, zombies=True)
    answer: Dict[str, Any] = {
        "alive": alive and members.is_alive(pid, begun),
        "start_ticks": begun if alive else None,
        "members": [members.describe(member) for member in found],
        "cpu_s": sum(member.cpu_ticks for member in found) / float(os.sysconf("SC_CLK_TCK")),
        "read_bytes": members.io_bytes([member.pid for member in found]),
    }
    if params.get("port"):
        answer["port"] = ports.owner(int(params["port"]))
    return answer


def check(params: Params) -> Dict[str, Any]:
    """What could be in the way of a start, read and not judged.

    Args:
        params: `argv`, `cwd`, `port`, `paths` (model and log places), `profile`.
    """
    answer: Dict[str, Any] = {}
    if params.get("port"):
        answer["port"] = ports.owner(int(params["port"]))
    argv = [str(word) for word in params.get("argv") or ()]
    if argv:
        cwd = params.get("cwd") or os.getcwd()
        answer["executable"] = _find_executable(argv[0], cwd, params.get("path"))
    if params.get("cwd"):
        answer["cwd"] = os.path.isdir(str(params["cwd"]))
    answer["paths"] = {str(path): _path_facts(str(path)) for path in params.get("paths") or ()}
    if params.get("profile"):
        home = os.path.join(root(), _name(params["profile"]))
        os.makedirs(home, mode=0o755, exist_ok=True)
        answer["log_room"] = _path_facts(home)
        mine = (state for state in list_runs({}) if state["record"]["profile"] == params["profile"])
        answer["earlier"] = [state for state in mine if state["alive"]]
    return answer


def describe(params: Params) -> Dict[str, Any]:
    """All that a profile can be written from: arguments, environment, place, log, ports."""
    pid = int(params["pid"])
    base = "/proc/%d" % pid
    stat = processes.read_stat("/proc", pid)
    if stat is None:
        raise rpc.RpcError("there is no process %d here" % pid)
    answer: Dict[str, Any] = {
        "pid": pid,
        "start_ticks": stat[0],
        "boot_id": members.boot_id(),
        "argv": mask.argv(processes.read_argv("/proc", pid)),
        "user": processes.user_of("/proc", pid),
        "container": processes.read_container("/proc", pid),
        "name": stat[2],
    }
    for key, link in (("cwd", "cwd"), ("exe", "exe"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        try:
            answer[key] = os.readlink("%s/%s" % (base, link))
        except OSError:
            answer[key] = None
    try:
        with open(base + "/environ", "rb") as file:
            text = file.read(262144).decode("utf-8", "replace")
        pairs = (entry.partition("=") for entry in text.split("\x00") if "=" in entry)
        answer["env"] = mask.environment({name: value for name, _, value in pairs})
    except OSError:
        answer["env"] = None
    inodes = ports.listeners()
    held = ports.owners(list(inodes))
    tree = {pid, *_children(pid)}
    answer["ports"] = sorted({inodes[i]["port"] for i, who in held.items() if tree & set(who)})
    answer["ancestors"] = _ancestors(pid)
    return answer


def candidates(params: Params) -> List[Dict[str, Any]]:
    """Processes that listen on TCP: what servers nobody here started may be among."""
    inodes = ports.listeners()
    held = ports.owners(list(inodes))
    by_pid: Dict[int, List[Dict[str, Any]]] = {}
    for inode, pids in held.items():
        for pid in pids:
            by_pid.setdefault(pid, []).append(inodes[inode])
    found = []
    for pid, sockets in sorted(by_pid.items())[:500]:
        who = ports.describe(pid)
        if who is None:
            continue
        who["argv"] = mask.argv(processes.read_argv("/proc", pid))[:400]
        who["parent"] = processes.parent_of("/proc", pid)
        who["ports"] = sorted({socket["port"] for socket in sockets})
        who["container"] = processes.read_container("/proc", pid)
        found.append(who)
    return found


def stop(params: Params, stream: rpc.Stream) -> None:
    """Stop a run, wholly, and say each step (`ladder.descend`).

    Args:
        params: `dir`, `signal` (default TERM), `grace_s`, `by`, `origin`, `port`.
        stream: Gets `step` (words), `members` left, and last `done` with `left` and `port`.
    """
    place = str(params["dir"])
    state = _state(place)
    if state is None:
        raise rpc.RpcError("there is no such run here")
    record = state["record"]

    def look(deep: bool) -> List[members.Member]:
        found = members.scan(record, deep=deep)
        # An orphan that moved away is seen by its marker alone: look for it before the end.
        found = found or (members.scan(record, deep=True) if not deep else [])
        return [member for member in found if _may_touch(member, state["owner"])]

    with _operation(os.path.dirname(place), "stop.lock", params):
        port = params.get("port") or record.get("port")
        ladder.descend(look, record["pid"], record["start_ticks"], port, params, stream)


def stop_found(params: Params, stream: rpc.Stream) -> None:
    """Stop a process that nobody here started, with its descendants, by the same ladder.

    Whoever descends from it when the stop begins, or later from one of those, belongs to it, also
    after its parent has gone; so does its session, where it leads one, and its cgroup, where
    nobody else is in it. Nothing else is touched.

    Args:
        params: `pid` and `start_ticks`; `signal`, `grace_s`, `by`, `origin`, `port`, `cgroup`.
        stream: As for `stop`.
    """
    pid, ticks = int(params["pid"]), int(params["start_ticks"])
    if pid <= 1 or pid == os.getpid() or any(a["pid"] == pid for a in _ancestors(os.getpid())):
        raise rpc.RpcError("pid %d carries this very connection: it is not stopped from here" % pid)
    if not members.is_alive(pid, ticks):
        raise rpc.RpcError("pid %d has ended, or is another process by now" % pid)
    record = _found_record(pid, ticks, params.get("cgroup"))
    known: Dict[int, int] = {}

    def look(deep: bool) -> List[members.Member]:
        found = members.scan(record, deep=False, known=known)
        known.update((member.pid, member.start_ticks) for member in found)
        return found

    home = os.path.join(root(), ".found")
    os.makedirs(home, mode=0o755, exist_ok=True)
    with _operation(home, "%d-%d.lock" % (pid, ticks), params):
        try:
            ladder.descend(look, pid, ticks, params.get("port"), params, stream)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(home, "%d-%d.lock" % (pid, ticks)))


def _found_record(pid: int, ticks: int, cgroup: Optional[str]) -> Dict[str, Any]:
    """A found process in the form that `members.scan` takes."""
    fields = processes.stat_fields("/proc", pid)
    record: Dict[str, Any] = {
        "boot_id": members.boot_id(), "pid": pid, "start_ticks": ticks,
        "session": pid if fields is not None and int(fields[1][3]) == pid else -1,
        "supervisor_pid": -1, "supervisor_ticks": -1, "run_id": "", "cgroup": None,
    }  # fmt: skip
    own = {member.pid for member in members.scan(record, deep=False, zombies=True)}
    path = cgroup or members.cgroup_of(pid)
    # A cgroup that the caller names is a unit's own; one that is guessed must hold nobody else.
    if path and (cgroup or set(members.cgroup_members(path)) <= own):
        record["cgroup"] = path
    return record


def _may_touch(member: members.Member, owner: int) -> bool:
    """A record speaks for its owner's processes alone: anybody may write one; we may be root."""
    try:
        return owner == 0 or os.stat("/proc/%d" % member.pid).st_uid == owner
    except OSError:
        return False


@contextlib.contextmanager
def _operation(folder: str, name: str, params: Params) -> Iterator[None]:
    """One operator at a time; the other is told who."""
    path = os.path.join(folder, name)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise rpc.RpcError("cannot lock %s: %s" % (path, error.strerror)) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = json.loads(os.pread(lock, 4096, 0) or b"{}")
            raise rpc.RpcError(
                "%s is stopping it already (from %s)" % (who.get("by"), who.get("origin")),
                rpc.BUSY, who,
            ) from None  # fmt: skip
        os.ftruncate(lock, 0)
        holder = {"by": params.get("by"), "origin": params.get("origin"), "at": time.time()}
        os.pwrite(lock, json.dumps(holder).encode("utf-8"), 0)
        yield
    finally:
        os.close(lock)


def _state(place: str) -> Optional[Dict[str, Any]]:
    """Record, whether it lives, and how it ended."""
    path = os.path.join(place, "id.json")
    record = _read_json(path)
    if record is None or not all(isinstance(record.get(key), int) for key in IDENTITY):
        return None
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return None
    record["dir"] = place
    same_boot = record.get("boot_id") == members.boot_id()
    alive = same_boot and members.is_alive(record["pid"], record["start_ticks"])
    supervised = same_boot and members.is_alive(
        record["supervisor_pid"], record["supervisor_ticks"]
    )
    return {
        "record": record,
        "alive": alive,
        "supervised": supervised,
        "rebooted": not same_boot,
        "owner": owner,
        "exit": _read_json(os.path.join(place, "exit.json")),
    }


def _foreign_places() -> List[str]:
    """Run folders of other users' living supervisors."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            argv = processes.read_argv("/proc", int(entry))
            if len(argv) > 5 and argv[3] == TITLE and os.path.isabs(argv[4]):
                found.append(argv[4])
    return found


def _read_json(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(path) as file:
            value = json.loads(file.read(1 << 20))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


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


def _name(value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise rpc.RpcError("%r can't be a name here" % (value,), rpc.INVALID_PARAMS)
    return value


def _folders(path: str) -> List[str]:
    try:
        return [entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _prune(home: str) -> None:
    """Keep the newest runs; the folders of runs that still live are never touched."""
    runs = []
    for run in _folders(home):
        state = _state(os.path.join(home, run))
        if state is not None and not state["alive"] and not state["supervised"]:
            runs.append((float(state["record"].get("started_at") or 0), run))
    for _, run in sorted(runs)[: max(0, len(runs) - KEPT_RUNS)]:
        shutil.rmtree(os.path.join(home, run), ignore_errors=True)


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


def _children(pid: int) -> List[int]:
    table = members._table("/proc")
    return sorted(members._descendants(table, pid))


def _ancestors(pid: int) -> List[Dict[str, Any]]:
    found: List[Dict[str, Any]] = []
    while pid > 1 and len(found) < 32:
        pid = processes.parent_of("/proc", pid)
        fields = processes.stat_fields("/proc", pid)
        if fields is None:
            break
        argv: Tuple[str, ...] = tuple(mask.argv(processes.read_argv("/proc", pid))[:8])
        found.append({"pid": pid, "name": fields[0], "argv": list(argv)})
    return found
