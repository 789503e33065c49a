"""The supervisor: a small program of its own that starts one server and outlives everybody.

It is run by the host's python with its text and a specification on standard input. It takes the
lock of the profile, starts the server in a session, a process group and (where one can be made) a
cgroup of its own, writes down what identifies it, and says so on standard output. Then it stays,
waits for the end, and writes down how it ended. It imports nothing of gpuroom.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Optional

PR_SET_CHILD_SUBREAPER = 36
PR_SET_NAME = 15
END_BYTES = 512
"""Room that is reserved for `exit.json`, and as much for `stop.json`."""


def write_json(path: str, value: Dict[str, Any]) -> None:
    """Write a file whole or not at all."""
    temporary = "%s.%d" % (path, os.getpid())
    try:
        with open(temporary, "w") as file:
            json.dump(value, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        remove(temporary)
        raise


def reserve(path: str) -> None:
    """Make room for what `write_reserved` will have to write."""
    with open(path, "w") as file:
        file.write(" " * END_BYTES)


def write_reserved(path: str, value: Dict[str, Any]) -> None:
    """Write a file whole; on a full disk into the room that was reserved for it.

    Raises:
        OSError: There was none.
    """
    try:
        write_json(path, value)
    except OSError:
        place = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(place, json.dumps(value).encode().ljust(END_BYTES), 0)
        finally:
            os.close(place)


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """The object in a file; None where there is none."""
    try:
        with open(path) as file:
            value = json.loads(file.read(1 << 20))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    try:
        os.unlink(path)
    except OSError:
        pass


def remove_empty(folder: str) -> None:
    """Remove a folder that nothing came into."""
    try:
        os.rmdir(folder)
    except OSError:
        pass


def start_ticks(pid: int) -> int:
    """Field 22 of /proc/PID/stat."""
    with open("/proc/%d/stat" % pid, "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def take_lock(path: str, holder: Dict[str, Any]) -> int:
    """Take the lock of a profile for as long as this process lives.

    Raises:
        BlockingIOError: Another one holds it; its words lie in the file.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(holder).encode(), 0)
    return lock


def holder_of(path: str) -> Dict[str, Any]:
    """Who holds a lock; whoever has only just taken it may not have written that down yet."""
    words = ""
    for _ in range(20):
        with open(path) as file:
            words = file.read(4096)
        if words:
            break
        time.sleep(0.05)
    return dict(json.loads(words or "{}"))


def make_cgroup(run_id: str, parents: List[str]) -> Optional[str]:
    """A cgroup for this server alone, in the first of the folders that takes one."""
    for parent in parents:
        path = "%s/gpuroom-%s" % (parent.rstrip("/"), run_id)
        try:
            os.mkdir(path)
        except OSError:
            continue
        if os.path.exists(path + "/cgroup.procs"):
            return path
        os.rmdir(path)
    return None


def oom_kills(cgroup: Optional[str]) -> Optional[int]:
    """How often the kernel's OOM killer struck in the cgroup; None where it does not tell."""
    for name in ("memory.events", "memory.oom_control"):  # version 2, version 1
        try:
            with open("%s/%s" % (cgroup, name)) as file:
                for line in file:
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        except OSError:
            pass
    return None


def start(
    spec: Dict[str, Any], log: int, cgroup: Optional[str], known: Callable[[int], None]
) -> int:
    """Start the server and give its pid.

    Its process waits until `known(pid)` has written it down, and ends when that fails or when we
    are killed before: there is never a server that nobody knows of.

    Raises:
        OSError: It can't be written down, or the program can't be executed, in the kernel's words.
    """
    reader, writer = os.pipe()
    gate, opener = os.pipe()
    environment = dict(os.environ)
    environment.update(spec["env"])
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.close(opener)
            if not os.read(gate, 1):
                os._exit(127)
            if cgroup:
                try:
                    with open(cgroup + "/cgroup.procs", "w") as file:
                        file.write("0")
                except OSError:
                    pass
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.closerange(3, writer)
            os.closerange(writer + 1, 4096)
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            if spec.get("cwd"):
                os.chdir(spec["cwd"])
            os.execvpe(spec["argv"][0], spec["argv"], environment)  # noqa: S606 - as asked for
        except OSError as error:
            where = error.filename or spec["argv"][0]
            os.write(writer, json.dumps([error.errno, str(where)]).encode())
        os._exit(127)
    os.close(writer)
    os.close(gate)
    try:
        known(pid)
        os.write(opener, b"1")
    except OSError:
        os.close(opener)
        os.waitpid(pid, 0)
        raise
    os.close(opener)
    with os.fdopen(reader, "rb") as pipe:
        failure = pipe.read()
    if failure:
        os.waitpid(pid, 0)
        number, where = json.loads(failure.decode())
        raise OSError(number, os.strerror(number), where)
    return pid


