"""Carries out steps on a host, one by one, each read before and after; knows no check.

Steps are writes into the kernel's files, files of the system, and argument vectors. Nothing is
done under another boot id than the one that was shown, nor to a file that is no longer as it was
shown. `root` puts another folder in the place of `/`; programs are then taken from below it.
"""

from __future__ import annotations

import base64
import errno
import os
import re
import stat
import subprocess
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from . import alone, elevated

MAX_BYTES = 1 << 20
MAX_OUTPUT = 4000
COMMAND_S = 120.0
FINISH_S = 150.0
NO_SUCH_NAME = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENAMETOOLONG, errno.ENOTSUP)
MODULES = ["elevated", "alone", "changes"]
SEARCHED = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
LINE = re.compile(r"^\[\s*(\d+\.\d+)\]")


def register(agent: Any) -> None:
    """Add the methods of this area; a fix that is at work when the room goes is finished first."""
    at_work = AtWork()
    agent.on_end(at_work.finish)
    for name in ("read", "carry_out"):
        agent.methods.add("changes." + name, _method(name, agent, at_work), threaded=True)


class AtWork:
    """Fixes that are being carried out: half of one is worse than none.

    Attributes:
        ending: Nothing new is begun any more.
    """

    def __init__(self) -> None:
        self.ending = threading.Event()
        self._count = 0
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        """One more."""
        with self._changed:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        """It has ended."""
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def finish(self) -> None:
        """Begin nothing more, and wait for what was begun."""
        self.ending.set()
        with self._changed:
            self._changed.wait_for(lambda: not self._count, FINISH_S)


def _method(function: str, agent: Any, at_work: AtWork) -> Any:
    def answer(params: Dict[str, Any]) -> Any:
        held = agent.below(params)
        paths = [*params.get("paths", ()), *(s.get("path", "") for s in params.get("steps", ()))]
        if held is not params and any(".." in path.split("/") for path in paths):
            return {"refused": "a path leaves the folder of the simulated host"}
        if function == "read":
            return _ask(function, held)
        with at_work:
            return _ask(function, held, at_work.ending)

    return answer


def _ask(function: str, params: Dict[str, Any], ending: Optional[threading.Event] = None) -> Any:
    """Do it as root: we are, or sudo lets us, or it is tried without and fails with its reason."""
    from . import rpc

    password = params.pop("password", None)
    if elevated.is_root() or not (params.pop("sudo", False) or password):
        return read(params) if function == "read" else carry_out(params, ending)
    try:
        return elevated.call(MODULES, function, params, password, COMMAND_S + 30.0)
    except elevated.Refused as error:
        raise rpc.RpcError("not allowed as root: %s" % error) from error


def read(params: Dict[str, Any]) -> Dict[str, Any]:
    """What files hold now.

    Args:
        params: `paths`, `root`.

    Returns:
        `boot_id`, and `files`: by path `data` (base64; None where there is no file), `mode`,
        `error`.
    """
    root = str(params.get("root") or "/").rstrip("/")
    return {
        "boot_id": boot_id(root),
        "files": {path: _look(root + path) for path in params["paths"]},
    }


def carry_out(params: Dict[str, Any], ending: Optional[threading.Event] = None) -> Dict[str, Any]:
    """Carry out the steps of one fix; the first that fails ends it.

    Args:
        params: `steps`, each with `kind` (`write`, `file`, `remove`, `command`), `path`, `data`
            (base64), `mode`, `argv`, `expect` (base64 of what must be there, None for no file;
            not compared where the key is missing); `boot_id`, `root`, `by` (who asks, in words
            for those who wait).
        ending: Set when nothing may be begun any more.

    Returns:
        `refused` (words, nothing was done) or `steps`: for each one done `ok`, `error`, `after`
        (base64 or None), `output`, `status`; `kernel`: its lines since the beginning where a step
        failed.
    """
    root = str(params.get("root") or "/").rstrip("/")
    now = boot_id(root)
    if not now or now != params["boot_id"]:
        return {"refused": "the host runs another boot (%s) than was shown" % (now or "unknown")}
    try:
        with alone.Alone(root, str(params.get("by") or ""), ending) as lock:
            return _steps(params["steps"], root, lock.before)
    except alone.Taken as taken:
        words = "another change is being carried out on the host by %s; try again"
        return {"refused": words % taken}


def _steps(steps: List[Dict[str, Any]], root: str, before: str) -> Dict[str, Any]:
    for step in steps:
        if "expect" in step:
            found = _look(root + step["path"])["data"]
            if found != step["expect"] and found != step.get("data"):
                words = "%s is no longer as it was shown" % step["path"]
                if before:
                    words += ": %s changed the host a moment ago" % before
                return {"refused": words}
    began = _uptime_s(root)
    done: List[Dict[str, Any]] = []
    for step in steps:
        result = _step(step, root)
        done.append(result)
        if not result["ok"]:
            break
    answer: Dict[str, Any] = {"steps": done, "refused": ""}
    if not all(result["ok"] for result in done):
        answer["kernel"] = _kernel_since(began, root)
    return answer


