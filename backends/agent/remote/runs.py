"""The folders of runs: what was started on this host, whether it lives, and how it ended.

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
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import members, processes, rpc, stopnote, supervisor

TITLE = "gpuroom-supervisor"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:-]{0,63}")
IDENTITY = ("pid", "start_ticks", "session", "supervisor_pid", "supervisor_ticks")
KEPT_RUNS = 20
MOST_RECORDS = 64

Params = Dict[str, Any]

SIMULATED = b"GPUROOM_DEMO="
"""The variable that every program on a simulated host has."""


def root() -> str:
    """Where this user's runs are kept."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "gpuroom", "servers")


def checked_name(value: Any) -> str:
    """A name that can be a folder's.

    Raises:
        RpcError: It would lead elsewhere.
    """
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise rpc.RpcError("%r can't be a name here" % (value,), rpc.INVALID_PARAMS)
    return value


def list_runs(params: Params, proc_root: str = "/proc") -> List[Dict[str, Any]]:
    """Every run that is known here, the living first, then the newest, and how each ended.

    Args:
        params: `limit`.
        proc_root: Where runs of other users are looked for.
    """
    places = {}
    for profile in folders(root()):
        for run in folders(os.path.join(root(), profile)):
            places[os.path.join(root(), profile, run)] = True
    for place in foreign_places(proc_root):
        places[place] = True
    found = [run for run in (state(place) for place in places) if run is not None]
    # A clock that was set back makes no older run newer than one that lives.
    found.sort(key=lambda run: (not run["alive"], -_started_at(run["record"])))
    return found[: int(params.get("limit", 200))]


def state(place: str) -> Optional[Dict[str, Any]]:
    """Record, whether it lives, and how it ended."""
    path = os.path.join(place, "id.json")
    try:
        info = os.stat(path)
    except OSError:
        return None
    record = _record(path, info)
    if record is None or not all(isinstance(record.get(key), int) for key in IDENTITY):
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
        "age_s": max(0.0, time.time() - _started_at(record)),
        "owner": info.st_uid,
        "exit": supervisor.read_json(os.path.join(place, "exit.json")),
        "stop": stopnote.read(os.path.join(place, "stop.json")),
    }


_records: Dict[str, Tuple[Tuple[int, int, int], Optional[Dict[str, Any]]]] = {}
"""Path -> what tells whether the file is the same, and what it said: records never change."""


def _record(path: str, info: os.stat_result) -> Optional[Dict[str, Any]]:
    same = (info.st_ino, info.st_mtime_ns, info.st_size)
    known = _records.get(path)
    if known is None or known[0] != same:
        if len(_records) >= MOST_RECORDS:
            _records.clear()
        known = _records[path] = (same, supervisor.read_json(path))
    return None if known[1] is None else dict(known[1])


def left_over(found: Dict[str, Any]) -> List[members.Member]:
    """Processes of a run whose main process has ended, as long as its supervisor waits for them."""
    if found["alive"] or not found["supervised"]:
        return []
    return members.scan(found["record"], deep=False)


def is_simulated(pid: int) -> bool:
    """Whether a process belongs to a simulated host on this machine, and so not to the machine."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return any(word.startswith(SIMULATED) for word in file.read(262144).split(b"\x00"))
    except OSError:
        return False


def foreign_places(proc_root: str = "/proc") -> List[str]:
    """Run folders of other users' living supervisors."""
    found = []
    for entry in os.listdir(proc_root):
        if entry.isdigit():
            argv = processes.read_argv(proc_root, int(entry))
            if len(argv) <= 5 or argv[3] != TITLE or not os.path.isabs(argv[4]):
                continue
            # A simulated host on this machine is another host.
            if proc_root != "/proc" or not is_simulated(int(entry)):
                found.append(argv[4])
    return found


def folders(path: str) -> List[str]:
    """The names of the folders in a folder."""
    try:
        return [entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def prune(home: str) -> None:
    """Keep the newest runs; the folders of runs that still live are never touched.

    Of folders without a record (starts that failed, records that are damaged) as many are kept.
    """
    ended, unknown, now = [], [], time.time()
    for run in folders(home):
        place = os.path.join(home, run)
        found = state(place)
        if found is None:
            with contextlib.suppress(OSError):
                unknown.append((_past(os.stat(place).st_mtime, now), run))
        elif not found["alive"] and not found["supervised"]:
            ended.append((_past(_started_at(found["record"]), now), run))
    if max(len(ended), len(unknown)) <= KEPT_RUNS:
        return
    supervised = set(foreign_places())
    for runs in (ended, unknown):
        for _, run in sorted(runs)[: max(0, len(runs) - KEPT_RUNS)]:
            if os.path.join(home, run) not in supervised:
                shutil.rmtree(os.path.join(home, run), ignore_errors=True)


def _started_at(record: Dict[str, Any]) -> float:
    try:
        return float(record.get("started_at") or 0)
    except (TypeError, ValueError):
        return 0.0


def _past(at: float, now: float) -> float:
    """A time to sort by: what lies in the future was written before the clock was set back."""
    return at if at <= now else 0.0


def _holder(lock: int) -> Dict[str, Any]:
    """Who has a lock; whoever has only just taken it may not have said so yet."""
    for _ in range(20):
        with contextlib.suppress(OSError, ValueError, TypeError):  # a folder, or cut short
            return dict(json.loads(os.pread(lock, 4096, 0)))
        time.sleep(0.05)
    return {}


def _lock_file(folder: str, name: str) -> int:
    """A file to lock; its folder where a full disk takes no new file, or another's folder none."""
    path = os.path.join(folder, name)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        try:
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            raise rpc.RpcError("cannot lock %s: %s" % (path, error.strerror)) from None


@contextlib.contextmanager
def operation(folder: str, name: str, params: Params) -> Iterator[None]:
    """One operator at a time; the other is told who."""
    lock = _lock_file(folder, name)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = _holder(lock)
            raise rpc.RpcError(
                "%s is %s it already (from %s)"
                % (
                    who.get("by") or "somebody",
                    who.get("doing") or "stopping",
                    who.get("origin") or "unknown",
                ),
                rpc.BUSY, who,
            ) from None  # fmt: skip
        holder = {key: params.get(key) for key in ("by", "origin", "doing")}
        holder.update(stopnote.this_process(), at=time.time())
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its words
            os.ftruncate(lock, 0)
            os.pwrite(lock, json.dumps(holder).encode("utf-8"), 0)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # whoever comes next is not taken for this one
                os.ftruncate(lock, 0)
    finally:
        os.close(lock)
