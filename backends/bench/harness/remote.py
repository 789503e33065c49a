"""Runs another tool's benchmark where the server is, and sends back what it wrote.

Standard library, Python 3.8, one file: it travels on standard input and leaves nothing behind. The
tool gets argument vectors, the environment of the server's process (which never leaves the host),
and a folder that goes away with it. The end of standard input, a signal or `stop` ends the tool and
all its descendants, wherever they have put themselves.

Lines in: the job, then `{"do": "next"}` for each command, or `{"do": "stop"}`. Lines out: `begin`,
`waiting`, `started`, `line`, `file` (pieces, base64), `step_end`, `end`.
"""

from __future__ import annotations

import base64
import ctypes
import glob
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from typing import Any, Dict, List, Optional

MARK = "GPUROOM_HARNESS"
PIECE_BYTES = 256 * 1024
MAX_FILE_BYTES = 512 * 1024 * 1024
MAX_LINE_BYTES = 4000
TERM_S = 3.0
KEPT_FROM_ENV = ("LD_PRELOAD",)

# Which of the modules is there, by its file: to import a package in order to look into it can take
# half a minute.
LOOK = """
import importlib.metadata, importlib.util, json, os, sys
def there(name):
    first, *rest = name.split(".")
    found = importlib.util.find_spec(first)
    if found is None:
        return False
    if not rest:
        return True
    for folder in found.submodule_search_locations or ():
        path = os.path.join(folder, *rest)
        if os.path.isfile(path + ".py") or os.path.isfile(os.path.join(path, "__init__.py")):
            return True
    return False
modules = [name for name in sys.argv[2:] if there(name)]
print(json.dumps([importlib.metadata.version(sys.argv[1]), modules[0] if modules else None]))
"""

_libc: Any = None
try:
    _libc = ctypes.CDLL(None, use_errno=True)
except OSError:
    pass


