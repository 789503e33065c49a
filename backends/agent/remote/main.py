"""The agent: says hello, answers requests, and leaves when its standard input ends."""

from __future__ import annotations

import base64
import getpass
import importlib
import os
import signal
import socket
import sys
import time
import zlib
from typing import Any, Callable, Dict, List, Optional

from . import host, rpc, telemetry
from .outbox import Outbox

FLUSH_S = 0.3
AREAS = (telemetry,)
"""What is there from the start; all else is sent when first asked for (`load`)."""

AddSource = Callable[[str, str], None]


class Agent:
    """What an area of the agent is given by: its `register(agent)` adds methods and hooks.

    Attributes:
        settings: What the other side chose at the start.
        outbox: Where notifications go.
        methods: The method table.
    """

    def __init__(self, settings: Dict[str, Any], outbox: Outbox, add_source: Optional[AddSource]):
        self.settings = settings
        self.outbox = outbox
        self.methods = rpc.Dispatcher(outbox)
        self._add_source = add_source
        self._notes: List[str] = []
        self._starts: List[Callable[[], None]] = []
        self._ends: List[Callable[[], None]] = []
        self._started = False
        self.methods.add("ping", lambda params: {"t": time.monotonic_ns()})
        self.methods.add("load", self._load)

    def note(self, text: str) -> None:
        """Say a standing remark, once."""
        if text not in self._notes and len(self._notes) < 100:
            self._notes.append(text)
            self.outbox.notify("note", {"text": text})

    def below(self, params: Dict[str, Any]) -> Dict[str, Any]:
        """Parameters whose `root` is the folder of a simulated host, where this plays one."""
        root = self.settings.get("root")
        return params if root is None else {**params, "root": root}

    def on_start(self, hook: Callable[[], None]) -> None:
        """Call this when hello has been said; at once, if it has been."""
        if self._started:
            hook()
        else:
            self._starts.append(hook)

    def on_end(self, hook: Callable[[], None]) -> None:
        """Call this when standard input has ended: end children, close files. Be quick."""
        self._ends.append(hook)

    def start(self) -> None:
        """Say hello, then let the areas begin."""
        self.outbox.notify("hello", self._hello())
        self._started = True
        for hook in self._starts:
            hook()

    def end(self) -> None:
        """Let every area put its things away."""
        self.methods.close_streams()
        for hook in self._ends:
            try:
                hook()
            except Exception as error:
                sys.stderr.write("while ending: %s\n" % rpc.describe(error))

    def _load(self, params: Dict[str, Any]) -> Dict[str, Any]:
        name = str(params["name"])
        if not name.isidentifier():
            raise rpc.RpcError("not a module name", rpc.INVALID_PARAMS)
        if self._add_source is not None and "source" in params:
            data = zlib.decompress(base64.b64decode(params["source"]))
            self._add_source(name, data.decode("utf-8"))
        module = importlib.import_module("." + name, __package__)
        if hasattr(module, "register") and not getattr(module, "_registered", False):
            module.register(self)
            module._registered = True  # type: ignore[attr-defined]
        return {"methods": self.methods.names()}

    def _hello(self) -> Dict[str, Any]:
        return {
            "python": "%d.%d.%d" % sys.version_info[:3],
            "executable": sys.executable,
            "pid": os.getpid(),
            "user": user(),
            "hostname": socket.gethostname(),
            "boot_id": host.boot_id(str(self.settings.get("proc_root", "/proc"))),
            "has_psutil": telemetry.has_psutil(),
            "nvml_version": None,
            "methods": self.methods.names(),
            "columns": telemetry.COLUMNS,
            "interval_s": float(self.settings.get("interval_s", 1.0)),
        }


def user() -> str:
    """Who we are here, by name where it has one."""
    try:
        return getpass.getuser()
    except Exception:
        return str(os.getuid())


def run(settings: Dict[str, Any], add_source: Optional[AddSource] = None) -> None:
    """Live until standard input ends; never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C on the other side is none of ours
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    # Some ways to log in leave this out, and the user's own systemd is found by nothing else.
    runtime = "/run/user/%d" % os.getuid()
    if os.path.isdir(runtime):
        os.environ.setdefault("XDG_RUNTIME_DIR", runtime)
    # What a library prints must not come between our lines.
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    outbox = Outbox(out)
    agent = Agent(settings, outbox, add_source)
    status = 0
    try:
        for area in AREAS:
            area.register(agent)
        agent.start()
        _serve(agent)
    except SystemExit:
        pass
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 70
    finally:
        agent.end()
        outbox.flush(FLUSH_S)
        sys.stderr.flush()
        # Threads that hang in the driver would keep the process for ever.
        os._exit(status)


def _serve(agent: Agent) -> None:
    stdin = sys.stdin.buffer
    while True:
        line = stdin.readline(rpc.MAX_LINE)
        if not line:
            return
        if not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = stdin.readline(rpc.MAX_LINE)
            continue  # longer than anything we take
        if line.strip():
            agent.methods.handle(line)


def _leave(number: int, frame: Any) -> None:
    raise SystemExit(0)
