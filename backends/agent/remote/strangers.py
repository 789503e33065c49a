"""Processes that nobody here started: found, described, looked at, stopped."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from . import cgroups, holds, ladder, mask, members, nearby, ports, processes, rpc, runs, stopnote

Params = Dict[str, Any]


def register(agent: Any) -> None:
    """Add the methods; only what the host lists as its processes is found."""
    proc_root = str(agent.settings.get("proc_root", "/proc"))
    agent.methods.add("servers.inspect", inspect, threaded=True)
    agent.methods.add("servers.remaining", remaining, threaded=True)
    agent.methods.add("servers.describe", describe, threaded=True)
    agent.methods.add("servers.candidates", lambda params: candidates(proc_root), threaded=True)
    begun = ladder.Begun()
    agent.on_end(begun.hand_over)
    agent.methods.add_stream(
        "servers.stop_found", lambda params, stream: stop(params, stream, begun)
    )


def inspect(params: Params) -> Dict[str, Any]:
    """A process that nobody here started, with its descendants and its cgroup: as `look` does.

    Args:
        params: `pid` and `start_ticks`, and at will `cgroup` (a path below /sys/fs/cgroup), `port`
            and `held`: the name by which operators hold it while they stop it.
    """
    pid, ticks = int(params["pid"]), params.get("start_ticks")
    stat = processes.read_stat("/proc", pid)
    begun = stat[0] if stat is not None else 0
    alive = stat is not None and ticks in (None, begun)
    found = []
    if alive:
        cgroup = params.get("cgroup")
        found = nearby.scan((pid, begun), lambda: _found_record(pid, begun, cgroup))
    stop = stopnote.read(_note_of(pid, begun))
    if stop is None and params.get("held") is not None:
        stop = holds.stop_of(params["held"])
    answer: Dict[str, Any] = {
        "alive": alive and members.is_alive(pid, begun),
        "stop": stop,
        "start_ticks": begun if alive else None,
        "members": [members.describe(member) for member in found],
        "cpu_s": sum(member.cpu_ticks for member in found) / float(os.sysconf("SC_CLK_TCK")),
        "read_bytes": members.io_bytes([member.pid for member in found]),
    }
    if params.get("port"):
        likely = [member.pid for member in found]
        answer["port"] = ports.owner(int(params["port"]), likely=likely)
    return answer


def remaining(params: Params) -> List[Dict[str, Any]]:
    """Those of `members` (pid and start time) that still live."""
    wanted = {int(pid): int(ticks) for pid, ticks in params["members"]}
    record = {"boot_id": members.boot_id(), "pid": -1, "start_ticks": 0, "session": -1,
              "supervisor_pid": -1, "supervisor_ticks": -1, "run_id": ""}  # fmt: skip
    return [
        members.describe(member)
        for member in members.scan(record, deep=False, known=wanted)
        if wanted.get(member.pid) == member.start_ticks
    ]


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
    boot = processes.boot_time("/proc")
    if boot is not None:
        answer["started"] = boot + stat[0] / float(os.sysconf("SC_CLK_TCK"))
        answer["age_s"] = max(0.0, time.time() - answer["started"])
    for key, link in (("cwd", "cwd"), ("exe", "exe"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        try:
            answer[key] = os.readlink("%s/%s" % (base, link))
        except OSError:
            answer[key] = None
    env: Dict[str, str] = {}
    try:
        with open(base + "/environ", "rb") as file:
            text = file.read(262144).decode("utf-8", "replace")
        pairs = (entry.partition("=") for entry in text.split("\x00") if "=" in entry)
        env = {name: value for name, _, value in pairs}
        answer["env"] = mask.environment(env)
        # What an operator must say again, since a login there sets it otherwise.
        answer["env_differs"] = sorted(k for k, v in env.items() if os.environ.get(k) != v)
    except OSError:
        answer["env"] = None
    argv = processes.read_argv("/proc", pid)
    if argv:
        answer["program"] = _program(argv[0], answer["cwd"], env.get("PATH")) or answer["exe"]
    inodes = ports.listeners()
    held = ports.owners(list(inodes))
    tree = {pid, *_children(pid)}
    answer["ports"] = sorted({inodes[i]["port"] for i, who in held.items() if tree & set(who)})
    answer["ancestors"] = _ancestors(pid)
    return answer


def _program(name: str, cwd: Optional[str], path: Optional[str]) -> Optional[str]:
    """The file that a process meant by its first argument, as it would be found again."""
    if "/" in name:
        found: Optional[str] = os.path.normpath(os.path.join(cwd or "/", name))
    else:
        found = shutil.which(name, path=path)
    return found if found and os.access(found, os.X_OK) else None


def candidates(proc_root: str = "/proc") -> List[Dict[str, Any]]:
    """Processes that listen on TCP: what servers nobody here started may be among.

    Args:
        proc_root: Where the host lists its processes. Elsewhere than in /proc, only what was
            started by way of this agent is the host's.
    """
    inodes = ports.listeners()
    held = ports.owners(list(inodes))
    own = None if proc_root == "/proc" else _members_of_runs(proc_root)
    by_pid: Dict[int, List[Dict[str, Any]]] = {}
    for inode, pids in held.items():
        for pid in pids:
            if own is None or pid in own:
                by_pid.setdefault(pid, []).append(inodes[inode])
    found = []
    for pid, sockets in sorted(by_pid.items())[:500]:
        who = ports.describe(pid)
        if who is None or (own is None and runs.is_simulated(pid)):
            continue
        who["argv"] = mask.argv(processes.read_argv("/proc", pid))[:400]
        who["parent"] = processes.parent_of("/proc", pid)
        who["ports"] = sorted({socket["port"] for socket in sockets})
        who["container"] = processes.read_container("/proc", pid)
        found.append(who)
    return found


def _members_of_runs(proc_root: str) -> Set[int]:
    alive = (run["record"] for run in runs.list_runs({}, proc_root) if run["alive"])
    return {member.pid for record in alive for member in members.scan(record, deep=False)}


def stop(params: Params, stream: rpc.Stream, begun: ladder.Begun) -> None:
    """Stop a process that nobody here started, with its descendants, by the same ladder.

    Whoever descends from it when the stop begins, or later from one of those, belongs to it, also
    after its parent has gone; so does its session, where it leads one, and its cgroup, where
    nobody else is in it. Nothing else is touched.

    Args:
        params: `pid` and `start_ticks`; `signal`, `grace_s`, `by`, `origin`, `port`, `cgroup`.
        stream: As for `stop`.
        begun: Sees to it that it is carried to its end.
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

    def descend(stream: rpc.Stream) -> None:
        ladder.descend(look, pid, ticks, params.get("port"), params, stream)

    home = _home()
    os.makedirs(home, mode=0o755, exist_ok=True)
    note = stopnote.Note(_note_of(pid, ticks), params, kept=False)
    with runs.operation(home, "%d-%d.lock" % (pid, ticks), params):
        try:
            begun.carry_out(descend, note, stream)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(home, "%d-%d.lock" % (pid, ticks)))


def _home() -> str:
    return os.path.join(runs.root(), ".found")


def _note_of(pid: int, ticks: int) -> str:
    """Where it is written down who stops a process that was found."""
    return os.path.join(_home(), "%d-%d.json" % (pid, ticks))


def _found_record(pid: int, ticks: int, cgroup: Optional[str]) -> Dict[str, Any]:
    """A found process in the form that `members.scan` takes."""
    fields = processes.stat_fields("/proc", pid)
    record: Dict[str, Any] = {
        "boot_id": members.boot_id(), "pid": pid, "start_ticks": ticks,
        "session": pid if fields is not None and int(fields[1][3]) == pid else -1,
        "supervisor_pid": -1, "supervisor_ticks": -1, "run_id": "", "cgroup": None,
    }  # fmt: skip
    own = {member.pid for member in members.scan(record, deep=False, zombies=True)}
    path = cgroups.of_unit(cgroup) if cgroup else cgroups.of(pid)
    # A cgroup that the caller names is a unit's own; one that is guessed must hold nobody else.
    if path and (cgroup or set(cgroups.members(path)) <= own):
        record["cgroup"] = path
    return record


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