def boot_id(root: str = "") -> str:
    """Of the running kernel."""
    try:
        with open(root + "/proc/sys/kernel/random/boot_id") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def _step(step: Dict[str, Any], root: str) -> Dict[str, Any]:
    kind = step["kind"]
    result: Dict[str, Any] = {"ok": True, "error": "", "output": "", "status": 0, "after": None}
    try:
        if kind == "command":
            result["status"], result["output"] = _run(list(step["argv"]), root)
            if result["status"] != 0:
                result["ok"], result["error"] = False, "exit status %d" % result["status"]
            return result
        path = root + step["path"]
        if kind == "write":
            _write_value(path, base64.b64decode(step["data"]))
        elif kind == "file":
            _install(path, base64.b64decode(step["data"]), step.get("mode"))
        elif kind == "remove":
            os.unlink(path)
            _sync(os.path.dirname(path))
        else:
            raise ValueError("no step %r" % kind)
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "EIO")
        result["ok"], result["error"] = False, "%s: %s" % (name, error.strerror or error)
    except (ValueError, subprocess.TimeoutExpired) as error:
        result["ok"], result["error"] = False, str(error)[:300]
    if kind != "command":
        found = _look(root + step["path"])
        result["after"] = found["data"]
        if found["error"] and result["ok"]:
            result["ok"], result["error"] = False, "written, but can't be read: " + found["error"]
    return result


def _look(path: str) -> Dict[str, Any]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {"data": None, "mode": None, "error": ""}
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "EIO")
        return {"data": None, "mode": None, "error": name}
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return {"data": None, "mode": None, "error": "not a file"}
        data = b""
        while len(data) <= MAX_BYTES:
            more = os.read(fd, MAX_BYTES + 1 - len(data))
            if not more:
                break
            data += more
        if len(data) > MAX_BYTES:
            return {"data": None, "mode": None, "error": "EFBIG"}
        return {
            "data": base64.b64encode(data).decode(),
            "mode": stat.S_IMODE(info.st_mode),
            "error": "",
        }
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "EIO")
        return {"data": None, "mode": None, "error": name}
    finally:
        os.close(fd)


def _write_value(path: str, data: bytes) -> None:
    """One value into a file of the kernel: in one write, never creating the file."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a file")
        if os.write(fd, data) != len(data):
            raise OSError(errno.EIO, "written in part")
    finally:
        os.close(fd)


def _install(path: str, data: bytes, mode: Optional[int]) -> None:
    """The whole file at once; one that is there keeps its mode and owner."""
    path = os.path.realpath(path)
    owner: Tuple[int, int] = (-1, -1)
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "not a file")
        mode, owner = stat.S_IMODE(info.st_mode), (info.st_uid, info.st_gid)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    mode = 0o644 if mode is None else mode
    new = "%s/.%s.gpuroom-new" % os.path.split(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(new, flags, 0o600)
    except OSError as error:
        if error.errno not in NO_SUCH_NAME:
            raise  # a full or read-only disk: in place the file would be left in part
        # A file system of its own kind (/etc/pve) may take no such name: write in place.
        _fill_in_place(path, data, mode)
        return
    try:
        _fill(fd, data)
        try:
            os.chmod(new, mode)
            if owner != (-1, -1) and elevated.is_root():
                os.chown(new, owner[0], owner[1])
        except PermissionError:
            pass  # /etc/pve sets its own
        os.replace(new, path)
        _sync(os.path.dirname(path))
    except OSError:
        try:
            os.unlink(new)
        except OSError:
            pass
        raise


def _sync(folder: str) -> None:
    """Make a rename or a removal last; file systems that know no such thing are left alone."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)


def _fill_in_place(path: str, data: bytes, mode: int) -> None:
    """What was there comes back when it can't be written."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        old = os.pread(fd, MAX_BYTES, 0)
        try:
            _whole(fd, data)
        except OSError:
            _whole(fd, old)
            raise
    finally:
        os.close(fd)


def _whole(fd: int, data: bytes) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], done)
    os.ftruncate(fd, len(data))
    os.fsync(fd)


def _fill(fd: int, data: bytes) -> None:
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _run(argv: List[str], root: str) -> Tuple[int, str]:
    program = _find(argv[0], root)
    if program is None:
        raise OSError(errno.ENOENT, "no program %s" % argv[0])
    env = {"LC_ALL": "C", "PATH": ":".join(SEARCHED), "HOME": os.environ.get("HOME", "/")}
    if root:
        env["GPUROOM_ROOT"] = root
    child = subprocess.run(
        [program, *argv[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=COMMAND_S,
        env=env,
        start_new_session=True,
    )
    return child.returncode, child.stdout.decode("utf-8", "replace")[-MAX_OUTPUT:]


def _find(name: str, root: str) -> Optional[str]:
    if "/" in name:
        return root + name if os.access(root + name, os.X_OK) else None
    for folder in SEARCHED:
        path = "%s%s/%s" % (root, folder, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def _uptime_s(root: str) -> float:
    """By the clock of the kernel's lines.

    Below another root that host's own; of `/` the kernel's, since /proc/uptime may be a
    container's (lxcfs).
    """
    try:
        if root:
            with open(root + "/proc/uptime") as file:
                return float(file.read(64).split()[0])
    except (OSError, ValueError, IndexError):
        pass
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _kernel_since(began_s: float, root: str) -> List[str]:
    """The kernel's own lines since then; empty where it may not be read."""
    try:
        status, text = _run(["dmesg"], root)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = []
    for line in text.split("\n") if status == 0 else []:
        match = LINE.match(line)
        # The kernel's clock and ours differ by the time spent asleep, and by rounding.
        if match and float(match.group(1)) >= began_s - 0.5:
            lines.append(line[:300])
    return lines[-40:]