def ended(status: int) -> Dict[str, Any]:
    """Exit code or signal of a wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return {"code": None, "signal": number, "core": os.WCOREDUMP(status)}
    return {"code": os.WEXITSTATUS(status), "signal": None, "core": False}


def supervise(spec: Dict[str, Any]) -> None:
    """Start the server, say so, wait for its end, write it down."""
    place = spec["dir"]
    os.makedirs(place, mode=0o755, exist_ok=True)
    os.makedirs(os.path.dirname(spec["log"]), mode=0o755, exist_ok=True)
    try:
        lock = take_lock(spec["lock"], spec["holder"])
    except BlockingIOError:
        remove_empty(place)
        say({"busy": holder_of(spec["lock"])})
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_NAME, b"gpuroom-superv", 0, 0, 0)
    cgroup = make_cgroup(spec["run_id"], spec["cgroup_parents"])
    log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    log_begin = os.fstat(log).st_size
    record = dict(spec["record"])

    def known(pid: int) -> None:
        record.update(
            pid=pid,
            start_ticks=start_ticks(pid),
            session=pid,
            cgroup=cgroup,
            log=spec["log"],
            log_begin=log_begin,
            supervisor_pid=os.getpid(),
            supervisor_ticks=start_ticks(os.getpid()),
            dir=place,
            started_at=time.time(),
            run_id=spec["run_id"],
        )
        reserve(place + "/exit.json")
        reserve(place + "/stop.json")
        write_json(place + "/id.json", record)

    try:
        pid = start(spec, log, cgroup, known)
    except OSError:
        if cgroup:
            os.rmdir(cgroup)
        for name in ("id.json", "exit.json", "stop.json"):
            remove(place + "/" + name)
        if os.fstat(log).st_size == log_begin == 0:
            remove(spec["log"])
        remove_empty(place)
        raise
    say({"started": record})
    os.close(log)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    wait_for_end(pid, place, cgroup)
    os.close(lock)


def wait_for_end(pid: int, place: str, cgroup: Optional[str]) -> None:
    """Reap everything that becomes ours; the lock is held until nothing is left."""
    kills_before = oom_kills(cgroup)
    while True:
        try:
            found, status = os.wait()
        except ChildProcessError:
            break
        except InterruptedError:
            continue
        if found == pid:
            exit_record = ended(status)
            exit_record["at"] = time.time()
            kills = oom_kills(cgroup)
            exit_record["oom_kills"] = kills - (kills_before or 0) if kills is not None else None
            try:
                write_reserved(place + "/exit.json", exit_record)
            except OSError:
                pass  # its end is seen, and not how; what it left is waited for all the same
    if cgroup:
        try:
            os.rmdir(cgroup)
        except OSError:
            pass  # somebody is still in there; the next stop names them


def say(message: Dict[str, Any]) -> None:
    """One line on standard output; whoever began this may be gone by now, and it goes on."""
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except OSError:
        pass


def say_failed(code: str, text: str, path: Any) -> None:
    """Why there is no server."""
    say({"failed": {"errno": code, "text": text, "path": path}})


def main(arguments: List[str]) -> None:
    """Read the specification and carry it out."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    spec = json.loads(sys.stdin.read())
    if os.fork():
        os._exit(0)  # whoever called waits for this one; the other belongs to init from now on
    try:
        supervise(spec)
    except OSError as error:
        say_failed(errno.errorcode.get(error.errno or 0, ""), str(error.strerror), error.filename)
    except Exception as error:
        say_failed("", "%s: %s" % (type(error).__name__, error), None)


if __name__ == "__main__":
    main(sys.argv)
