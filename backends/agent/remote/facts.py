"""Facts of a host in one request: carries out a table of probes and knows no check.

Files, patterns, listings, links, device nodes, NVML, CUDA and commands are read in parallel, each
with its value or error, source and time; nothing is written. What hangs is left behind at the
deadline and said to be so. `root` puts another folder in the place of `/`: then commands, and the
python that asks CUDA, are taken from below it alone.
"""

from __future__ import annotations

import base64
import errno
import fnmatch
import json
import os
import queue
import re
import stat
import subprocess
import sys
import threading
import time
import zlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from . import elevated, facts_engine, facts_gpu

THREADS = 8
SLOW_S = 0.05
COMMANDS_AT_ONCE = 8
MAX_FILES = 60_000
MAX_TOTAL_BYTES = 48 << 20
PIECE_CHARS = 256 * 1024
SEARCHED = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
DENIED = ("EACCES", "EPERM")
MODULES = ["model_names", "processes", "facts_engine", "elevated", "facts_gpu", "facts"]
FILE_KINDS = ("file", "glob", "listing", "link", "bytes", "stat", "open", "statvfs")

Entry = Tuple[str, Any, Optional[str], str, float, bool]
"""Key, value, error, source, epoch seconds, whether it needs root."""


def register(agent: Any) -> None:
    """Add the methods of this area."""
    # A simulated host lies in a folder: the machine that plays it is not read.
    agent.methods.add_stream("facts.gather", lambda params, to: gather(agent.below(params), to))


def gather(params: Dict[str, Any], stream: Any) -> None:
    """Stream the facts of this host: JSON, deflated, base64, in pieces.

    Args:
        params: `probes` (rows of kind, target, argv, limit in bytes, needs root), `root`,
            `deadline_s`, `sudo` (try `sudo -n` for what was denied), `password` (for sudo).
        stream: Gets the pieces.
    """
    document = collect(params)
    packed = base64.b64encode(zlib.compress(json.dumps(document).encode("ascii"), 6)).decode()
    for begin in range(0, len(packed), PIECE_CHARS):
        stream.send(packed[begin : begin + PIECE_CHARS])


def collect(params: Dict[str, Any]) -> Dict[str, Any]:
    """`facts`, `at` (first time), `host`, `boot_id`, `took_s`, `denied` (need root, not read)."""
    began = time.monotonic()
    gatherer = Gatherer(str(params.get("root") or "/"), float(params.get("deadline_s", 8.0)))
    gatherer.holders = [tuple(row) for row in params.get("holders") or ()]
    facts = gatherer.run([tuple(row) for row in params["probes"]])
    denied = [key for key, entry in facts.items() if entry[5] and entry[2] in DENIED]
    note = ""
    password = params.get("password")
    if denied and not elevated.is_root() and (params.get("sudo") or password):
        task = {k: v for k, v in params.items() if k not in ("password", "sudo")}
        task["probes"] = [
            row
            for row in params["probes"]
            if (row[4] and row[0] in (*FILE_KINDS, "command")) or row[0] == "engine"
        ]
        task["holders"] = gatherer.holders
        try:
            again = elevated.call(MODULES, "collect", task, password, task.get("deadline_s", 8.0))
            for key, value, error, source, ms, root in again["facts"]:
                if error is None:
                    facts[key] = (key, value, None, source or key, again["at"] + ms / 1e3, root)
                    facts.pop(key + "/whole", None)
        except elevated.Refused as error:
            note = "not read as root: %s" % error
        denied = [key for key in denied if key in facts and facts[key][2] in DENIED]
    # Threads end in any order; of two commands that tell the same, the first of the table counts.
    order = {"cmd/" + row[1]: place for place, row in enumerate(params["probes"])}
    entries = sorted(facts.values(), key=lambda entry: (order.get(entry[0], -1), entry[0]))
    at = min([entry[4] for entry in entries] or [time.time()])
    return {
        # A third of the length: a source that is the key is left out, times count from `at`.
        "facts": [
            (key, value, error, "" if source == key else source, int((t - at) * 1e3), root)
            for key, value, error, source, t, root in entries
        ],
        "at": at,
        "host": os.uname().nodename,
        "boot_id": boot_id(gatherer.root),
        "took_s": time.monotonic() - began,
        "denied": len(denied),
        "note": note,
    }


def boot_id(root: str = "") -> str:
    """Of the running kernel."""
    try:
        with open(root + "/proc/sys/kernel/random/boot_id") as file:
            return file.read(64).strip()
    except OSError:
        return ""