class Output:
    """Whole lines on standard output, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def say(self, **fields: Any) -> None:
        """Write one."""
        data = (json.dumps(fields) + "\n").encode()
        with self._lock:
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]


class Orders(threading.Thread):
    """What comes on standard input after the job; its end is an order to stop."""

    def __init__(self) -> None:
        threading.Thread.__init__(self, daemon=True)
        self.stopped = threading.Event()
        self._next = threading.Semaphore(0)

    def run(self) -> None:
        """Listen."""
        for line in iter(sys.stdin.buffer.readline, b""):
            try:
                order = json.loads(line).get("do")
            except (ValueError, AttributeError):
                continue
            if order == "next":
                self._next.release()
            elif order == "stop":
                self.stop()
        self.stop()

    def stop(self) -> None:
        """End what runs, and start nothing more."""
        self.stopped.set()
        self._next.release()

    def wait_next(self) -> bool:
        """Whether to go on."""
        self._next.acquire()
        return not self.stopped.is_set()


def environment_of(pid: int) -> Dict[str, str]:
    """Variables of a process of this host; empty where they may not be read."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in entries if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def descendants(mark: str) -> List[int]:
    """Processes that carry the mark: the tool's own, whatever group they are in."""
    wanted = ("%s=%s" % (MARK, mark)).encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open("/proc/%s/environ" % name, "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(int(name))
        except OSError:
            continue
    return found


def end_all(mark: str, first: int) -> None:
    """Ask the tool's processes to end, then make them."""
    for number, patience_s in ((first, TERM_S), (signal.SIGKILL, TERM_S)):
        for pid in descendants(mark):
            try:
                os.kill(pid, number)
            except OSError:
                pass
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if not descendants(mark):
                return
            time.sleep(0.05)


def _die_with_parent() -> None:
    # Whoever kills this program outright kills the tool, too (prctl PR_SET_PDEATHSIG).
    if _libc is not None:
        _libc.prctl(1, signal.SIGKILL, 0, 0, 0)


class Runner:
    """One job."""

    def __init__(self, job: Dict[str, Any], output: Output, orders: Orders) -> None:
        self._job = job
        self._output = output
        self._orders = orders
        self._began = time.monotonic()
        self._mark = "%d-%d" % (os.getpid(), time.time_ns())
        self._folder = tempfile.mkdtemp(prefix="gpuroom-bench-")
        self._module = ""

    def _at(self) -> float:
        return time.monotonic() - self._began

    def _environment(self) -> Dict[str, str]:
        env = dict(os.environ)
        if self._job.get("env_of"):
            env.update(environment_of(self._job["env_of"]))
        for name in KEPT_FROM_ENV:
            env.pop(name, None)
        env.update(self._job.get("env") or {})
        env[MARK] = self._mark
        env["PYTHONUNBUFFERED"] = "1"
        return env

    def look(self) -> List[Optional[str]]:
        """Version of the tool's distribution and its module, as its Python has them, or None."""
        command = [self._job["python"], "-c", LOOK, self._job["distribution"]]
        command += self._job["modules"]
        try:
            done = subprocess.run(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=60,
            )
            last = done.stdout.decode("utf-8", "replace").strip().split("\n")[-1]
            version, module = json.loads(last)
        except (OSError, subprocess.SubprocessError, ValueError, TypeError):
            return [None, None]
        return [version, module] if done.returncode == 0 else [None, None]

    def run(self) -> None:
        """Carry it out."""
        say = self._output.say
        version, module = self.look()
        self._module = module or ""
        say(
            t="begin",
            epoch_unix_s=time.time(),
            hostname=socket.gethostname(),
            python=sys.version.split()[0],
            version=version,
            module=module,
            room={"cpus": os.cpu_count()},
        )
        try:
            for number, command in enumerate(self._job["commands"]):
                say(t="waiting", step=number, at_s=self._at())
                if not self._orders.wait_next():
                    break
                self._one(number, command)
                if self._orders.stopped.is_set():
                    break
            status = "stopped" if self._orders.stopped.is_set() else "complete"
            say(t="end", status=status)
        finally:
            end_all(self._mark, signal.SIGTERM)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _one(self, number: int, command: Dict[str, Any]) -> None:
        say = self._output.say
        out = os.path.join(self._folder, str(number))
        os.mkdir(out)
        argv = [word.replace("@OUT@", out) for word in command["argv"]]
        argv = [self._module if word == "@MODULE@" else word for word in argv]
        env = dict(self._environment(), **(command.get("env") or {}))
        try:
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=out,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            say(t="step_end", step=number, status=127, at_s=self._at(), error=str(error))
            return
        say(t="started", step=number, at_s=self._at(), pid=process.pid)
        stopper = threading.Thread(target=self._stop_when_told, args=(process,), daemon=True)
        stopper.start()
        self._follow(number, process)
        status = process.wait()
        # What the tool left behind would load the machine during the next step.
        end_all(self._mark, signal.SIGTERM)
        written_s = None
        for path in sorted(glob.glob(os.path.join(out, command["result"]), recursive=True)):
            try:
                age_s = max(0.0, time.time() - os.stat(path).st_mtime)
                written_s = self._at() - age_s
                self._send(number, path)
            except OSError as error:
                say(t="line", step=number, text="%s: %s" % (path, error))
            break
        say(t="step_end", step=number, status=status, at_s=self._at(), written_s=written_s)
        shutil.rmtree(out, ignore_errors=True)

    def _stop_when_told(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            if self._orders.stopped.wait(0.2):
                # As an interrupt at the keyboard: tools then write what they have.
                end_all(self._mark, signal.SIGINT)
                return

    def _follow(self, number: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        rest = b""
        ended_s: Optional[float] = None
        while True:
            ready, _, _ = select.select([descriptor], [], [], 0.5)
            if ready:
                data = os.read(descriptor, 65536)
                if not data:
                    break
                rest += data.replace(b"\r", b"\n")
                lines = rest.split(b"\n")
                rest = lines.pop()[-MAX_LINE_BYTES:]
                for line in lines:
                    if line.strip():
                        text = line[:MAX_LINE_BYTES].decode("utf-8", "replace")
                        self._output.say(t="line", step=number, text=text)
            elif process.poll() is not None:
                # A descendant may hold the pipe open for ever.
                ended_s = ended_s or time.monotonic()
                if time.monotonic() - ended_s > 2.0:
                    break
        process.stdout.close()

    def _send(self, number: int, path: str) -> None:
        say = self._output.say
        size = os.stat(path).st_size
        if size > MAX_FILE_BYTES:
            say(t="line", step=number, text="%s: %d bytes are too many" % (path, size))
            return
        packer = zlib.compressobj(6)
        with open(path, "rb") as file:
            for data in iter(lambda: file.read(PIECE_BYTES), b""):
                piece = packer.compress(data)
                if piece:
                    say(t="file", step=number, data=base64.b64encode(piece).decode())
        say(t="file", step=number, data=base64.b64encode(packer.flush()).decode(), last=True)


def main() -> int:
    """Read the job and carry it out."""
    job = json.loads(sys.stdin.buffer.readline())
    output, orders = Output(), Orders()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: orders.stop())
    orders.start()
    try:
        Runner(job, output, orders).run()
    except BrokenPipeError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