class Gatherer:
    """One gathering.

    Attributes:
        root: The folder that stands for `/`, without a slash at its end; empty for `/` itself.
        holders: Processes on GPUs, where NVML was asked before; else what it says now.
    """

    def __init__(self, root: str, deadline_s: float) -> None:
        self.root = root.rstrip("/")
        self._until = time.monotonic() + deadline_s
        self._facts: Dict[str, Entry] = {}
        self._lock = threading.Lock()
        self._bytes_left = MAX_TOTAL_BYTES
        self._closed = False
        self._listed: Dict[str, List[str]] = {}
        self.holders: List[Any] = []

    def run(self, probes: List[Tuple[Any, ...]]) -> Dict[str, Entry]:
        """Carry out probes; rows of kind, target, argv, limit in bytes, needs root."""
        jobs: "queue.Queue[Callable[[], None]]" = queue.Queue()
        commands: "queue.Queue[Callable[[], None]]" = queue.Queue()
        nvml: List[str] = []
        processes: List[Tuple[str, int, bool]] = []
        cuda = engine = False
        for kind, target, argv, limit, needs_root in probes:
            if kind == "nvml":
                nvml.append(target)
            elif kind == "process":
                processes.append((target, limit, needs_root))
            elif kind == "cuda":
                cuda = not self.root or self._find("python3") is not None
            elif kind == "engine":
                engine = True
            elif kind == "command":
                commands.put(self._job(self._command, target, argv, limit, needs_root))
            else:
                jobs.put(self._job(getattr(self, "_" + kind), target, limit, needs_root))
        workers = [self._worker(commands) for _ in range(COMMANDS_AT_ONCE)]
        if nvml or engine:
            workers.append(self._start(lambda: self._gpus(nvml, processes, engine)))
        if cuda:
            python = self._find("python3") if self.root else sys.executable
            workers.append(
                self._start(lambda: facts_gpu.cuda_facts(python, self._left(), self._keep_gpu))
            )
        workers += self._read_files(jobs)
        for worker in workers:
            worker.join(max(0.0, self._left()))
        with self._lock:
            self._closed = True
            facts = dict(self._facts)
        if any(worker.is_alive() for worker in workers):
            self._say_what_hangs(probes, facts, cuda)
        return facts

    def _read_files(self, jobs: "queue.Queue[Callable[[], None]]") -> List[threading.Thread]:
        """One thread reads; another joins it only when nothing has moved on for a while.

        Files of sysfs take microseconds: several threads would wait for the interpreter's lock
        and cost twice the time. One that hangs must not hold up the rest.
        """
        workers = [self._worker(jobs)]
        moved = -1
        while self._left() > 0 and workers[-1].is_alive() and not jobs.empty():
            workers[-1].join(SLOW_S)
            if len(self._facts) == moved and len(workers) < THREADS:
                workers.append(self._worker(jobs))
            moved = len(self._facts)
        return workers

    def _say_what_hangs(
        self, probes: List[Tuple[Any, ...]], facts: Dict[str, Entry], cuda: bool
    ) -> None:
        for kind, target, _, _, needs_root in probes:
            key = {"command": "cmd/" + target, "file": target, "cuda": "cuda/init",
                   "listing": target}.get(kind)  # fmt: skip
            if key is not None and key not in facts and not (kind == "cuda" and not cuda):
                facts[key] = (key, None, "ETIMEDOUT", target, time.time(), needs_root)

    def _job(self, function: Callable[..., None], *arguments: Any) -> Callable[[], None]:
        return lambda: function(*arguments)

    def _start(self, function: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=function, daemon=True)
        thread.start()
        return thread

    def _worker(self, jobs: "queue.Queue[Callable[[], None]]") -> threading.Thread:
        def work() -> None:
            while not self._closed and self._left() > 0:
                try:
                    job = jobs.get_nowait()
                except queue.Empty:
                    return
                job()

        return self._start(work)

    def _left(self) -> float:
        return self._until - time.monotonic()

    def _keep(self, key: str, value: Any, error: Optional[str], source: str, root: bool) -> None:
        size = len(value) if isinstance(value, str) else 64
        with self._lock:
            if self._closed or len(self._facts) >= MAX_FILES:
                return
            if size > self._bytes_left:
                value, error = None, "EFBIG"
            else:
                self._bytes_left -= size
            self._facts[key] = (key, value, error, source, time.time(), root)

    def _keep_gpu(self, entry: facts_gpu.Entry) -> None:
        self._keep(entry[0], entry[1], entry[2], entry[3], False)

    # -- files

    def _names(self, folder: str) -> List[str]:
        found = self._listed.get(folder)
        if found is None:
            try:
                found = sorted(os.listdir(self.root + (folder or "/")))
            except OSError:
                found = []
            self._listed[folder] = found
        return found

    def _match(self, pattern: str) -> Iterator[str]:
        """Paths that match, those that may not exist included where the last parts are plain."""
        parts = pattern.strip("/").split("/")
        found = [""]
        for part in parts:
            if any(char in part for char in "*?["):
                test = re.compile(fnmatch.translate(part)).match
                found = [
                    "%s/%s" % (path, name)
                    for path in found
                    for name in self._names(path)
                    if test(name)
                ]
            else:
                found = ["%s/%s" % (path, part) for path in found]
        return iter(found[:MAX_FILES])

    def _file(self, path: str, limit: int, root: bool) -> None:
        self._read(path, limit, root, binary=False, may_miss=False)

    def _glob(self, pattern: str, limit: int, root: bool) -> None:
        for path in self._match(pattern):
            self._read(path, limit, root, binary=False, may_miss=True)

    def _bytes(self, pattern: str, limit: int, root: bool) -> None:
        for path in self._match(pattern):
            self._read(path, limit, root, binary=True, may_miss=True)

    def _read(self, path: str, limit: int, root: bool, binary: bool, may_miss: bool) -> None:
        if self._left() <= 0:
            return
        try:
            # O_NONBLOCK: a FIFO in the place of a file must not hold us up.
            fd = os.open(self.root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                info = os.fstat(fd)
                if not stat.S_ISREG(info.st_mode):
                    raise OSError(errno.EINVAL, "not a file")
                data = os.read(fd, limit)
                # Sysfs and disks say how long a file may be and give it in one read; procfs
                # says 0 and has to be asked again.
                while data and len(data) < limit and not len(data) <= info.st_size <= 4096:
                    more = os.read(fd, limit - len(data))
                    if not more:
                        break
                    data += more
            finally:
                os.close(fd)
        except OSError as error:
            name = errno_name(error)
            if not (may_miss and name in ("ENOENT", "ENOTDIR")):
                self._keep(path, None, name, path, root)
            return
        value = data.hex() if binary else data.decode("utf-8", "replace")
        self._keep(path, value, None, path, root)
        if binary and len(data) == 64 and limit > 64 and not elevated.is_root():
            # The kernel shows the first 64 bytes of a configuration space to everyone.
            self._keep(path + "/whole", None, "EACCES", path, True)

    def _listing(self, path: str, limit: int, root: bool) -> None:
        try:
            names = sorted(os.listdir(self.root + path))[:20_000]
        except OSError as error:
            self._keep(path, None, errno_name(error), path, root)
            return
        self._keep(path, names, None, path, root)

    def _link(self, pattern: str, limit: int, root: bool) -> None:
        for path in self._match(pattern):
            try:
                target = os.readlink(self.root + path)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EINVAL, errno.ENOTDIR):
                    self._keep(path, None, errno_name(error), path, root)
                continue
            self._keep(path, target, None, path, root)

    def _stat(self, pattern: str, limit: int, root: bool) -> None:
        for path in self._match(pattern):
            try:
                info = os.stat(self.root + path)
            except OSError as error:
                self._keep("node/" + path, None, errno_name(error), "stat " + path, root)
                continue
            if stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode):
                value = "%d:%d %04o %s %s" % (
                    os.major(info.st_rdev), os.minor(info.st_rdev), stat.S_IMODE(info.st_mode),
                    user_name(info.st_uid), group_name(info.st_gid),
                )  # fmt: skip
                self._keep("node/" + path, value, None, "stat " + path, root)

    def _open(self, pattern: str, limit: int, root: bool) -> None:
        plain = not any(char in pattern for char in "*?[")
        for path in self._match(pattern):
            try:
                fd = os.open(self.root + path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                os.close(fd)
                value = "OK"
            except OSError as error:
                value = errno_name(error)
            self._keep("open/" + path, value, None, "open(%s, O_RDWR)" % path, root)
            if value == "ENOENT" and plain:
                self._keep("node/" + path, None, "ENOENT", "open(%s, O_RDWR)" % path, root)

    def _statvfs(self, path: str, limit: int, root: bool) -> None:
        base, source = "statvfs/%s/" % path, "statvfs " + path
        try:
            info = os.statvfs(self.root + path)
        except OSError as error:
            self._keep(base + "size", None, errno_name(error), source, root)
            return
        self._keep(base + "size", info.f_blocks * info.f_frsize, None, source, root)
        self._keep(base + "free_bytes", info.f_bavail * info.f_frsize, None, source, root)
        if info.f_blocks:
            free = round(100.0 * info.f_bavail / info.f_blocks, 1)
            self._keep(base + "free_pct", free, None, source, root)
        if info.f_files:
            free = round(100.0 * info.f_favail / info.f_files, 1)
            self._keep(base + "free_inodes_pct", free, None, source, root)

    def _irq(self, target: str, limit: int, root: bool) -> None:
        facts_engine.interrupts(self.root, self._keep)

    # -- programs, GPUs

    def _command(self, words: str, argv: List[str], limit: int, root: bool) -> None:
        key = "cmd/" + words
        program = self._find(argv[0])
        if program is None:
            self._keep(key, None, "ENOENT", words, root)
            return
        env = dict(os.environ, LC_ALL="C", PATH=":".join(SEARCHED), SYSTEMD_COLORS="0")
        try:
            child = subprocess.Popen(
                [program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            self._keep(key, None, errno_name(error), words, root)
            return
        timer = threading.Timer(max(0.1, self._left()), child.kill)
        timer.daemon = True
        timer.start()
        try:
            out, errors = _drain(child, limit)
            status = child.wait()
        finally:
            timer.cancel()
        text = out.decode("utf-8", "replace")
        if status < 0 and self._left() <= 0.05:
            self._keep(key, text or None, "ETIMEDOUT", words, root)
        elif text or status == 0:
            self._keep(key, text, None, words, root)
        else:
            words_of_it = errors.decode("utf-8", "replace").strip().split("\n")[-1][:300]
            denied = re.search(r"[Pp]ermission denied|Operation not permitted", words_of_it)
            why = "EACCES" if denied else words_of_it or "exit status %d" % status
            self._keep(key, None, why, words, root)

    def _find(self, name: str) -> Optional[str]:
        for folder in SEARCHED:
            path = "%s%s/%s" % (self.root, folder, name)
            if os.access(path, os.X_OK) and os.path.isfile(path):
                return path
        return None

    def _gpus(
        self, wanted: List[str], processes: List[Tuple[str, int, bool]], engine: bool
    ) -> None:
        if wanted or not self.holders:
            found = facts_gpu.nvml_facts(wanted, max(0.1, self._left()), self._keep_gpu)
            if found is None:
                return
            self.holders = found
        holders = [facts_engine.Holder(*row) for row in self.holders]
        if engine:
            facts_engine.tell(holders, self.root, self._keep)
        for pid in sorted({holder.pid for holder in holders})[:256]:
            for name, limit, root in processes:
                path = "/proc/%d/%s" % (pid, name)
                try:
                    with open(self.root + path, "rb") as file:
                        text = file.read(limit).decode("utf-8", "replace")
                except OSError as error:
                    self._keep("proc/%d/%s" % (pid, name), None, errno_name(error), path, root)
                    continue
                self._keep("proc/%d/%s" % (pid, name), text, None, path, root)


def _drain(child: Any, limit: int) -> Tuple[bytes, bytes]:
    """Both outputs to their ends; of the first at most `limit` bytes, its end where it is longer.

    The newest lines of a log matter most, and its first say whether it reaches back to boot.
    """
    errors: List[bytes] = []
    reader = threading.Thread(target=lambda: errors.append(child.stderr.read(65_536)), daemon=True)
    reader.start()
    head, tail = b"", b""
    while True:
        data = child.stdout.read(1 << 16)
        if not data:
            break
        if len(head) < limit // 2:
            head += data
        else:
            tail = (tail + data)[-limit // 2 :]
    reader.join(1.0)
    return head + tail, b"".join(errors)


def errno_name(error: OSError) -> str:
    """`ENOENT` and the like."""
    return errno.errorcode.get(error.errno or 0, "EIO")


def user_name(number: int) -> str:
    """A user by name, where it has one."""
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        return str(number)


def group_name(number: int) -> str:
    """A group by name, where it has one."""
    try:
        import grp

        return grp.getgrgid(number).gr_name
    except (ImportError, KeyError):
        return str(number)
